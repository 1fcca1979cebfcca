"""Settings of the served app: values that the environment may set, and the message for others."""

import dataclasses
import os
import re
import subprocess
import sys

import pytest
from grid import for_each
from places import ROOT

from pages.serving import settings
from pages.serving.settings import SettingError, Settings, read


def test_nothing_set_gives_the_defaults():
    assert read({}) == read({"HOME": "/x", "QUANTSCOPE_STORE": " "}) == Settings()


def test_values_are_read():
    chosen = read(
        {"QUANTSCOPE_STORE": "s3://b/f", "QUANTSCOPE_STORE_GB": "2.5", "QUANTSCOPE_STORE_DAYS": "7"}
    )
    assert (chosen.store, chosen.store_gb, chosen.store_days) == ("s3://b/f", 2.5, 7)


@for_each(
    ("name", "text", "words"),
    [
        (
            "QUANTSCOPE_STORE_GB",
            "much",
            "QUANTSCOPE_STORE_GB is 'much'; it must be a number of GB from 0.001",
        ),
        ("QUANTSCOPE_STORE_GB", "nan", "must be a number of GB"),
        ("QUANTSCOPE_STORE_DAYS", "0", "must be a number of days from 0.01"),
        ("QUANTSCOPE_STORE_VISITOR_MB", "1e99", "must be a number of MB"),
        ("QUANTSCOPE_SCHEDULER", "10.0.0.1", "must be the address of a Dask scheduler, such as tcp://"),
        ("QUANTSCOPE_STORE_DAY", "3", "did you mean QUANTSCOPE_STORE_DAYS?"),
        (
            "QUANTSCOPE_9876",
            "3",
            "QUANTSCOPE_9876 is not a setting of Quantscope; the settings are QUANTSCOPE_",
        ),
    ],
)
def test_what_can_not_be_used_is_named(name, text, words):
    with pytest.raises(SettingError) as caught:
        read({name: text})
    assert words in str(caught.value)
    assert name in str(caught.value)
    assert str(caught.value).rstrip(".?") != str(caught.value)


def test_every_number_has_its_limits_around_its_default():
    for each in dataclasses.fields(Settings):
        if "unit" in each.metadata and each.default is not None:
            assert each.metadata["low"] <= each.default <= each.metadata["high"]


def test_every_setting_is_documented():
    text = (ROOT / "docs" / "hosting.md").read_text("utf-8")
    for each in dataclasses.fields(Settings):
        assert re.search(rf"`{settings.PREFIX}{each.name.upper()}[`=]", text), each.name


@pytest.mark.slow  # test_server.py tests another setting
def test_the_app_does_not_start_with_one_that_can_not_be_used():
    command = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        "app.py",
        "--server.headless=true",
        "--server.port=0",
    ]
    environment = os.environ | {"QUANTSCOPE_STORE": "nix://b"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    said = ended.stdout + ended.stderr
    assert ended.returncode != 0
    assert "QUANTSCOPE_STORE is 'nix://b', which can't be used" in said
    assert "Traceback" not in said
