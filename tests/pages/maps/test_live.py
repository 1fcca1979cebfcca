"""The pictures that maps get while a control is dragged: those that the page's run then draws."""

import asyncio
import base64
import gc
import html
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from app_page import change, the_app, widget
from grid import for_each
from loops import finish
from parts import some
from starlette.requests import Request
from starlette.responses import Response
from streamlit.testing.v1 import AppTest

import quantcore as qc
from pages.maps import arithmetic, foreseen, live
from pages.serving.work.admission import Gate
from pages.shared.computing import turn
from quantcore.range_setting import METHODS


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a server had the route."""
    monkeypatch.setattr(live, "_served", True)


def opened(**parameters: str) -> AppTest:
    at = the_app()
    for key, value in parameters.items():
        at.query_params[key] = value
    at.run()
    assert not at.exception
    return at


def sent(at: AppTest) -> dict[str, Any]:
    """The data that the maps were given by the page's run."""
    return dict(
        json.loads(next(c.proto.json for c in at.get("bidi_component") if '"arrays"' in c.proto.json))[0]
    )


def request(address: str, **values: object) -> Request:
    """A request for the picture at an address of `sent`."""
    query = "&".join(f"{key}={value}" for key, value in values.items()).encode()
    path, token = address.split("/")
    return Request(
        {"type": "http", "path": path, "query_string": query, "path_params": {"token": token}, "headers": []}
    )


def ask(address: str, **values: object) -> Response:
    async def sent_whole() -> Response:
        asked = request(address, **values)
        answer = await live.respond(asked)
        await answer(asked.scope, asked.receive, nowhere)  # what follows an answer follows once it is sent
        return answer

    async def nowhere(message: Any) -> None:
        pass

    return finish(sent_whole())


def pictures(answer: Response) -> list[bytes]:
    """The pictures of an answer to what was asked ahead."""
    assert answer.status_code == 200
    body, found, at = bytes(answer.body), list[bytes](), 0
    while at < len(body):
        end = at + 4 + int.from_bytes(body[at : at + 4], "little")
        found.append(body[at + 4 : end])
        at = end
    return found


