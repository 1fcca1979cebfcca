"""Files that ask for much end in a QuantError or a result, in little processor time and memory, in this process."""

import pytest
from checkpoint_damage import answer, limited
from grid import for_each
from hostile_files import HOSTILE

from quantcore.checkpoints import open_checkpoint

# 2 s of processor time, which other work on the same cores makes up to twice as long
MOST_BYTES, MOST_SECONDS = 500 * 10**6, 5.0
# which take over a second to be written or read, or a quarter of one as others of their kind do
LONG = {
    "pt_tensors", "pt_one_storage", "pt_shared_tensor", "pt_references", "pt_members", "npz_members",
    "npz_deflated_members", "npz_overlapping", "onnx_external", "onnx_constants", "onnx_initializers", "onnx_full_nodes",
    "gguf_tensors", "gguf_most_tensors", "safetensors_most", "gguf_keys", "dat_entries", "index_shards", "index_tensors", "safetensors_scalars",
    "safetensors_lists", "safetensors_metadata", "pt_copies", "pt_colliding_integers", "pt_bomb", "safetensors_empty",
    "gguf_texts", "onnx_numbers", "onnx_inputs", "onnx_same_names", "onnx_attributes", "onnx_opsets", "onnx_pairs", "config_lists",
    "safetensors_gptq", "npz_large_members", "npz_large_columns", "pt_marks", "pt_nested_lists", "pt_nested_class", "onnx_fields", "onnx_graph_fields", "onnx_dims", "pt_long_rank",
    "onnx_nodes", "config_values", "safetensors_large_shape", "safetensors_duplicate", "pt_nested_state",
    "pt_nested_storage_key", "pt_nested_function", "pt_nested_dicts", "pt_nested_tuple_key",
    "pt_nested_key", "pt_lists_of_lists", "pt_wide_texts", "pt_nested_storage", "pt_long_names", "safetensors_long_shape",
}  # fmt: skip


@for_each(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in HOSTILE]
)
def test_time_and_memory_are_bounded(name, tmp_path):
    HOSTILE[name](tmp_path)
    (path, *others) = sorted(tmp_path.iterdir())
    said = []
    with limited(MOST_BYTES, MOST_SECONDS, name):
        answer(lambda: open_checkpoint(tmp_path if others else path), said)  # what it holds may also be read
    assert all(len(sentence) < 600 for sentence in said), said


def test_every_container_has_files_that_ask_for_much():
    assert {name.partition("_")[0] for name in HOSTILE} >= {
        "pt",
        "npz",
        "npy",
        "onnx",
        "gguf",
        "dat",
        "safetensors",
    }
