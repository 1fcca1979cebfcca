"""Quantized weights that no config explains, so that readers take their codes for values, or fail."""

from collections.abc import Iterator, Mapping

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.findings.record import CheckpointFinding, error
from quantcore.checkpoints.findings.structure import is_matrix
from quantcore.checkpoints.protocol.config import section
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.release import AsStored, Refused, Release
from quantcore.checkpoints.statement import Facts, named
from quantcore.wording import joined

# formats whose readers go by the quantization_config of config.json
BY_CONFIG = frozenset((
    "gptq", "awq", "compressed-tensors", "bitsandbytes-4bit", "bitsandbytes-int8", "modelopt", "fp8",
    "fp8-block", "int8", "bitnet", "hqq", "mxfp4-gpt-oss", "mlx",
))  # fmt: skip
_CODES = ("I8", "U8", "I16", "U16", "I32", "U32")
_ENOUGH = 256  # elements; fewer may be a table or an index
_NAMES = ("weight", "kernel", "w_q")  # parts of the names of weights
_FILES = (".safetensors", ".bin", ".pt", ".pth")  # of models; arrays in other files may be codes on purpose
# the stored tensors of a module -> what looks like it
_LOOKS = (
    ({"qweight", "scales"}, "GPTQ or AWQ"),
    ({"weight_packed"}, "compressed-tensors"),
    ({"weight", "scales"}, "MLX"),
    ({"W_q"}, "HQQ"),
    ({"weight", "absmax"}, "bitsandbytes"),
)


def of_configs(records: Mapping[str, Layout | AsStored], release: Release) -> Iterator[CheckpointFinding]:
    """Yield weights that are codes without a format, and formats that the config does not name.

    Args:
        records: of all weights, by name.
    """
    said = bool(release.quantization or section(release.config, "quantization"))
    said = said or "general.architecture" in release.config
    is_model = "model_type" in release.config or "architectures" in release.config
    for name, record in records.items():
        if isinstance(record, Refused):
            continue
        if record.is_plain:
            (piece,) = record.pieces.values()
            if not release.structures and _looks_coded(name, piece):
                yield _unexplained(name, piece, release)
        elif is_model and not said and record.format_name in BY_CONFIG:
            is_mlx = record.format_name == "mlx"
            facts: Facts = {
                "format": record.format_name,
                "section": "quantization" if is_mlx else "quantization_config",
                "readers": "mlx-lm chooses" if is_mlx else "transformers and vLLM choose",
            }
            words = (
                "{is} stored as {format}, but config.json has no {section}, by which {readers} how to read "
                "{its} codes: loading fails, or finds no weights. Put it back."
            )
            yield error(name, "config_missing", words, **facts)


def _looks_coded(name: str, piece: StoredTensor) -> bool:
    elements = piece.num_bytes // max(1, piece.itemsize)
    last = name.rpartition(".")[2].lower()
    is_weight = any(part in last for part in _NAMES) and not any(p in last for p in ("zero", "idx", "shape"))
    is_model = piece.source.name.endswith(_FILES)
    # bitsandbytes stores two codes per byte in one column
    is_coded = is_matrix(piece.shape) or (piece.dtype == "U8" and piece.shape == (elements, 1))
    return piece.dtype in _CODES and is_weight and is_model and is_coded and elements >= _ENOUGH


def _unexplained(name: str, piece: StoredTensor, release: Release) -> CheckpointFinding:
    module, _, last = name.rpartition(".")
    near = {n for n in release.modules.get(module, ()) if n != last and "bias" not in n}
    near |= set(release.modules.get(name, ()))
    looks = next((what for names, what in _LOOKS if names <= near | {last}), "")
    if not looks and piece.dtype == "U8" and piece.shape[1:] == (1,):
        looks = "bitsandbytes of 4 bits, whose quant_state is missing too"
    if not looks and {"weight_scale"} <= near:
        looks = "BitNet or ModelOpt" if piece.dtype == "U8" else "compressed-tensors"
    facts: Facts = {
        "dtype": piece.dtype, "shape": piece.shape, "looks": looks,
        "near": joined([named(n) for n in sorted(near)[:4]]) if near else "",
    }  # fmt: skip
    words = "{is} stored as {dtype}, as codes are"
    words += ", next to {near}" if near else ", without a scale next to {its} codes"
    words += ": {it} looks like {looks}, and the config that says so is missing" if looks else ""
    words += "; {its} values here are the codes."
    return error(name, "config_missing", words, **facts)
