"""Where one element of a checkpoint comes from: its bits in the file, and the arithmetic on them.

>>> found = tensor.origin((3, 17))  # doctest: +SKIP
>>> for line in found.lines:  # doctest: +SKIP
...     print(line)

Where things are: `words` (bits, what they belong to and mean), `arithmetic` (from stored numbers to the
value, and the same in NumPy), `rivals` (how other libraries read the same bytes).
"""

from quantcore.checkpoints.origin.arithmetic import Origin, origin_of, script
from quantcore.checkpoints.origin.rivals import Rival, rivals, window
from quantcore.checkpoints.origin.words import Bit, StoredNumber, Word, index_text
from quantcore.expressions import Line