def read(answer: Response) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The text of an answer, and its arrays."""
    assert answer.status_code == 200
    body = bytes(answer.body)
    end = 4 + int.from_bytes(body[:4], "little")
    text = json.loads(body[4:end])
    arrays = {
        n: np.frombuffer(body, a["dtype"], a["count"], end + a["at"]) for n, a in text.pop("arrays").items()
    }
    return text, arrays


def arrays_of_run(data: dict[str, Any]) -> dict[str, np.ndarray]:
    return {n: np.frombuffer(base64.b64decode(a["bdata"]), a["dtype"]) for n, a in data["arrays"].items()}


PINNED = {
    "pin": "int8 symmetric per_tensor min_max textbook",
    "diff": "true",
    "dtype": "bfloat16",
    "library": "torchao",
}
# a visit, the control that is moved then, what the browser asks for, the control's value
VISITS = [
    pytest.param({}, "bits", 7, 7, marks=pytest.mark.slow),
    ({"shape": "4x600", "per": "channel", "codes": "unsigned"}, "codes", 0, "signed"),  # reduced
    pytest.param(
        {"shape": "1x300", "numbers": "false", "borders": "true", "mode": "asymmetric"},
        "mode", 0, "symmetric",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        {"shape": "2x3x8", "per": "group", "group": "4", "cell": "1, 0, 2", "at": "1"},
        "bits", 7, 7,
        marks=pytest.mark.slow,
    ),
    (PINNED, "mode", 1, "asymmetric"),
    pytest.param({"dtype": "float16"}, "seed", 7, 7, marks=pytest.mark.slow),
    ({"format": "nf4"}, "outlier_channel_factor", 30.5, 30.5),
    pytest.param({"range": "percentile", "p": "97.12345", "per": "channel"}, "p", 90.1, 90.1, marks=pytest.mark.slow),
    pytest.param({"per": "group", "group": "2", "shape": "6x10"}, "per", 1, "channel", marks=pytest.mark.slow),
    pytest.param({"shape": "6x48"}, "per", 2, "group", marks=pytest.mark.slow),
    pytest.param({"per": "flat_group", "shape": "6x10"}, "group", 8, "8", marks=pytest.mark.slow),
    pytest.param({"per": "group", "group": "2", "shape": "6x10"}, "group_all", 1, True, marks=pytest.mark.slow),
    ({"per": "block", "block": "2x2", "shape": "6x10"}, "block", "-1,5", "-1x5"),
    pytest.param(
        {"per": "group", "group": "2", "group_all": "true", "group_axis": "0", "shape": "6x10"},
        "group_all", 0, False,
        marks=pytest.mark.slow,
    ),
    pytest.param(
        {"per": "group", "group": "2", "group_all": "true", "shape": "6x10"},
        "group_axis", 0, 0,
        marks=pytest.mark.slow,
    ),
    pytest.param(
        {"per": "group", "group": "2", "group_all": "true", "shape": "6x10"},
        "group", 5, "5",
        marks=pytest.mark.slow,
    ),
    pytest.param({"library": "torchao", "shape": "4x33"}, "per", 2, "group", marks=pytest.mark.slow),
    pytest.param({"per": "channel"}, "axis", 1, 1, marks=pytest.mark.slow),
    pytest.param({"per": "group", "group": "2"}, "group_axis", 0, 0, marks=pytest.mark.slow),
    pytest.param({"shape": "3x6x10"}, "per", 4, "block", marks=pytest.mark.slow),
    pytest.param({"per": "group", "group_all": "true"}, "bits", 3, 3, marks=pytest.mark.slow),
    pytest.param({"range": "min MSE"}, "candidates", 7, 7, marks=pytest.mark.slow),
    pytest.param({"range": "mean ± k·std", "format": "e4m3fn"}, "k", 0.1, 0.1, marks=pytest.mark.slow),
]  # fmt: skip


@for_each(("parameters", "key", "asked", "value"), VISITS, ids=str)
def test_a_picture_is_the_one_that_the_run_then_draws(
    parameters: dict[str, str], key: str, asked: float, value: object
) -> None:
    at = opened(**parameters)
    before = sent(at)
    text, arrays = read(ask(before["live"]["at"], **{key: asked}))
    lines = json.loads(bytes(ask(before["live"]["at"], part="resting", **{key: asked}).body))
    held, brief = read(ask(before["live"]["at"], **{key: asked}, held=before["x_key"]))
    after = sent(change(at, key, value))
    assert text["number"] == after["number"] != before["number"]
    of_run = arrays_of_run(after)
    assert arrays.keys() == of_run.keys()
    for name, values in of_run.items():
        assert arrays[name].tobytes() == values.tobytes(), name
    assert held == text
    known = {"x", "inside"} if before["x_key"] == after["x_key"] else set[str]()
    assert brief.keys() == arrays.keys() - known
    # the places of arrays, and what is beside the maps, are the route's own; all else is the run's
    assert text | {"beside": None, "arrays": None} == after | {"beside": None, "arrays": None}
    bodies = [e.proto.body for e in at.get("html")]
    assert text["beside"]["html"].keys() == {"question", "summary"}
    assert text["beside"]["resting"] == [*lines] == ["arithmetic_lines"]
    assert all(body in bodies for body in [*text["beside"]["html"].values(), *lines.values()])
    (field,) = [t.value for t in at.text_input if t.key.startswith("_scheme_text")]
    assert text["beside"]["fields"] == {"_scheme_text": field}


def test_what_a_finding_outlines_under_one_scheme_is_not_outlined_under_another() -> None:
    at = opened()
    widget(at, "_finding_show_0").click().run()
    before = sent(at)
    assert before["found"]
    for bits in (4, 7):
        text, _ = read(ask(before["live"]["at"], bits=bits))
        assert bool(text["found"]) == (bits == 4)
        assert text["number"] == sent(change(at, "bits", bits))["number"]


def test_codes_figures_and_scheme_are_quantcores() -> None:
    at = opened(shape="6x10")
    data = sent(at)
    x = arrays_of_run(data)["x"].reshape(6, 10)
    for bits in (2, 5, 16):
        text, arrays = read(ask(data["live"]["at"], bits=bits))
        result = qc.apply(x, qc.Scheme(qc.IntFormat(bits)))
        np.testing.assert_array_equal(arrays["codes"].reshape(6, 10), result.codes.numpy())
        assert text["painted"].strip() == str(result.scheme)
        shown = html.unescape(re.sub("<[^>]*>", " ", text["beside"]["html"]["summary"]))
        assert qc.decibels(qc.report(result).sqnr_db, 2) in shown
    assert sent(at.run()) == data  # a drag that returns changes nothing


@pytest.fixture
def few_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges without entropy, which takes three times as long as all else on the page."""
    every, few = qc.range_marks, tuple(m for m in METHODS if not isinstance(m, qc.Entropy))
    monkeypatch.setattr(qc, "range_marks", lambda x, s, block=None, settings=few: every(x, s, block, settings))


