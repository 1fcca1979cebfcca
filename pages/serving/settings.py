"""Settings of the served app: environment variables, read and checked once, when the app starts.

Each field of `Settings` is read from the environment variable QUANTSCOPE_<FIELD>. Empty is unset.
"""

import difflib
import functools
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import streamlit as st

from quantcore.errors import QuantError

PREFIX = "QUANTSCOPE_"
OFF = "off"


class SettingError(QuantError):
    """An environment variable that the app can't start with; the message names it and says what it may be."""


def _number(default: float | None, low: float, high: float, unit: str) -> Any:
    """Define a setting that is a number from ``low`` to ``high``."""
    return field(default=default, metadata={"low": low, "high": high, "unit": unit})


@dataclass(frozen=True)
class Settings:
    """What the server's administrator decides.

    Attributes:
        store: folder or fsspec URL where shared tensors are stored; "off": they can't be shared.
        store_gb: space for all shared tensors, in GB (10⁹ bytes).
        store_days: days after which a shared tensor is deleted.
        store_visitor_mb: how much one visitor may share per day, in MB (10⁶ bytes).
        work_gb: memory for tensors in work, in GB; more work waits. By default 1 GB, or a quarter of the
            machine's or container's memory if that is less.
        address_sessions: open pages per address; for all visitors together behind a proxy that hides them.
        session_upload_mb: sum of the files that one open page may hold, in MB.
        upload_mb: sum of the files that all open pages may hold, in MB.
        metrics: port, or address and port, where Prometheus reads metrics; empty: nowhere.
        metrics_token: what readers of the metrics must send; not needed on a loopback address.
        models: folder whose checkpoints visitors may open; "off": none; empty: the folder in which the server
            was started if only this machine can reach it, else none.
        model_hosts: hosts from which visitors may open checkpoints, such as "hf://huggingface.co *.hf.co";
            empty or "off": none.
        code: "off": code pasted into Match is not evaluated.
        warm_up: the pages that the server opens of its own accord: "all", the first before it answers and the
            others behind it; or "first" alone, so that the first visitor of each other page waits.
        scheduler: address of a Dask scheduler at whose workers checkpoints of the models folder are measured;
            empty: by this process.
        replica: the name by which the proxy knows this process; empty where there is no proxy.
    """

    store: str = "~/.quantscope/shared"
    store_gb: float = _number(1, 0.001, 1e6, "GB")
    store_days: float = _number(30, 0.01, 3650, "days")
    store_visitor_mb: float = _number(300, 0.1, 1e6, "MB")
    work_gb: float | None = _number(None, 0.01, 1e6, "GB")
    address_sessions: float = _number(400, 3, 1e6, "pages")
    session_upload_mb: float = _number(540, 1, 1e6, "MB")
    upload_mb: float = _number(1080, 1, 1e6, "MB")
    models: str = ""
    model_hosts: str = ""
    metrics: str = ""
    metrics_token: str = field(
        default="",
        metadata={"pattern": "[!-~]{16,256}", "words": "16 to 256 visible ASCII characters", "secret": True},
    )
    code: str = field(default="on", metadata={"pattern": "on|off", "words": "on or off"})
    warm_up: str = field(default="all", metadata={"pattern": "all|first", "words": "all or first"})
    scheduler: str = field(
        default="",
        metadata={
            "pattern": r"(tcp|tls)://[A-Za-z0-9.:\[\]-]+:\d{1,5}",
            "words": "the address of a Dask scheduler, such as tcp://10.0.0.1:8786",
        },
    )
    replica: str = field(
        default="",
        metadata={"pattern": "[a-z0-9-]{1,32}", "words": "up to 32 lowercase letters, digits and hyphens"},
    )


def read(environment: Mapping[str, str]) -> Settings:
    """Return the settings that the environment gives.

    Raises:
        SettingError: a variable is not a setting, or its value can't be used.
    """
    known = {PREFIX + each.name.upper(): each for each in fields(Settings)}
    given = {name: text.strip() for name, text in environment.items() if name.startswith(PREFIX)}
    for name in sorted(given.keys() - known.keys()):
        near = difflib.get_close_matches(name, known, 1, cutoff=0.85)  # all share the prefix
        hint = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(known)}."
        raise SettingError(f"{name} is not a setting of Quantscope; {hint}")
    chosen: dict[str, Any] = {}
    for name, text in given.items():
        each = known[name]
        if text:
            chosen[each.name] = _checked(name, text, each.metadata)
    return Settings(**chosen)


def _checked(name: str, text: str, limits: Mapping[str, Any]) -> float | str:
    """Return the value of a variable."""
    if "unit" in limits:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if limits["low"] <= value <= limits["high"]:  # NaN is not in the range either
            return value
        span = f"{limits['unit']} from {limits['low']:g} to {limits['high']:g}"
        raise SettingError(f"{name} is {text[:40]!r}; it must be a number of {span}.")
    if "pattern" in limits and not re.fullmatch(limits["pattern"], text):
        shown = "not valid" if limits.get("secret") else repr(text[:40])
        raise SettingError(f"{name} is {shown}; it must be {limits['words']}.")
    return text


@functools.cache
def current() -> Settings:
    """Return the settings of this process.

    Raises:
        SettingError: as `read`.
    """
    return read(os.environ)


def upload_limit() -> int:
    """Return the largest upload or shared tensor in bytes: Streamlit's setting, so that there is only one."""
    return int(st.get_option("server.maxUploadSize")) * 2**20
