"""Records of optimum-quanto. Measured: see `quantcore.conventions`."""

from quantcore.conventions.record import CHANNEL, HALF, IN_OWN_DTYPE, TENSOR, Convention, Limit, own_dtype

PLACE = 7  # among the libraries, wherever they are listed
RECORDS = (
    Convention.of(
        "quanto",
        library="optimum-quanto",
        version="0.2.7",
        call="AbsmaxOptimizer -> quanto::quantize_symmetric",
        nan="zero",
        eps=0.0,
        variants=own_dtype(*IN_OWN_DTYPE, dtypes=(*HALF, "float64")),
        limits=(
            Limit("kind", ("signed symmetric",), "supports signed symmetric codes only"),
            Limit("bits", (2, 4, 8), "supports 2, 4 and 8 bits (qint2, qint4, qint8)"),
            Limit("narrow", (False,), "clamps to the full range"),
            Limit("sub_byte_range", (True,), "clamps to 8 bits even if the type has fewer; choose min_max"),
            Limit("granularity", (TENSOR, CHANNEL), "supports per-tensor and per-channel scales"),
            Limit("channel_axis", (0, -1), "supports channels along the first or the last axis only"),
            Limit(
                "channel_rank",
                tuple(range(2, 65)),
                "supports per-channel scales only for tensors with several axes",
            ),
        ),
        sources=(
            ("kernel", "optimum/quanto/library/quantize.py:40-60; measured"),
            ("symmetric_scale", "optimum/quanto/tensor/optimizers/absmax_optimizer.py:30-38"),
        ),
    ),
)
