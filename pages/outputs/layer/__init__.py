"""Layer: what quantization does to the output of a layer."""

from pages.outputs.layer import keys
from pages.shared.page import ALWAYS, SCHEME, TENSOR, Page, While
from pages.sidebar import activations

PAGE = Page(
    script="outputs/layer/page.py",
    title="Layer",
    icon="layers",
    url_path="layer",
    section="Outputs",
    order=32,
    uses={TENSOR: ALWAYS, SCHEME: ALWAYS},
    keys={*keys.DEFAULTS, *activations.KEYS},
    required=keys.REQUIRED,
    free_text={keys.BIAS, keys.FORMAT, activations.VALUES, keys.CELL},
    maps=True,
    charts=While(keys.TAB, {"errors"}),
    heading="What does quantization do to a layer's output?",
)
