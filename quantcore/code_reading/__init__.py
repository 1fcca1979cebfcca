"""Read a quantizer's source without running it, and name the usual mistakes.

>>> import quantcore as qc
>>> reading = qc.read_code("scale = x.abs().max() / 255\\nq = torch.round(x / scale).clamp(-128, 127).to(torch.int8)")
>>> [(finding.line, finding.kind) for finding in reading.mistakes]
[(1, 'divisor')]
"""

from quantcore.code_reading.kinds import KINDS
from quantcore.code_reading.read import read_code
from quantcore.code_reading.record import CodeFinding, CodeReading, lines_of
from quantcore.code_reading.show import Shown, show

__all__ = ["CodeFinding", "CodeReading", "KINDS", "Shown", "lines_of", "read_code", "show"]