def ranges(**parameters: str) -> AppTest:
    at = the_app("ranges")
    for key, value in ({"dist": "normal", "shape": "6x10", "seed": "3"} | parameters).items():
        at.query_params[key] = value
    at.run()
    assert not at.exception
    return at


@pytest.mark.usefixtures("few_methods")
@pytest.mark.parametrize(
    ("mode", "ends", "fixed"),
    [
        ("asymmetric", (-0.5, 1.0), "fixed(-0.5, 1)"),
        pytest.param("symmetric", (1.25,), "fixed(-1.25, 1.25)", marks=pytest.mark.slow),
    ],
)
def test_the_range_is_followed_with_its_figures_and_its_band(
    mode: str, ends: tuple[float, ...], fixed: str
) -> None:
    at = ranges(mode=mode)
    before = sent(at)
    asked = {"rng_slider": ",".join(map(str, ends)), "held": before["x_key"]}
    text, arrays = read(ask(before["live"]["at"], **asked))
    x = arrays_of_run(before)["x"].reshape(6, 10)
    result = qc.apply(x, qc.Scheme.parse(f"int4 {mode} {fixed}"))
    np.testing.assert_array_equal(arrays["codes"].reshape(6, 10), result.codes.numpy())
    report = qc.report(result)
    line = (
        f"SQNR {qc.decibels(report.sqnr_db, 2)}</b> · MSE {report.mse:.3g} · clipped {report.clipped} of 60 "
    )
    assert report.clipped
    assert line in text["beside"]["html"]["rng_figures"]
    assert text["beside"]["bands"]["rng_histogram"] == pytest.approx(qc.range_in_use(result))
    change(at, "rng_slider", ends[0] if len(ends) == 1 else ends)
    assert sent(at)["number"] == text["number"] != before["number"]
    assert text["beside"]["html"]["rng_figures"] in [e.proto.body for e in at.get("html")]
    for typed in ("abc", "1,2,3", "nan", "1e39"):
        answer = ask(before["live"]["at"], rng_slider=typed)
        assert answer.status_code == 400
        assert bytes(answer.body).decode().startswith("The range must be ")
    assert ask(before["live"]["at"], rng_slider=asked["rng_slider"], bits=3).status_code == 200


