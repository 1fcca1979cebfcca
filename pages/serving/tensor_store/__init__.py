"""Tensors that visitors share: stored when they ask for it, at a random address, limited in space and time.

The folder holds two files for each tensor, named by its address:

- ``<address>.json``: its record, with the SHA-256 and the size of the content, and when it was shared and
  opened;
- ``<address>.safetensors``: the content, one float32 tensor named x.

An empty file ``<day>.<visitor>.<bytes>.<random>.shared`` notes how much a visitor has shared on a day;
``visitor`` is a hash of the network address. The note is deleted after that day.

Several processes may use one folder without waiting for each other:

- Each file is written under a temporary name and then moved, so that nobody reads half of it.
- Needed space is noted before space is counted: of two processes that share at once, the later counts both.
- The record is written before the content and deleted after it, so that no content is left without one.
- A file that another process deletes in the meantime is treated as deleted.
- Their clocks may differ by a day. A record dated later than that is damaged: it would never expire.
"""

from pages.serving.tensor_store.record import LEAST, StoreLimits
from pages.serving.tensor_store.store import TensorStore, current, opened_at, tidy, visitor_of
