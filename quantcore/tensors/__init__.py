"""Where tensors come from: pasted text, a distribution and a seed, examples, files, and links."""

from quantcore.tensors.content import content_hash
from quantcore.tensors.dtypes import DTYPES, HALF, Conversion, as_numpy, rounded_to
from quantcore.tensors.examples import EXAMPLES, Example
from quantcore.tensors.files.entries import TensorInfo, load_json
from quantcore.tensors.files.numpy_files import CONVERT_TORCH, plain_npy_header, read_npy_header
from quantcore.tensors.files.read import EXTENSIONS, IMAGES, first_weight, is_image, list_tensors, read_tensor
from quantcore.tensors.files.safetensors_files import (
    SAFETENSORS_BITS,
    SafetensorsHeader,
    read_safetensors_header,
)
from quantcore.tensors.generate import (
    DISTRIBUTIONS,
    Distribution,
    Generated,
    Parameter,
    check_shape,
    generate,
    parse_shape,
)
from quantcore.tensors.limits import (
    MAX_BYTES,
    MAX_ELEMENTS,
    MAX_IMAGE_SIDE,
    MAX_LINK_CHARS,
    MAX_LINK_ELEMENTS,
    MAX_RANK,
    MAX_TEXT_CHARS,
    MAX_TEXT_FILE_BYTES,
)
from quantcore.tensors.link import decode, decode_text, encode, encode_text, fits_link
from quantcore.tensors.text.found import PastedTensor
from quantcore.tensors.text.literals import (
    READABLE,
    WIDTH,
    Array,
    array_source,
    literal,
    little_endian,
    number_texts,
)
from quantcore.tensors.text.parse import parse, parse_all

__all__ = [
    "Array",
    "CONVERT_TORCH",
    "Conversion",
    "DISTRIBUTIONS",
    "DTYPES",
    "Distribution",
    "EXAMPLES",
    "EXTENSIONS",
    "Example",
    "Generated",
    "HALF",
    "IMAGES",
    "MAX_BYTES",
    "MAX_ELEMENTS",
    "MAX_IMAGE_SIDE",
    "MAX_LINK_CHARS",
    "MAX_LINK_ELEMENTS",
    "MAX_RANK",
    "MAX_TEXT_CHARS",
    "MAX_TEXT_FILE_BYTES",
    "Parameter",
    "PastedTensor",
    "READABLE",
    "SAFETENSORS_BITS",
    "SafetensorsHeader",
    "TensorInfo",
    "WIDTH",
    "array_source",
    "as_numpy",
    "check_shape",
    "content_hash",
    "decode",
    "decode_text",
    "encode",
    "encode_text",
    "first_weight",
    "fits_link",
    "generate",
    "is_image",
    "list_tensors",
    "literal",
    "load_json",
    "little_endian",
    "number_texts",
    "parse",
    "parse_all",
    "parse_shape",
    "plain_npy_header",
    "read_npy_header",
    "read_safetensors_header",
    "read_tensor",
    "rounded_to",
]
