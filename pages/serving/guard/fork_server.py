"""The process that makes the guests' processes: it has imported what they need, and forks.

`python -m pages.serving.guard.fork_server CONTROL`, where CONTROL is the number of an open socket. A message
is one number: 0, with two descriptors, asks for a child; they are its end of a channel, and a pipe that
receives its process id at once and its wait status when it has ended. Another number is a child to be killed.
If the server ends, so do this process and all children.
"""

import contextlib
import gc
import os
import select
import signal
import socket
import sys
from typing import NoReturn

from pages.serving.guard.channel import NUMBER, streams


def main(control: socket.socket) -> None:
    """Make children until the server ends."""
    from pages.serving.guard import guests

    guests.prepare()
    gc.collect()
    gc.freeze()  # so that collections in the children do not copy the pages that hold these objects
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    children: dict[int, int] = {}  # process id -> the pipe that receives its status
    heard = select.poll()  # the server may have given this process a descriptor of any number
    for descriptor in (control.fileno(), woken):
        heard.register(descriptor, select.POLLIN)
    try:
        while True:
            ready = dict(heard.poll())
            if woken in ready:
                os.read(woken, 4096)
                _bury(children)
            if control.fileno() in ready and not _answer(control, children, (woken, wake)):
                return
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)


def _answer(control: socket.socket, children: dict[int, int], own: tuple[int, int]) -> bool:
    """Follow one message of the server; False if it has ended."""
    message, descriptors, _, _ = socket.recv_fds(control, NUMBER.size, 2)
    if len(message) < NUMBER.size:
        return False
    (number,) = NUMBER.unpack(message)
    if number in children:
        os.kill(number, signal.SIGKILL)  # not buried yet, so the number is still its own
    elif descriptors:
        channel, status = descriptors
        try:
            pid = os.fork()
        except OSError:  # no process is left: the one who asked finds both closed
            os.close(channel)
            os.close(status)
            return True
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for descriptor in (control.fileno(), *own, *children.values(), status):
                os.close(descriptor)
            _be_guest(channel)
        os.close(channel)
        children[pid] = status
        _report(status, pid)
    return True


def _report(pipe: int, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody waits for it: left, or answered before this process went on
        os.write(pipe, NUMBER.pack(number))


def _bury(children: dict[int, int]) -> None:
    """Report the children that have ended."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        pipe = children.pop(pid)
        _report(pipe, status)
        os.close(pipe)


def _be_guest(descriptor: int) -> NoReturn:
    from pages.serving.guard import child

    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with socket.socket(fileno=descriptor) as connection:
            child.run(*streams(connection))
    finally:
        os._exit(0)  # without the exit handlers and buffers of the process that forked


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
