"""A small tensor and a scheme for each kind of finding."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quantcore.scheme import Scheme
from quantcore.tensors import Generated, generate, parse

_EXERCISE = """-0.687, 0.2607, -0.7718, 0.0841
0.6558, -1.1711, -1.0713, 0.2405
1.4967, -0.6928, 0.7961, -1.4614
0.5689, -0.5227, -1.3111, -0.8343"""

_COLUMNS = """1.44, 0.75, -0.6, -0.21, -0.07, 0.06, 0.06, -0.04
3.26, 0.61, 0.4, 0.2, 0.12, 0.07, 0.08, 0.1
2, 1.21, -0.55, 0.15, 0.06, -0.1, 0.05, -0.05
-3.7, -1.14, -0.44, -0.25, 0.06, -0.08, 0.06, 0.04
-3.05, -1.52, -0.31, -0.22, -0.1, -0.08, -0.08, 0.05
3.52, 1.22, 0.54, 0.26, -0.12, -0.08, 0.09, 0.04
3.58, 0.92, 0.45, -0.12, -0.16, 0.05, 0.09, -0.05
-2.77, 0.93, -0.51, 0.13, 0.09, 0.08, -0.08, 0.07"""


@dataclass(frozen=True)
class Example:
    """``tensor``: numbers as text, or a generator's settings; ``scheme``: the text form of a scheme."""

    title: str
    tensor: str | Generated
    scheme: str

    def load(self) -> npt.NDArray[np.float32]:
        """The tensor's values, float32."""
        return parse(self.tensor) if isinstance(self.tensor, str) else generate(self.tensor)

    def parsed(self) -> Scheme:
        """The scheme."""
        return Scheme.parse(self.scheme)


EXAMPLES: dict[str, Example] = {
    "scale_out_of_range": Example(
        "Scales too small for their format",
        Generated("normal", (16, 64), parameters=(("std", 0.005),)),
        "e2m1 per_group(16) torchao.nvfp4 scales(e4m3fn given(1) torchao.nvfp4.scales)",
    ),
    "wrapped": Example(
        "Codes that wrap around", _EXERCISE, "int8 given(0.0116) textbook(overflow=wrap)"
    ),
    "zero_point_outside": Example(
        "A zero point that is not a code", "1, 2.5, 3, 4.5, 5", "int8 given(0.1, zero_point=128)"
    ),
    "zero_point_clamped": Example(
        "A range without 0", "-6, -5.9, -5.7, -5.4\n-5.8, -5.5, -5.2, -5", "uint8 asymmetric brevitas"
    ),
    "negatives_lost": Example(
        "Unsigned codes for negative numbers",
        Generated("normal", (8, 8)),
        "uint8 symmetric aimet.2024.Quantize",
    ),
    "zero_not_exact": Example(
        "Zeros that are not dequantized to 0",
        Generated("sparse", (16, 16), parameters=(("density", 0.3),)),
        "uint4 asymmetric per_channel(0) hqq",
    ),
    "one_sided": Example("Half of the codes unused", Generated("relu", (16, 16)), "int4 symmetric"),
    "outlier_channel": Example(
        "One column sets the scale", Generated("outlier_channel", (16, 16)), "int8 symmetric"
    ),
    "outlier_element": Example(
        "One element sets the scale", Generated("outlier_element", (16, 16)), "int8 symmetric"
    ),
    "clipped_too_much": Example("A range too narrow", Generated("normal", (16, 16)), "int8 fixed(-1, 1)"),
    "clips_too_little": Example("A range stretched by a long tail", Generated("laplace", (128, 256)), "int4 symmetric"),
    "codes_unused": Example(
        "Most codes unused",
        Generated("normal", (16, 16), parameters=(("std", 0.1),)),
        "int8 fixed(-10, 10)",
    ),
    "per_channel": Example(
        "One scale for different channels",
        Generated("outlier_channel", (512, 64), parameters=(("factor", 3.5),)),
        "int8 symmetric",
    ),
    "small_groups": Example("Groups too small", Generated("normal", (32, 64)), "int4 per_group(4)"),
    "tiny_block": Example(
        "Numbers too small for a scale", "1e-42, -2e-42, 3e-42, 5e-43\n1, -2, 3, 0.5", "int8 per_channel(0)"
    ),
    "zero_block": Example(
        "A dead row", "0.5, -1.1, 0.3, 2\n0, 0, 0, 0\n1.3, 0.7, -0.4, -1.8", "int8 per_channel(0)"
    ),
    "constant_block": Example(
        "A constant row", "0.5, -1.1, 0.3, 2\n0.7, 0.7, 0.7, 0.7\n1.3, 0.8, -0.4, -1.8", "int8 per_channel(0)"
    ),
    "spare_bits": Example(
        "More bits than the values need",
        "0.3, 0, -0.3, 0.3\n-0.3, 0.3, 0, 0\n0, -0.3, 0.3, -0.3\n0.3, 0.3, -0.3, 0",
        "int8 symmetric",
    ),
    "ties": Example(
        "Numbers halfway between two codes", "100.5, -81.5, 8.5, 64.5\n-27.5, 40.5, 11, -6", "int8 given(1)"
    ),
    "better_scheme": Example("Scales along the wrong axis", _COLUMNS, "int4 per_channel(0)"),
    "nan": Example(
        "Silent NaN", "0, 0.5, 1, -1", "int8 given(1e-40) torch.fake_quantize"
    ),
}  # fmt: skip
