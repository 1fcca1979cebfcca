"""quantcore: quantize a tensor as real libraries do, bit for bit, and inspect every number.

>>> import quantcore as qc
>>> result = qc.apply([[0.5, -1.0], [2.0, 0.1]], qc.Scheme(qc.INT4))
>>> result.codes.tolist()
[[2, -3], [7, 0]]
"""

from quantcore import interruption  # isort: split

import importlib
from typing import TYPE_CHECKING, Any

from quantcore.collection import uncollected

# the collector would scan torch's objects again and again, a third of the time of these imports
with uncollected():
    from quantcore.analysis import (
        Errors,
        RangeCurve,
        RangeMark,
        Report,
        Row,
        SchemeErrors,
        SearchCurve,
        block_errors,
        decibels,
        default_schemes,
        errors,
        errors_of,
        frontier,
        range_curve,
        range_in_use,
        range_marks,
        report,
        search_curve,
        sweep,
        sweep_rows,
    )
    from quantcore.conventions import CONVENTIONS, INTEGER_CONVENTIONS, TEXTBOOK, Convention
    from quantcore.displayed import write_with
    from quantcore.errors import QuantError
    from quantcore.formats import (
        CODEBOOKS,
        FLOATS,
        FORMATS,
        INT2,
        INT4,
        INT8,
        INT16,
        UINT2,
        UINT4,
        UINT8,
        UINT16,
        CodebookFormat,
        FloatFormat,
        Format,
        IntFormat,
        fit_codebook,
        parse_format,
    )
    from quantcore.granularity import (
        Granularity,
        PerBlock,
        PerChannel,
        PerFlatGroup,
        PerGroup,
        PerTensor,
        block_shape,
        from_blocks,
        to_blocks,
    )
    from quantcore.programs import Program, ProgramLine, program
    from quantcore.qparams import QParams, choose_qparams
    from quantcore.quantization import Quantized, apply, dequantize, encoding, fit_scheme, quantize
    from quantcore.range_setting import (
        RANGE_SETTINGS,
        AbsMean,
        Entropy,
        Fixed,
        Given,
        HalfQuadratic,
        MakeIq4Nl,
        MakeQ3,
        MakeQkx2,
        MakeQkx3,
        MakeQp,
        MakeQx,
        MaxScale,
        MeanStd,
        MinMax,
        MinMse,
        Percentile,
        RangeSetting,
    )
    from quantcore.scheme import (
        PRESETS,
        Scheme,
        Storage,
        bits_per_element,
        compression_ratio,
        nearest_supported,
        storage,
        unsupported_reason,
    )
    from quantcore.tracing import Step, Trace, trace

# imported on first access: what `apply` does not need
_SLOW = (
    "checkpoints", "export", "figures", "layerwise", "outputs", "recipes", "snippets", "tensors", "training",
)  # fmt: skip
_MODULES = {"views": "quantcore.analysis.views"} | {name: f"quantcore.{name}" for name in _SLOW}
_LATER = {
    "quantcore.comparison": ("Comparison", "Reason", "compare", "differences", "library_table"),
    "quantcore.diagnosis": ("Finding", "diagnose"),
    # in __all__ pdoc would take these for modules; the reference has them with quantcore.layerwise
    "quantcore.layerwise": ("bit_budget", "collect", "sensitivity"),
    "quantcore.matching": ("Matches", "match", "match_steps"),
    "quantcore.pasted": ("CodeFinding", "CodeReading", "read_code"),
}
_NAMES = {name: module for module, names in _LATER.items() for name in names}

if TYPE_CHECKING:
    from quantcore.comparison import Comparison, Reason, compare, differences, library_table
    from quantcore.diagnosis import Finding, diagnose
    from quantcore.layerwise import bit_budget, collect, sensitivity
    from quantcore.matching import Matches, match, match_steps
    from quantcore.pasted import CodeFinding, CodeReading, read_code


write_with(lambda: importlib.import_module("quantcore.notebook"))


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _NAMES:
        found = globals()[name] = getattr(importlib.import_module(_NAMES[name]), name)
        return found
    for kind in RANGE_SETTINGS.values():  # scripts make them by their names
        if name == kind.__name__:
            return kind
    raise AttributeError(f"module 'quantcore' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES, *_NAMES})


__all__ = [
    "CODEBOOKS",
    "CONVENTIONS",
    "FLOATS",
    "FORMATS",
    "INT2",
    "INT4",
    "INT8",
    "INT16",
    "TEXTBOOK",
    "UINT2",
    "UINT4",
    "UINT8",
    "UINT16",
    "AbsMean",
    "Comparison",
    "CodeFinding",
    "CodeReading",
    "CodebookFormat",
    "Convention",
    "Entropy",
    "Errors",
    "Finding",
    "Fixed",
    "FloatFormat",
    "Format",
    "Given",
    "Granularity",
    "HalfQuadratic",
    "INTEGER_CONVENTIONS",
    "IntFormat",
    "MakeIq4Nl",
    "MakeQ3",
    "MakeQkx2",
    "MakeQkx3",
    "MakeQp",
    "MakeQx",
    "Matches",
    "MaxScale",
    "MeanStd",
    "MinMax",
    "MinMse",
    "PerBlock",
    "PerChannel",
    "PerFlatGroup",
    "PerGroup",
    "PRESETS",
    "PerTensor",
    "Percentile",
    "Program",
    "ProgramLine",
    "QParams",
    "QuantError",
    "Quantized",
    "RangeCurve",
    "RangeMark",
    "RangeSetting",
    "Reason",
    "Report",
    "Row",
    "Scheme",
    "SchemeErrors",
    "SearchCurve",
    "Step",
    "Storage",
    "Trace",
    "apply",
    "bits_per_element",
    "block_errors",
    "block_shape",
    "choose_qparams",
    "compare",
    "compression_ratio",
    "decibels",
    "default_schemes",
    "dequantize",
    "diagnose",
    "differences",
    "encoding",
    "errors",
    "errors_of",
    "fit_codebook",
    "fit_scheme",
    "from_blocks",
    "frontier",
    "match",
    "match_steps",
    "nearest_supported",
    "library_table",
    "parse_format",
    "program",
    "quantize",
    "range_curve",
    "range_in_use",
    "range_marks",
    "read_code",
    "report",
    "search_curve",
    "storage",
    "sweep",
    "sweep_rows",
    "to_blocks",
    "unsupported_reason",
    "trace",
]
