"""Evaluate a quantizer's source with an interpreter of our own, and name the usual mistakes.

>>> import quantcore as qc
>>> reading = qc.read_code("s = x.abs().max() / 255\\nq = torch.round(x / s).clamp(-128, 127)")
>>> [(finding.line, finding.kind) for finding in reading.mistakes]
[(1, 'divisor')]
"""

from quantcore.pasted.chain import MOST
from quantcore.pasted.kinds import CodeFinding
from quantcore.pasted.on_tensor import Against, LineValue, Shown, sample, show_code
from quantcore.pasted.own import OwnTensor
from quantcore.pasted.read import CodeReading, lines_of, read_code
from quantcore.pasted.record import reading_from_plain, reading_to_plain, shown_from_plain, shown_to_plain
