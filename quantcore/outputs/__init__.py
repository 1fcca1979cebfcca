"""What quantization does to a layer's output x·wᵀ, and the methods that reduce it.

w is [out, in], x is [tokens, in].
"""

from quantcore.outputs.activations import (
    CALIBRATION,
    HELD_OUT,
    activations,
    attention_head,
    of_mean_squares,
    outlier_channels,
)
from quantcore.outputs.calibration import Calibration, calibrate
from quantcore.outputs.compensation import Compensated, GptqStep, gptq, gptq_steps
from quantcore.outputs.decomposition import Decomposed, llm_int8
from quantcore.outputs.error_parts import (
    OF_ACTIVATIONS,
    OF_BOTH,
    OF_WEIGHTS,
    LayerOutput,
    LayerStep,
    layer,
    layer_steps,
    output_measure,
)
from quantcore.outputs.hadamard_matrices import hadamard_matrix
from quantcore.outputs.integer_path import IntegerLayer, IntegerProduct, integer_layer, integer_product
from quantcore.outputs.kv_cache import AttentionOutput, kv_cache, kv_granularities
from quantcore.outputs.matrices import MethodStep
from quantcore.outputs.moments import MomentOutput, from_moment, second_moment
from quantcore.outputs.requantization import (
    DOUBLE,
    FLOAT,
    REQUANTIZATIONS,
    SINGLE,
    Requantized,
    fixed_point,
    requantize,
)
from quantcore.outputs.rotation import Rotated, hadamard
from quantcore.outputs.scale_search import ActivationAware, AwqStep, awq, awq_steps
from quantcore.outputs.side_by_side import (
    AWQ,
    CALIBRATED,
    GPTQ,
    HADAMARD,
    LLM_INT8,
    METHODS,
    NEAREST,
    SMOOTHQUANT,
    LayerData,
    MethodOptions,
    MethodOutput,
    TokensPoint,
    by_tokens,
    compare,
    method_output,
    ranked,
    settled,
)
from quantcore.outputs.smoothing import Smoothed, smoothquant
from quantcore.outputs.terms import OutputTerms

__all__ = [
    "ActivationAware", "activations", "attention_head", "AttentionOutput", "AWQ", "awq", "awq_steps",
    "AwqStep", "by_tokens", "calibrate", "CALIBRATED", "CALIBRATION", "Calibration", "compare",
    "Compensated", "Decomposed", "DOUBLE", "fixed_point", "FLOAT", "from_moment", "GPTQ", "gptq",
    "gptq_steps", "GptqStep", "HADAMARD", "hadamard", "hadamard_matrix", "HELD_OUT", "integer_layer",
    "integer_product", "IntegerLayer", "IntegerProduct", "kv_cache", "kv_granularities", "layer",
    "layer_steps", "LayerData", "LayerOutput", "LayerStep", "LLM_INT8", "llm_int8", "method_output",
    "MethodOptions", "MethodOutput", "METHODS", "MethodStep", "MomentOutput", "NEAREST",
    "OF_ACTIVATIONS", "OF_BOTH", "of_mean_squares", "OF_WEIGHTS", "outlier_channels", "output_measure",
    "OutputTerms", "ranked", "REQUANTIZATIONS", "requantize", "Requantized", "Rotated", "second_moment",
    "settled", "SINGLE", "Smoothed", "SMOOTHQUANT", "smoothquant", "TokensPoint",
]  # fmt: skip
