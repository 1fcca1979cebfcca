"""Measures weights at the workers of a Dask cluster, which open the checkpoint themselves.

A worker gets an address, a weight's name, rows and schemes, and returns a few numbers per scheme. What is
found of the boxes of a weight is joined in the order in which this process would measure them, so that the
result is the same to the last bit, whichever worker measures which box, and however often: Dask gives what a
worker had done or was doing when it died to another.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from quantcore.checkpoints import Checkpoint, CheckpointTensor, open_checkpoint
from quantcore.errors import QuantError
from quantcore.granularity import Shape
from quantcore.layerwise.imatrix import NO_INPUTS, Imatrix, WeightInputs
from quantcore.layerwise.measure import Found, WeightWalk, joined, outlined, row_of
from quantcore.layerwise.sample import estimated
from quantcore.layerwise.table import WeightRow
from quantcore.scheme import Scheme
from quantcore.wording import printable, short

if TYPE_CHECKING:  # optional
    from distributed import Client, Future

NEEDED = 'A Dask cluster needs the package distributed; install it with pip install "dask[distributed]".'
_AHEAD = 3  # tasks that wait per thread of the workers, so that none is idle
_EVERY = 1.0  # seconds after which a result that is awaited is said to be awaited


def connect(scheduler: str, seconds: float = 5.0) -> "Client":
    """Return a client of a Dask scheduler, to be closed by the caller.

    Args:
        scheduler: its address, such as ``tcp://10.0.0.1:8786``.
        seconds: how long to wait for its answer.

    Raises:
        QuantError: the package is not installed, or no scheduler answers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise QuantError(NEEDED) from None
    try:
        return Client(scheduler, timeout=seconds, set_as_default=False, name="quantcore")
    except (OSError, ValueError, RuntimeError) as error:
        raise QuantError(
            f"No Dask scheduler answers at {short(scheduler, 120)} ({_first_line(error)}); check the "
            "address, or start one with dask scheduler."
        ) from None


@dataclass(frozen=True)
class _SharedFiles:
    """A checkpoint as a worker must find it: its files as `_digest` sees them, the same `_release`."""

    address: str
    digest: str
    release: str


@dataclass(frozen=True)
class _Weight:
    """What a worker must know of a weight: where it is, the schemes, and the mean squared inputs."""

    files: _SharedFiles
    name: str
    shape: Shape
    texts: tuple[str, ...]
    inputs: Tensor | None = None

    @property
    def schemes(self) -> list[Scheme]:
        """The schemes, as text: pickled, one takes milliseconds."""
        return list(map(_parsed, self.texts))

    @property
    def tensor(self) -> CheckpointTensor:
        """The weight as this worker finds it."""
        try:
            tensor = _opened(self.files).tensors[self.name]
        except QuantError as reason:
            raise QuantError(f"A worker {reason}.") from None
        return tensor if tensor.shape == self.shape else CheckpointTensor(tensor.record.as_matrix())


@lru_cache(64)
def _parsed(text: str) -> Scheme:
    return Scheme.parse(text)


def _found(weight: _Weight, measure: Callable[[WeightWalk], Found]) -> Found | str:
    """Return what is found of a weight, or why it can't be read."""
    tensor = weight.tensor  # an error that it raises is not one of this weight
    try:
        return measure(WeightWalk(tensor, weight.schemes, weight.inputs))
    except QuantError as reason:
        return str(reason)


def _whole(weight: _Weight) -> Found | str:
    return _found(weight, WeightWalk.run)


def _ranges(weight: _Weight, box: slice) -> Found | str:
    return _found(weight, lambda walk: walk.ranges(box))


def _errors(weight: _Weight, box: slice, known: Found | str | None) -> Found | str:
    return known if isinstance(known, str) else _found(weight, lambda walk: walk.errors(box, known))


def _joined(parts: Sequence[Found | str]) -> Found | str:
    reason = next((part for part in parts if isinstance(part, str)), "")
    return reason or joined(part for part in parts if isinstance(part, Found))


def _estimated(weight: _Weight) -> WeightRow:
    return estimated(weight.tensor, weight.schemes)


