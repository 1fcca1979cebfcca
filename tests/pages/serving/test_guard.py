"""Guests: what they take beyond their limits ends them, and nobody else."""

import contextlib
import io
import logging
import os
import re
import signal
import struct
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from grid import for_each

from pages.serving import guard
from pages.serving.guard import channel
from pages.serving.guard import guard as own
from quantcore.errors import QuantError

ENOUGH = guard.GuestWork("Reading x", "save it", 60, 1 << 30, 1 << 28)
pytestmark = pytest.mark.skipif(not own._NURSERY.forks, reason="this system can't fork")


def packed(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def listed(data, name="x.npz", work=ENOUGH, **more):
    return guard.ask("list_tensors", [name, 1 << 28], [data], work=work, **more)


def server():
    """The fork server's process id."""
    guard.start()
    return guard.fork_server_pid()


def children():
    """The guests that are alive, without those that are being buried."""
    found = []
    for each in Path(f"/proc/{server()}/task/{server()}/children").read_text().split():
        with contextlib.suppress(OSError):  # it may end at any time, also between being found and being read
            if Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(int(each))
    return found


def soon(condition):
    """Wait until something is so; the deadline ends a hang only."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def test_an_answer_comes_back_bit_for_bit():
    x = np.array([[0.1, -0.0, 3e38], [1e-45, 2.5, -7]], np.float32)
    assert listed(packed(x=x)).value == [["x", [2, 3], "float32", 24, ""]]
    answer = guard.ask("read_tensor", ["x.npz", "x", 1 << 28], [packed(x=x)], work=ENOUGH)
    assert answer.arrays[0].dtype == np.float32
    assert answer.arrays[0].tobytes() == x.tobytes()
    assert answer.arrays[0].shape == x.shape


def test_a_refusal_is_the_guests_own_sentence():
    with pytest.raises(QuantError, match=r"^'x\.npz' is a truncated zip; upload it again\.$"):
        listed(b"PK\x03\x04 and nothing more")


# Each allows less than a thousandth of what the work takes, so that no machine is fast enough


def test_processor_time_ends_a_guest():
    text = b"1.2345678901234567 " * 300_000
    with pytest.raises(
        QuantError, match=r"^Reading x takes more than 0\.001 s of processor time, .*; save it\.$"
    ):
        listed(text, "x.txt", replace(ENOUGH, seconds=0.001))
    soon(lambda: not children())


def test_memory_ends_a_guest():
    data = packed(x=np.zeros(1 << 23, np.float32))
    with pytest.raises(
        QuantError, match=r"^Reading x takes more than 1(\.0)? MB of memory, the limit on this server"
    ):
        guard.ask("read_tensor", ["x.npz", "x", 1 << 28], [data], work=replace(ENOUGH, memory=1 << 20))
    soon(lambda: not children())


def test_silence_ends_a_guest(monkeypatch):
    monkeypatch.setattr(own, "SILENCE", 0.2)

    def stop():
        if children():
            os.kill(children()[0], signal.SIGSTOP)

    with pytest.raises(QuantError, match=r"^Reading x takes more than 0\.2 s, the limit"):
        listed(b"1 " * 4_000_000, "x.txt", check=stop)
    soon(lambda: not children())


def test_a_visitor_who_leaves_ends_the_guest():
    class Left(BaseException):
        pass

    def check():
        if children():
            raise Left

    with pytest.raises(Left):
        listed(b"1 " * 4_000_000, "x.txt", check=check)
    soon(lambda: not children())


def test_a_guest_that_is_killed_is_one_sentence():
    def kill():
        for each in children():
            os.kill(each, signal.SIGKILL)

    with pytest.raises(QuantError, match=r"^Reading x ended its process"):
        listed(b"1 " * 4_000_000, "x.txt", check=kill)


@pytest.mark.slow
def test_the_fork_server_is_started_again_after_it_died_and_guests_do_not_inherit_settings(monkeypatch):
    first = server()
    monkeypatch.setenv("QUANTSCOPE_METRICS_TOKEN", "a-secret-of-the-server")
    os.kill(first, signal.SIGKILL)
    own._NURSERY._server[0].wait()
    assert listed(packed(x=np.zeros(3))).value[0][0] == "x"
    assert server() != first
    environment = Path(f"/proc/{server()}/environ").read_bytes()  # of one that was begun with that token
    assert b"QUANTSCOPE" not in environment
    assert b"PATH=" in environment


def test_who_waits_for_the_server_keeps_nobody_from_a_slot(monkeypatch):
    monkeypatch.setattr(own, "_SLOTS", threading.BoundedSemaphore(1))
    asked, answered = threading.Event(), threading.Event()

    def names():  # as one who waits for memory that another has
        asked.set()
        assert answered.wait(60), "the other guest got no slot"
        return ["x.npz"], ()

    data = packed(x=np.zeros(3))
    serve = {
        "names": names,
        "present": lambda wanted: ([], ()),
        "open": lambda name: ([len(data), False, 4096], ()),
        "read": lambda name, offset, size: (None, [data[offset : offset + size]]),
        "read_each": lambda name, ranges: (None, [b"".join(data[at : at + size] for at, size in ranges)]),
        "progress": lambda done, of: (None, ()),
    }
    found = []
    ask = lambda: found.append(  # noqa: E731
        guard.ask("checkpoint", [None, True], work=ENOUGH, served=guard.Served(serve))
    )
    thread = threading.Thread(target=ask)
    thread.start()
    assert asked.wait(60)
    listed(data)
    answered.set()
    thread.join()
    assert list(found[0].value["containers"]) == ["x.npz"]


def test_many_at_once_are_all_answered():
    shapes, threads = {}, []

    def ask(n):
        shapes[n] = listed(packed(x=np.zeros(n, np.float32))).value[0][1]

    for n in range(1, 13):
        threads.append(threading.Thread(target=ask, args=(n,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert shapes == {n: [n] for n in range(1, 13)}
    soon(lambda: not children())


def test_who_leaves_before_the_child_is_known_ends_nobody_else():
    before = server()
    for _ in range(5):
        own._NURSERY.child().end()  # the fork server has nobody to tell the process id
    assert listed(packed(x=np.zeros(3))).value[0][1] == [3]
    assert server() == before
    soon(lambda: not children())


def test_a_server_with_thousands_of_open_descriptors_has_guests_too(monkeypatch):
    """As with as many visitors: here the numbers begin late."""
    fcntl, resource = pytest.importorskip("fcntl"), pytest.importorskip("resource")
    had, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    pipe = os.pipe

    def high():
        low = pipe()
        found = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 1100) for end in low]
        for end in low:
            os.close(end)
        return found

    resource.setrlimit(resource.RLIMIT_NOFILE, (max(had, min(most, 2000)), most))
    monkeypatch.setattr(os, "pipe", high)
    try:
        assert listed(packed(x=np.zeros(3))).value[0][1] == [3]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (had, most))


def new_interpreters(monkeypatch):
    monkeypatch.setattr(own, "_NURSERY", type(own._NURSERY)(forks=False))


@pytest.mark.slow  # it imports all that guests use
def test_without_fork_a_new_interpreter_answers(monkeypatch):
    new_interpreters(monkeypatch)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    answer = guard.ask("read_tensor", ["x.npz", "x", 1 << 28], [packed(x=x)], work=ENOUGH)
    assert answer.arrays[0].tobytes() == x.tobytes()
    assert guard.fork_server_pid() == 0
    with pytest.raises(QuantError, match=r"^'x\.npz' is a truncated zip"):
        listed(b"PK\x03\x04 and nothing more")


def test_without_fork_the_clock_ends_a_guest(monkeypatch):
    new_interpreters(monkeypatch)
    monkeypatch.setattr(own, "IMPORTS", 0.0)
    with pytest.raises(QuantError, match=r"^Reading x takes more than 0\.2 s, the limit"):  # it still imports
        listed(packed(x=np.zeros(3)), work=replace(ENOUGH, seconds=0.05))


# What a guest sends is not believed


def heard(data, most=1 << 20):
    return channel.Channel(io.BytesIO(data), io.BytesIO(), most).receive()


def test_messages_that_are_none_are_refused():
    out = io.BytesIO()
    channel.Channel(io.BytesIO(), out).send(channel.Packet("answer", [1], [b"abc"], 7))
    whole = out.getvalue()
    message = heard(whole)
    assert (message.kind, message.value, bytes(message.blobs[0]), message.number) == (
        "answer",
        [1],
        b"abc",
        7,
    )
    assert heard(b"") is None
    wrong = [whole[:n] for n in range(1, len(whole))]
    wrong += [
        struct.pack("<II", 1 << 31, 0),
        struct.pack("<II", 4, 0) + b"[[[[",
        whole[:8] + b"\xff" + whole[9:],
    ]
    wrong += [struct.pack("<II", 200_000, 0) + b"[" * 200_000]
    for data in wrong:
        with pytest.raises(channel.BrokenChannelError):
            heard(data)
    with pytest.raises(channel.BrokenChannelError, match="too many bytes"):
        heard(whole, most=2)


def test_arrays_that_do_not_fit_are_refused():
    x = np.arange(6, dtype=np.int16).reshape(2, 3)
    assert channel.restored(channel.described(x), x.tobytes()).tolist() == x.tolist()
    for description in (
        ["int16", [2, 4]],
        ["int16", [-2, -3]],
        ["object", [2, 3]],
        ["int16"],
        None,
        ["int16", "23"],
    ):
        with pytest.raises(channel.BrokenChannelError):
            channel.restored(description, x.tobytes())


def test_a_failure_of_ours_is_a_sentence_and_a_line_in_the_log_without_what_was_given():
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("quantscope").addHandler(handler)
    try:
        with pytest.raises(
            QuantError, match=r"^Reading x failed, which is a defect of this app and was logged; save it\.$"
        ):
            guard.ask("read_code", ["my_secret = 1", 5], work=ENOUGH)
    finally:
        logging.getLogger("quantscope").removeHandler(handler)
    (line,) = lines
    assert re.search(r"TypeError at .*guests\.py:\d+ read_code", line)
    assert "secret" not in line


class Liar:
    """A guest's process that has sent these messages, and ended."""

    forks = True

    def __init__(self, *sent):
        out = io.BytesIO()
        talk = channel.Channel(io.BytesIO(), out)
        for message in sent:
            talk.send(message) if isinstance(message, channel.Packet) else out.write(message)
        self.reader, self.writer = io.BytesIO(out.getvalue()), io.BytesIO()

    def child(self):
        return self

    def died_of(self):
        return 0

    def end(self):
        pass


Packet = channel.Packet
LIES = {
    "nothing": (),
    "no message": (b"\xff" * 100,),
    "an answer without arrays": (Packet("answer", 5),),
    "an answer of three": (Packet("answer", [1, [], 2]),),
    "an array that was not sent": (Packet("answer", [None, [["float32", [2]]]]),),
    "an array of another size": (Packet("answer", [None, [["float32", [2]]]], [b"abc"]),),
    "more bytes than it may": (Packet("answer", [None, [["int8", [2 << 20]]]], [bytes(2 << 20)]),),
    "a refusal without a sentence": (Packet("refused", None),),
    "a call of nothing": (Packet("call", None),),
    "a call of what is not served": (Packet("call", ["system", "x"]),),
    "a call of a list": (Packet("call", [["read"]]),),
    "a call without arguments": (Packet("call", ["read"]),),
}


@for_each("lie", LIES)
@pytest.mark.parametrize("waiting", [False, True])
def test_what_no_guest_of_ours_sends_is_one_sentence(lie, waiting, monkeypatch):
    monkeypatch.setattr(own, "_NURSERY", Liar(*LIES[lie]))
    functions = {"read": lambda name, offset, size: (None, ())}
    served = guard.Served({}, functions) if waiting else guard.Served(functions)
    with pytest.raises(QuantError, match=r"^Reading x ended its process, [^\n]*; save it\.$"):
        guard.ask("checkpoint", None, work=replace(ENOUGH, answer=0), served=served)
