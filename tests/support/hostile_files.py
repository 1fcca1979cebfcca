"""Small files that ask for much: each is written by a function, by its name, into a folder."""

import io
import json
import struct
import zipfile

import numpy as np

DEPTH = 50_000


class Program:
    """A pickle written instruction by instruction."""

    def __init__(self):
        self.data, self.memo = bytearray(b"\x80\x02"), 0

    def add(self, *parts):
        for part in parts:
            self.data += part
        return self

    def keep(self):
        """Store the top of the stack; return the instruction that fetches it."""
        number, self.memo = struct.pack("<I", self.memo), self.memo + 1
        self.data += b"r" + number
        return b"j" + number

    def end(self):
        return bytes(self.data + b".")


def text(word):
    return b"X" + struct.pack("<I", len(word)) + word.encode()


def call(name):
    return f"c{name.replace(' ', chr(10))}\n".encode()


def integer(n):
    return b"J" + struct.pack("<i", n)


def long(n, size=255):
    return b"\x8a" + bytes([size]) + n.to_bytes(size, "little", signed=True)


STORAGE = b"(" + text("storage") + call("torch FloatStorage") + text("0") + text("cpu") + integer(16) + b"tQ"
TENSOR = call("torch._utils _rebuild_tensor_v2")
HOOKS = call("collections OrderedDict") + b")R"
REST = b"\x89" + HOOKS


FOUR, ONE = integer(4) + b"\x85", integer(1) + b"\x85"


def tensor(storage=STORAGE, shape=FOUR, stride=ONE, function=TENSOR):
    return function + b"(" + storage + integer(0) + shape + stride + REST + b"tR"


def nested(open_=b"]", close=b"a", inner=b"]"):
    return open_ * DEPTH + inner + close * DEPTH


def doubled(depth, kind):
    """A list or tuple of itself twice, and so on."""
    program, inner = Program(), b"]" if kind == "list" else text("x")
    program.data = bytearray(inner)
    for _ in range(depth):
        fetch = program.keep()
        program.add(fetch, b"\x86") if kind == "tuple" else program.add(b"]", b"(", fetch, fetch, b"e")
    return bytes(program.data)


def pt(content, folder, deflated=False, **others):
    method = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
    with zipfile.ZipFile(folder / "x.pt", "w", method) as file:
        file.writestr("x/data.pkl", content)
        file.writestr("x/data/0", bytes(64))
        for name, data in others.items():
            file.writestr(f"x/{name}", data)


def pickled(*parts):
    return Program().add(*parts).end()


def dict_of(*pairs):
    return pickled(b"}(", *pairs, b"u")


def pt_storage_of_itself(folder):
    key = call("torch FloatStorage") + text("0") + text("cpu") + integer(16)
    pt(dict_of(text("w"), tensor(b"(" + doubled(25, "list") + key + b"tQ")), folder)


def pt_function_of_itself(folder):
    pt(dict_of(text("w"), tensor(function=doubled(25, "list"))), folder)


def pt_long_shape(folder):
    shape = b"(" + long(2**2030) * 5000 + b"t"
    pt(dict_of(text("w"), tensor(shape=shape, stride=shape)), folder)


def pt_long_rank(folder):
    shape = b"(" + integer(1) * 100_000 + b"t"
    pt(dict_of(text("w"), tensor(shape=shape, stride=shape)), folder)


def pt_marks(folder):
    pt(pickled(b"(" * 1_200_000), folder)


def pt_colliding_integers(folder):
    keys = [long(i * (2**61 - 1), 16) + b"N" for i in range(1, 60_000)]
    pt(dict_of(text("w"), tensor(), *keys), folder)


def pt_colliding_set(folder):
    keys = b"".join(long(i * (2**61 - 1), 16) for i in range(1, 30_000))
    pt(dict_of(text("w"), tensor(), text("s"), b"c__builtin__\nset\n](" + keys + b"e\x85R"), folder)


