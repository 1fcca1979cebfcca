"""Post-training quantization (PTQ) and quantization-aware training (QAT) on handwritten digits.

>>> from quantcore import Scheme, training
>>> *_, trained = training.train(training.Training(epochs=2), seed=0)
>>> scheme = Scheme.parse("int2 per_channel")
>>> after = training.ptq(trained.network, scheme)
>>> for progress in training.qat(trained.network, scheme, learned_scales=True):
...     print(f"{progress.epoch}/{progress.epochs} {progress.accuracy:.1%}")  # doctest: +SKIP

A seed gives the same network on every machine: see `quantcore.training.network`. A layer's weights are
``trained.network.weights[0]`` before quantization and ``after.weights[0]``, of `quantcore.apply`, after it.

`character_model` runs the language model of the example checkpoint ``charlm``: see
`quantcore.training.language`.
"""

from quantcore.training.curve import FLOAT, METHODS, MethodAccuracy, Point, accuracy_curve, summary
from quantcore.training.language import (
    CharacterModel,
    HeldOutText,
    activations_of,
    character_model,
    load_text,
    tokens_of,
)
from quantcore.training.network import Digits, Network, accuracy, load_digits
from quantcore.training.quantized import QuantizedNetwork, fake_quantize, ptq
from quantcore.training.sgd import HIDDEN, TRAINING, TUNING, Epoch, Training, qat, train

__all__ = [
    "FLOAT",
    "HIDDEN",
    "METHODS",
    "TRAINING",
    "TUNING",
    "CharacterModel",
    "Digits",
    "Network",
    "Point",
    "Epoch",
    "QuantizedNetwork",
    "MethodAccuracy",
    "HeldOutText",
    "Training",
    "accuracy_curve",
    "activations_of",
    "character_model",
    "fake_quantize",
    "load_digits",
    "load_text",
    "ptq",
    "qat",
    "accuracy",
    "summary",
    "tokens_of",
    "train",
]
