"""What the log says at the start about the address for a class."""

import socket

import pytest
from grid import for_each
from streamlit import config

from pages.serving import log, network


@for_each(
    ("served_at", "own", "said"),
    [
        ("", "192.168.1.5", "opens http://192.168.1.5:8501,"),
        ("0.0.0.0", "192.168.1.5", "opens http://192.168.1.5:8501,"),
        ("::", "192.168.1.5", "opens http://192.168.1.5:8501,"),
        ("10.1.2.3", "192.168.1.5", "opens http://10.1.2.3:8501,"),
        ("fd00::2", "192.168.1.5", "opens http://[fd00::2]:8501,"),
        ("127.0.0.1", "192.168.1.5", "served at 127.0.0.1;"),
        ("localhost", "192.168.1.5", "served at localhost;"),
        ("::1", "192.168.1.5", "served at ::1;"),
        ("", None, "in no network"),
    ],
)
def test_which_address_a_class_opens(served_at, own, said):
    assert said in log.for_a_class(served_at, own, contained=False)


def test_a_container_has_no_address_for_a_class():
    assert "192.168.1.5" not in log.for_a_class("", "192.168.1.5", contained=True)
    assert "served at ::1;" in log.for_a_class("::1", "192.168.1.5", contained=True)


def test_the_address_is_one_of_this_machine():
    """It can be listened at; without a network there is none."""
    own = network.address_in_network()
    if own is None:
        pytest.skip("this machine is in no network")
    assert not network.is_loopback(own)
    with socket.socket() as listening:
        listening.bind((own, 0))


def test_without_a_route_there_is_none(monkeypatch):
    class Unreachable(socket.socket):
        def connect(self, address):
            raise OSError("Network is unreachable")

    monkeypatch.setattr(network.socket, "socket", Unreachable)
    assert network.address_in_network() is None


@for_each("named", [True, False])
def test_behind_a_proxy_only_its_address_is_named(named, monkeypatch):
    said = []
    monkeypatch.setattr(config, "_server_mode", "starlette-app")
    monkeypatch.setattr(config, "is_manually_set", lambda option: named and option == "browser.serverAddress")
    monkeypatch.setattr(log.log, "info", lambda text, *values: said.append(text % values))
    log.announce()
    assert [line.startswith(("The pages are at", "A class ")) for line in said] == [True] * (
        1 if named else 2
    )
