"""Measures a whole checkpoint weight by weight, here or at the workers of a cluster; can be resumed."""

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from quantcore.checkpoints import Checkpoint, results_in_order
from quantcore.errors import QuantError
from quantcore.layerwise.cluster import Workers
from quantcore.layerwise.effects import Forward, check_score, measured_effects
from quantcore.layerwise.imatrix import Imatrix
from quantcore.layerwise.measure import measured, outlined
from quantcore.layerwise.roles import group_of
from quantcore.layerwise.sample import estimated
from quantcore.layerwise.table import Table, WeightRow
from quantcore.scheme import PRESETS, Scheme, as_scheme

if TYPE_CHECKING:  # optional
    from distributed import Client

MOST_SCHEMES = 12
USUAL = (
    "int8 per_channel(0); int4 per_channel(0); int4 per_group(32); "
    "uint4 asymmetric per_group(32); e4m3fn per_channel(0)"
)


@dataclass(frozen=True)
class SensitivityStep:
    """A weight that was measured, or estimated (``is_estimate``): ``done`` of ``total`` bytes are measured.

    ``row``: None for the first step, before anything has been read, when the effects of a ``group`` on the
    output were measured, and every second in which none of the ``workers`` of a cluster has one; their number
    is None where there is no cluster.
    """

    done: int
    total: int
    row: WeightRow | None
    table: Table
    is_estimate: bool = False
    group: str = ""
    workers: int | None = None


def sensitivity(
    checkpoint: Checkpoint,
    schemes: Sequence[Scheme | str],
    imatrix: Checkpoint | None = None,
    table: Table | None = None,
    threads: int = 1,
    sample: bool = False,
    forward: Forward | None = None,
    score: str = "kl",
    tie: Callable[[str], str] = group_of,
    client: "Client | None" = None,
) -> Generator[SensitivityStep, None, None]:
    """Measure every weight of a checkpoint under every scheme; yield a step per weight, in order.

    The error is local: that of one weight, as if all others were exact, quantized in its own dtype if that is
    bfloat16 or float16 and as float32 otherwise. No codes are kept, and the model is not run, except by
    ``forward``: then the weights stay in memory, and the effect of each group on its outputs is measured,
    with `Effect.standard_error` over the inputs; `plan` takes it as the error ``effect``. Norms, biases,
    empty weights and weights with NaN are left alone, and one that can't be read has the reason in its row.
    Closing the iterator stops it; the result depends on no interruption, thread or worker.

    Args:
        schemes: up to 12, or their texts, see `Scheme.parse`, or names of `PRESETS`.
        imatrix: the mean squared inputs of each weight, for the error of its output.
        table: that of a stopped run, to resume it; it is modified.
        sample: first estimate every weight from some of its rows, with 95 % intervals, into
            `Table.estimates`; those that are there already are not estimated again.
        threads: how many weights are read and measured at the same time; see `CheckpointComparison.steps`.
        forward: takes the weights by name, with those of one group quantized, and returns the outputs of your
            model for the same inputs each time, of shape (inputs, …).
        score: how outputs are compared, see `SCORES`.
        tie: the group of a weight by its name, as for `plan`.
        client: of a Dask cluster; its workers open the checkpoint at its address and measure the weights, and
            what one of them had done or was doing when it died, another does again. The effects by
            ``forward``, which runs your model, can't be measured there: first call with the client, then with
            ``forward`` and the table of that.

    >>> from quantcore.checkpoints import EXAMPLES, open_checkpoint
    >>> checkpoint = open_checkpoint(EXAMPLES["minilm"])
    >>> *_, last = sensitivity(checkpoint, ["int8 per_channel(0)", "int4 per_group(32)"])
    >>> weight = last.table.rows["encoder.layer.0.output.dense.weight"]
    >>> [cell.said for cell in weight.cells]
    ['SQNR 33.5 dB', 'SQNR 19.7 dB']

    Raises:
        QuantError: no or too many schemes, a table of another run, an imatrix that is not one, or workers
            that don't see the checkpoint, or have another release of quantcore, torch or NumPy.
    """
    chosen = _schemes(schemes)
    fresh = Table(_identity(checkpoint, imatrix), tuple(map(_label, chosen)), tuple(checkpoint.tensors))
    table = table or fresh
    table.check(fresh)
    if forward is not None:
        check_score(score, table)
        if client is not None:
            raise QuantError(
                "forward= runs your model in this process, not at workers; call sensitivity with client=, "
                "then with forward= and table= of that."
            )
    work = _Threads(checkpoint, chosen, threads) if client is None else Workers(client, checkpoint, chosen)
    architecture = checkpoint.config.get("general.architecture")
    inputs = None if imatrix is None else Imatrix(imatrix.tensors, architecture)
    total = sum(tensor.num_bytes for tensor in checkpoint.tensors.values())
    left = [name for name in checkpoint.tensors if name not in table.rows]
    done = total - sum(checkpoint.tensors[name].num_bytes for name in left)
    yield SensitivityStep(done, total, None, table, workers=work.count)
    if sample:
        for row in work.estimated([name for name in left if name not in table.estimates]):
            if row is not None:
                table.estimates[row.name] = row
            yield SensitivityStep(done, total, row, table, is_estimate=True, workers=work.count)
    for row in work.measured(left, inputs):
        if row is not None:
            table.rows[row.name] = row
            done += row.num_bytes
        yield SensitivityStep(done, total, row, table, workers=work.count)
    if forward is not None:
        for name in measured_effects(checkpoint, chosen, table, forward, score, tie):
            yield SensitivityStep(done, total, None, table, group=name)


