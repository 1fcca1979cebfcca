"""Which tensors are paired, and what is said of the others: small releases made for each rule."""


import pytest
import torch
from gguf_bytes import STRING, info
from gguf_bytes import gguf as gguf_file
from grid import for_each
from releases import release

from quantcore.checkpoints import open_checkpoint
from quantcore.checkpoints.comparison import CheckpointComparison, pair_up
from quantcore.checkpoints.comparison.sides import _prefixes, _tails, is_gguf, sides

L = "model.layers.0"


@pytest.fixture
def opened(tmp_path):
    """A release of tensors of zeros with these shapes, or of given tensors."""
    count = iter(range(100))

    def make(given, config=None):
        tensors = {n: t if isinstance(t, torch.Tensor) else torch.zeros(t) for n, t in given.items()}
        return release(tmp_path / str(next(count)), tensors, config)

    return make


def paired(original, other):
    """The parts of the other with those of the original, and what has no partner: (side, kind, name) -> the reason."""
    found = pair_up(original, other)
    assert all(p.original.shape_of(tuple(original.tensors[p.original.name].shape)) == p.shape for p in found.pairs if p.original.index is None)
    return {str(p): str(p.original) for p in found.pairs}, {(u.side, u.kind, u.name): u.reason for u in found.unpaired}


SHAPES = [
    ((4, 8), (4, 8), True), ((4, 1, 8), (4, 8), True), ((1, 4), (4,), True), ((2, 4), (4,), False), ((2, 4), (8,), False),
    ((4, 8), (8, 4), True), ((4, 8), (4, 6), False), ((8,), (6,), False), ((), (1,), True), ((2, 4, 8), (2, 8, 4), True),
    ((2, 4, 8), (4, 2, 8), False), ((2, 3, 4, 8), (2, 3, 8, 4), False), ((3, 3, 8), (3, 8, 3), True),
]  # fmt: skip


@for_each(("x", "y", "alike"), SHAPES)
def test_shapes_of_one_name(x, y, alike, opened):
    """Equal ones but for axes of length 1, and transposed matrices, of stacks too; all others differ."""
    pairs, unpaired = paired(opened({"w": x}), opened({"w": y}))
    if alike:
        assert unpaired == {}
        same = [n for n in x if n != 1] == [n for n in y if n != 1]
        turned = "w transposed" if len(x) == 2 else "w[{}] transposed"
        experts = range(x[0]) if len(x) == 3 else [None]
        assert pairs == ({"w": "w"} if same else {turned.format(e): "w" if e is None else f"w[{e}]" for e in experts})
    else:
        assert (pairs, unpaired) == ({}, {("other", "shape", "w"): f"'w' has shape {y}, but the original has {x}."})


def test_of_several_names_one_of_the_same_shape(opened):
    """MLX's name of experts, where the original has that name and the usual one."""
    mlx, usual = f"{L}.mlp.switch_mlp.up_proj.weight", f"{L}.mlp.experts.up_proj.weight"
    for shapes, partner in (((2, 3), (4, 5)), usual), (((4, 5), (2, 3)), mlx), (((7, 7), (7, 6)), mlx):
        original = opened({mlx: shapes[0], usual: shapes[1]})
        pairs, unpaired = paired(original, opened({mlx: (4, 5)}))
        if (4, 5) in shapes:
            assert pairs == {mlx: partner}
        else:
            assert unpaired["other", "shape", mlx] == f"'{mlx}' has shape (4, 5), but the original has (7, 7)."


QKV = {n: f"{L}.self_attn.{n}_proj.weight" for n in ("q", "k", "v", "qkv")}


