"""Keys of the page's controls, which are also parameters of its link, and their defaults."""

from typing import Any

from pages.sidebar import activations

PER, FORMAT, GROUP, SCALES, RANGE = "ly_per", "ly_format", "ly_group", "ly_scales", "ly_range"
BATCHES, AVERAGING, PERCENTILE = "ly_batches", "ly_averaging", "ly_percentile"
BIAS, CELL, TAB, OUTPUT, BITS = "ly_bias", "ly_cell", "ly_tab", "ly_output", "ly_bits"

DEFAULTS: dict[str, Any] = activations.DEFAULTS | {
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
REQUIRED = {activations.SOURCE, OUTPUT, BITS}
