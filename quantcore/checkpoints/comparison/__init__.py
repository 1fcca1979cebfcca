"""Compares two checkpoints, the original and another, tensor by tensor: how large the error is, and where.

>>> original, other = open_checkpoint("original"), open_checkpoint("model.gguf")  # doctest: +SKIP
>>> comparison = CheckpointComparison(original, other)  # doctest: +SKIP
>>> for step in comparison.steps():  # doctest: +SKIP
...     print(f"{step.done:,} of {step.total:,} bytes: {step.name}")
>>> comparison.results(step.state)  # doctest: +SKIP

Where things are: `sides` (the names under which both sides know a tensor), `pairing` (which tensors belong
together), `parts` (experts, rows of fused tensors, transposes), `orders` (rows in another order), `boxes`
(the arithmetic, threads), `error_map` (where in a tensor the error is), `schemes` (why quantized tensors
differ), `record` (the results), `stream` (progress, stopping, resuming).
"""

from quantcore.checkpoints.comparison.error_map import sqnr_of_cells
from quantcore.checkpoints.comparison.orders import Order, row_order
from quantcore.checkpoints.comparison.pairing import Pair, Pairing, pair_up
from quantcore.checkpoints.comparison.parts import Part
from quantcore.checkpoints.comparison.record import TensorResult, WorstBlock, by_harm, schemes_of, summary
from quantcore.checkpoints.comparison.sides import Unpaired
from quantcore.checkpoints.comparison.stream import CheckpointComparison, ComparisonState, ComparisonStep