@lru_cache(4)
def _opened(files: _SharedFiles) -> Checkpoint:
    """Return the checkpoint, opened by this worker.

    Raises:
        QuantError: why not, to follow "A worker".
    """
    if _release() != files.release:
        raise QuantError(_other_release(_release(), files.release))
    try:
        found = open_checkpoint(files.address)
    except QuantError as reason:
        raise QuantError(
            f"can't open the checkpoint: {str(reason).rstrip('.')}; give an address that every worker sees, "
            "such as a path on a shared file system"
        ) from None
    if _digest(found) != files.digest:
        raise QuantError(
            f"finds other files at {short(files.address, 120)}, by their sizes or headers; give an address "
            "at which every worker sees the same files"
        )
    return found


def _unfit(files: _SharedFiles) -> str:
    """Return why this worker can't be used; empty if it can."""
    try:
        _opened(files)
    except QuantError as reason:
        return str(reason)
    return ""


def _digest(checkpoint: Checkpoint) -> str:
    """Return a digest of sizes and headers of the files of a checkpoint."""
    digest = hashlib.sha256()
    for name, piece in sorted(checkpoint.release.stored.items()):
        file = piece.source
        digest.update(repr((name, piece.dtype, piece.shape, piece.offset, file.name, file.size)).encode())
    return digest.hexdigest()[:32]


@cache
def _sources() -> str:
    """Return a digest of the sources of quantcore."""
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def _release() -> str:
    """Return what the last bit of a result depends on."""
    torch_release = torch.__version__.partition("+")[0]  # without the accelerator, which is not used
    return f"quantcore {_sources()}, torch {torch_release}, numpy {np.__version__}"


@dataclass
class _Awaited:
    """A weight whose result is awaited, that of the last of some tasks; None if there is nothing to do."""

    own: WeightRow
    future: "Future[Any] | None" = None
    tasks: int = 0
    inputs: WeightInputs = NO_INPUTS
    done: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        if self.future is None:
            self.done.set()
        else:
            self.future.add_done_callback(lambda future: self.done.set())

    @property
    def unfinished(self) -> int:
        """How many tasks may still be waiting."""
        return 0 if self.done.is_set() else self.tasks


