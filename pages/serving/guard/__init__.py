"""Untrusted work in a child process that can be killed: one guard, many guests.

What a stranger gave (code, the headers of a checkpoint, an image, whatever is compressed) is evaluated or
read in a process of its own, with limits of processor time, memory and silence. What it forgets to bound ends
that process and nobody else's page; the visitor gets one sentence. `ask` is the only way in.

- ``guard``: the server's side: asks a guest, serves what it reads, ends it;
- ``fork_server``: a process that has everything imported and makes a child in some 20 ms (in ``nursery``: how
  it is started, and what replaces it where a system can't fork);
- ``child``: runs one guest within its limits; ``guests``: what can be asked; ``host``: the server to them;
- ``channel``: the messages between them: JSON, and bytes of arrays. Nothing is pickled.
"""

from pages.serving.guard.guard import Function, GuestAnswer, GuestWork, Served, ask, fork_server_pid, start
