"""The file types ("ftypes") that llama-quantize makes, and the type that most tensors of each have.

Source: ggml-org/llama.cpp 0ad4a86: include/llama.h (enum llama_ftype), src/llama-quant.cpp
(llama_ftype_get_default_type), tools/quantize/quantize.cpp (names and aliases).
"""

from quantcore.checkpoints.ggml import BLOCK_TYPES, PLAIN_TYPES
from quantcore.errors import QuantError
from quantcore.wording import nearest, passed

# name: number in general.file_type, and the type of most tensors; empty if llama-quantize does not make it
FTYPES: dict[str, tuple[int, str]] = {
    "F32": (0, "F32"), "F16": (1, "F16"), "BF16": (32, "BF16"), "Q4_0": (2, "Q4_0"), "Q4_1": (3, "Q4_1"),
    "Q5_0": (8, "Q5_0"), "Q5_1": (9, "Q5_1"), "Q8_0": (7, "Q8_0"), "Q2_K": (10, "Q2_K"),
    "Q2_K_S": (21, "Q2_K"), "Q3_K_S": (11, "Q3_K"), "Q3_K_M": (12, "Q3_K"), "Q3_K_L": (13, "Q3_K"),
    "Q4_K_S": (14, "Q4_K"), "Q4_K_M": (15, "Q4_K"), "Q5_K_S": (16, "Q5_K"), "Q5_K_M": (17, "Q5_K"),
    "Q6_K": (18, "Q6_K"), "IQ1_S": (24, "IQ1_S"), "IQ1_M": (31, "IQ1_M"), "IQ2_XXS": (19, "IQ2_XXS"),
    "IQ2_XS": (20, "IQ2_XS"), "IQ2_S": (28, "IQ2_XS"), "IQ2_M": (29, "IQ2_S"), "IQ3_XXS": (23, "IQ3_XXS"),
    "IQ3_XS": (22, "IQ3_S"), "IQ3_S": (26, "IQ3_S"), "IQ3_M": (27, "IQ3_S"), "IQ4_NL": (25, "IQ4_NL"),
    "IQ4_XS": (30, "IQ4_XS"), "TQ1_0": (36, "TQ1_0"), "TQ2_0": (37, "TQ2_0"), "MXFP4_MOE": (38, "MXFP4"),
    "NVFP4": (39, ""), "Q1_0": (40, "Q1_0"), "Q2_0": (41, "Q2_0"),
}  # fmt: skip
_ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
FLOATS = ("F32", "F16", "BF16")
# the bytes of a block and the elements in it
BLOCKS = {kind.name: (kind.num_bytes, kind.elements) for kind in BLOCK_TYPES.values()}
BLOCKS |= {name: (size, 1) for name, size in PLAIN_TYPES.values()}


def ftype_of(name: str) -> str:
    """Return the name of an ftype as llama-quantize writes it, from one in any case or an alias.

    >>> ftype_of("q4_k")
    'Q4_K_M'

    Raises:
        QuantError: there is no such ftype.
    """
    wanted = name.upper() if isinstance(name, str) else ""
    wanted = _ALIASES.get(wanted, wanted)
    if wanted not in FTYPES:
        near = nearest(wanted, FTYPES)
        hint = f"the nearest is {near}" if near else f"choose one of {', '.join(FTYPES)}"
        raise QuantError(f"llama.cpp has no ftype {passed(name)}; {hint}.")
    return wanted


def type_of(name: str) -> str:
    """Return the name of a ggml type, from one in any case.

    Raises:
        QuantError: there is no such type that llama-quantize could write.
    """
    wanted = name.upper() if isinstance(name, str) else ""
    if wanted not in BLOCKS or (wanted[0] == "I" and wanted[1:].isdigit()):
        near = nearest(wanted, BLOCKS)
        hint = f"the nearest is {near}" if near else f"choose one of {', '.join(BLOCKS)}"
        raise QuantError(f"ggml has no type {passed(name)} for weights; {hint}.")
    return wanted


def ggml_name(kind: str) -> str:
    """Return a type as ggml writes it in messages.

    >>> ggml_name("Q6_K"), ggml_name("IQ2_XS")
    ('q6_K', 'iq2_xs')
    """
    return kind.lower().replace("_k", "_K")


def bytes_of(kind: str, shape: tuple[int, ...]) -> int:
    """Return the bytes of a tensor of a ggml type whose rows are whole blocks."""
    size, elements = BLOCKS[kind]
    total = size
    for n in shape[:-1]:
        total *= n
    return total * (shape[-1] if shape else 1) // elements