def pt_doubled_key(folder):
    pt(dict_of(text("w"), tensor(), doubled(40, "tuple"), text("x")), folder)


def pt_doubled_key_alone(folder):
    pt(pickled(b"}", doubled(40, "tuple"), text("x"), b"s"), folder)


def pt_doubled_in_set(folder):
    pt(pickled(b"c__builtin__\nset\n]", doubled(40, "tuple"), b"a\x85R"), folder)


def pt_one_storage(folder):
    program, kept = Program().add(b"]("), []
    for part in (STORAGE, TENSOR, HOOKS, integer(4) + b"\x85"):
        program.add(part)
        kept.append(program.keep())
    storage, function, hooks, shape = kept
    program.add(b"}(")
    for i in range(150_000):
        program.add(text(f"{i}"), function, b"(", storage, b"K\0", shape, shape, b"\x89", hooks, b"tR")
    pt(program.add(b"ue").end(), folder)


def pt_tensors(folder, count=7_500):
    """As torch.save writes them."""
    import torch

    torch.save({f"model.layers.{i}.weight": torch.zeros(1, 1) for i in range(count)}, folder / "x.pt")


def pt_shared_tensor(folder):
    """One tensor under a million names."""
    program = Program().add(b"](", tensor())
    fetch = program.keep()
    pt(program.add(fetch * 300_000, b"e").end(), folder)


def pt_nested_key(folder):
    pt(dict_of(nested(), text("x")), folder)


def pt_nested_tuple_key(folder):
    pt(dict_of(text("w"), tensor(), b")" + b"\x85" * DEPTH, text("x")), folder)


def pt_nested_storage(folder):
    pt(dict_of(text("w"), tensor(storage=nested())), folder)


def pt_nested_storage_key(folder):
    key = call("torch FloatStorage") + nested() + text("cpu") + integer(16)
    pt(dict_of(text("w"), tensor(storage=b"(" + text("storage") + key + b"tQ")), folder)


def pt_nested_function(folder):
    pt(dict_of(text("w"), tensor(function=nested())), folder)


def pt_nested_class(folder):
    pt(pickled(nested(), b")\x81"), folder)


def pt_nested_state(folder):
    pt(pickled(HOOKS, nested(), b"b"), folder)


def pt_nested_lists(folder):
    pt(pickled(nested(inner=tensor())), folder)


def pt_nested_dicts(folder):
    pt(pickled((b"}" + text("a")) * DEPTH, tensor(), b"s" * DEPTH), folder)


def pt_references(folder):
    """20 lists of 100,000 references."""
    program = Program().add(b"](", b"]")
    fetch = program.keep()
    for _ in range(20):
        program.add(b"](", fetch * 100_000, b"e")
        fetch = program.keep()
    pt(program.add(b"e").end(), folder, deflated=True)


def pt_lists_of_lists(folder):
    """Lists of 10,000 references to lists of 10,000 references, three deep: 10^12 objects."""
    program = Program().add(b"](", tensor())
    fetch = program.keep()
    for _ in range(3):
        program.add(b"](", fetch * 10_000, b"e")
        fetch = program.keep()
    pt(program.add(b"e").end(), folder)


def pt_long_names(folder):
    """A name of 10 MB, 1,000 times."""
    program = Program().add(b"](", text("x" * 10_000_000))
    name = program.keep()
    program.add(tensor())
    value = program.keep()
    for _ in range(1000):
        program.add(b"}", name, value, b"s")
    pt(program.add(b"e").end(), folder, deflated=True)


def pt_copies(folder):
    """The same list made into a set or counter again and again."""
    program = Program().add(b"](", b"](" + b"".join(integer(i) for i in range(50_000)) + b"e")
    program.add(b"\x85")
    arguments = program.keep()
    program.add(b"ccollections\nCounter\n")
    function = program.keep()
    program.add((function + arguments + b"R") * 20_000)
    pt(program.add(b"e").end(), folder)


