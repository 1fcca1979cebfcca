"""quantcore: what quantization does to a tensor, with every number at hand.

>>> import quantcore as qc
>>> result = qc.apply([[0.5, -1.0], [2.0, 0.1]], qc.Scheme(qc.INT4))
>>> result.codes.tolist()
[[2, -3], [7, 0]]
"""

import importlib
from types import ModuleType

from quantcore.code_reading import CodeFinding, CodeReading, read_code
from quantcore.codebook_fit import fit_codebook
from quantcore.codebook_format import CODEBOOKS, CodebookFormat
from quantcore.compare import Comparison, Reason, compare
from quantcore.compare_table import library_table
from quantcore.conventions import CONVENTIONS, TEXTBOOK, Convention
from quantcore.diagnose import Finding, diagnose
from quantcore.differences import differences
from quantcore.encodings import encoding
from quantcore.error_curve import RangeCurve, range_curve
from quantcore.error_marks import RangeMark, range_in_use, range_marks
from quantcore.errors import QuantError
from quantcore.fit_scheme import fit_scheme
from quantcore.float_format import FLOATS, FloatFormat
from quantcore.formats import (
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
from quantcore.match import Matches, match, match_steps
from quantcore.metrics import Errors, Report, block_errors, decibels, errors, report
from quantcore.presets import PRESETS
from quantcore.qparams import QParams, choose_qparams
from quantcore.quantize import Quantized, apply, dequantize, quantize
from quantcore.range_entropy import Entropy
from quantcore.range_half_quadratic import HalfQuadratic
from quantcore.range_methods import AbsMean, MeanStd, MinMse
from quantcore.range_setting import Fixed, Given, MinMax, Percentile, RangeSetting
from quantcore.refusal import fitting, refusal
from quantcore.scheme import Scheme
from quantcore.storage import Storage, bits_per_element, compression_ratio, storage
from quantcore.sweep import Row, frontier, sensible, sweep, sweep_rows
from quantcore.trace import trace
from quantcore.trace_steps import Step, Trace

# Imported when first asked for: plotly and safetensors take their time
_MODULES = ("export", "figures", "snippets", "tensors", "training", "views")


def __getattr__(name: str) -> ModuleType:
    if name in _MODULES:
        return importlib.import_module(f"quantcore.{name}")
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
