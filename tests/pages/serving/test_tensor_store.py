"""The store of shared tensors, in a local folder and in fsspec's memory; only the clock is simulated."""

import dataclasses
import hashlib
import importlib.util
import json
import logging
import multiprocessing
import os
import re
import resource
import stat
import threading

import fsspec
import numpy as np
import pytest
import safetensors.numpy
from grid import for_each

import quantcore as qc
from pages.serving import settings
from pages.serving.log import log
from pages.serving.tensor_store import LEAST, StoreLimits, TensorStore, opened_at, visitor_of
from pages.serving.tensor_store.folder import SharedFolder
from pages.serving.tensor_store.record import TensorRecord, delete_useless, make_room
from pages.serving.tensor_store.store import described

DAY = 86400
START = 1_800_000_000.0
ANNA, BEN = visitor_of("192.0.2.1"), visitor_of("192.0.2.2")
MB = 10**6


class Clock:
    def __init__(self):
        self.time = START

    def __call__(self):
        self.time += 0.01  # no two events at the same time
        return self.time


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["folder", "memory"])
def url(request, tmp_path):
    if request.param == "folder":
        yield str(tmp_path / "shared")
    else:
        yield f"memory://{tmp_path.name}/shared"
        fsspec.filesystem("memory").store.clear()


@pytest.fixture
def make(url, clock):
    def store(space=100 * MB, of_a_visitor=100 * MB, age=30 * DAY):
        return TensorStore(url, StoreLimits(space, of_a_visitor, age), clock)

    return store


@pytest.fixture
def logged():
    """The messages of the app's log."""
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    log.addHandler(handler)
    yield messages
    log.removeHandler(handler)


def files(url):
    fs, root = fsspec.url_to_fs(url)
    return {path.rpartition("/")[2]: fs.cat_file(path) for path in fs.find(root)}


def put(url, name, data):
    fs, root = fsspec.url_to_fs(url)
    fs.makedirs(root, exist_ok=True)
    fs.pipe_file(f"{root}/{name}", data)


def tensor(seed=0, shape=(40, 50)):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def refused(act, *words):
    """The message of the refusal."""
    with pytest.raises(qc.QuantError) as caught:
        act()
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert len(sentence) < 300
    for word in words:
        assert word in sentence
    return sentence


LIMIT = 64 * MB
SPECIAL = np.array([np.nan, -np.nan, np.inf, -np.inf, -0.0, 1e-45, 3.4e38], np.float32)


@for_each("x", [tensor(), SPECIAL, np.float32(3).reshape(()), tensor(1, (2, 3, 4, 5))[:, ::2]])
def test_a_shared_tensor_is_opened_bit_by_bit(make, x):
    address = make().share(x, ANNA, LIMIT)
    opened = make().open(address, LIMIT)
    assert (opened.dtype, opened.shape) == (np.float32, x.shape)
    assert opened.tobytes() == np.ascontiguousarray(x).tobytes()


def test_the_content_is_a_safetensors_file_with_its_digest_beside_it(make, url):
    x = tensor()
    address = make().share(x, ANNA, LIMIT)
    found = files(url)
    content, record = found[f"{address}.safetensors"], json.loads(found[f"{address}.json"])
    np.testing.assert_array_equal(safetensors.numpy.load(content)["x"], x)
    assert record["sha256"] == hashlib.sha256(content).hexdigest()
    assert record["size"] == len(content)


def test_an_address_is_random(make):
    """If it were a digest, it could be guessed for a tensor of round numbers."""
    store, x = make(), np.zeros((64, 64), np.float32)
    addresses = [store.share(x, ANNA, LIMIT) for _ in range(20)]
    assert len(set(addresses)) == 20
    assert all(re.fullmatch("[0-9a-f]{32}", address) for address in addresses)
    bits = sum(int(address, 16).bit_count() for address in addresses)
    assert abs(bits - 1280) < 6 * np.sqrt(640)  # 6 standard deviations of 2560 fair bits