def pt_bytearrays(folder):
    pt(pickled(b"](", (b"c__builtin__\nbytearray\n" + integer(2**31 - 1) + b"\x85R") * 10, b"e"), folder)


def pt_big_tensors(folder):
    pt(pickled(b"](", (b"ctorch\nFloatTensor\n" + integer(2**31 - 1) + b"\x85R") * 10, b"e"), folder)


def pt_list_to_tensor(folder):
    program = Program().add(b"](")
    program.add(b"G" + struct.pack(">d", 1.0))
    fetch = program.keep()
    for _ in range(3):
        program.add(b"](", fetch * 2_000, b"e")
        fetch = program.keep()
    pt(program.add(call("torch Tensor"), fetch, b"\x85R", b"e").end(), folder)


def pt_punycode(folder):
    pt(pickled(call("_codecs encode"), text("ä" * 500_000), text("punycode"), b"\x86R"), folder)


def pt_wide_texts(folder):
    """Texts that take four times their bytes once decoded."""
    word = ("x" * 4_000_000 + "\U0001f600").encode()
    pt(pickled(b"](", *[b"X" + struct.pack("<I", len(word)) + word] * 3, b"e"), folder, deflated=True)


def pt_bomb(folder):
    pt(bytes(200_000_000), folder, deflated=True)


def pt_members(folder):
    with zipfile.ZipFile(folder / "x.pt", "w") as file:
        file.writestr("x/data.pkl", dict_of(text("w"), tensor()))
        for i in range(40_000):
            file.writestr(f"x/data/{i}", b"")


def npz_members(folder):
    header = io.BytesIO()
    np.save(header, np.zeros(1, np.float32))
    with zipfile.ZipFile(folder / "x.npz", "w") as file:
        for i in range(40_000):
            file.writestr(f"{i}.npy", header.getvalue())


def npz_deflated_members(folder):
    header = io.BytesIO()
    np.save(header, np.zeros(1, np.float32))
    with zipfile.ZipFile(folder / "x.npz", "w", zipfile.ZIP_DEFLATED) as file:
        for i in range(19_900):
            file.writestr(f"{i}.npy", header.getvalue())


def npz_overlapping(folder):
    """40,000 members whose bytes are the same."""
    header = io.BytesIO()
    np.save(header, np.zeros(100_000, np.float32))
    with zipfile.ZipFile(folder / "x.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("0.npy", header.getvalue())
        first = file.infolist()[0]
        for i in range(1, 7_900):
            info = zipfile.ZipInfo(f"{i}.npy")
            for field in ("header_offset", "compress_size", "file_size", "CRC", "compress_type"):
                setattr(info, field, getattr(first, field))
            file.filelist.append(info)
            file.NameToInfo[info.filename] = info


def npz_large_members(folder):
    """Three arrays of 256 MB."""
    header, row = io.BytesIO(), bytes(1 << 16)
    written = {"descr": "<f4", "fortran_order": False, "shape": (1 << 12, 1 << 14)}
    np.lib.format.write_array_header_1_0(header, written)
    with zipfile.ZipFile(folder / "x.npz", "w", zipfile.ZIP_DEFLATED) as file:
        for name in "abc":
            with file.open(f"{name}.npy", "w") as member:
                member.write(header.getvalue())
                for _ in range(1 << 12):
                    member.write(row)


def npz_large_columns(folder):
    """An array of 256 MB, column by column."""
    header, row = io.BytesIO(), bytes(1 << 16)
    written = {"descr": "<f4", "fortran_order": True, "shape": (1 << 12, 1 << 14)}
    np.lib.format.write_array_header_1_0(header, written)
    with (
        zipfile.ZipFile(folder / "x.npz", "w", zipfile.ZIP_DEFLATED) as file,
        file.open("a.npy", "w") as member,
    ):
        member.write(header.getvalue())
        for _ in range(1 << 12):
            member.write(row)


def npy(header, folder, name="x.npy"):
    data = header.encode() if isinstance(header, str) else header
    (folder / name).write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(data)) + data + bytes(64))


