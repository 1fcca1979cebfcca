"""Write quantcore/checkpoints/ggml/data/grids.npz: python tests/generators/make_ggml_grids.py

From the tables of the gguf package.
"""

from pathlib import Path

import numpy as np
from gguf import quants

PATH = Path(__file__).parents[2] / "quantcore/checkpoints/ggml/data/grids.npz"
TYPES = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S")


def grids():
    """The grid of each type as the package decodes it, int8 of shape [entries, elements per entry]."""
    found = {}
    for name in TYPES:
        kind = getattr(quants, name)
        kind.init_grid()
        found[name] = kind.grid.reshape(kind.grid_shape).astype(np.int8)
    return found


if __name__ == "__main__":
    np.savez_compressed(PATH, **grids())