@for_each(
    ("parameters", "ends", "band"),
    [
        ({"tab": "Distribution"}, (1.25,), (-1.25 * 8 / 7, 1.25)),
        pytest.param(
            {"mode": "asymmetric", "per": "channel", "tab": "Distribution"},
            (-0.5, 1.0),
            (-0.5, 1.0),
            marks=pytest.mark.slow,
        ),
        pytest.param({"format": "e4m3fn"}, (1.25,), None, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_ends_of_the_range_are_followed_as_a_fixed_range(
    parameters: dict[str, str], ends: tuple[float, ...], band: tuple[float, float] | None
) -> None:
    at = opened(**parameters)
    before = sent(at)
    assert len(before["live"]["controls"]["ends"]) == len(ends)
    text, arrays = read(ask(before["live"]["at"], ends=",".join(map(str, ends))))
    assert text["live"]["controls"]["ends"] == list(ends)
    if band:  # the values of the lowest and the highest code
        low, high = text["beside"]["bands"]["distribution_chart"]
        assert high - low == pytest.approx(band[1] - band[0], rel=1e-6)
        assert high == pytest.approx(band[1], rel=0.1)
    else:
        assert not text["beside"]["bands"]
    low, high = (-ends[0], ends[0]) if len(ends) == 1 else ends
    for key, value in (("range", "fixed"), ("low", low), ("high", high)):
        at.session_state[key] = value
    after = sent(at.run())
    assert text["number"] == after["number"] != before["number"]
    assert text["live"]["controls"] == after["live"]["controls"]
    for name, values in arrays_of_run(after).items():
        assert arrays[name].tobytes() == values.tobytes(), name


def test_a_range_that_a_search_finds_has_no_ends_to_drag() -> None:
    searched = opened(scheme=str(qc.PRESETS["gguf.Q4_K"]), shape="2x256")
    assert "ends" not in sent(searched)["live"]["controls"]
    assert "ends" in sent(opened())["live"]["controls"]


CHANGED = "A changed value is written as an index from 0 to 7, an index from 0 to 7, and a float32 number, not '{}'."


@for_each("dtype", some(["bfloat16", "float32"]))
def test_a_changed_value_changes_scale_and_codes_of_all(dtype: str) -> None:
    at = opened(dtype=dtype, mode="asymmetric")
    before = sent(at)
    text, arrays = read(ask(before["live"]["at"], value="2,3,24.1", held=before["x_key"]))
    x = qc.tensors.generate(qc.tensors.Generated())
    x[2, 3] = 24.1
    if dtype == "bfloat16":
        x = torch.from_numpy(x).bfloat16().float().numpy()
    result = qc.apply(x, qc.Scheme(qc.INT4, symmetric=False))
    np.testing.assert_array_equal(arrays["x"].reshape(8, 8), x)
    np.testing.assert_array_equal(arrays["codes"].reshape(8, 8), result.codes.numpy())
    assert arrays["scale"] == result.scale.numpy()
    assert text["arithmetic"]["at"] == "2,3"
    assert text["live"]["controls"]["value"] == [2, 3, 24.1]
    assert text["uirevision"] == before["uirevision"]  # a zoom stays


def test_values_of_large_tensors_and_of_images_are_not_dragged() -> None:
    for parameters in ({"shape": "64x65"}, {"src": "example", "ex": "landscape-128x192"}):
        assert "value" not in sent(opened(**parameters))["live"]["controls"]
    assert "value" in sent(opened(shape="64x64"))["live"]["controls"]


def test_what_is_asked_wrongly_is_answered_in_a_sentence() -> None:
    at = opened()
    address = sent(at)["live"]["at"]
    for value in ("abc", "1", "17", "-4", "4.5", "", "9" * 5000, "⁴", "012", "00500"):
        answer = ask(address, bits=value)
        assert (answer.status_code, answer.media_type) == (400, "text/plain")
        assert re.fullmatch(
            r"Bits must be an integer from 2 to 16, not '.{0,40}'\.", bytes(answer.body).decode()
        )
    for key, sentence in (
        ("codes", "Codes must be 0 (signed) or 1 (unsigned), not '2'."),
        ("mode", "Symmetry must be 0 (symmetric) or 1 (asymmetric), not '2'."),
        ("per", "One scale per must be from 0 to 4, not 2000000000."),
    ):
        answer = ask(address, **{key: 2 if key != "per" else 2_000_000_000})
        assert (answer.status_code, bytes(answer.body).decode()) == (400, sentence)
    for key, value, sentence in (
        ("narrow", 1, "'narrow' is not a control that the maps follow here."),
        ("seed", "1.5", "'1.5' is not a number that seed can be; type another."),
        ("seed", -1, "The seed is '-1'; give an integer from 0 to 2^63 - 1."),
        (
            "outlier_channel_factor",
            "nan",
            "factor of outlier_channel is 'nan'; give a number from 1 to 10000.",
        ),
        *(
            ("value", typed, CHANGED.format(typed))
            for typed in ("", "1", "0,8,1", "-1,0,1", "0,0,inf", "0,0,1e39")
        ),
    ):
        answer = ask(address, **{key: value})
        assert (answer.status_code, bytes(answer.body).decode()) == (400, sentence)
    at = opened(library="torch.quantize_per_tensor", bits="8")
    refused = ask(sent(at)["live"]["at"], bits=5)
    assert refused.status_code == 400
    assert "torch.quantize_per_tensor" in bytes(refused.body).decode()


def test_lines_that_follow_late_leave_the_pointer_what_the_maps_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "_served", True)
    at = opened()
    address = sent(at)["live"]["at"]
    shown, _ = read(ask(address, bits=3))
    assert ask(address, bits=5, part="resting").status_code == 200
    assert finish(arithmetic.respond(request(shown["pointed"], at="0,0"))).status_code == 200
    assert ask(address, bits=1, part="resting").status_code == 400


def test_a_token_ends_with_its_session_and_is_of_one_visitor() -> None:
    first, second = opened(shape="2x3"), opened(shape="4x5")
    addresses = [sent(at)["live"]["at"] for at in (first, second)]
    assert len(set(addresses)) == 2
    assert [read(ask(address, bits=3))[0]["height"] for address in addresses] == [2, 4]
    assert sent(change(first, "seed", 1))["live"]["at"] == addresses[0]  # it stays while the session does
    assert ask("live/nothing", bits=3).status_code == 204
    del first
    gc.collect()
    assert [ask(address, bits=3).status_code for address in addresses] == [204, 200]


def test_of_requests_that_wait_only_the_newest_is_answered() -> None:
    at = opened(shape="64x128")  # kept: the picture is known as long as its session
    address = sent(at)["live"]["at"]

    async def together() -> list[int]:
        asked = [live.respond(request(address, bits=bits)) for bits in (3, 4, 5, 6)]
        return [answer.status_code for answer in await asyncio.gather(*asked)]

    assert finish(together()) == [200, 204, 204, 200]


def test_a_picture_that_is_foreseen_is_the_one_that_is_asked_for_and_leaves_the_pointer_what_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arithmetic, "_served", True)
    monkeypatch.setattr(foreseen, "LONGEST", 60)  # on a busy machine too
    at = opened()  # an address ends with its session
    data = sent(at)
    address, made, make = data["live"]["at"], list[int](), live.LiveMaps.content

    def counted(*args: Any) -> bytes:
        made.append(1)
        return make(*args)

    monkeypatch.setattr(live.LiveMaps, "content", counted)
    first, refused, more = pictures(ask(address, ahead="bits:3,17,5"))
    assert refused == b""  # there is no such width
    pointed = read(Response(first))[0]["pointed"]
    for shown in (data["pointed"], pointed):  # the picture may be shown before the server hears of it
        assert finish(arithmetic.respond(request(shown, at="0,0"))).status_code == 200
    assert bytes(ask(address, bits=3).body) == first
    assert bytes(ask(address, bits=5).body) == more
    assert pictures(ask(address, ahead="bits:5,3")) == [more, first]
    assert len(made) == 3
    for ahead in ("bits", "bits:", "bits:3,", ":3", "bits:3" + 64 * ",3"):
        refusal = ask(address, ahead=ahead)
        assert refusal.status_code == 400
        assert b"such as ?ahead=bits:5,3" in bytes(refusal.body)


def test_nothing_is_foreseen_while_another_picture_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sessions = [opened(shape=shape) for shape in ("8x8", "64x128")]  # an address ends with its session
    addresses = [sent(at)["live"]["at"] for at in sessions]
    begun, way, make = threading.Event(), threading.Event(), live.LiveMaps.content

    def slow(maps: live.LiveMaps, values: dict[str, str], *more: Any) -> bytes:
        begun.set()
        assert values == {"bits": "9"}
        assert way.wait(60)
        return make(maps, values, *more)

    with ThreadPoolExecutor(1) as browser, monkeypatch.context() as patched:
        patched.setattr(live.LiveMaps, "content", slow)
        picture = browser.submit(ask, addresses[0], bits=9)
        assert begun.wait(60)
        assert [ask(address, ahead="bits:3").status_code for address in addresses] == [204, 204]
        way.set()
        assert picture.result().status_code == 200
    monkeypatch.setattr(live.VISITORS, "runs", 1)
    assert ask(addresses[1], ahead="bits:3").status_code == 204
    monkeypatch.setattr(live.VISITORS, "runs", 0)
    assert ask(addresses[1], ahead="bits:3").status_code == 200


def test_of_what_is_foreseen_and_too_large_to_remember_the_pointer_may_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arithmetic, "_served", True)
    monkeypatch.setattr(foreseen, "LONGEST", 60)
    at = opened()
    address = sent(at)["live"]["at"]
    monkeypatch.setattr(live, "_REMEMBERED", 0)
    monkeypatch.setattr(live, "_TOLD", 2)
    foretold = pictures(ask(address, ahead="bits:3,5"))
    assert [*map(bytes, (ask(address, bits=bits).body for bits in (3, 5)))] == foretold

    def may_ask() -> list[int]:
        asked = [request(read(Response(one))[0]["pointed"], at="0,0") for one in foretold]
        return [finish(arithmetic.respond(one)).status_code for one in asked]

    assert may_ask() == [200, 200]
    assert ask(address, ahead="seed:7").status_code == 204  # tensors would gather in the server
    assert ask(address, seed=7).status_code == 200
    assert pictures(ask(address, ahead="bits:9"))
    gc.collect()
    assert may_ask() == [204, 200]  # a session holds the newest