@for_each(
    ("fused", "parts", "fits"),
    [
        ((16, 32), [(8, 32), (4, 32), (4, 32)], True), ((16, 32), [(8, 32), (4, 32), (4, 16)], False),
        ((16, 32), [(8, 32), (4, 32), (5, 32)], False), ((32, 16), [(8, 32), (4, 32), (4, 32)], True),
        ((16, 32), [(8, 16), (4, 16), (4, 16)], False), ((32, 15), [(8, 32), (4, 32), (4, 32)], False),
        ((16,), [(8,), (4,), (4,)], True), ((16,), [(8,), (4,), (3,)], False), ((16,), [(8, 1), (4, 1), (4, 1)], False),
        ((2, 16, 8), [(2, 8, 8), (2, 4, 8), (2, 4, 8)], True), ((2, 16, 8), [(3, 8, 8), (3, 4, 8), (3, 4, 8)], False),
        ((2, 16, 8), [(8, 8), (4, 8), (4, 8)], False), ((16, 32), [(2, 8, 32), (2, 4, 32), (2, 4, 32)], False),
        ((2, 8, 16), [(2, 8, 8), (2, 4, 8), (2, 4, 8)], True),
    ],
)  # fmt: skip
@for_each("swap", [False, True])
def test_what_fits_into_a_fused_tensor(fused, parts, fits, swap, opened):
    """Parts of its width whose rows add up, of a stack for each expert; also where it is stored as its transpose."""
    apart = dict(zip(("q", "k", "v"), parts, strict=True))
    sides = opened({QKV["qkv"]: fused}), opened({QKV[n]: s for n, s in apart.items()})
    pairs, unpaired = paired(*(sides[::-1] if swap else sides))
    if not fits:
        assert pairs == {}
        assert {name for _, kind, name in unpaired if kind == "absent"} == set(QKV.values())
        return
    lines = "columns" if fused[-1] != parts[0][-1] and len(fused) > 1 else "rows"
    end = " transposed" * (lines == "columns")
    wanted = {}
    for e in range(fused[0]) if len(fused) == 3 else [None]:
        at, start = "" if e is None else f"[{e}]", 0
        for name, shape in apart.items():
            n = shape[1] if len(shape) == 3 else shape[0]
            wanted[QKV[name] + at] = f"{QKV['qkv']}{at} {lines} {start}–{start + n - 1}{end}"
            start += n
    assert unpaired == {}
    assert pairs == ({v: k for k, v in wanted.items()} if swap else wanted)


def test_what_is_paired_is_not_paired_again(opened):
    """q, k and v beside a fused one, on either side."""
    apart = {QKV[n]: (4, 32) for n in "qkv"}
    both = apart | {QKV["qkv"]: (12, 32)}
    for one, two, left in ((both, apart, "original"), (apart, both, "other"), (both, both, None)):
        pairs, unpaired = paired(opened(one), opened(two))
        assert pairs == {n: n for n in one if n in two}
        assert set(unpaired) == ({(left, "absent", QKV["qkv"])} if left else set())
    pairs, unpaired = paired(opened({QKV["qkv"]: (12, 32)}), opened(both))
    assert pairs == {QKV["qkv"]: QKV["qkv"]}
    assert set(unpaired) == {("other", "absent", name) for name in apart}


def test_a_part_that_differs_from_what_is_paired_elsewhere(opened):
    """Its name is known, so the reason is its shape; if both are paired elsewhere, nothing is said."""
    gate, up, both = (f"{L}.mlp.{n}_proj.weight" for n in ("gate", "up", "gate_up"))
    original = opened({gate: (4, 32), up: (4, 32)})
    pairs, unpaired = paired(original, opened({both: (8, 32), up: (5, 32)}))
    assert pairs == {f"{both} rows 0–3": gate, f"{both} rows 4–7": up}
    assert unpaired == {("other", "shape", up): f"'{up}' has shape (5, 32), but the original has (4, 32)."}


@for_each("experts", [1, 3, 5])
def test_fused_experts_against_single_ones(experts, opened):
    """More experts than a part has rows, too."""
    name = f"{L}.mlp.experts.gate_up_proj"
    single = {f"{L}.mlp.experts.{e}.{n}_proj.weight": (2, 8) for e in range(experts) for n in ("gate", "up")}
    pairs, unpaired = paired(opened({name: (experts, 4, 8)}), opened(single))
    rows = {"gate": "0–1", "up": "2–3"}
    assert unpaired == {}
    assert pairs == {n: f"{name}[{n.split('.')[5]}] rows {rows[n.split('.')[6][:-5]]}" for n in single}


@for_each(("shape", "expert", "part"), [((3, 4, 8), 2, "{}[2]"), ((3, 8, 4), 2, "{}[2] transposed"), ((3, 4, 8), 3, None), ((3, 5, 8), 1, None)])
def test_an_expert_of_a_stack(shape, expert, part, opened):
    stack, single = f"{L}.mlp.experts.up_proj", f"{L}.mlp.experts.{expert}.up_proj.weight"
    pairs, unpaired = paired(opened({stack: shape}), opened({single: (4, 8)}))
    assert pairs == ({single: part.format(stack)} if part else {})
    assert (("other", "absent", single) in unpaired) is (part is None)


def test_parts_that_cannot_be_read(opened):
    """A format that is not supported has no shape; the others of its set are not joined with it."""
    q = {QKV["q"].replace("weight", "trellis"): torch.zeros(4, 4, 48, dtype=torch.int16)}
    pairs, unpaired = paired(opened({QKV["qkv"]: (12, 32)}), opened(q | {QKV["k"]: (4, 32), QKV["v"]: (4, 32)}))
    assert pairs == {}
    assert {(side, kind) for side, kind, _ in unpaired} == {("original", "absent"), ("other", "absent"), ("other", "unreadable")}
    assert "EXL3" in unpaired["other", "unreadable", QKV["q"]]


TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@for_each(
    ("original", "other", "wanted"),
    [
        ({TABLE: 16}, {"a.w": 3, TABLE: 16, HEAD: 16}, [(TABLE, TABLE), (HEAD, TABLE)]),
        ({"a.w": 3, TABLE: 16, HEAD: 16}, {TABLE: 16}, [(TABLE, TABLE), (TABLE, HEAD)]),
        ({TABLE: 16, HEAD: 16}, {TABLE: 16, HEAD: 16}, [(TABLE, TABLE), (HEAD, HEAD)]),
        ({TABLE: 16}, {TABLE: 16, HEAD: 15}, [(TABLE, TABLE)]), ({"a.w": 16}, {HEAD: 16}, []),
        ({TABLE: 16, HEAD: 16}, {TABLE: 16, HEAD: 15}, [(TABLE, TABLE)]),
    ],
)  # fmt: skip
def test_tied_embeddings(original, other, wanted, opened):
    """An output layer against the table of embeddings of its shape, if the other side has no output layer."""
    found = pair_up(*(opened({n: (rows, 8) for n, rows in side.items()}) for side in (original, other)))
    assert sorted((p.other.name, p.original.name) for p in found.pairs) == sorted(wanted)
    tied = f"'{HEAD}' is compared with '{TABLE}': one side has tied embeddings."
    assert [p.note for p in found.pairs if p.note] == [tied for one, two in wanted if one != two]


def test_square_matrices_among_transposed_ones(opened):
    """Only GPT-2's and experts', and only where others show that they are stored as [in, out]."""
    square = {"h.0.attn.c_proj.weight": (8, 8), "h.1.attn.c_proj.weight": (8, 8), "h.0.other.weight": (8, 8), "h.0.mlp.c_fc.weight": (8, 8)}
    plain, _ = paired(opened(square), opened(square))
    assert plain == {n: n for n in square}
    shown = {"h.0.attn.c_attn.weight": (8, 24)}
    pairs, _ = paired(opened(square | shown), opened(square | {"h.0.attn.c_attn.weight": (24, 8)}))
    turned = {n for n in square | shown if ".c_" in n}
    assert set(pairs) == {f"{n} transposed" if n in turned else n for n in square | shown}
    # one that has the same shape on both sides, not square, is as it is
    pairs, _ = paired(opened(square | shown | {"h.1.mlp.c_fc.weight": (8, 32)}), opened(square | {"h.0.attn.c_attn.weight": (24, 8), "h.1.mlp.c_fc.weight": (8, 32)}))
    assert pairs["h.1.mlp.c_fc.weight"] == "h.1.mlp.c_fc.weight"


def test_square_experts_among_transposed_ones(opened):
    one = {f"{L}.mlp.experts.up_proj": (2, 8, 8), f"{L}.mlp.experts.down_proj": (2, 8, 4)}
    two = {f"{L}.mlp.experts.up_proj": (2, 8, 8), f"{L}.mlp.experts.down_proj": (2, 4, 8)}
    pairs, _ = paired(opened(one), opened(two))
    assert set(pairs) == {f"{n}[{e}] transposed" for n in one for e in (0, 1)}
    apart = {f"{L}.mlp.experts.{e}.{n}_proj.weight": s for e in (0, 1) for n, s in (("up", (8, 8)), ("down", (4, 8)))}
    pairs, _ = paired(opened(one), opened(apart))
    assert pairs == {f"{L}.mlp.experts.{e}.{n}.weight": f"{L}.mlp.experts.{n}[{e}] transposed" for e in (0, 1) for n in ("up_proj", "down_proj")}


ALONE = {
    "embeddings.position_ids": "buffer", "rotary.inv_freq": "buffer", "a.input_scale": "activations", "a.k_scale": "activations", "a.w": "absent",
    "h.0.attn.bias": "absent",
}  # fmt: skip


