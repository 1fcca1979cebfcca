"""quantcore: what quantization does to a tensor, with every number at hand.

>>> import quantcore as qc
>>> result = qc.apply([[0.5, -1.0], [2.0, 0.1]], qc.Scheme(qc.INT4))
>>> result.codes.tolist()
[[2, -3], [7, 0]]
"""

import importlib
from types import ModuleType

from quantcore.analysis.metrics import Errors, Report, block_errors, decibels, errors, report
from quantcore.analysis.range_comparison import RangeMark, range_in_use, range_marks
from quantcore.analysis.range_curve import RangeCurve, range_curve
from quantcore.analysis.sweep import Row, frontier, sensible, sweep, sweep_rows
from quantcore.code_reading import CodeFinding, CodeReading, read_code
from quantcore.comparison.against_textbook import differences
from quantcore.comparison.compare import Comparison, Reason, compare
from quantcore.comparison.table import library_table
from quantcore.conventions import CONVENTIONS, TEXTBOOK, Convention
from quantcore.diagnosis import Finding, diagnose
from quantcore.errors import QuantError
from quantcore.formats.codebook import CODEBOOKS, CodebookFormat
from quantcore.formats.codebook_fit import fit_codebook
from quantcore.formats.floating_point import FLOATS, FloatFormat
from quantcore.formats.integer import (
    FORMATS,
    INT2,
    INT4,
    INT8,
    INT16,
    UINT2,
    UINT4,
    UINT8,
    UINT16,
    Format,
    IntFormat,
    parse_format,
)
from quantcore.granularity.kinds import (
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
from quantcore.matching import Matches, match, match_steps
from quantcore.qparams.choose import QParams, choose_qparams
from quantcore.quantization.fit import fit_scheme
from quantcore.quantization.library_encodings import encoding
from quantcore.quantization.quantize import Quantized, apply, dequantize, quantize
from quantcore.range_setting.basic import Fixed, Given, MinMax, Percentile, RangeSetting
from quantcore.range_setting.entropy import Entropy
from quantcore.range_setting.half_quadratic import HalfQuadratic
from quantcore.range_setting.statistics import AbsMean, MeanStd, MinMse
from quantcore.scheme.presets import PRESETS
from quantcore.scheme.scheme import Scheme
from quantcore.scheme.storage import Storage, bits_per_element, compression_ratio, storage
from quantcore.scheme.support import fitting, refusal
from quantcore.tracing.steps import Step, Trace
from quantcore.tracing.trace import trace

# Imported when first asked for: plotly and safetensors take their time
_MODULES = {
    "export": "quantcore.export",
    "figures": "quantcore.figures",
    "snippets": "quantcore.snippets",
    "tensors": "quantcore.tensors",
    "training": "quantcore.training",
    "views": "quantcore.analysis.views",
}


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    raise AttributeError(f"module 'quantcore' has no attribute {name!r}")


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
    "IntFormat",
    "Matches",
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
    "dequantize",
    "diagnose",
    "differences",
    "encoding",
    "errors",
    "fit_codebook",
    "fit_scheme",
    "fitting",
    "from_blocks",
    "frontier",
    "match",
    "match_steps",
    "library_table",
    "parse_format",
    "quantize",
    "range_curve",
    "range_in_use",
    "range_marks",
    "read_code",
    "refusal",
    "report",
    "sensible",
    "storage",
    "sweep",
    "sweep_rows",
    "to_blocks",
    "trace",
]