def test_what_is_asked_ahead_ends_with_the_picture_at_hand_once_somebody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = opened()
    address, make = sent(at)["live"]["at"], live.LiveMaps.content
    monkeypatch.setattr(foreseen, "LONGEST", 60)
    made, limiter = list[live.LiveMaps](), live._AT_ONCE
    waits = {  # once a third picture is made: a run, the visitor's own question, and that of another
        "bits:3,5,6,7": lambda: monkeypatch.setattr(live.VISITORS, "runs", 1),
        "bits:8,9,10,11": lambda: made[-1].idle.clear(),
        "bits:12,13,14,15": lambda: monkeypatch.setattr(live, "_AT_ONCE", SimpleNamespace(borrowed_tokens=2)),
    }

    def then(maps: live.LiveMaps, values: dict[str, str], *more: Any) -> bytes:
        made.append(maps)
        if len(made) % 3 == 0:
            waits[asked]()
        return make(maps, values, *more)

    with monkeypatch.context() as patched:
        patched.setattr(live.LiveMaps, "content", then)
        for asked in waits:
            assert len(pictures(ask(address, ahead=asked))) == 3, asked
            monkeypatch.setattr(live.VISITORS, "runs", 0)
            monkeypatch.setattr(live, "_AT_ONCE", limiter)
            made[-1].idle.set()
    monkeypatch.setattr(foreseen, "LONGEST", 0)
    assert len(pictures(ask(address, ahead="bits:7,2"))) == 1


