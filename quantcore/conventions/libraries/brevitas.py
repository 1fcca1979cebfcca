"""Records of brevitas. Measured: see `quantcore.conventions`."""

from quantcore.conventions.record import CHANNEL, HALF, IN_OWN_DTYPE, TENSOR, Convention, Limit, own_dtype

PLACE = 6  # among the libraries, wherever they are listed
RECORDS = (
    Convention.of(
        "brevitas",
        library="brevitas",
        version="0.13.4",
        call="QuantLinear(weight_quant=Int8Weight... or ShiftedUint8Weight...).quant_weight().int()",
        kernel="C",
        nan="undefined",
        zero_in_range="low",
        range_overflow="infinite",
        min_range=1e-10,
        eps=0.0,
        # statistics per tensor have no axis, and torch divides two such numbers in the wider of their dtypes
        variants=(
            *own_dtype(*IN_OWN_DTYPE, "width_dtype", dtypes=(*HALF, "float64")),
            *(
                (f"{TENSOR} {dtype}", choice, "float32")
                for dtype in HALF
                for choice in ("scale_precision", "scale_dtype", "zero_point_precision")
            ),
            # quant_weight() gives an infinite scale, which QuantTensor.int() refuses
            *((dtype, "bad_scale", "kept") for dtype in HALF),
        ),
        bad_scale="nonfinite",
        zero_point_order="round_difference",
        limits=(
            Limit(
                "kind",
                ("signed symmetric", "unsigned asymmetric"),
                "supports only signed symmetric (Int8Weight) and unsigned asymmetric (ShiftedUint8Weight) "
                "weights",
            ),
            Limit("symmetric_narrow", (True,), "uses the narrow range for symmetric weights, such as int8n"),
            Limit("asymmetric_narrow", (False,), "uses every code for asymmetric weights"),
            Limit("granularity", (TENSOR, CHANNEL), "supports only per-tensor and per-channel scales"),
            Limit("channel_axis", (0,), "expects output channels along axis 0"),
        ),
        sources=(
            ("kernel", "brevitas/core/quant/int_base.py:65-72; measured"),
            ("symmetric_scale", "brevitas/core/scaling/int_scaling.py:30-40"),
            ("zero_in_range", "brevitas/core/stats/stats_op.py:244-246"),
            ("min_range", "scaling_min_val of the default weight quantizers; measured"),
            ("zero_point_order", "brevitas/core/zero_point.py:60-65"),
            ("bad_scale", "IntQuantTensor raises 'QuantTensor not valid'; measured"),
        ),
    ),
)
