"""The machine's own address: nothing is sent to find it, and a container's own is of no use to others."""

import socket

import pytest

from pages.serving import network


class Probe:
    """A socket that tells where it was connected, and sends nothing."""

    address = "192.168.1.5"

    def __init__(self, family, kind):
        assert (family, kind) == (socket.AF_INET, socket.SOCK_DGRAM)  # connecting it sends no packet

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def connect(self, there):
        if not self.address:
            raise OSError("Network is unreachable")

    def getsockname(self):
        return self.address, 40000


@pytest.mark.parametrize(
    ("address", "found"), [("192.168.1.5", "192.168.1.5"), ("127.0.0.1", ""), ("0.0.0.0", ""), ("", "")]
)
def test_the_address_from_which_this_machine_would_send(monkeypatch, tmp_path, address, found):
    monkeypatch.setattr(network.socket, "socket", Probe)
    monkeypatch.setattr(Probe, "address", address)
    monkeypatch.setattr(network, "_IN_CONTAINER", (tmp_path / "none",))
    assert network.own_address() == found
    (tmp_path / "none").write_text("")
    assert network.own_address() == ""
