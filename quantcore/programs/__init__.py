"""What a library computes, as programs: from the range of a block to its scale, to a code, and to its value.

A line names a result, says by an expression how it is computed, in which dtype, why, and where the library
does so. What depends on the numbers is a `Where`, of which a trace shows the branch that is taken. Everything
that computes or shows numbers reads these lines: `Program.run` for all blocks, `Program.write` for the
elements of a region, `Program.read` for a line of one block, `Program.readings` for one element.

`program` has all lines of a scheme; its parts are `range_program`, `code_program` and `value_program`. The
lines that a single library has are in its module in `libraries`.
"""

from quantcore.programs.elements import (
    CAST_LIMITS,
    DTYPE,
    cast_program,
    code_program,
    decoding_of,
    factor_of,
    value_program,
)
from quantcore.programs.encoding import encode
from quantcore.programs.parameters import parameters_program, range_program
from quantcore.programs.record import HALF, Program, ProgramLine, ReadLine
from quantcore.programs.schemes import program