def npy_nested(folder):
    npy("{'descr': " + "[" * 9000 + "]" * 900, folder)


def npy_expression(folder):
    npy("{'descr': '<f4', 'fortran_order': False, 'shape': (9**9**9**9,), }\n", folder)


def npy_sum(folder):
    npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "-" * 9000 + "1,), }\n", folder)


def npy_long_integer(folder):
    npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 8000 + ",), }\n", folder)


def npy_long_shape(folder):
    npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 4000 + "), }\n", folder)


def npy_record(folder):
    npy("{'descr': [" + "('a', '<f4')," * 600 + "], 'fortran_order': False, 'shape': (1,), }\n", folder)


def npy_wide_text(folder):
    npy("{'descr': '<U2000000000', 'fortran_order': False, 'shape': (1,), }\n", folder)


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


WEIGHT = field(5, b"\x08\x01\x10\x01" + field(8, b"w") + field(9, bytes(4)))


def onnx(folder, graph, *others):
    (folder / "x.onnx").write_bytes(field(7, graph) + b"".join(others))


def onnx_nodes(folder, count=400_000):
    onnx(folder, WEIGHT + field(1, b"") * count)


def onnx_full_nodes(folder, count=19_000):
    ends = (field(1, b"a%d" % i) + field(2, b"b%d" % i) for i in range(count))
    onnx(folder, WEIGHT + b"".join(field(1, names + field(4, b"Add")) for names in ends))


def onnx_fields(folder):
    onnx(folder, WEIGHT, b"\x08\x01" * 600_000)


def onnx_graph_fields(folder):
    onnx(folder, WEIGHT + b"\x08\x01" * 600_000)


def onnx_inputs(folder):
    onnx(folder, WEIGHT + field(1, field(1, b"") * 500_000 + field(4, b"Add")))


def onnx_numbers(folder):
    onnx(folder, WEIGHT + field(5, b"\x08\x80\x80\x08\x10\x01" + field(8, b"v") + b"\x28\x01" * 600_000))


def onnx_integers(folder):
    """30 million numbers of a byte each."""
    count = 30_000_000
    onnx(folder, field(5, b"\x08" + varint(count) + b"\x10\x03" + field(8, b"w") + field(5, b"\x01" * count)))


def onnx_external_names(folder):
    def pairs(location):
        length = field(1, b"length") + field(2, b"4")
        return field(13, field(1, b"location") + field(2, location)) + field(13, length)

    names = (b"../x", b"/etc/passwd", b"a" * 4000, b"\xff\xfe", b"..\\x", b"x.onnx\x00", b"")
    weights = (field(8, b"%d" % i) + pairs(name) for i, name in enumerate(names))
    onnx(folder, b"".join(field(5, b"\x08\x01\x10\x01" + weight) for weight in weights))


def onnx_dims(folder):
    onnx(folder, WEIGHT + field(5, field(1, b"\x01" * 1_000_000) + b"\x10\x01" + field(8, b"v")))


def onnx_zero_dims(folder):
    dims = b"".join(b"\x08" + varint(n) for n in (0, 2**47, 2**47, 2**47))
    onnx(folder, WEIGHT + field(5, dims + b"\x10\x01" + field(8, b"v")))


def onnx_initializers(folder):
    onnx(folder, b"".join(field(5, b"\x08\x00\x10\x01" + field(8, b"%d" % i)) for i in range(19_000)))


def onnx_constants(folder):
    value = field(5, b"\x08\x01\x10\x01" + field(9, bytes(4)))
    attribute = field(5, field(1, b"value") + value)
    constant = field(4, b"Constant") + attribute
    onnx(folder, WEIGHT + b"".join(field(1, field(2, b"c%d" % i) + constant) for i in range(19_000)))


def onnx_same_names(folder):
    onnx(folder, WEIGHT + field(1, field(2, b"same") + field(4, b"Add")) * 19_000)