class Workers:
    """The workers of a Dask cluster, which must all see the checkpoint.

    Raises:
        QuantError: they do not, or have another release of quantcore, torch or NumPy; there are none; or the
            client is not connected.
    """

    def __init__(self, client: "Client", checkpoint: Checkpoint, schemes: Sequence[Scheme]) -> None:
        self._client, self._checkpoint = client, checkpoint
        self._schemes, self._texts = schemes, tuple(map(_text, schemes))
        if not checkpoint.address:
            raise QuantError(
                "The checkpoint has no address that workers could open: its files are in memory. Save them "
                "where every worker sees them."
            )
        self._files = _SharedFiles(checkpoint.address, _digest(checkpoint), _release())
        _check_client(client)
        with _in_words():
            _check_scheduler(client)
            found = client.run(_unfit, self._files, on_error="return")
        if not found:
            raise QuantError("The Dask scheduler has no workers; start one with dask worker and its address.")
        for worker, why in found.items():
            if why:
                said = f"can't run quantcore ({_first_line(why)}); install it there"
                raise QuantError(f"The worker at {worker} {said if isinstance(why, Exception) else why}.")

    @property
    def count(self) -> int:
        """How many there are now."""
        return len(self._threads())

    def _threads(self) -> dict[str, int]:
        """Return how many threads each worker has."""
        with _in_words():
            if self._client.status in ("closing", "closed"):
                raise ConnectionError("the client was closed")
            found: dict[str, int] = self._client.nthreads()
            return found

    def measured(
        self, names: Iterable[str], imatrix: Imatrix | None
    ) -> Generator[WeightRow | None, None, None]:
        """Yield the rows of weights in order, and None every second while one is awaited.

        Raises:
            QuantError: the scheduler is gone, several workers died of one weight, or the files have changed.
        """

        def finish(awaited: _Awaited, found: Found | str) -> WeightRow:
            return row_of(awaited.own, found, awaited.inputs)

        return self._in_order((self._submit(name, imatrix) for name in names), finish)

    def estimated(self, names: Iterable[str]) -> Generator[WeightRow | None, None, None]:
        """Yield the estimates of weights likewise."""

        def submit(name: str) -> _Awaited:
            own, weight = self._weight(name)
            return _Awaited(own) if own.reason else _Awaited(own, self._send(_estimated, weight), 1)

        return self._in_order(map(submit, names), lambda awaited, row: row)

    def _weight(self, name: str) -> tuple[WeightRow, _Weight]:
        own = outlined(self._checkpoint.tensors[name], self._schemes)
        return own, _Weight(self._files, name, own.shape, self._texts)

    def _send(self, function: Callable[..., Any], *given: Any) -> "Future[Any]":
        return self._client.submit(function, *given, pure=False)  # what is equal may be of two runs

    def _submit(self, name: str, imatrix: Imatrix | None) -> _Awaited:
        """Hand a weight to the workers, in boxes if it is large."""
        own, weight = self._weight(name)
        if own.reason:
            return _Awaited(own)
        try:
            walk = WeightWalk(self._checkpoint.tensors[name], self._schemes)
        except QuantError as reason:
            return _Awaited(row_of(own, str(reason)))
        inputs = imatrix.of(name, own.shape) if imatrix else NO_INPUTS
        # a copy: of a view, all of what it is a view of would be sent
        weight = replace(weight, inputs=None if inputs.weights is None else inputs.weights.clone())
        if len(walk.boxes) == 1:
            return _Awaited(own, self._send(_whole, weight), 1, inputs)
        known = None
        if walk.needs_ranges:
            known = self._send(_joined, [self._send(_ranges, weight, box) for box in walk.boxes])
        parts = [self._send(_errors, weight, box, known) for box in walk.boxes]
        return _Awaited(own, self._send(_joined, parts), len(parts) * (2 if known else 1), inputs)

    def _in_order(
        self, submitted: Iterator[_Awaited], finish: Callable[[_Awaited, Any], WeightRow]
    ) -> Generator[WeightRow | None, None, None]:
        waiting: deque[_Awaited] = deque()
        try:
            while True:
                room = _AHEAD * max(1, sum(self._threads().values()))
                while sum(each.unfinished for each in waiting) < room:
                    if (new := next(submitted, None)) is None:
                        break
                    waiting.append(new)
                if not waiting:
                    return
                if not waiting[0].done.wait(_EVERY):
                    yield None
                    continue
                first = waiting.popleft()
                with _in_words():
                    found = None if first.future is None else first.future.result()
                yield first.own if first.future is None else finish(first, found)
        finally:
            for each in waiting:
                if each.future is not None:
                    each.future.cancel()


def _text(scheme: Scheme) -> str:
    """Return the text of a scheme, by which workers get it."""
    text = str(scheme)
    if Scheme.parse(text) != scheme:
        raise QuantError(f"{text} has parts without a text, so workers can't be sent it; measure it here.")
    return text


def _check_client(client: Any) -> None:
    try:
        from distributed import Client
    except ImportError:
        raise QuantError(NEEDED) from None
    if not isinstance(client, Client) or client.asynchronous or client.status != "running":
        raise QuantError("client must be a dask.distributed.Client that is connected and not asynchronous.")


def _check_scheduler(client: "Client") -> None:
    """Check that the scheduler has quantcore too, since Dask unpacks there what workers are sent."""
    try:
        release = client.run_on_scheduler(_release)
    except ImportError as missing:
        raise QuantError(
            f"The Dask scheduler can't run quantcore ({_first_line(missing)}); install it there."
        ) from None
    if release != _release():
        raise QuantError(f"The Dask scheduler {_other_release(release, _release())}.")


def _other_release(its: str, here: str) -> str:
    return f"has {its}, but here is {here}; install the same releases on both"


@contextmanager
def _in_words() -> Iterator[None]:
    """Say what can go wrong in a cluster."""
    from distributed import CancelledError, KilledWorker
    from distributed.comm import CommClosedError

    try:
        yield
    except KilledWorker as killed:
        raise QuantError(
            f"{killed.allowed_failures + 1} workers died of the same weight, one after another; give them "
            "more memory, or fewer threads each. Go on with the table as it is."
        ) from None
    except (CancelledError, CommClosedError, OSError):
        raise QuantError("The Dask scheduler is gone; go on with the table as it is.") from None


def _first_line(error: BaseException) -> str:
    text = (str(error).splitlines() or [""])[0].rstrip(".")
    return printable(text, 200) or type(error).__name__
