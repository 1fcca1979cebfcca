"""GGUF's formats as schemes: legacy blocks, super-blocks (K-quants, IQ4_XS), and what an imatrix changes."""

from dataclasses import replace

from quantcore.conventions import CONVENTIONS
from quantcore.errors import QuantError
from quantcore.formats import CODEBOOKS, FLOATS, INT8, Format, IntFormat
from quantcore.granularity import PerGroup
from quantcore.range_setting import (
    MIN_MAX,
    Given,
    MakeIq4Nl,
    MakeQ3,
    MakeQkx2,
    MakeQkx3,
    MakeQp,
    MakeQx,
    MaxScale,
    RangeSetting,
)
from quantcore.scheme.scheme import Scheme

SUPER_BLOCK = 256  # QK_K
_HALF = Scheme(
    replace(FLOATS["fp16"], saturate=False), range_setting=Given(1.0), convention=CONVENTIONS["stored"]
)
_E8M0 = Scheme(FLOATS["e8m0"], range_setting=Given(0.5), convention=CONVENTIONS["stored"])
# searches with an imatrix, as ggml-quants.c calls them
_WEIGHTED = (-0.9, 0.05, 36)


def _gguf(
    fmt: Format,
    size: int,
    convention: str,
    scales: Scheme,
    setting: RangeSetting = MIN_MAX,
    symmetric: bool = True,
) -> Scheme:
    """Return the scheme of groups of ``size`` elements by one of gguf's conventions."""
    return Scheme(fmt, symmetric, PerGroup(size), setting, CONVENTIONS[f"gguf.{convention}"], scales)


def _legacy() -> dict[str, Scheme]:
    parts: dict[str, tuple[Format, int, str]] = {
        # the codebook holds twice the values of e2m1, so the scale is half the power that its byte encodes
        "MXFP4": (CODEBOOKS["mxfp4_gguf"], 32, "MXFP4"),
        "Q4_0": (IntFormat(4, signed=False), 32, "Q4_0"),
        "Q4_1": (IntFormat(4, signed=False), 32, "Q4_1"),
        "Q5_0": (IntFormat(5, signed=False), 32, "Q4_0"),
        "Q5_1": (IntFormat(5, signed=False), 32, "Q4_1"),
        "Q8_0": (INT8, 32, "Q8_0"),
        "TQ1_0": (CODEBOOKS["ternary"], SUPER_BLOCK, "TQ1_0"),
        "TQ2_0": (CODEBOOKS["ternary"], SUPER_BLOCK, "TQ2_0"),
    }
    return {
        name: _gguf(*part, _E8M0 if name == "MXFP4" else _HALF, symmetric=not name.endswith("_1"))
        for name, part in parts.items()
    }


