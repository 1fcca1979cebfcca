"""The command `completion`: a script that completes ``quantscope`` in a shell, made from the parser."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from quantcore.commands.command import Command
from quantcore.commands.exits import DONE, REFUSED
from quantcore.conventions import INTEGER_CONVENTIONS
from quantcore.recipes import FTYPES, TOOLS
from quantcore.scheme import PRESETS

PROGRAM = "quantscope"
SHELLS = ("bash", "zsh", "fish")


class CommandWords(NamedTuple):
    """What can follow in a command: its options, those that take a value with its candidates, positionals.

    A value without candidates is a file, or free.
    """

    options: Sequence[str]
    values: Mapping[str, Sequence[str]]
    positionals: Sequence[Sequence[str]]


def words_of(parser: argparse.ArgumentParser) -> CommandWords:
    """Return the words of a command, from its parser."""
    actions = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    named = [action for action in actions if action.option_strings]
    return CommandWords(
        [word for action in named for word in action.option_strings if word.startswith("--")],
        {word: _candidates(a) for a in named if a.nargs != 0 for word in a.option_strings},
        [_candidates(action) for action in actions if not action.option_strings],
    )


def _candidates(action: argparse.Action) -> list[str]:
    of = {
        "SCHEME": PRESETS, "LIBRARY": INTEGER_CONVENTIONS, "--ftype": FTYPES, "--for": TOOLS,
    }  # fmt: skip
    known = [str(action.metavar), *action.option_strings]
    return list(map(str, action.choices or next((of[word] for word in known if word in of), ())))


def commands_of(parser: argparse.ArgumentParser) -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """Return the line of help and the parser of each command."""
    (subparsers,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    helps = {str(action.dest): action.help or "" for action in subparsers._choices_actions}
    return {name: (helps[name], own) for name, own in subparsers.choices.items()}


_BASH = """\
# completes {program} in {where}: {how}
_{program}() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local options= valued= words= at=0 i
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{commands}" -- "$current"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
    *) return ;;
  esac
  for ((i = 2; i < COMP_CWORD; i++)); do
    case "${{COMP_WORDS[i]}}" in
      -*) case " $valued " in *" ${{COMP_WORDS[i]}} "*) i=$((i + 1)) ;; esac ;;
      *) at=$((at + 1)) ;;
    esac
  done
  case "${{COMP_WORDS[1]}} $previous" in
{values}
  esac
  case " $valued " in
    *" $previous "*) [ -z "$words" ] || COMPREPLY=($(compgen -W "$words" -- "$current")); return ;;
  esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$options" -- "$current")); return ;;
  esac
  case "${{COMP_WORDS[1]}} $at" in
{positionals}
  esac
  [ -z "$words" ] || COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _{program} {program}
"""
_HOW = {
    "bash": 'eval "$(quantscope completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(quantscope completion zsh)" in ~/.zshrc',
    "fish": "quantscope completion fish > ~/.config/fish/completions/quantscope.fish",
}
_ZSH = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"


def script(shell: str, parser: argparse.ArgumentParser, also: Sequence[str] = ()) -> str:
    """Return the script for a shell; nothing of it is asked of Python when a word is completed.

    Args:
        also: other commands of the program, whose words are not known.
    """
    if shell == "fish":
        return _fish(parser, also)
    found = {name: words_of(own) for name, (_, own) in commands_of(parser).items()}
    cases = [
        f'    {name}) options="{" ".join(words.options)}" valued="{" ".join(words.values)}" ;;'
        for name, words in found.items()
    ]
    values = [
        f'    "{name} {option}") words="{" ".join(candidates)}" ;;'
        for name, words in found.items()
        for option, candidates in words.values.items()
        if candidates
    ]
    positionals = [
        f'    "{name} {at}") words="{" ".join(candidates)}" ;;'
        for name, words in found.items()
        for at, candidates in enumerate(words.positionals)
        if candidates
    ]
    made = _BASH.format(
        program=PROGRAM, where=shell, how=_HOW[shell], commands=" ".join([*found, *also]),
        cases="\n".join(cases), values="\n".join(values), positionals="\n".join(positionals),
    )  # fmt: skip
    return (_ZSH if shell == "zsh" else "") + made


def _fish(parser: argparse.ArgumentParser, also: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in _fish_lines(parser, also))


def _fish_lines(parser: argparse.ArgumentParser, also: Sequence[str]) -> Iterator[str]:
    """Yield a line per command and option, for fish."""
    yield f"# completes {PROGRAM} in fish: {_HOW['fish']}"
    start = f"complete -c {PROGRAM} -n __fish_use_subcommand -f"
    for name in also:
        yield f"{start} -a {name}"
    for name, (said, own) in commands_of(parser).items():
        yield f"{start} -a {name} -d {_quoted(said)}"
        words, where = words_of(own), f'complete -c {PROGRAM} -n "__fish_seen_subcommand_from {name}"'
        for option in words.options:
            takes = " -r" if option in words.values else ""
            listed = words.values.get(option, ())
            yield f"{where} -l {option[2:]}{takes}" + (
                f" -f -a {_quoted(' '.join(listed))}" if listed else ""
            )
        listed = list(dict.fromkeys(word for candidates in words.positionals for word in candidates))
        if listed:
            only = " -f" if all(words.positionals) else ""  # no file either
            yield f"{where}{only} -a {_quoted(' '.join(listed))}"


def _quoted(text: str) -> str:
    text = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def _run(options: argparse.Namespace) -> int:
    print(script(options.shell, options.parser, options.also), end="")
    return DONE


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell to complete in")


COMPLETION = Command(
    "completion",
    "print a script that completes quantscope in a shell",
    "Print a script with which a shell completes commands, options, schemes, libraries and file types of the "
    "command quantscope, which pip installs.",
    {DONE: "the script is printed", REFUSED: "the shell is not known"},
    ('eval "$(%(prog)s bash)"', "%(prog)s fish > ~/.config/fish/completions/quantscope.fish"),
    _add,
    _run,
)
