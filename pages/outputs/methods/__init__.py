"""Methods: which one keeps a layer's output at equal bits, and what each of them does."""

from pages.outputs.methods import controls
from pages.shared.page import ALWAYS, SCHEME, TENSOR, Page
from pages.sidebar import activations

PAGE = Page(
    script="outputs/methods/page.py",
    title="Methods",
    icon="auto_fix_high",
    url_path="methods",
    section="Outputs",
    order=36,
    uses={TENSOR: ALWAYS, SCHEME: ALWAYS},
    keys=controls.KEYS,
    required=controls.REQUIRED,
    free_text={activations.VALUES},
)