def test_why_tensors_have_no_partner(opened):
    tensors = dict.fromkeys(ALONE, (4,)) | {"h.1.attn.bias": (1, 1, 4, 4), "counter": torch.zeros(2, dtype=torch.int64), "mask": torch.zeros(2, dtype=torch.bool)}
    kinds = ALONE | {"h.1.attn.bias": "buffer", "counter": "buffer", "mask": "buffer"}
    for side, found in (("original", pair_up(opened(tensors), opened({"x": (2,)}))), ("other", pair_up(opened({"x": (2,)}), opened(tensors)))):
        mine = {u.name: u for u in found.unpaired if u.side == side}
        assert {n: u.kind for n, u in mine.items()} == kinds
        assert {n for n, u in mine.items() if u.is_weight} == {n for n, kind in kinds.items() if kind == "absent"}
        where = "The other checkpoint" if side == "original" else "The original"
        assert mine["a.w"].reason == f"{where} has no 'a.w'."
    w2 = f"{L}.block_sparse_moe.experts.5.w2.weight"
    found = {u.name: u.reason for u in pair_up(opened({w2: (2, 2)}), opened({"x": (2,)})).unpaired}
    assert found[w2] == f"The other checkpoint has no '{w2}' or '{w2.replace('w2', 'down_proj')}'."


def test_tails_and_prefixes():
    """Up to three words fewer, while two remain; the most frequent prefixes of four."""
    assert list(_tails("a.b.c.d.e.f")) == ["a.b.c.d.e.f", "b.c.d.e.f", "c.d.e.f", "d.e.f"]
    assert list(_tails("a.b.c")) == ["a.b.c", "b.c"]
    assert list(_tails("a.b")) == ["a.b"]
    names = [f"x.layers.{i}.w" for i in range(3)]
    assert _prefixes(names, [n.replace("x.", "y.z.") for n in names])[0] == ("y.z.", "x.")
    assert _prefixes(names, names) == []
    assert _prefixes(["p.a.w", "q.b.w", "q.c.w"], ["r.a.w", "s.b.w", "s.c.w"])[0] == ("s.", "q.")
    assert len(_prefixes([f"{i}.t{i}.w" for i in range(6)], [f"n{i}.t{i}.w" for i in range(6)])) == 4
    many = [f"{c}.a.w" for c in "ijklm"]  # of one tail, the first four
    assert _prefixes(many, ["n.a.w"]) == [("n.", f"{c}.") for c in "ijkl"]
    assert _prefixes([*many, "m.a.v"], ["n.a.w", "n.a.v"])[0] == ("n.", "i.")  # "m." counts once, although both names have it


def test_which_side_has_the_names_of_llama_cpp(opened, tmp_path):
    data = torch.zeros(4, 32).numpy().tobytes()
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf_file([info("output.weight", (32, 4), 0, 0)], data, [("general.architecture", STRING, "llama")]))
    plain, blocks, gguf = opened({"lm_head.weight": (4, 32)}), opened({"blk.0.w": (4, 32)}), open_checkpoint(file)
    assert [is_gguf(c) for c in (plain, blocks, gguf)] == [False, True, True]
    assert paired(plain, gguf) == ({"output.weight": "lm_head.weight"}, {})
    for one, two, mine in ((plain, gguf, 0), (gguf, plain, 1)):
        both = sides(one, two)
        assert both[1 - mine].keys_of("output.weight") == [("output.weight", None)]
        assert ("output.weight", None) in both[mine].keys_of("lm_head.weight")


def test_orders_of_a_pair(opened, monkeypatch):
    """Those of the heads, unless a head is too large for a box; those of codes only if both are whole."""
    config = {"num_attention_heads": 4, "num_key_value_heads": 2}
    original = opened({QKV["q"]: (16, 32), QKV["k"]: (8, 32), QKV["v"]: (8, 32), "w": (8, 8)}, config)
    comparison = CheckpointComparison(original, opened({QKV["q"]: (16, 32), QKV["k"]: (8, 32), QKV["v"]: (8, 32), "w": (8, 8)}, config))
    orders = {p.other.name: comparison.orders_of(p) for p in comparison.pairing.pairs}
    assert {n: o.heads for n, (o, _) in orders.items()} == {QKV["q"]: 4, QKV["k"]: 2, QKV["v"]: 0, "w": 0}
    assert all(o.layout is comparison.other.tensors[n].layout and not likely for n, (o, likely) in orders.items())
    for limit, heads in ((16 * 32 // 4, 4), (16 * 32 // 4 - 1, 0)):
        monkeypatch.setattr("quantcore.checkpoints.comparison.stream._LARGEST_HEAD", limit)
        (found,) = [comparison.orders_of(p)[0] for p in comparison.pairing.pairs if p.other.name == QKV["q"]]
        assert (found.heads, found.has_heads) == (heads, heads > 0)
    for one, two in ((original, opened({QKV["qkv"]: (32, 32)}, config)), (opened({QKV["qkv"]: (32, 32)}, config), original)):
        comparison = CheckpointComparison(one, two)
        assert [comparison.orders_of(p)[0].layout for p in comparison.pairing.pairs] == [None] * 3
