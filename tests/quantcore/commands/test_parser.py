"""What every command has: help with its exit codes and an example that parses, tables, and completion."""

import argparse
import re
import shlex
import shutil
import subprocess

import pytest
from grid import for_each

from quantcore.commands import main, output
from quantcore.commands.completion import commands_of, script
from quantcore.commands.parser import GROUPS, parser_of
from quantcore.conventions import INTEGER_CONVENTIONS
from quantcore.layerwise import ERRORS
from quantcore.scheme import PRESETS

COMMANDS = [command for own in GROUPS.values() for command in own]
ALSO = {"app": {"serve": "serve the app"}}


@for_each("command", COMMANDS, ids=lambda command: command.name)
def test_help_has_exit_codes_and_examples_that_parse(command, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([command.name, "--help"], "quantscope")
    text = capsys.readouterr().out
    for code in (*command.exits, 130):
        assert re.search(rf"^  {code:<3}  \w", text, re.M)
    examples = text.partition("examples:\n")[2].splitlines()
    assert len(examples) == len(command.examples) > 0
    for example in examples:
        ours = re.sub(r'^eval "\$\((.*)\)"$', r"\1", example.strip())
        words = shlex.split(ours.partition(" > ")[0])
        assert words[0] == "quantscope"
        assert parser_of("quantscope").parse_args(words[1:]).run == command.run


def test_the_help_lists_all_commands_by_groups(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"], "quantscope", ALSO)
    text = capsys.readouterr().out
    for group, own in GROUPS.items():
        (listed,) = re.findall(rf"^{group}:\n((?:  .*\n)+)", text, re.M)
        assert [line.split()[0] for line in listed.splitlines()] == [command.name for command in own]
    assert "\n  serve " in text
    for code in (0, 1, 2, 130):
        assert re.search(rf"^  {code:<3}  \w", text, re.M)
    assert "python -m" not in text


def test_without_a_command_it_says_how_it_is_used(capsys):
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert capsys.readouterr().err.startswith("usage: python -m quantcore COMMAND")


ROWS = [["bits", "tensor", "stored as"], ["4.5", "model.layers.0.self_attn.q_proj.weight", "gguf Q4_0"], ["16", "b", "F16"]]


def test_a_table_is_cut_to_the_width_of_a_terminal():
    whole = output.table_lines(ROWS, [0])
    assert whole[1] == " 4.5  model.layers.0.self_attn.q_proj.weight  gguf Q4_0"
    assert len({line.index("  ", 6) < 60 for line in whole}) == 1
    for width in (54, 40, 30):
        lines = output.table_lines(ROWS, [0], width)
        assert max(map(len, lines)) <= width
        assert lines[1].startswith(" 4.5  model")
        assert "…" in lines[1]
        assert lines[1].endswith("gguf Q4_0")


@pytest.mark.parametrize("terminal", [True, False])
def test_only_a_terminal_cuts(terminal, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setenv("COLUMNS", "30")
    output.print_table(ROWS, [0])
    assert (ROWS[1][1] in capsys.readouterr().out) is not terminal


def completed(*words):
    """The words that a real bash offers for the last of these."""
    made = script("bash", parser_of("quantscope", ALSO), ["serve"])
    line = " ".join(shlex.quote(word) for word in words)
    asked = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _quantscope; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "--norc", "-c", f"{made}\n{asked}"], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes():
    names = [command.name for command in COMMANDS]
    assert sorted(completed("quantscope", "")) == sorted([*names, "serve"])
    assert completed("quantscope", "li") == ["libraries", "list"]
    assert completed("quantscope", "check", "--st") == ["--strict"]
    assert set(completed("quantscope", "apply", "--")) == {
        "--help", "--scheme", "--tensor", "--json", "--out", "--html", "--png",
    }  # fmt: skip
    assert completed("quantscope", "apply", "x.npy", "--scheme", "gguf.Q4_") == [n for n in PRESETS if n.startswith("gguf.Q4_")]
    assert completed("quantscope", "libraries", "") == []  # the file
    assert completed("quantscope", "libraries", "x.npy", "") == list(INTEGER_CONVENTIONS)
    assert completed("quantscope", "libraries", "--scheme", "int8", "x.npy", "onnx", "torch.f") == ["torch.fake_quantize"]
    assert completed("quantscope", "libraries", "x.npy", "onnx", "torchao", "") == []
    assert completed("quantscope", "sensitivity", "m", "--error", "") == list(ERRORS)
    assert completed("quantscope", "sensitivity", "m", "--json", "") == []  # a file
    assert "Q4_K_M" in completed("quantscope", "recipe", "m", "--ftype", "Q4_K")
    assert completed("quantscope", "completion", "f") == ["fish"]
    assert completed("quantscope", "serve", "") == []


def test_fish_and_zsh_know_every_command_and_option(capsys):
    assert main(["completion", "zsh"], "quantscope", ALSO) == 0
    assert capsys.readouterr().out.startswith("autoload -Uz compinit bashcompinit")
    assert main(["completion", "fish"], "quantscope", ALSO) == 0
    text = capsys.readouterr().out
    parsers = commands_of(parser_of("quantscope"))
    assert set(parsers) == {command.name for command in COMMANDS}
    for name, (_, parser) in parsers.items():
        assert f" -a {name} -d " in text
        for action in parser._actions:
            option = next((word for word in action.option_strings if word.startswith("--")), None)
            if option is not None and action.help != argparse.SUPPRESS:
                assert f"from {name}\" -l {option[2:]}" in text
    assert "-f -a serve" in text
    (libraries,) = re.findall(r"from libraries\" -a '(.*)'", text)
    assert libraries.split() == list(INTEGER_CONVENTIONS)  # twice in the command, once in the list
