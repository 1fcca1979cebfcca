"""GPTQ releases, against golden checkpoints."""

import numpy as np
from checkpoint_cases import case, cases, changed, differences, flipped, misplaced, quantized_names
from grid import for_each
from parts import in_parts

from quantcore.checkpoints import open_checkpoint

GPTQ = cases("gptq_")


@in_parts(4)
@for_each("given", GPTQ, ids=str)
def test_places(given, part, tmp_path):
    for name in quantized_names(given)[:1]:
        rows, columns = open_checkpoint(given.release).tensors[name].shape
        # 3-bit codes 10 and 21 of each 32 cross a word boundary
        for index in part([(rows - 1, columns - 1), (0, 0), (rows // 2, 10), (3, 21)]):
            assert misplaced(given, name, index, tmp_path) == []


def test_places_of_parameters(tmp_path):
    """Flipping a bit of a scale or zero point changes only the values of elements that use it."""
    given = case("gptq_v1_4bit_g32_asym_desc_act")
    name = quantized_names(given)[0]
    tensor = open_checkpoint(given.release).tensors[name]
    values, groups = tensor.read().numpy(), given.expected[f"{name}|g_idx"]
    index = (5, 77)
    location = tensor.locate(index)
    own = np.zeros(values.shape, bool)
    own[5, groups == groups[77]] = True
    other = flipped(given, location.parameters["scale"], 0, tmp_path).tensors[name]
    assert not (values != other.read().numpy())[~own].any()
    assert (other.scale() != tensor.scale()).nonzero().tolist() == [[5, int(groups[77])]]
    other = flipped(given, location.parameters["zero_point"], 0, tmp_path).tensors[name]
    assert ((values != other.read().numpy()) == own).all()
    assert str(location.code).startswith("model.safetensors, model.layers.0.self_attn.q_proj.qweight: byte ")


def test_the_config_is_not_believed_against_the_zeros():
    given = case("bad_gptq_v1_but_zeros_8")
    checkpoint = open_checkpoint(given.release)
    assert differences(given, checkpoint) == []
    (name,) = given.record["tensors"]
    (note,) = checkpoint.tensors[name].notes()
    assert all(word in note for word in (name, "the first of its stored zeros is 8", "v1", "v2"))


@for_each(
    ("dynamic", "read"),
    [
        ({"-:.*lm_head": {}, r"+:.*\.(mlp|self_attn)\.": {"bits": 8, "group_size": -1}}, True),
        ({"model": {"bits": 8, "group_size": -1}, "+:.*": {"bits": 2}}, True),
        ({"+:layers": {"bits": 8, "group_size": -1}}, False),  # patterns match from the start of the name
        ({"+:(a*)*": {"bits": 8}}, False),
    ],
)
def test_modules_that_differ_from_the_rest(dynamic, read, tmp_path):
    """In the config's ``dynamic``, the first pattern that matches applies."""
    name = "gptq_v1_8bit_channel"
    checkpoint = changed(name, tmp_path, {}, {"bits": 4, "group_size": 128, "dynamic": dynamic})
    if read:
        assert differences(case(name), checkpoint) == []
    else:
        assert {p.severity for p in checkpoint.problems} == {"error"}