@dataclass(frozen=True)
class _Threads:
    """Threads of this process, in place of `Workers`."""

    checkpoint: Checkpoint
    schemes: Sequence[Scheme]
    threads: int
    count = None

    def estimated(self, names: Iterable[str]) -> Iterator[WeightRow]:
        tensors = map(self.checkpoint.tensors.__getitem__, names)
        return results_in_order((partial(estimated, each, self.schemes) for each in tensors), self.threads)

    def measured(self, names: Iterable[str], imatrix: Imatrix | None) -> Iterator[WeightRow]:
        tensors = map(self.checkpoint.tensors.__getitem__, names)
        calls = (partial(measured, each, self.schemes, imatrix) for each in tensors)
        return results_in_order(calls, self.threads)


def outline(checkpoint: Checkpoint, schemes: Sequence[Scheme | str]) -> Table:
    """Return the table with the bytes of every cell and no errors, from headers alone.

    Raises:
        QuantError: there are no schemes, or too many.
    """
    chosen = _schemes(schemes)
    table = Table("", tuple(map(_label, chosen)), tuple(checkpoint.tensors))
    table.rows |= {name: outlined(tensor, chosen) for name, tensor in checkpoint.tensors.items()}
    return table


def schemes_of(text: str) -> list[Scheme]:
    """Return the schemes and presets of a text that separates them with ``;``, each once.

    >>> [str(scheme) for scheme in schemes_of("int8; int4 per_group(32)")]
    ['int8 symmetric per_tensor min_max textbook', 'int4 symmetric per_group(32) min_max textbook']

    Raises:
        QuantError: one is not a scheme.
    """
    parts = filter(None, map(str.strip, text.split(";")))
    return list(dict.fromkeys(map(Scheme.parse, parts)))


def _schemes(schemes: Sequence[Scheme | str]) -> list[Scheme]:
    if not 1 <= len(schemes) <= MOST_SCHEMES:
        raise QuantError(f"Give 1 to {MOST_SCHEMES} schemes, not {len(schemes)}.")
    return list(map(as_scheme, schemes))


def _label(scheme: Scheme) -> str:
    """Return the name of a preset, and the text of another scheme."""
    return next((name for name, preset in PRESETS.items() if preset == scheme), str(scheme))


def _identity(checkpoint: Checkpoint, imatrix: Checkpoint | None) -> str:
    """Return a digest of how weights and entries of the imatrix are stored, but not of their values."""
    digest = hashlib.sha256()
    for opened in (checkpoint, imatrix):
        for name, tensor in () if opened is None else opened.tensors.items():
            pieces = sorted((k, p.offset, p.dtype, p.shape) for k, p in tensor.layout.pieces.items())
            digest.update(repr((name, tensor.num_bytes, pieces)).encode())
        digest.update(b"/")
    return digest.hexdigest()[:32]
