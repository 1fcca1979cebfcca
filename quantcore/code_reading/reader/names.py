"""What a name stands for."""

import dataclasses

from quantcore.code_reading.reader.reading import Names
from quantcore.code_reading.values.guesses import guess
from quantcore.code_reading.values.known import Data, Module, Num, Value

_KNOWN_NAMES = {"torch": "torch", "np": "numpy", "numpy": "numpy", "F": "torch.nn.functional", "math": "math"}


def name_of(name: str, names: Names) -> Value:
    """What a name stands for; one that nothing binds, by what it says."""
    if name in names:
        return names[name]
    if name in _KNOWN_NAMES:
        return Module(_KNOWN_NAMES[name])
    if name in ("True", "False"):
        return Num(name == "True")
    found = guess(name)
    if isinstance(found, Data):
        found = names[name] = dataclasses.replace(found, caller=True)
    return found
