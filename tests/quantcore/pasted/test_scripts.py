"""What scripts around a quantizer use is followed: k-means in 20 turns, einops' patterns, options, and scikit-learn's
calls are refused with what to paste instead."""

import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts

import quantcore as qc
from quantcore.pasted import show_code
from quantcore.pasted.bounds import StopError
from quantcore.pasted.patterns import arrange

X = torch.randn(8, 16, generator=torch.Generator().manual_seed(3))


def codes_of(text, last=-1):
    reading = qc.read_code(text)
    assert not reading.unread, reading.unread
    return reading, show_code(reading, len(reading.quantizers) + last, X).codes


def test_k_means_of_twenty_turns_is_followed():
    """All turns on the tensor that is shown, although mistakes are looked for with fewer of them."""
    text = """
import torch
def kmeans(w, k=4, iters=20):
    flat = w.flatten()
    c = torch.linspace(flat.min(), flat.max(), k)
    for _ in range(iters):
        labels = torch.cdist(flat[:, None], c[:, None]).argmin(1)
        for j in range(k):
            if (labels == j).any():
                c[j] = flat[labels == j].mean()
    return labels.reshape(w.shape)
"""
    reading, found = codes_of(text)
    assert not reading.mistakes
    scope = {}
    exec(text, scope)
    assert torch.equal(found.long(), scope["kmeans"](X))
    fewer = scope["kmeans"](X, iters=2)
    assert not torch.equal(found.long(), fewer)


def test_a_loop_runs_until_its_test_fails_or_it_is_left():
    text = """
import torch
def q(w):
    top, s, bits = w.abs().max(), 2.0 ** -10, 3
    while s * 7 < top:
        s = s * 2
    while True:
        bits += 1
        if bits == 4:
            break
    high = 2 ** (bits - 1) - 1
    return torch.round(w / s).clamp(-high - 1, high)
"""
    scope = {}
    exec(text, scope)
    assert torch.equal(codes_of(text)[1], scope["q"](X))


@pytest.mark.slow  # by default, another way to write k-means is followed
def test_counts_and_sums_of_clusters():
    sums = """
import torch
def kmeans(w, k=8):
    flat = w.flatten()
    c = torch.quantile(flat, torch.linspace(0, 1, k))
    for _ in range(8):
        a = (flat[:, None] - c).abs().argmin(1)
        total = torch.zeros(k).scatter_add_(0, a, flat)
        count = torch.zeros(k).scatter_add_(0, a, torch.ones_like(flat))
        c = torch.where(count > 0, total / count.clamp(min=1), c)
    return a.reshape(w.shape)
"""
    counts = """
import numpy as np
def kmeans(w, k=8):
    flat = w.ravel()
    c = np.percentile(flat, np.linspace(0, 100, k))
    for _ in range(8):
        a = np.abs(flat[:, None] - c).argmin(1)
        n = np.bincount(a, minlength=k)
        c = np.where(n > 0, np.bincount(a, weights=flat, minlength=k) / np.maximum(n, 1), c)
    return a.reshape(w.shape)
"""
    for text, x in ((sums, X), (counts, X.numpy())):
        scope = {}
        exec(text, scope)
        assert np.array_equal(codes_of(text)[1].numpy(), np.asarray(scope["kmeans"](x)))


def test_a_count_is_bounded_by_the_largest_integer():
    reading = qc.read_code("import numpy as np\nn = np.bincount(np.array([3, 2 ** 40]))\n")
    assert [why.startswith("Line 2: a result here would have more than") for why in reading.unread] == [True]


EINOPS = """
from einops import rearrange, reduce, repeat
import {library}
def q(w):
    grouped = rearrange(w, "o (n g) -> o n g", g=4)
    top = reduce({largest}, "o n g -> o n 1", "max")
    s = repeat(top / 7, "o n 1 -> o n g", g=4)
    codes = {rounded}
    return rearrange(codes, "o n g -> o (n g)")
"""


@in_parts(2)
def test_patterns_of_einops(part):
    groups = X.reshape(8, 4, 4)
    right = torch.round(groups / (groups.abs().amax(2, keepdim=True) / 7)).reshape(8, 16)
    by_torch = {
        "library": "torch",
        "largest": "grouped.abs()",
        "rounded": "torch.round(grouped / s).clamp(-8, 7)",
    }
    by_numpy = {
        "library": "numpy as np",
        "largest": "np.abs(grouped)",
        "rounded": "np.clip(np.round(grouped / s), -8, 7)",
    }
    for words in part((by_torch, by_numpy)):
        reading, found = codes_of(EINOPS.format(**words))
        assert torch.equal(found, right)
        assert not reading.mistakes
    wrong, _ = codes_of(EINOPS.format(**by_torch).replace("top / 7", "top / 15"))
    assert [(found.line, found.mistake) for found in wrong.mistakes] == [(7, "divisor")]