def onnx_attributes(folder):
    onnx(folder, WEIGHT + field(1, field(4, b"Add") + field(5, b"") * 300_000))


def onnx_nested_graphs(folder):
    graph = b""
    for _ in range(300):
        graph = field(1, field(4, b"If") + field(5, field(1, b"then") + field(6, graph)))
    onnx(folder, WEIGHT + graph)


def onnx_opsets(folder):
    onnx(folder, WEIGHT, field(8, field(1, b"a") + b"\x10\x01") * 300_000)


def onnx_external(folder):
    location = field(1, b"location") + field(2, b"x.onnx")
    pairs = field(13, location) + field(13, field(1, b"length") + field(2, b"4"))
    onnx(folder, b"".join(field(5, b"\x08\x01\x10\x01" + field(8, b"%d" % i) + pairs) for i in range(19_000)))


def onnx_pairs(folder):
    pairs = field(13, field(1, b"a") + field(2, b"b")) * 200_000
    onnx(folder, field(5, b"\x08\x01\x10\x01" + field(8, b"w") + field(9, bytes(4)) + pairs))


def gguf_text(word):
    return struct.pack("<Q", len(word)) + word


def gguf_tensors(folder):
    tensors = [gguf_text(b"%d" % i) + struct.pack("<IQIQ", 1, 0, 0, 0) for i in range(131_072)]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 0)
    (folder / "x.gguf").write_bytes(head + b"".join(tensors) + bytes(64))


def gguf_most_tensors(folder):
    tensors = [gguf_text(b"%d" % i) + struct.pack("<IQIQ", 1, 0, 0, 0) for i in range(32_768)]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 0)
    (folder / "x.gguf").write_bytes(head + b"".join(tensors) + bytes(64))


def gguf_keys(folder):
    keys = [gguf_text(b"%d" % i) + struct.pack("<IB", 0, 1) for i in range(131_072)]
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys))
    (folder / "x.gguf").write_bytes(head + b"".join(keys) + bytes(64))


def gguf_with(folder, value):
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_text(b"a") + value
    (folder / "x.gguf").write_bytes(data + bytes(64))


def gguf_array_of_arrays(folder):
    gguf_with(folder, struct.pack("<IIQ", 9, 9, 1) * 100_000)


def gguf_long_text(folder):
    gguf_with(folder, struct.pack("<IQ", 8, 2**33))


def gguf_long_array(folder):
    gguf_with(folder, struct.pack("<IIQ", 9, 4, 2**40))


def gguf_texts(folder):
    gguf_with(folder, struct.pack("<IIQ", 9, 8, 3_000_000) + bytes(24_000_000))


def gguf_claimed_texts(folder):
    gguf_with(folder, struct.pack("<IIQ", 9, 8, 2**60))


def gguf_axes(folder):
    axes = struct.pack("<I", 4) + struct.pack("<4Q", 0, 2**62, 2**62, 2**62)
    gguf_header = gguf_text(b"w") + axes + struct.pack("<IQ", 0, 0)
    (folder / "x.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + gguf_header + bytes(64))


def dat_entries(folder):
    entries = [struct.pack("<i", 6) + b"%06d" % i + struct.pack("<iif", 1, 1, 1.0) for i in range(131_072)]
    (folder / "x.dat").write_bytes(struct.pack("<i", len(entries)) + b"".join(entries))


def safetensors(folder, header, data=b"", name="x.safetensors"):
    text_ = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / name).write_bytes(struct.pack("<Q", len(text_)) + text_ + data)


def safetensors_empty(folder, count=150_000):
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    safetensors(folder, {f"{i}": empty for i in range(count)})


def safetensors_scalars(folder):
    record = {"dtype": "U8", "shape": []}
    many = 100_000
    records = {f"model.layers.{i}.weight": record | {"data_offsets": [i, i + 1]} for i in range(many)}
    safetensors(folder, records, bytes(many))


def safetensors_most(folder):
    safetensors_empty(folder, 80_000)