def test_a_run_gives_way_to_a_picture_that_was_asked_for_before(monkeypatch: pytest.MonkeyPatch) -> None:
    at = opened()
    address = sent(at)["live"]["at"]
    begun, way, order, make = threading.Event(), threading.Event(), list[str](), live.LiveView.picture

    def slow(view: live.LiveView, tensor: Any, scheme: qc.Scheme, *more: Any) -> Any:
        if scheme.format.bits == 9:
            begun.set()
            assert way.wait(60)
        order.append(str(scheme.format))
        return make(view, tensor, scheme, *more)

    monkeypatch.setattr(live.LiveView, "picture", slow)
    monkeypatch.setattr(live, "_WAY", 60.0)
    monkeypatch.setattr(live, "_DRAWN", 0.01234)
    slept, sleep = list[float](), time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: (slept.append(seconds), sleep(seconds)))
    give_way = live.give_way
    monkeypatch.setattr(
        live, "give_way", lambda: (way.set(), give_way())
    )  # when a run asks whether it may go
    with ThreadPoolExecutor(1) as browser:
        picture = browser.submit(ask, address, bits=9)
        assert begun.wait(60)
        change(at, "bits", 3)
        assert picture.result().status_code == 200
    assert order == ["int9", "int3"]
    assert slept.count(0.01234) == 1  # the browser draws the picture that was under way
    change(at, "bits", 4)
    assert order == ["int9", "int3", "int4"]
    assert slept.count(0.01234) == 1


