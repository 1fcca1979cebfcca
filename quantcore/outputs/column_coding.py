"""Columns of a weight quantized one at a time, with the parameters of the group that each is in."""

from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.granularity import Blocks, PerBlock, PerFlatGroup
from quantcore.notation import write_call
from quantcore.qparams import QParams, dequantizer_of, find_qparams
from quantcore.quantization import Quantized, codes_with, dequantize_with, parameters_of
from quantcore.range_setting import Stored
from quantcore.scheme import Scheme, accepted, check_supported, full_name


class ColumnCoder:
    """Quantizes the columns of a weight in any order.

    ``width``: the columns of a group; ``codes``: what has been coded so far, in the order of processing.
    """

    def __init__(self, w: Any, scheme: Scheme | str) -> None:
        """Check that a scheme can code columns one at a time.

        Raises:
            QuantError: it can't.
        """
        self.given, own, self.dtype = accepted(w, scheme)
        self.scheme = own
        self.shape = rows, columns = tuple(self.given.shape)
        check_supported(own, (rows, columns))
        if own.range_setting.searches_codes:
            raise QuantError(
                f"{full_name(own.convention)} chooses codes by a search, and columns can't be coded one at a "
                "time; choose a scheme with a range setting such as min_max."
            )
        if isinstance(own.granularity, PerFlatGroup) or own.rules.scale.center != "none":
            raise QuantError(
                f"Columns can't be coded one at a time with {write_call(own.granularity)}, {own.convention}; "
                "choose per_group, per_channel(0) or per_tensor."
            )
        self.block = Blocks.of(own.granularity, (rows, columns)).block
        self.width = self.block[1]
        self.groups: dict[int, QParams] = {}
        self.codes = torch.empty((rows, columns), dtype=own.format.dtype)
        self._column = Blocks((rows, 1), (rows, 1), (self.block[0], 1))

    @property
    def takes_all_at_once(self) -> bool:
        """Whether the parameters of a group depend on other groups: its scales are quantized together."""
        return self.scheme.scales is not None

    def find_all(self, w: Tensor) -> None:
        """Take the parameters of all groups from a weight [out, in]."""
        _, params, _, _ = parameters_of(w, self.scheme)
        for group in range(-(-w.shape[1] // self.width)):
            self.groups[group] = _sliced(params, slice(group, group + 1))

    def find(self, group: int, columns: Tensor) -> None:
        """Take the parameters of one group from its columns, float32 [out, width]."""
        shape = tuple(columns.shape)
        layout = Blocks(shape, shape, (self.block[0], shape[1]))
        self.groups[group] = find_qparams(columns, self.scheme, layout)

    def quantize(self, values: Tensor, group: int, at: int) -> Tensor:
        """Code one column, float32 [out], store its codes at a place, and return what they dequantize to."""
        params = self.groups[group]
        codes, _ = codes_with(values[:, None], params, self.scheme, self._column, None)
        self.codes[:, at] = codes[:, 0]
        dequantizer = dequantizer_of(params, self.scheme.format, self.scheme.rules)
        return dequantize_with(codes, params, self.scheme, self._column, dequantizer)[:, 0].float()

    def result(self, scheme: Scheme, order: Tensor, group_of: Tensor, w_hat: Tensor) -> Quantized:
        """Return the coded weight in the order of its own columns.

        Args:
            scheme: as the user gave it.
            order: the column at each place of processing.
            group_of: the group of each column.
            w_hat: the dequantized weight, float32 [out, in].

        Raises:
            QuantError: the groups are no runs of columns, and the scheme's parameters need them to be.
        """
        codes = torch.empty_like(self.codes)
        codes[:, order] = self.codes
        groups = [self.groups[group] for group in sorted(self.groups)]
        params = _joined(groups)
        runs = torch.arange(len(order)) // self.width
        if torch.equal(group_of, runs):
            found = Quantized(self.given, scheme, codes, params, dtype=self.dtype)
        else:
            rows = self.block[0]
            scale, zero = (
                p.repeat_interleave(rows, 0)[: len(codes)] for p in (params.scale, params.zero_point)
            )
            setting = Stored(scale, zero, origin="GPTQ in the order of activations", group_index=group_of)
            own = replace(scheme, granularity=PerBlock((1, 1)), range_setting=setting, scales=None)
            grid = Blocks.of(own.granularity, self.shape).grid
            stored = QParams(*setting.parameters(grid, codes.device))
            found = Quantized(self.given, own, codes, stored, dtype=self.dtype)
        if not torch.equal(found.dequantized.float(), w_hat):
            raise QuantError(
                f"The order of activations makes groups of columns that {full_name(scheme.convention)} can't "
                "store; choose static_groups=True."
            )
        return found


def _sliced(params: QParams, groups: slice) -> QParams:
    """Return the parameters of some groups, all in block form."""
    found = {f.name: getattr(params, f.name) for f in fields(params)}
    return QParams(
        **{k: v[:, groups] if isinstance(v, Tensor) and v.dim() == 2 else v for k, v in found.items()}
    )


def _joined(groups: list[QParams]) -> QParams:
    """Return the parameters of all groups, next to each other."""
    first = groups[0]
    found = {f.name: getattr(first, f.name) for f in fields(first)}
    for name, value in found.items():
        if isinstance(value, Tensor) and value.dim() == 2:
            found[name] = torch.cat([getattr(group, name) for group in groups], 1)
    return QParams(**found)
