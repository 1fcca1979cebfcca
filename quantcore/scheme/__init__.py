"""The scheme, which determines every code: one record, its presets, and its storage cost."""

from quantcore.scheme.ggml_presets import gguf_type, with_importance
from quantcore.scheme.presets import PRESETS
from quantcore.scheme.properties import PROPERTIES, facts_of
from quantcore.scheme.scheme import Scheme, as_scheme
from quantcore.scheme.storage import Storage, bits_per_element, compression_ratio, storage
from quantcore.scheme.support import (
    KINDS,
    accepted,
    check_supported,
    full_name,
    in_dtype,
    nearest_supported,
    received,
    unsupported_format,
    unsupported_reason,
)
