"""Keys of the page's controls, which are also parameters of its link, and their defaults."""

from typing import Any

SOURCE, TOKENS, OUTLIERS, FACTOR, SEED = "ly_x", "ly_tokens", "ly_outliers", "ly_factor", "ly_seed"
VALUES = "ly_values"  # a parameter without a control: the numbers of x that were pasted or uploaded
PER, FORMAT, GROUP, SCALES, RANGE = "ly_per", "ly_format", "ly_group", "ly_scales", "ly_range"
BATCHES, AVERAGING, PERCENTILE = "ly_batches", "ly_averaging", "ly_percentile"
BIAS, CELL, TAB, OUTPUT, BITS = "ly_bias", "ly_cell", "ly_tab", "ly_output", "ly_bits"

DEFAULTS: dict[str, Any] = {
    SOURCE: "generate",
    TOKENS: 8,
    OUTLIERS: 1,
    FACTOR: 20.0,
    SEED: 0,
    PER: "tensor",
    FORMAT: "int8",
    GROUP: 4,
    SCALES: "dynamic",
    RANGE: "min_max",
    BATCHES: 4,
    AVERAGING: 0.1,
    PERCENTILE: 99.9,
    BIAS: "",
    CELL: "",
    TAB: "Dot product",
    OUTPUT: "uint8",
    BITS: "32",
}
REQUIRED = {SOURCE, OUTPUT, BITS}
