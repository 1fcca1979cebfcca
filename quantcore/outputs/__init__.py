"""What quantization does to a layer's output x·wᵀ, and the methods that reduce it.

w is [out, in], x is [tokens, in].
"""

from quantcore.outputs.calibration import Calibration, calibrate
from quantcore.outputs.compensation import Compensated, GptqStep, gptq, gptq_steps
from quantcore.outputs.decomposition import Decomposed, llm_int8
from quantcore.outputs.error_parts import OF_ACTIVATIONS, OF_BOTH, OF_WEIGHTS, LayerOutput, layer
from quantcore.outputs.hadamard_matrices import hadamard_matrix
from quantcore.outputs.integer_path import IntegerLayer, IntegerProduct, integer_layer, integer_product
from quantcore.outputs.kv_cache import AttentionOutput, kv_cache, kv_granularities
from quantcore.outputs.matrices import MethodStep
from quantcore.outputs.moments import MomentOutput, from_moment, second_moment
from quantcore.outputs.requantization import REQUANTIZATIONS, Requantized, fixed_point, requantize
from quantcore.outputs.rotation import Rotated, hadamard
from quantcore.outputs.scale_search import ActivationAware, AwqStep, awq, awq_steps
from quantcore.outputs.smoothing import Smoothed, smoothquant

__all__ = [
    "ActivationAware", "AttentionOutput", "awq", "awq_steps", "AwqStep", "Calibration", "calibrate",
    "Compensated", "Decomposed", "fixed_point", "from_moment", "gptq", "gptq_steps", "GptqStep", "hadamard",
    "hadamard_matrix", "integer_layer", "integer_product", "IntegerLayer", "IntegerProduct", "kv_cache",
    "kv_granularities", "layer", "LayerOutput", "llm_int8", "MethodStep", "MomentOutput", "OF_ACTIVATIONS",
    "OF_BOTH", "OF_WEIGHTS", "REQUANTIZATIONS", "requantize", "Requantized", "Rotated", "second_moment",
    "Smoothed", "smoothquant",
]  # fmt: skip