@for_each(
    "address",
    ["", "a", "g" * 32, "A" * 32, "a" * 31, "a" * 33, "a" * 32 + "\n", "../" + "a" * 29, "/etc/passwd", "a" * 32 + "/..",
     "..\\" + "a" * 29, "%2e%2e%2f" + "a" * 23, "٣" * 32, "*" * 32, "a" * 10**6],
)  # fmt: skip
def test_only_addresses_are_looked_up(make, url, address):
    put(url, "secret.safetensors", safetensors.numpy.save({"x": tensor()}))
    refused(lambda: make().open(address, LIMIT), "address of the shared tensor in this link is damaged")


def test_what_is_not_there_is_missing(make):
    refused(lambda: make().open("a" * 32, LIMIT), "no longer stored", "30 days", "ask the sender")


@for_each("part", ["content", "record"])
@for_each(
    "harm",
    [
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: b"",
        lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
        lambda data: data[:9] + bytes([data[9] ^ 1]) + data[10:],
        lambda data: b"[1]" * 40,
        lambda data: b"[" * 900,
        lambda data: bytes(len(data)),
    ],
)
def test_any_damage_is_found(make, url, part, harm):
    address = make().share(tensor(), ANNA, LIMIT)
    name = f"{address}.{'safetensors' if part == 'content' else 'json'}"
    harmed = harm(files(url)[name])
    put(url, name, harmed)
    if part == "record" and b'"sha256"' in harmed and harmed.startswith(b"{") and harmed.endswith(b"}"):
        return  # still a record
    refused(lambda: make().open(address, LIMIT), "damaged", "ask the sender")


@for_each(
    "change",
    [{"sha256": None}, {"size": "9"}, {"size": -1}, {"size": True}, {"shared": "now"}, {"shared": float("nan")},
     {"opened": float("inf")}, {"more": 1}],
)  # fmt: skip
def test_a_record_of_other_things_is_damaged_and_deleted(make, url, change):
    address = make().share(tensor(), ANNA, LIMIT)
    record = json.loads(files(url)[f"{address}.json"]) | change
    put(url, f"{address}.json", json.dumps(record).encode())
    refused(lambda: make().open(address, LIMIT), "record", "damaged")
    make().tidy()
    assert not [name for name in files(url) if name.startswith(address)]


def test_a_content_that_is_not_a_tensor_is_refused(make, url):
    """Whoever can write to the folder can also write a digest, so contents are checked like uploads."""
    address = make().share(tensor(), ANNA, LIMIT)
    for content in (b"\x80\x04pickle", safetensors.numpy.save({"y": tensor()})):
        record = json.loads(files(url)[f"{address}.json"])
        record |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        put(url, f"{address}.json", json.dumps(record).encode())
        put(url, f"{address}.safetensors", content)
        refused(lambda: make().open(address, LIMIT))