def _scales(fmt: Format, group: int, setting: RangeSetting) -> Scheme:
    """Return the scheme of a super-block's group scales, which have a half-precision scale of their own."""
    return _gguf(fmt, SUPER_BLOCK // group, "scales", _HALF, setting)


def _affine(bits: int, group: int, setting: RangeSetting, scale_bits: int, of_scales: RangeSetting) -> Scheme:
    scales = _scales(IntFormat(scale_bits, signed=False), group, of_scales)
    return _gguf(IntFormat(bits, signed=False), group, "Q4_K", scales, setting, symmetric=False)


def _symmetric(bits: int, setting: RangeSetting, scale_bits: int, of_scales: RangeSetting) -> Scheme:
    return _gguf(IntFormat(bits), 16, "Q6_K", _scales(IntFormat(scale_bits), 16, of_scales), setting)


def _nonlinear(setting: RangeSetting, name: str, scales: Scheme) -> Scheme:
    return _gguf(CODEBOOKS["iq4_nl"], 32, name, scales, setting)


_BY_LARGEST = MaxScale(reciprocal=True, least=1e-15)
_LEGACY = _legacy()
_OF_IQ4_XS = _scales(IntFormat(6), 32, MaxScale())


def _super_blocks() -> dict[str, Scheme]:
    return {
        "Q2_K": _affine(2, 16, MakeQkx2(-0.5, 0.1, 15, weights="abs", use_mad=True), 4, MaxScale()),
        "Q3_K": _symmetric(3, MakeQ3(), 6, MaxScale(reciprocal=True, zero_code=-32)),
        "Q4_K": _affine(4, 32, MakeQkx2(-1.0, 0.1, 20), 6, MaxScale()),
        "Q5_K": _affine(5, 32, MakeQkx2(-0.5, 0.1, 15), 6, MaxScale()),
        "Q6_K": _symmetric(6, MakeQx(), 8, _BY_LARGEST),
        "IQ4_NL": _nonlinear(MakeIq4Nl(), "IQ4_NL", _HALF),
        "IQ4_XS": _nonlinear(MakeIq4Nl(), "IQ4_XS", _OF_IQ4_XS),
    }


def _weighted() -> dict[str, Scheme]:
    """Return the schemes that ggml uses with an imatrix."""
    row = {"sigma2": 1.0, "over": 0}  # the mean of x² over the whole row
    of_row = MakeQx("importance_rms", **row), MakeQkx3(*_WEIGHTED, **row)  # type: ignore[arg-type]
    found = {
        name: replace(
            _LEGACY[name],
            range_setting=of_row[not _LEGACY[name].symmetric],
            convention=CONVENTIONS[f"gguf.{'Q4_0' if _LEGACY[name].symmetric else 'Q4_1'}.imatrix"],
        )
        for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1")
    }
    of_scales = MakeQx("importance")
    return found | {
        "Q2_K": _affine(2, 16, MakeQkx3(*_WEIGHTED), 4, MakeQp()),
        "Q3_K": _symmetric(3, MakeQx("importance_rms", sigma2=2.0), 6, of_scales),
        "Q4_K": _affine(4, 32, MakeQkx3(*_WEIGHTED, sigma2=2.0), 6, MakeQp()),
        "Q5_K": _affine(5, 32, MakeQkx3(*_WEIGHTED, sigma2=2.0), 6, MakeQp()),
        "Q6_K": _symmetric(6, MakeQx("importance"), 8, _BY_LARGEST),
        "IQ4_NL": _nonlinear(MakeIq4Nl(weights="importance_rms", over=32), "IQ4_NL", _HALF),
        "IQ4_XS": _nonlinear(MakeIq4Nl(weights="importance_rms"), "IQ4_XS", _OF_IQ4_XS),
    }


GGUF: dict[str, Scheme] = {f"gguf.{name}": scheme for name, scheme in (_LEGACY | _super_blocks()).items()}
# preset -> the scheme that ggml uses with an imatrix, for presets that support one
WITH_IMPORTANCE: dict[str, Scheme] = {f"gguf.{name}": scheme for name, scheme in _weighted().items()}
_NAME_OF = {scheme: name for schemes in (GGUF, WITH_IMPORTANCE) for name, scheme in schemes.items()}


def with_importance(scheme: Scheme) -> Scheme:
    """Return the scheme that ggml uses instead of this one if it has an imatrix.

    Raises:
        QuantError: the scheme does not support importance.
    """
    found = WITH_IMPORTANCE.get(_NAME_OF.get(_along_the_last_axis(scheme), ""))
    if found is not None:
        return replace(found, granularity=scheme.granularity)
    if scheme.range_setting.takes_importance:
        return scheme
    takers = ", ".join(WITH_IMPORTANCE)
    raise QuantError(f"This scheme does not support importance; use one of {takers}.")


def _along_the_last_axis(scheme: Scheme) -> Scheme:
    """Count the scheme's group axis from the end: gguf's conventions accept only the last axis."""
    granularity = scheme.granularity
    if not isinstance(granularity, PerGroup) or granularity.axis < 0:
        return scheme
    return replace(scheme, granularity=PerGroup(granularity.size))


def gguf_type(scheme: Scheme) -> str | None:
    """Return ggml's name for the type whose blocks hold this scheme's codes, such as ``Q4_K``, or None."""
    name = _NAME_OF.get(_along_the_last_axis(scheme))
    return None if name is None else name.removeprefix("gguf.")
