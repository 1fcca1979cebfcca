"""JSON without duplicate keys and without numbers beyond float64."""

import json
import math
from typing import Any

from quantcore.errors import QuantError
from quantcore.wording import short


def load_json(text: str, name: str) -> Any:
    """Return the value of ``text``; ``NaN`` and ``Infinity`` are read as Python writes them.

    Raises:
        QuantError: the text is not JSON or nested too deep, an object has a key twice, or a number is beyond
            float64.
    """
    try:
        return json.loads(text, object_pairs_hook=_without_duplicates, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise QuantError(
            f"{short(name)} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}; "
            "correct it there."
        ) from None
    except RecursionError:
        raise QuantError(f"{short(name)} has brackets nested too deep; give a plain list of lists.") from None
    except QuantError:
        raise
    except ValueError:  # Python's limit of 4300 digits
        raise QuantError(f"{short(name)} has an integer with too many digits; shorten it.") from None


def _finite(word: str) -> float:
    value = float(word)
    if math.isinf(value):  # 1e999; a literal Infinity is not passed here
        raise QuantError(
            f"The JSON contains {short(word)}, beyond float32, whose largest value is 3.4e38; scale it down."
        )
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise QuantError(f"The JSON has the duplicate key {short(twice, 80)}; rename one of them.")
    return result