def test_limits_of_size_hold_for_both_ways(make):
    x = tensor(0, (100, 100))
    refused(lambda: make().share(x, ANNA, x.nbytes - 1), "40.0 kB", "at most", "share a slice")
    address = make().share(x, ANNA, x.nbytes)
    np.testing.assert_array_equal(make().open(address, x.nbytes), x)
    refused(lambda: make().open(address, x.nbytes // 2), "the limit is 20.0 kB")
    refused(lambda: make(space=x.nbytes).share(x, ANNA, LIMIT), "at most")
    refused(lambda: make(of_a_visitor=x.nbytes).share(x, ANNA, LIMIT), "at most")


def test_a_record_that_claims_much_is_not_read(make, url):
    address = make().share(tensor(), ANNA, LIMIT)
    record = json.loads(files(url)[f"{address}.json"]) | {"size": 10**15}
    put(url, f"{address}.json", json.dumps(record).encode())
    refused(lambda: make().open(address, LIMIT), "the limit is")


def test_after_its_age_a_tensor_is_gone(make, url, clock):
    store = make()
    old, other = store.share(tensor(), ANNA, LIMIT), store.share(tensor(1), ANNA, LIMIT)
    clock.time = START + 30 * DAY - 10
    store.open(old, LIMIT)  # does not reset its age
    clock.time += 20
    young = store.share(tensor(2), ANNA, LIMIT)  # sharing deletes what is too old
    assert {name[:32] for name in files(url) if not name.endswith(".shared")} == {young}
    for address in (old, other):
        refused(lambda address=address: store.open(address, LIMIT), "no longer stored")
    clock.time += 31 * DAY
    refused(lambda: store.open(young, LIMIT), "no longer stored")
    assert [name for name in files(url) if young in name] == []  # deleted even without sharing


@for_each("ahead", [DAY // 2, 2 * DAY, 400 * DAY, 10**11, 10**14, 1e300, 10**400])
@for_each("dates", [("shared",), ("opened",), ("shared", "opened")])
def test_no_date_in_the_future_keeps_a_tensor_longer(make, url, clock, dates, ahead):
    """Nor keeps the upkeep from deleting the others."""
    store = make(age=10 * DAY)
    dated, other = store.share(tensor(), ANNA, LIMIT), store.share(tensor(1), ANNA, LIMIT)
    record = json.loads(files(url)[f"{dated}.json"])
    late = dict.fromkeys(dates, ahead if isinstance(ahead, float) else int(clock.time) + ahead)
    put(url, f"{dated}.json", json.dumps(record | late).encode())
    store.tidy()  # as every hour
    if ahead == DAY // 2:  # the clocks of two machines may differ
        assert store.size(dated, LIMIT)
    assert store.size(other, LIMIT)
    clock.time += 11 * DAY
    store.tidy()
    assert not [name for name in files(url) if name.startswith((dated, other))]


def test_a_record_of_the_future_is_damaged(make, url):
    store = make()
    address = store.share(tensor(), ANNA, LIMIT)
    record = json.loads(files(url)[f"{address}.json"])
    put(url, f"{address}.json", json.dumps(record | {"shared": START + 2 * DAY}).encode())
    refused(lambda: store.open(address, LIMIT), "record of this link's shared tensor is damaged")


def test_a_tensor_opened_in_the_future_makes_room_as_others_do(make, url):
    store = make(space=3 * LEAST)
    first, second, third = (store.share(tensor(i), ANNA, LIMIT) for i in range(3))
    record = json.loads(files(url)[f"{first}.json"])
    put(url, f"{first}.json", json.dumps(record | {"opened": START + 400 * DAY}).encode())
    store.open(second, LIMIT)
    fourth = store.share(tensor(3), ANNA, LIMIT)
    refused(lambda: store.open(first, LIMIT), "or less if space runs out")
    for address in (second, third, fourth):
        store.open(address, LIMIT)


def test_the_least_recently_opened_goes_first(make):
    big = 3 * LEAST // 4 // 4  # float32 elements; each tensor counts as the least size
    store = make(space=3 * LEAST)
    first, second, third = (store.share(tensor(i, (big,)), ANNA, LIMIT) for i in range(3))
    store.open(first, LIMIT)
    fourth = store.share(tensor(3, (big,)), ANNA, LIMIT)
    refused(lambda: store.open(second, LIMIT), "or less if space runs out")
    for address in (first, third, fourth):
        store.open(address, LIMIT)
    # needs the space of two
    large = store.share(tensor(4, (LEAST // 4 + 9,)), ANNA, LIMIT)
    for address in (first, third):
        refused(lambda address=address: store.open(address, LIMIT), "no longer stored")
    assert [store.open(address, LIMIT).size for address in (fourth, large)] == [big, LEAST // 4 + 9]


def test_a_visitor_can_not_evict_everybody(make, url, clock):
    store = make(space=10 * LEAST, of_a_visitor=3 * LEAST)
    bens = store.share(tensor(), BEN, LIMIT)
    annas = [store.share(tensor(i), ANNA, LIMIT) for i in range(3)]
    before = files(url)
    refused(lambda: store.share(tensor(9), ANNA, LIMIT), "786.4 kB today", "tomorrow")
    assert files(url) == before
    for address in (bens, *annas):
        store.open(address, LIMIT)
    store.share(tensor(), BEN, LIMIT)  # counts only for himself
    clock.time += DAY
    store.share(tensor(9), ANNA, LIMIT)
    assert len([name for name in files(url) if name.endswith(".shared")]) == 1  # today's


def test_nothing_in_the_folder_names_a_visitor(make, url):
    make().share(tensor(), visitor_of("192.0.2.77"), LIMIT)
    for name, data in files(url).items():
        assert "192.0.2.77" not in name
        assert b"192.0.2.77" not in data


def test_whom_a_visitor_counts_as():
    assert visitor_of("192.0.2.1") != visitor_of("192.0.2.2")
    assert visitor_of("2001:db8::1") == visitor_of("2001:db8::ffff") != visitor_of("2001:db8:0:1::1")
    assert visitor_of("::ffff:192.0.2.1") == visitor_of("192.0.2.1") != visitor_of("::ffff:192.0.2.2")
    assert visitor_of(None) == visitor_of("")
    assert re.fullmatch("[0-9a-f]{16}", visitor_of("unix:"))


def test_what_ended_processes_left_is_deleted_and_nothing_else(make, url, clock):
    store = make()
    address = store.share(tensor(), ANNA, LIMIT)
    lost = json.loads(files(url)[f"{address}.json"])
    put(url, f"{'b' * 32}.json", json.dumps(lost).encode())  # a record without content
    put(url, f"{'c' * 32}.safetensors", b"content without a record")
    put(url, "README.txt", b"of the administrator")
    put(url, f"{address}.json.0123.part", b"being written now")
    store.tidy()
    names = set(files(url))
    assert {f"{'b' * 32}.json", "README.txt", f"{address}.json.0123.part"} <= names  # they may be in progress
    assert f"{'c' * 32}.safetensors" not in names
    clock.time += 2 * 3600
    store.tidy()
    assert f"{'b' * 32}.json" not in files(url)
    assert {"README.txt", f"{address}.json", f"{address}.safetensors"} <= set(files(url))


def test_half_files_of_yesterday_are_deleted(make, tmp_path, clock):
    store = TensorStore(str(tmp_path), StoreLimits(MB, MB, DAY), clock)
    for name, age in (("old", 2 * 3600), ("future", -2 * 3600), ("new", 0)):
        path = tmp_path / f"{'d' * 32}.safetensors.{name}.part"
        path.write_bytes(b"half")
        now = path.stat().st_mtime
        os.utime(path, (now - age, now - age))
    store.tidy()
    assert [path.name for path in tmp_path.iterdir()] == [f"{'d' * 32}.safetensors.new.part"]


def test_what_is_begun_while_files_are_listed_stays(make, url):
    """A listing is not a snapshot: this one has the content but not the record, which was written before."""
    address = make().share(tensor(), ANNA, LIMIT)
    name = f"{address}.safetensors"
    assert delete_useless(SharedFolder(url), {name: len(files(url)[name])}, DAY, START) == {}
    make().open(address, LIMIT)


def test_what_is_shared_now_stays_where_another_clock_is_ahead(make, url):
    own, other = make().share(tensor(), ANNA, LIMIT), make().share(tensor(1), BEN, LIMIT)
    record = TensorRecord("", LEAST, START, START)
    records = {own: record, other: dataclasses.replace(record, opened=START + DAY)}
    make_room(SharedFolder(url), records, own, LEAST, START)
    make().open(own, LIMIT)
    refused(lambda: make().open(other, LIMIT), "no longer stored")


def test_visitors_of_one_process_have_one_copy(make):
    store = make()
    address = store.share(tensor(), ANNA, LIMIT)
    found = []
    threads = [threading.Thread(target=lambda: found.append(store.open(address, LIMIT))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(x is found[0] for x in found)


def test_the_folder_is_for_its_owner_only(make, tmp_path, clock):
    TensorStore(str(tmp_path / "new"), StoreLimits(MB, MB, DAY), clock).share(tensor(), ANNA, LIMIT)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_a_folder_that_can_not_be_used_gets_a_sentence(tmp_path, logged):
    (tmp_path / "file").write_text("no folder")
    store = TensorStore(str(tmp_path / "file" / "in"), StoreLimits(MB, MB, DAY))
    refused(
        lambda: store.share(tensor(), ANNA, LIMIT), "can't be stored now (NotADirectoryError)", "try again"
    )
    refused(lambda: store.open("a" * 32, LIMIT), "can't be read now (NotADirectoryError)", "reload")
    # one log line each, without an address that opens a tensor
    assert not [text for text in logged if re.search(r"\n|[0-9a-f]{32}", text)]
    assert len(logged) == 2
    store.tidy()  # in the background it must not raise
    assert len(logged) == 3


def test_what_was_begun_is_undone(tmp_path):
    """If the disk is full, no partial tensor remains, and nothing counts against the visitor."""
    store = TensorStore(str(tmp_path), StoreLimits(MB, MB, DAY))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))
    try:
        refused(lambda: store.share(tensor(), ANNA, LIMIT), "can't be stored now (OSError)")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def share_and_open(folder, number, space, results):
    """Share 40 tensors and open each right away; run in several processes."""
    store = TensorStore(folder, StoreLimits(space, 10**9, DAY))
    shared = opened = 0
    for i in range(40):
        x = np.full((100, 100), 100 * number + i, np.float32)
        try:
            address = store.share(x, visitor_of(str(number)), LIMIT)
            shared += 1
            assert (store.open(address, LIMIT) == x).all()
            opened += 1
        except qc.QuantError as error:
            if not any(words in str(error) for words in ("no longer stored", "full right now")):
                raise
    results.put((shared, opened))


@pytest.mark.slow  # by default, one process evicts what takes too much space
def test_processes_share_one_folder(tmp_path):
    """While three share, open and evict, no tensor is wrong, nothing fails, and the space limit holds."""
    space, fork = 6 * LEAST, multiprocessing.get_context("fork")  # importing torch again takes seconds
    results = fork.Queue()
    started = [
        fork.Process(target=share_and_open, args=(str(tmp_path), n, space, results)) for n in (1, 2, 3)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(300)
        assert process.exitcode == 0
    for shared, opened in (results.get(timeout=60) for _ in started):
        assert shared >= opened >= 5
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".part"]
    store = TensorStore(str(tmp_path), StoreLimits(space, 10**9, DAY))
    store.tidy()
    contents, records = ({p.stem for p in tmp_path.glob(f"*.{end}")} for end in ("safetensors", "json"))
    assert contents == records or contents < records
    assert len(contents) <= 6
    for address in contents:
        assert len(set(store.open(address, LIMIT).flat)) == 1


@for_each(
    ("url", "where"),
    [("/srv/shared", "on this server"), ("file:///srv/shared", "on this server"),
     ("memory://x", "in this server's memory, until it restarts"),
     ("s3://key:secret@bucket/folder", "at s3://bucket"), ("simplecache::gs://bucket/folder", "at gs://bucket")],
)  # fmt: skip
def test_where_a_tensor_goes(url, where):
    assert described(url) == where


def test_the_store_of_the_settings(tmp_path):
    store = opened_at(settings.read({"QUANTSCOPE_STORE": str(tmp_path), "QUANTSCOPE_STORE_GB": "0.5"}))
    assert store is not None
    assert store.limits == StoreLimits(5 * 10**8, 300 * MB, 30 * DAY)
    assert store.days == 30
    assert opened_at(settings.read({"QUANTSCOPE_STORE": "OFF"})) is None
    for url, words in (("nix://x", "nix"), ("s3://bucket/folder", "not installed")):
        if url.startswith("s3") and importlib.util.find_spec("s3fs"):
            continue
        with pytest.raises(settings.SettingError, match=words):
            opened_at(settings.read({"QUANTSCOPE_STORE": url}))
