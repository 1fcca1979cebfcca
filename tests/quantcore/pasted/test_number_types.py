"""Types that NumPy lacks hold what ml_dtypes makes of every number."""

import numpy as np
import pytest
from grid import for_each

from quantcore.pasted import narrow

ml_dtypes = pytest.importorskip("ml_dtypes")
RNG = np.random.default_rng(0)
EDGES = [0.0, -0.0, 448, 464, 464.1, 240, 250, -9, 7.9, 65000, 1e9, -1e-40, np.inf, -np.inf, np.nan]
NUMBERS = np.concatenate([RNG.standard_normal(1000) * 10.0 ** RNG.integers(-12, 9, 1000), EDGES]).astype(
    np.float32
)


@for_each("name", narrow.NARROW)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_cast_gives_what_ml_dtypes_gives(name):
    own, real = narrow.NARROW[name], getattr(ml_dtypes, name)
    x = NUMBERS if "float" in name else np.clip(np.nan_to_num(NUMBERS), -(2**31), 2**31 - 256)
    found = narrow.cast(x, own)
    np.testing.assert_array_equal(found.astype(np.float64), x.astype(real).astype(np.float64))
    assert narrow.name_of(found.dtype) == name
    assert narrow.name_of(narrow.plain(found * found).dtype) == str(found.astype(found.dtype.type).dtype)
    limits, told = narrow.limits(own), (ml_dtypes.finfo if "float" in name else ml_dtypes.iinfo)(real)
    assert (limits.min, limits.max, limits.bits) == (float(told.min), float(told.max), told.bits)
    if "float" in name:
        assert (limits.eps, limits.tiny) == (float(told.eps), float(told.tiny))