def safetensors_nested(folder):
    safetensors(folder, b'{"w": ' + b"[" * 1_000_000)


def _of_shape(integers):
    return b'{"w": {"dtype": "F32", "shape": [' + integers + b'], "data_offsets": [0, 4]}}'


def safetensors_long_integer(folder):
    safetensors(folder, _of_shape(b"9" * 1_000_000))


def safetensors_long_shape(folder):
    safetensors(folder, _of_shape(b"1," * 1_000_000 + b"1"), bytes(4))


def safetensors_large_shape(folder):
    integers = b",".join([b"9" * 4000] * 3000)
    safetensors(folder, _of_shape(integers), bytes(4))


def safetensors_duplicate(folder):
    one = b'"w": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}'
    safetensors(folder, b"{" + b", ".join([one] * 100_000) + b"}")


def safetensors_metadata(folder):
    safetensors(folder, {"__metadata__": {f"{i}": "x" for i in range(500_000)}})


def safetensors_lists(folder):
    safetensors(folder, b'{"w": [' + b"[]," * 5_000_000 + b"[]]}")


def small_weight(folder):
    record = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    safetensors(folder, {"w": record}, bytes(4), "model.safetensors")


def safetensors_gptq(folder, many=15_000):
    """Weights whose stored tensors do not fit each other."""
    header, at = {}, 0
    for i in range(many):
        for name, dtype, shape, size in (
            ("qweight", "I32", [1, 8], 32), ("qzeros", "I32", [1, 3], 12),
            ("scales", "F16", [1, 7], 14), ("g_idx", "I32", [9], 36),
        ):  # fmt: skip
            header[f"m.{i}.{name}"] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
            at += size
    safetensors(folder, header, bytes(at), "model.safetensors")
    config = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 8}}
    (folder / "config.json").write_text(json.dumps(config))


def config_values(folder):
    small_weight(folder)
    (folder / "config.json").write_text('{"a": [' + "1," * 3_900_000 + "1]}")


def config_nested(folder):
    small_weight(folder)
    (folder / "config.json").write_text('{"a":' * 500_000)


def config_long_integer(folder):
    small_weight(folder)
    head = '{"quantization_config": {"quant_method": "gptq", "bits": '
    (folder / "config.json").write_text(head + "9" * 1_000_000 + "}}")


def config_large_integers(folder):
    small_weight(folder)
    integer_ = "9" * 4000
    (folder / "config.json").write_text(
        f'{{"quantization_config": {{"quant_method": "gptq", "bits": {integer_}, "group_size": {integer_}}}}}'
    )


def config_duplicates(folder):
    small_weight(folder)
    (folder / "config.json").write_text("{" + ", ".join(['"a": 1'] * 100_000) + "}")


def config_lists(folder):
    small_weight(folder)
    (folder / "config.json").write_text('{"a": [' + "[]," * 1_000_000 + "[]]}")


def config_modules(folder):
    small_weight(folder)
    modules = [f"re:.*(a|a)*{i}$" for i in range(50_000)]
    config = {"quant_method": "compressed-tensors", "ignore": modules, "config_groups": {}}
    (folder / "config.json").write_text(json.dumps({"quantization_config": config}))


def index_nested(folder):
    small_weight(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": ' + "[" * 1_000_000)


def index_shards(folder, count=200_000):
    small_weight(folder)
    shards = {f"w{i}": f"model-{i}.safetensors" for i in range(count)}
    index = {"weight_map": {"w": "model.safetensors"} | shards}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def index_tensors(folder, count=500_000):
    small_weight(folder)
    names = {f"model.layers.{i}.weight": "model.safetensors" for i in range(count)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


HOSTILE = {
    name: function
    for name, function in list(globals().items())
    if name.partition("_")[0] in ("pt", "npz", "npy", "onnx", "gguf", "dat", "safetensors", "config", "index")
    and "_" in name and callable(function) and name != "gguf_text" and name != "gguf_with"
}  # fmt: skip
