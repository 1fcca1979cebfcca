"""The memory that work on a tensor needs, in multiples of its size in float32, including itself.

Measured with 4096×14336 elements, for each step: a process's peak resident memory minus what it held before.
"""

import math

import quantcore as qc
from quantcore.granularity import block_shape
from quantcore.range_setting import Search

# Peaks of a page's steps, beyond x and the results: the report 0.1, a map 0.2, most findings 0.3, charts 0.2
_PAGE = 1.35
# What a range setting takes besides; the first kind that fits counts
_EXTRA: tuple[tuple[type[qc.RangeSetting], float], ...] = (
    (qc.HalfQuadratic, 1.75),  # it sorts or copies all elements, and its findings try other schemes: 2.05
    (Search, 0.5),  # its codes until those of the result are written, and its boxes
    (qc.Percentile, 0.75),  # sorts or copies all elements: 1.0
    (qc.MinMse, 0.75),
)
# What findings take besides
_FINDINGS: tuple[tuple[type[qc.RangeSetting], float], ...] = (
    # x without its outlier channel or element, its codes, and which elements are others: 1.7
    (qc.MinMax, 1.4),
    (Search, 1.4),
)
_PARAMETERS = 6  # float32 values per block: scale and zero point, as computed and as stored, low and high
USUAL = 1.85  # any scheme of up to 8 bits per tensor, channel or group of 128, and the previous scheme
LIBRARIES = 5.3  # table and comparison, one after the other, of a tensor with outliers
SWEEP_THREAD = 1.75  # per scheme being computed: codes, and what the most expensive range settings need
MATCH = 9.5
# times the file; JSON of numbers with 17 digits takes 1.5, whatever is compressed is checked by its size
READING = 2.5
EXPORT = 6.8  # .safetensors 5.5, .npz 3.3
ONNX = 4.0
TRAINING = 1 << 20  # bytes, not tensors: the network has 4,810 parameters and 1,198 images of 64 pixels


def of(scheme: qc.Scheme, shape: tuple[int, ...]) -> float:
    """Return what Explore and Ranges need to show a tensor under a scheme and under the previous one."""
    extra = next((more for kind, more in _EXTRA if isinstance(scheme.range_setting, kind)), 0.0)
    return _PAGE + extra + 2 * _result(scheme, shape)


def of_findings(scheme: qc.Scheme, shape: tuple[int, ...]) -> float:
    """Return what Explore needs to look for findings, too."""
    setting = scheme.range_setting
    extra = next((more for kind, more in _FINDINGS if isinstance(setting, kind)), 0.0)
    return of(scheme, shape) + extra


def _result(scheme: qc.Scheme, shape: tuple[int, ...]) -> float:
    """Return what a result needs in addition to its tensor: codes and parameters."""
    bits = scheme.format.bits
    codes = 1 if bits <= 8 else 2 if bits <= 16 else 4
    try:
        block = math.prod(block_shape(scheme.granularity, shape))
    except qc.QuantError:  # reported when the scheme is applied
        block = 1
    return codes / 4 + _PARAMETERS / max(block, 1)
