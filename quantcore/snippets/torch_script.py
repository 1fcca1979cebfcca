"""The arithmetic of one scheme on one tensor, as a person would write it by hand in torch.

`arithmetic` writes only the lines that this tensor needs: no guard against a scale of 0 where no block
is without a range. The order of operations is that of `quantize`, so the codes are the same bits.
"""

from quantcore.conventions import STAGES, TEXTBOOK
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.notation import write_value
from quantcore.quantization import Quantized
from quantcore.range_setting import Fixed, Given, Percentile
from quantcore.snippets.blocks import Layout, layout_of, spread_source
from quantcore.snippets.kernels import kernel_source
from quantcore.tensors import Array, array_source

_PERCENTILE = '''
def percentile(rows, p):
    """The p-th percentile of each row: linear between two elements, in float64."""
    rows = rows.double().sort(-1).values
    place = p / 100 * (rows.shape[-1] - 1)
    k = int(place)
    below, above = rows[..., k], rows[..., min(k + 1, rows.shape[-1] - 1)]
    return (below + (above - below) * (place - k)).float()

'''
_NO_RANGE = 1e-30  # a scale of exactly 1 with a smaller range was a 0 that the convention replaced
_CAST_LIMIT = 1 << 62  # quotients near it need the clamp of `quantize.wrap` before the cast


def arithmetic(result: Quantized) -> list[str]:
    """Return lines that bind codes and x_hat, and print both; they need x, torch and itertools.

    Parameters that are found otherwise than by the textbook stand as numbers.
    """
    fmt = result.scheme.format
    _refuse(result)
    lines = [f"qmin, qmax = {fmt.qmin}, {fmt.qmax}", ""]
    flat = result.blocked_shape != tuple(result.x.shape)
    if flat:
        lines += ["x = x.flatten()  # the groups run over the ends of rows", ""]
    if _by_value(result):
        lines += _given(result)
    else:
        lines += [*_range(result), "", *_parameters(result)]
    scale, zero_point, spread = _for_each_element(result)
    before, values = kernel_source(result, scale, zero_point)
    back = f"(codes.float() - {zero_point})" if zero_point else "codes.float()"
    return [
        *lines,
        *spread,
        "",
        *before,
        *_codes(result, values),
        f"x_hat = {back} * {scale}",
        *(
            [f"codes, x_hat = codes.reshape({tuple(result.x.shape)}), x_hat.reshape({tuple(result.x.shape)})"]
            if flat
            else []
        ),
        "print(codes)",
        "print(x_hat)",
    ]


def _refuse(result: Quantized) -> None:
    """What takes more than one scale and one zero_point a block is not written by hand."""
    fmt, convention = result.scheme.format, result.scheme.convention
    if not isinstance(fmt, IntFormat):
        raise QuantError(f"The script by hand writes integers; of {fmt}, use the quantcore script.")
    if convention.storage.quantize_with == "raw" and result.scales is not None:
        what = "finds codes with other scales than it stores"
    elif result.kept.how != "scaled" or result.params.center is not None:
        what = "dequantizes otherwise than by (codes - zero_point) * scale"
    else:
        return
    raise QuantError(f"{convention.name} {what}; the script by hand does not, so use the quantcore script.")


def _by_value(result: Quantized) -> bool:
    """Whether scale and zero_point stand as numbers: they are given, or not the textbook's."""
    convention = result.scheme.rules
    of_codes = ("coding", "nonfinite")
    differs = any(getattr(convention, s) != getattr(TEXTBOOK, s) for s in STAGES if s not in of_codes)
    return differs or result.scales is not None or isinstance(result.scheme.range_setting, Given)


def _given(result: Quantized) -> list[str]:
    """Parameters by hand, or by a library; one number for all blocks stays one number."""
    scale, zero_point = _short(result.scale.cpu().numpy()), _short(result.params.zero_point.cpu().numpy())
    by_hand = isinstance(result.scheme.range_setting, Given)
    who = "by hand" if by_hand else f"as {result.scheme.convention.name} finds them"
    lines = [f"# parameters {who}", f"scale = {array_source(scale)}"]
    if zero_point.any():
        number = zero_point.dtype.kind == "i" and not zero_point.ndim
        lines.append(f"zero_point = {int(zero_point) if number else array_source(zero_point)}")
    if result.params.inverse is not None:
        inverse = _short(result.params.inverse.cpu().numpy())
        spread = spread_source(result) if inverse.ndim else ""
        lines.append(f"inverse = {array_source(inverse)}{spread}  # kept beside the scale")
    return lines


