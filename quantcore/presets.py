"""Schemes under the names that libraries give them, exact: the same values out of the same tensor."""

from quantcore.conventions import BASES
from quantcore.float_format import FLOATS
from quantcore.granularity import PerGroup
from quantcore.range_setting import Given
from quantcore.scheme import Scheme

_E8M0 = Scheme(FLOATS["e8m0"], range_setting=Given(1.0), convention=BASES["stored"])
_MX = {
    "mxfp8_e4m3": FLOATS["e4m3fn"],
    "mxfp8_e5m2": FLOATS["e5m2"],
    "mxfp6_e2m3": FLOATS["e2m3"],
    "mxfp6_e3m2": FLOATS["e3m2"],
    "mxfp4": FLOATS["e2m1"],
}


def _torchao() -> dict[str, Scheme]:
    convention = BASES["torchao.float8"]
    found = {
        f"torchao.fp8_{name}": Scheme(FLOATS[name], convention=convention) for name in ("e4m3fn", "e5m2")
    }
    for name, fmt in _MX.items():
        for mode in ("FLOOR", "EVEN", "CEIL", "RCEIL"):
            convention = BASES[f"torchao.mx.{mode}"]
            scheme = Scheme(fmt, granularity=PerGroup(32), convention=convention, scales=_E8M0)
            found[f"torchao.{name}" + (f".{mode}" if mode != "FLOOR" else "")] = scheme
    return found


PRESETS: dict[str, Scheme] = _torchao()
