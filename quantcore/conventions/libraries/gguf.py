"""Records of gguf. Measured: see `quantcore.conventions`."""

from typing import Any

from quantcore.conventions.record import FLOATS, ROW_GROUPS, Convention, Limit

SEARCHED = Limit(
    "search", (True,), "takes scales from one of ggml's searches (make_qx, …) and stores them in 16 bits"
)
SUPER_BLOCKS = Limit(
    "super_blocks", (True,), "requires rows of whole super-blocks (ggml: n_per_row % QK_K == 0, QK_K = 256)"
)


def _gguf(name: str, lines: str, **choices: Any) -> Convention:
    return Convention.of(
        name,
        call=f"quants.quantize(x, {name.partition('.')[2]})",
        range_overflow="infinite",
        cast="low_bits",
        quantize_with="raw",
        sources=(("all", f"gguf/quants.py:{lines}"),),
        limits=ROW_GROUPS,
        **{**FLOATS, "formats": ("int",), "nan": "zero", "library": "gguf", "version": "0.19.0", **choices},
    )


def _ggml(name: str, functions: str, **choices: Any) -> Convention:
    """Return a record of ggml's C: x86-64 without fused multiply-add."""
    limits = (SEARCHED, *choices.pop("limits", (SUPER_BLOCKS, *ROW_GROUPS)))
    return Convention.of(
        name,
        call="ggml_quantize_chunk(type, x, ...)",
        eps=0.0,
        eps_replacement=0.0,
        library="ggml",
        version="0.13.1",
        sources=(("all", f"ggml/src/ggml-quants.c: {functions}"),),
        preset_only=True,
        limits=limits,
        **{"bad_scale": "nonfinite", **choices},
    )


PLACE = 11  # among the libraries, wherever they are listed
RECORDS = (
    _gguf("gguf.Q8_0", "379-393", rounding="half_away", kernel="B"),
    _gguf(
        "gguf.Q4_0",
        "222-238",
        kernel="F",
        rounding="toward_zero",
        symmetric_scale="signed_amax",
        unsigned_symmetric_zero_point="middle",
    ),
    _gguf(
        "gguf.Q4_1",
        "256-273",
        kernel="G",
        rounding="toward_zero",
        zero_in_range="no",
        zero_point_form="min",
    ),
    _gguf("gguf.MXFP4", "668-688", symmetric_scale="power_log2_wrapped", formats=("codebook",)),
    _gguf("gguf.TQ2_0", "625-640", kernel="B", formats=("codebook",)),
    _ggml(
        "gguf.Q4_K",
        "quantize_row_q2_K, q4_K, q5_K",
        kernel="H",
        zero_point_form="below",
        zero_scale="searched",
    ),
    _ggml("gguf.Q6_K", "quantize_row_q3_K, q6_K", zero_scale="searched"),
    _ggml(
        "gguf.IQ4_XS",
        "quantize_row_iq4_nl_impl",
        kernel="B",
        quantize_with="levels",
        formats=("codebook",),
    ),
    _ggml(
        "gguf.IQ4_NL",
        "quantize_row_iq4_nl_impl",
        kernel="B",
        quantize_with="raw",
        formats=("codebook",),
        limits=ROW_GROUPS,
    ),
    _ggml(
        "gguf.Q4_0.imatrix",
        "quantize_row_q4_0_impl, q5_0",
        quantize_with="searched",
        limits=ROW_GROUPS,
    ),
    _ggml(
        "gguf.Q4_1.imatrix",
        "quantize_row_q4_1_impl, q5_1",
        quantize_with="searched",
        zero_point_form="min",
        limits=ROW_GROUPS,
    ),
    _ggml(
        "gguf.scales",
        "quantize_row_q4_K and similar, the scales of the groups",
        quantize_with="searched",
        unsigned_symmetric_zero_point="zero",
        bad_scale="kept",
        limits=ROW_GROUPS,
    ),
    _gguf("gguf.TQ1_0", "577-599", kernel="B", formats=("codebook",), code_bits=1.625),
)
