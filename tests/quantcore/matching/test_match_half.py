"""Match: codes that libraries computed in half precision name the library and the dtype."""

import warnings

import half_cases as half
import numpy as np
import pytest
import torch
from grid import for_each

import quantcore as qc
from quantcore.matching import Transposed, answer, explain_candidate, match, reproduce

LIBRARIES = ("torchao", "compressed-tensors", "optimum-quanto", "brevitas", "hqq", "onnxruntime", "torch")