def _short(parameters: Array) -> Array:
    first: Array = parameters.flat[:1].reshape(())
    return first if (parameters == first).all() else parameters


def _range(result: Quantized) -> list[str]:
    """Lines that bind low and high, one number a block; symmetric: high alone."""
    setting, symmetric = result.scheme.range_setting, result.scheme.symmetric
    if isinstance(setting, Fixed):
        lines = ["# a fixed range"]
        if symmetric:
            lines.append(f"high = torch.tensor({max(abs(setting.low), abs(setting.high))!r})")
        else:
            lines.append(f"low, high = torch.tensor({setting.low!r}), torch.tensor({setting.high!r})")
    else:
        layout = layout_of(result)
        lines = [_PERCENTILE] if isinstance(setting, Percentile) else []
        lines += [f"# {layout.comment}", *layout.before]
        lines += [_end(layout, end, result) for end in (("high",) if symmetric else ("low", "high"))]
    return lines if symmetric else [*lines, "low, high = low.clamp(max=0), high.clamp(min=0)  # 0 is exact"]


def _end(layout: Layout, end: str, result: Quantized) -> str:
    """The line that binds one end of the ranges."""
    source = f"{layout.source}.abs()" if result.scheme.symmetric else layout.source
    setting = result.scheme.range_setting
    if isinstance(setting, Percentile):
        p = f"100 - {write_value(setting.p)}" if end == "low" else write_value(setting.p)
        return layout.target.format(end) + layout.percentile.format(x=source, p=p)
    return layout.target.format(end) + layout.extreme.format(x=source, end="amin" if end == "low" else "amax")


def _parameters(result: Quantized) -> list[str]:
    """Lines from the range to scale and zero_point."""
    fmt, low, high = result.scheme.format, result.params.low, result.params.high
    assert low is not None
    assert high is not None
    if result.scheme.symmetric:
        lines = [f"scale = high / {(1 << (fmt.bits - 1)) - 1}"]
    elif (high - low).isinf().any():
        split = "high / (qmax - qmin) - low / (qmax - qmin)"
        lines = [
            "scale = (high - low) / (qmax - qmin)",
            f"scale = torch.where(scale.isinf(), {split}, scale)  # high - low overflows",
        ]
    else:
        lines = ["scale = (high - low) / (qmax - qmin)"]
    if ((result.scale == 1) & (high < _NO_RANGE) & (low > -_NO_RANGE)).any():
        lines.append("scale[scale == 0] = 1  # a block without a range")
    if not result.scheme.symmetric:
        lines.append("zero_point = (qmin - torch.round(low / scale)).clamp(qmin, qmax)")
    elif fmt.middle:
        lines.append(f"zero_point = {fmt.middle}  # the middle of the codes")
    return lines


def _for_each_element(result: Quantized) -> tuple[str, str, list[str]]:
    """Names of scale and zero_point ("" where it is 0) that broadcast with x, and lines that bind them."""
    setting = result.scheme.range_setting
    one_scale = isinstance(setting, Fixed)
    one_zero_point = one_scale or result.scheme.symmetric
    by_value = _by_value(result)
    if by_value:
        one_scale = not _short(result.scale.cpu().numpy()).ndim
        one_zero_point = not _short(result.params.zero_point.cpu().numpy()).ndim
    spread = spread_source(result)
    scale, lines = "scale", []
    if spread and not one_scale:
        scale = "s"
        lines += ["", "# each element with its block's parameters", f"s = scale{spread}"]
    if result.scheme.symmetric and not by_value:
        return scale, "zero_point" if result.scheme.format.middle else "", lines
    if by_value and not result.params.zero_point.any():
        return scale, "", lines
    if spread and not one_zero_point:
        return scale, "z", [*lines, f"z = zero_point{spread}"]
    return scale, "zero_point", lines


def _codes(result: Quantized, values: str) -> list[str]:
    """Lines that bring rounded values into the format."""
    fmt = result.scheme.format
    dtype = f".to({fmt.dtype})"
    if result.scheme.convention.coding.overflow == "saturate":
        return [f"codes = {values}.clamp(qmin, qmax){dtype}"]
    limit = ""
    if float(result.x.abs().max()) / float(result.scale.min()) > _CAST_LIMIT / 2:
        limit = ".clamp(-(2**62), 2**62)"
    half, modulus = 1 << (fmt.bits - 1), 1 << fmt.bits
    wrapped = f"(codes + {half}) % {modulus} - {half}" if fmt.signed else f"codes % {modulus}"
    return [
        f"codes = {values}{limit}.long()  # no clamp: the lowest {fmt.bits} bits are kept",
        f"codes = ({wrapped}){dtype}",
    ]