@for_each(
    ("pattern", "sizes", "way", "numpy"),
    [
        ("a b c -> (c a) b", {}, "rearrange", lambda x: x.transpose(2, 0, 1).reshape(8, 3)),
        ("... c -> c ...", {}, "rearrange", lambda x: x.transpose(2, 0, 1)),
        ("a ... -> a (...)", {}, "rearrange", lambda x: x.reshape(2, 12)),
        ("a b (c d) -> a d", {"d": 2}, "max", lambda x: x.reshape(2, 3, 2, 2).max((1, 2))),
        ("a b c -> 1 b 1", {}, "mean", lambda x: x.mean((0, 2)).reshape(1, 3, 1)),
        ("a b c -> a (b r) c", {"r": 2}, "repeat", lambda x: np.repeat(x, 2, axis=1)),
    ],
)
def test_a_pattern_in_steps(pattern, sizes, way, numpy):
    x = np.arange(24.0).reshape(2, 3, 4)
    steps = arrange(pattern, x.shape, sizes, way)
    found = x.reshape(steps.split)
    found = getattr(found, way)(steps.reduced) if steps.reduced else found
    found = np.broadcast_to(
        found.transpose(steps.order).reshape(steps.expanded), np.maximum(steps.expanded, steps.repeated)
    ).reshape(steps.merged)
    assert np.array_equal(found, numpy(x))


@for_each(
    "pattern",
    [
        "a b -> a b",
        "a b (c d) -> a b c d",
        "a b c",
        "a b c -> a b",
        "a a b -> a b",
        "a b c -> a b c d",
        "a; b c -> a",
    ],
)
def test_a_pattern_that_does_not_fit(pattern):
    with pytest.raises(StopError):
        arrange(pattern, (2, 3, 4), {}, "rearrange")


def test_options_have_their_defaults():
    text = """
import argparse
import torch
parser = argparse.ArgumentParser(description="quantize a model")
parser.add_argument("--model", required=True)
parser.add_argument("-b", "--w-bits", type=int, default=4, choices=[4, 8])
parser.add_argument("--group-size", type=int, default=8, help="of a row")
parser.add_argument("--narrow", action="store_true")
args, rest = parser.parse_known_args()
def q(w):
    high = 2 ** (args.w_bits - 1) - 1
    low = -high if args.narrow else -high - 1
    groups = w.reshape(-1, args.group_size)
    s = groups.abs().amax(1, keepdim=True) / high
    return torch.round(groups / s).clamp(low, high)
"""
    reading, found = codes_of(text)
    groups = X.reshape(-1, 8)
    assert torch.equal(found.reshape(-1, 8), torch.round(groups / (groups.abs().amax(1, keepdim=True) / 7)))
    assert "clamp (line 15) -8..7" in reading.summary
    wrong, _ = codes_of(text.replace("/ high\n", "/ 15\n"))
    assert [(found.line, found.mistake) for found in wrong.mistakes] == [(14, "divisor")]


def test_calls_of_scikit_learn_say_what_to_paste_instead():
    for home, call, instead in (
        ("cluster", "KMeans(16)", "a loop over torch.cdist, argmin and mean"),
        ("preprocessing", "MinMaxScaler()", "(x - x.min()) / (x.max() - x.min()) times the range"),
        (
            "preprocessing",
            "KBinsDiscretizer(16)",
            "np.linspace or np.quantile for the edges, then np.digitize",
        ),
    ):
        name = call.partition("(")[0]
        reading = qc.read_code(f"from sklearn.{home} import {name}\nmade = {call}\n")
        why = f"Line 2: `{name}` is not followed (paste its steps: {instead})"
        assert [said.startswith(why) for said in reading.unread] == [True]


def test_codes_that_are_packed_need_a_mask():
    text = """
import torch
def pack(w):
    s = w.abs().amax(1, keepdim=True) / 7
    q = torch.clamp(torch.round(w / s), -8, 7).to(torch.int8)
    return (q[:, 1::2] << 4) | {low}
"""
    (found,) = qc.read_code(text.format(low="q[:, ::2]")).mistakes
    assert (found.line, found.mistake) == (6, "packed_signs")
    assert "codes & 0xf" in found.fix
    low, high = torch.tensor([-3], dtype=torch.int8), torch.tensor([5], dtype=torch.int8)
    assert ((high << 4) | low).item() == -3  # the 5 is lost
    for low in ("(q[:, ::2] & 0xF)", "(q[:, ::2] + 8)"):
        assert not qc.read_code(text.format(low=low)).mistakes
    text = """
import numpy as np
def pack(w):
    q = np.clip(np.round(w / (np.abs(w).max() / 7)), -8, 7).astype(np.int8)
    return np.bitwise_or(np.left_shift(q[:, 1::2], 4), {low})
"""
    assert [f.mistake for f in qc.read_code(text.format(low="q[:, ::2]")).mistakes] == ["packed_signs"]
    masked = qc.read_code(text.format(low="np.bitwise_and(q[:, ::2], 0xF)"))
    assert not masked.mistakes
    assert not masked.unread


def test_a_cast_after_128_is_subtracted_drops_the_fraction():
    """Of negative numbers it rounds up, of positive ones down, as embeddings are stored in int8."""
    text = """
import numpy as np
def q(x):
    low = x.min(axis=0)
    step = (x.max(axis=0) - low) / 255
    return ((x - low) / step - 128).astype(np.int8)
"""
    reading, found = codes_of(text)
    assert [(found.line, found.mistake) for found in reading.mistakes] == [(6, "toward_zero")]
    assert "toward" in reading.summary or "truncate" in reading.summary
    x = X.numpy()
    right = np.trunc((x - x.min(0)) / ((x.max(0) - x.min(0)) / np.float32(255)) - 128)
    assert np.array_equal(found.numpy(), right)
