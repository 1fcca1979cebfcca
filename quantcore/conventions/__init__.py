"""The numerical choices on which real libraries differ with all else equal, one record a library's call.

Adding a library is adding a record. A source that says "measured" means: on 300,000 near-ties on x86-64 with
AVX-512, one thread, the named arithmetic gave no difference and every other one thousands.
"""

from quantcore.conventions.float_libraries import FLOAT_LIBRARIES
from quantcore.conventions.other_libraries import OTHER_LIBRARIES
from quantcore.conventions.record import BASES, CHOICES, TEXTBOOK, Convention, Limit
from quantcore.conventions.torch_libraries import TORCH_LIBRARIES

CONVENTIONS: dict[str, Convention] = {c.name: c for c in (TEXTBOOK, *TORCH_LIBRARIES, *OTHER_LIBRARIES)}
BASES.update(CONVENTIONS)
BASES.update({c.name: c for c in FLOAT_LIBRARIES})

__all__ = ["BASES", "CHOICES", "CONVENTIONS", "Convention", "Limit", "TEXTBOOK"]