def test_the_shape_of_blocks_is_asked_within_bounds() -> None:
    pages = [opened(shape="6x10", **per) for per in ({"per": "group", "group": "2"}, {"per": "block", "block": "2x3"})]
    group, block = (sent(page)["live"] for page in pages)
    assert group["controls"].items() >= {"group": [2], "group_axis": [1], "group_all": [0]}.items()
    assert block["controls"]["block"] == [2, 3]
    for of, key, value, sentence in (
        (group, "group_all", "2", "Shared by all must be 0 (no) or 1 (yes), not '2'."),
        (group, "block", "2,3", "'block' is not a control that the maps follow here."),
        (block, "block", "2,x", "Block shape must be an integer from 0, not 'x'."),
        (block, "block", "0,3", "The lengths of the block shape (0, 3) must be 1 or more, or -1 for a whole axis."),
    ):
        answer = ask(of["at"], **{key: value})
        assert (answer.status_code, bytes(answer.body).decode()) == (400, sentence)
    assert ask(block["at"], block="2").status_code == 400  # one length for two axes


def test_a_tensor_that_has_to_wait_for_its_turn_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "GATE", Gate(2_000_000, 2))
    assert sent(opened(shape="8x8"))["live"]["at"]
    live = sent(opened(shape="128x128"))["live"]
    del live["controls"]["ends"]  # which depend on the tensor
    assert live == {
        "at": "",
        "controls": {
            "seed": [0],
            "outlier_channel_factor": [12],
            "per": [0],
            "bits": [4],
            "codes": [0],
            "mode": [0],
        },
    }


def test_a_format_without_bits_has_less_to_follow() -> None:
    tensor = {
        "seed": [0],
        "outlier_channel_factor": [12],
        "per": [0],
        "value": [-1, -1, 0],
        "ends": [15.8669],
    }
    assert sent(opened(format="e4m3fn"))["live"]["controls"] == tensor
    at = opened(format="e4m3fn", range="percentile", p="97.12345")
    live = sent(at)["live"]
    assert live["controls"] | {"ends": [15.8669]} == {"p": [97.123]} | tensor  # as the field shows it
    for typed in ("", "abc", "nan", "50", "100.1", "inf"):
        answer = ask(live["at"], p=typed)
        sentence = f"Percentile must be a number from 50.001 to 100, not '{typed}'."
        assert (answer.status_code, bytes(answer.body).decode()) == (400, sentence)
    at = opened(range="mean ± k·std")  # kept: the picture is known as long as its session
    live = sent(at)["live"]
    assert bytes(ask(live["at"], k="inf").body) == b"k must be a number, not 'inf'."
    at = opened(range="min MSE")
    live = sent(at)["live"]
    refused = ask(live["at"], candidates="7.5")
    assert bytes(refused.body) == b"Candidates must be an integer from 1 to 10000, not '7.5'."
    assert sent(opened(format="fitted codebook"))["live"] is None
