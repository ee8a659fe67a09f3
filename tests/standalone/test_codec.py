"""The codec sends plain data and types of closed lists, and nothing executable."""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import importlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_fakecloud import Cloud, ContractError, Reply
from pytest_fakecloud.core.calls import Call, Event
from pytest_fakecloud.core.results import Results
from pytest_fakecloud.http.messages import Answer, Request
from pytest_fakecloud.standalone import wire
from pytest_fakecloud.standalone.api import ControlApp
from pytest_fakecloud.standalone.codec import (
    _READERS,
    MOST_OBJECTS,
    Objects,
    Unreadable,
    decode,
    encode,
    encode_error,
)
from pytest_fakecloud.standalone.remote_objects import Connection, RemoteObject

from .conftest import message
from .test_remote import other_server

# Each string is a name that could be reached from a module of the package.
REACHED = [
    "pytest_fakecloud.cli:subprocess.getoutput", "pytest_fakecloud.cli:os.system",
    "pytest_fakecloud.cli:subprocess.Popen", "pytest_fakecloud.cli:main",
    "pytest_fakecloud.standalone.wire:importlib.import_module",
    "pytest_fakecloud.standalone.codec:Objects", "pytest_fakecloud.cloud:Cloud",
    "pytest_fakecloud.core.journal:Call.__init__", "pytest_fakecloud.core.journal:Journal",
    "pytest_fakecloud.broker.model:Record.__class__", "builtins:exec", "builtins:eval", "os:system",
    "posix:system", "subprocess:getoutput", "pytest_fakecloud", "", ":", "pytest_fakecloud.later:X",
]  # fmt: skip


def app_of(cloud: Cloud) -> ControlApp:
    return ControlApp(cloud, "token")


def ask(app: ControlApp, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Send one request through the pipeline, without a socket."""
    sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    headers = [("Host", "127.0.0.1"), ("Authorization", "Bearer token")]
    answer = app.answer(Request(method, f"/__control__{path}", headers, sent))
    assert isinstance(answer, Answer)
    assert isinstance(answer.body, bytes)
    return answer.status, json.loads(answer.body)


@pytest.fixture(scope="module")
def app() -> Iterator[ControlApp]:
    with Cloud(seed=1, now="2026-01-01T00:00:00Z", delivery="driven") as cloud:
        cloud.kv_server()
        yield app_of(cloud)


def with_name(name: object, mark: str) -> list[Any]:
    """Return all forms in which a request can contain a name, with commands that leave a mark."""
    command = f"echo owned > {mark}"
    return [
        {"$": "named", "c": name, "v": [command]},
        {"$": "data", "c": name, "v": {}},
        {"$": "data", "c": name, "v": {"args": command, "__class__": name, "shell": True}},
        {"$": "data", "c": name, "v": [command]},
        {"$": "results", "c": name, "v": [command]},
        {"$": "results", "c": name, "v": [command], "f": {"__class__": name}},
        {"$": "error", "v": {"c": name, "text": command, "fields": {"__class__": name}}},
        {"$": "object", "id": 1, "c": name, "repr": command},
        {"$": name, "v": [command]},
    ]


@pytest.mark.parametrize("name", REACHED)
def test_no_name_that_comes_in_runs_anything_on_the_server(
    app: ControlApp, tmp_path: Path, name: str
) -> None:
    mark = tmp_path / "mark"
    for shape in with_name(name, str(mark)):
        for path, body in [
            ("/call", {"object": "kv_server", "name": "value", "args": [shape]}),
            ("/call", {"object": "kv_server", "name": "value", "kwargs": {"key": shape}}),
            ("/call", {"object": None, "name": "allow", "args": ["bug"], "kwargs": {"x": shape}}),
            ("/call", {"object": shape, "name": "env", "get": True}),
            ("/handles", {"fixture": "kv_server", "settings": {"token": shape}}),
        ]:
            status, answer = ask(app, "POST", path, body)
            assert status in (200, 400, 422), answer
            assert status != 200 or "raise" in answer or "value" in answer
    assert not mark.exists()


@pytest.mark.parametrize("name", REACHED)
def test_no_name_that_comes_in_runs_anything_in_a_client(tmp_path: Path, name: str) -> None:
    mark = tmp_path / "mark"
    shapes = with_name(name, str(mark))
    answers: list[Any] = [{"value": shape} for shape in shapes]
    answers += [{"value": [{"a": shape}]} for shape in shapes]
    answers += [{"raise": shape.get("v", shape)} for shape in shapes]
    given = iter(answers)

    def respond(path: str) -> bytes:
        return json.dumps({"seed": 1, "handles": []} if "state" in path else next(given)).encode()

    with other_server(respond) as url, Cloud.connect(url, "x") as cloud:
        for _ in answers:
            try:
                found = cloud.journal
                repr(found)
                getattr(found, "anything", None)
            except (ContractError, RuntimeError, LookupError):
                pass
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    [
        "__class__", "__init__", "__dict__", "__reduce__", "__globals__", "__call__", "_context",
        "_exits", "_app", "intercept", "on_close", "client", "_make_client",
        "between", "_first_baseline", "journal.entries", "load.__globals__", "execute.__func__",
        "", " ", "execute\0", "EXECUTE", "\ud800",
    ],
)  # fmt: skip
@pytest.mark.parametrize("get", [True, False])
def test_a_handle_offers_what_is_listed_and_nothing_else(
    app: ControlApp, name: str, get: bool
) -> None:
    assert "is private or unknown: KVServer offers" in message(
        ask(app, "POST", "/call", {"object": "kv_server", "name": name, "get": get})
    )


def test_the_cloud_offers_little(app: ControlApp) -> None:
    for name in ("close", "connect", "start", "replay", "every_failure", "__exit__", "handles"):
        status, _ = ask(app, "POST", "/call", {"object": None, "name": name, "args": []})
        assert status == 422, name
    status, answer = ask(app, "POST", "/call", {"object": None, "name": "env", "get": True})
    assert (status, "UPSTASH_REDIS_REST_URL" in answer["value"]) == (200, True)


def test_what_is_no_object_of_ours_can_only_be_handed_back(app: ControlApp) -> None:
    _, answer = ask(app, "POST", "/call", {"object": None, "name": "snapshot"})
    number = answer["value"]["id"]
    for name in ("handles", "__class__", "__iter__", "__len__"):
        assert ask(app, "POST", "/call", {"object": number, "name": name, "get": True})[0] == 422
    status, answer = ask(
        app, "POST", "/call", {"object": None, "name": "restore", "args": [answer["value"]]}
    )
    assert (status, answer) == (200, {"value": None})


def test_every_surface_is_of_public_names_that_are_declared() -> None:
    for name in wire._OBJECTS:
        surface = wire.surface_named(name)
        assert surface is not None, name
        for each in surface.names:
            assert each.isidentifier()
            assert not each.startswith("_")
        for protocol in surface.protocols:
            assert protocol in ("__len__", "__bool__", "__iter__", "__getitem__") or (
                protocol in ("__enter__", "__exit__") and hasattr(surface.kind, protocol)
            )
        # Methods that expose internals or take functions work in process only.
        assert not {"engine", "context", "app", "client", "between", "intercept"} & set(
            surface.names
        )


def test_all_that_is_listed_is_there() -> None:
    for name in wire._VALUES:
        kind = wire.value_type(name)
        assert kind is not None
        assert wire.name_of(kind.kind) == name
        assert kind.kind is Call or set(kind.names) == set(inspect.signature(kind.kind).parameters)
    for name in wire._RESULTS:
        assert issubclass(wire.results_type(name), list)
    for name in (*wire._ERRORS, *wire._BUILT_IN):
        assert issubclass(wire.error_type(name) or int, Exception)


def given_away() -> Iterator[tuple[str, type]]:
    """Yield the classes of this package that public methods and properties are declared to return."""
    for name in wire._OBJECTS:
        surface = wire.surface_named(name)
        assert surface is not None
        for each in surface.names:
            found = inspect.getattr_static(surface.kind, each, None)
            made = found.fget if isinstance(found, property) else inspect.unwrap(found)
            declared = getattr(made, "__annotations__", {}).get("return", "")
            for word in re.findall(r"\w+", str(declared)):
                kind = vars(sys.modules[made.__module__]).get(word)
                if isinstance(kind, type) and kind.__module__.startswith("pytest_fakecloud."):
                    yield f"{surface.kind.__name__}.{each}", kind


def test_all_that_handles_give_away_is_listed() -> None:
    seen = set()
    for where, kind in given_away():
        seen.add(kind)
        name = wire.name_of(kind)
        listed = wire.value_type(name) or wire.results_type(name) or wire.surface_of(kind)[1]
        # Snapshots are only passed back.
        assert listed or kind.__name__.endswith("Snapshot"), f"{where} returns {name}"
    assert len(seen) > 15


def test_values_that_are_given_cross_as_they_are() -> None:
    values: list[Any] = [Reply.hang(), Reply(201, {"a": 1}, {"x": "y"}, dt.timedelta(seconds=1.5))]
    for name in wire._VALUES:
        kind = wire.value_type(name)
        assert kind is not None
        with contextlib.suppress(TypeError):
            values.append(kind.kind())
    assert len(values) > 12
    for value in values:
        assert crossed(value) == value


def test_texts_and_arrays_of_other_classes_cross_as_data() -> None:
    class Color(enum.StrEnum):
        RED = "red"

    class Size(str, enum.Enum):  # noqa: UP042 (str() of its members differs from a StrEnum's)
        SMALL = "s"

    assert crossed([Size.SMALL, {Size.SMALL: 1}]) == ["s", {"s": 1}]
    assert crossed([Color.RED, np.array([0.5, 2.0]), np.float32(0.5)]) == ["red", [0.5, 2.0], 0.5]
    assert type(crossed(Color.RED)) is str


def test_a_dict_crosses_with_what_stays_inside_it() -> None:
    kept = object()
    objects = Objects()
    sent = json.loads(json.dumps(encode({"a": kept, 5: "x"}, objects)))
    assert decode(sent, lambda number, *_: objects.get(number)) == {"a": kept, 5: "x"}


def test_events_are_asked_for_on_the_other_side() -> None:
    with Cloud(seed=1, now="2026-01-01T00:00:00Z") as cloud:
        broker = cloud.broker(topics={"orders": 1})
        broker.produce("orders", "x")
        broker.join("g", "i", ["orders"])
        events = broker.journal.events()
        again = crossed(events)
        assert list(map(repr, again)) == list(map(repr, events))
        assert len(again.where(group="g")) > 0
        assert again.where(group="other") == []


def test_what_is_found_is_asked_in_the_same_shapes_on_the_other_side() -> None:
    with Cloud(seed=1, delivery="driven") as cloud:
        queue = cloud.queue()
        queue.destinations.answers("https://a.test", 500)
        queue.publish("https://a.test/h", retries=0)
        for found in (queue.deliver_due(), queue.attempts(), queue.attempts(status=200)):
            again = crossed(found)
            assert len(again.where(url="https://a.test/h")) == len(found)
            for asked in ({"url": "a.test/h"}, {"message_id": "1"}, {"nope": 1}):
                with pytest.raises(ContractError):
                    again.where(**asked)


def test_patterns_cross_and_those_that_are_none_do_not() -> None:
    pattern = re.compile(r"^/s.t", re.IGNORECASE)
    assert crossed({"path": [pattern]}) == {"path": [pattern]}
    for bad in (["(", 0], ["x", 128], ["x", True], ["x"], "x", [5, 0]):
        with pytest.raises(Unreadable):
            decode({"$": "pattern", "v": bad}, lambda *_: None)


def crossed(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value, Objects()))), lambda *_: None)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.datetimes(timezones=st.just(dt.UTC) | st.none())
    | st.timedeltas(dt.timedelta(-(10**6)), dt.timedelta(10**6))
    | st.sets(st.integers() | st.text(max_size=3), max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
        | st.lists(inner, max_size=3).map(Results)
        | st.dictionaries(st.text(max_size=4) | st.just("$") | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_plain_data_is_the_same_on_the_other_side(value: Any) -> None:
    assert crossed(value) == value


def test_values_of_services_are_the_same_on_the_other_side() -> None:
    with Cloud(seed=1, now="2026-01-01T00:00:00Z", delivery="driven") as cloud:
        broker, queue = cloud.broker(topics={"orders": 1}), cloud.queue()
        broker.produce("orders", "x", key="k")
        queue.destinations.answers("https://app.test/hook", 200)
        queue.publish("https://app.test/hook", body=b"x")
        cloud.clock.advance("1m")
        values: list[Any] = [
            broker.records("orders").only(),
            broker.topic("orders"),
            broker.group("nobody"),
            queue.attempts().only(),
            queue.messages().only()._record,
            queue.run_until_idle(),
        ]
        for value in values:
            again = crossed(value)
            assert type(again) is type(value)
            assert repr(again) == repr(value)
        assert again.waiting == "nothing"
        event = cloud.journal.events().last
        assert repr(crossed(event)) == repr(event)
    call = Call(5, 6, "kv", "kv_server", "GET", "/x", [("a", "b")], b"\xff", ("127.0.0.1", 5))
    call.status, call.problem = 200, "bug"
    again = crossed(call)
    assert vars(again) == {**vars(call), "_facts": {}}


EXTREMES = st.sampled_from(
    [
        None, True, False, 0, -1, 2**63, 10**400, -(10**400), 1e308, -1e308, float("inf"),
        float("-inf"), float("nan"), "", "\0", "\ud800", "x" * 5000, "=", "A", "QQ==", "9" * 30,
        "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "builtins:KeyError",
        "builtins:UnicodeDecodeError", "builtins:ExceptionGroup", "pytest_fakecloud.cli:os.system",
        [], {}, [[]], [[1, 2, 3]], [[[], 1]], [[{}, 1]], {"$": None}, {"$": []}, {"$": "set"},
        {"$": "timedelta", "v": float("inf")}, {"$": "bytes", "v": "ü"}, {"$": "dict", "v": 5},
        {"c": 5, "text": 5, "fields": 5}, {"c": "builtins:KeyError", "text": "", "fields": {}},
    ]
)  # fmt: skip
NAMES = st.sampled_from([*sorted(wire._VALUES | wire._RESULTS | wire._ERRORS), *REACHED]) | EXTREMES


@st.composite
def tagged(draw: Callable[[Any], Any], inner: st.SearchStrategy[Any]) -> dict[str, Any]:
    """Return a tagged value with valid, invalid or additional content."""
    tag = draw(st.sampled_from([*_READERS, "named", "unheard of"]))
    content = draw(
        EXTREMES
        | inner
        | st.lists(inner | EXTREMES, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner | EXTREMES, max_size=3)
    )
    name = draw(NAMES)
    if tag == "data" and draw(st.booleans()):
        kind = wire.value_type(name)
        content = {each: draw(inner | EXTREMES) for each in (kind.names if kind else ())}
    value: dict[str, Any] = {"$": tag, "v": content}
    if draw(st.booleans()):
        value["c"] = name
    if tag == "object":
        value |= {"id": draw(EXTREMES | st.integers(0, 9)), "c": name, "repr": draw(EXTREMES)}
    if tag == "error" and draw(st.booleans()):
        value["v"] = {"c": name, "text": draw(EXTREMES), "fields": content}
    if draw(st.integers(0, 5)) == 0:
        value.pop(draw(st.sampled_from(sorted(value))))
    if draw(st.integers(0, 9)) == 0:
        value[draw(st.text(max_size=3))] = draw(EXTREMES)
    return value


HOSTILE = st.recursive(EXTREMES, lambda inner: tagged(inner), max_leaves=6)


@pytest.fixture(scope="module")
def imported() -> Iterator[list[str]]:
    """Yield a list of the modules that decoding imports."""
    names: list[str] = []
    with pytest.MonkeyPatch.context() as patch:

        def import_module(name: str) -> Any:
            names.append(name)
            return importlib.import_module(name)

        patch.setattr(wire, "importlib", SimpleNamespace(import_module=import_module))
        yield names


@settings(suppress_health_check=list(HealthCheck))
@given(HOSTILE)
def test_whatever_comes_in_is_read_or_refused(imported: list[str], value: Any) -> None:
    with contextlib.suppress(Unreadable, ContractError):
        decode(value, lambda *_: None)
    listed = {*wire._VALUES, *wire._RESULTS, *wire._ERRORS, *wire._OBJECTS}
    assert set(imported) <= {name.partition(":")[0] for name in listed}


@settings(suppress_health_check=list(HealthCheck))
@given(HOSTILE, st.sampled_from(["args", "kwargs", "settings", "object"]))
@pytest.mark.slow
def test_the_server_answers_whatever_comes_in(app: ControlApp, value: Any, where: str) -> None:
    body: dict[str, Any] = {"object": "kv_server", "name": "value"}
    path = "/call"
    if where == "settings":
        path, body = "/handles", {"fixture": "vector_index", "settings": {"similarity": value}}
    else:
        body[where] = {"args": [value], "kwargs": {"key": value}, "object": value}[where]
    status, answer = ask(app, "POST", path, json.dumps(body).encode())
    assert status in (200, 400, 422), answer
    assert [problem.text for problem in app.cloud.problems if problem.kind == "bug"] == []


@settings(suppress_health_check=list(HealthCheck))
@given(HOSTILE, st.sampled_from(["value", "raise", "unheard of"]))
def test_a_client_reads_whatever_a_server_answers_or_says_why_not(
    monkeypatch: pytest.MonkeyPatch, answer: Any, where: str
) -> None:
    connection = Connection("http://127.0.0.1:9", "token")
    asked: list[str] = []

    def request(method: str, path: str, *_: object) -> dict[str, Any]:
        asked.append(path)
        return {where: answer}

    monkeypatch.setattr(connection, "request", request)
    found, raised = None, None
    try:
        found = connection.call("kv_server", "value")
    except Exception as error:
        raised = error
    if raised is not None and not isinstance(raised, ContractError):
        # An error that the server claims to have raised, of a class that the client knows.
        named = answer.get("c", "") if isinstance(answer, dict) else ""
        assert where == "raise"
        assert type(raised) is RuntimeError or wire.error_type(named) is type(raised)
    repr(found)
    if isinstance(found, RemoteObject):
        surface = wire.surface_named(answer["c"])
        for name in ("__class__", "_context", "system", "getoutput"):
            assert surface is None or name not in surface.names
        with pytest.raises(AttributeError):
            found.getoutput  # noqa: B018
    assert asked == ["/call"]


def test_extremes_are_said_in_words(app: ControlApp) -> None:
    for value, text in [
        ({"$": "timedelta", "v": float("inf")}, "OverflowError"),
        ({"$": "timedelta", "v": float("nan")}, "ValueError"),
        ({"$": "timedelta", "v": 1e300}, "OverflowError"),
        ({"$": "timedelta", "v": True}, "is not a timedelta"),
        ({"$": "timedelta", "v": 1, "more": 1}, "is not a timedelta"),
        ({"$": "datetime", "v": 5}, "is not a datetime"),
        ({"$": "path", "v": "a\0b"}, "a path cannot contain a NUL"),
        ({"$": "set", "v": [[1]]}, "TypeError"),
        ({"$": "named", "c": "x", "v": []}, "'named' is not a type tag"),
        ({"$": "object", "id": "1", "c": "x", "repr": "y"}, "is not an object"),
        (
            {"$": "results", "c": "pytest_fakecloud.core.results:Results", "v": 5},
            "is not an encoded list",
        ),
        *(
            (
                {"$": "results", "c": f"pytest_fakecloud.{kind}", "v": [], "sent": told},
                "are not attributes of",
            )
            for kind, told in [
                ("core.results:Results", {"waiting": "x"}),
                ("queue.delivery.drivers:Attempts", {"waiting": 5}),
                ("queue.delivery.drivers:Attempts", {"__class__": "x"}),
                ("queue.delivery.drivers:Attempts", 5),
            ]
        ),
        (
            {"$": "data", "c": "pytest_fakecloud.queue.model:Later", "v": {}},
            "is not a known class of",
        ),
        (
            {"$": "data", "c": "pytest_fakecloud.queue.delivery.replies:Reply", "v": {"x": 1}},
            "missing or unknown fields",
        ),
    ]:
        sent = {"object": "kv_server", "name": "value", "args": [value]}
        said = message(ask(app, "POST", "/call", sent), 400)
        assert text in said
        assert "args cannot be decoded" in said
    deep: Any = {"$": "list", "v": []}
    for _ in range(300):
        deep = {"$": "list", "v": [deep]}
    for sent_bytes in (json.dumps(deep).encode(), b"[" * 100_000):
        body = b'{"object":"kv_server","name":"value","args":[' + sent_bytes + b"]}"
        assert ask(app, "POST", "/call", body)[0] in (200, 400)


def test_a_value_refuses_what_it_refuses_in_process(app: ControlApp) -> None:
    reply = {"$": "data", "c": "pytest_fakecloud.queue.delivery.replies:Reply"}
    content = {"status": 99, "body": "", "headers": [], "after": 0, "ending": "answer"}
    sent = {"object": "kv_server", "name": "value", "args": [{**reply, "v": content}]}
    assert "99 is not an HTTP status" in message(ask(app, "POST", "/call", sent))


def test_what_an_error_brings_along_does_not_replace_what_it_is() -> None:
    data = {
        "c": "builtins:ValueError",
        "text": "no",
        "fields": {"__class__": "x", "args": [1], "with_traceback": 1, "_secret": 1, "status": 5},
    }
    error = decode({"$": "error", "v": data}, lambda *_: None)
    assert type(error) is ValueError
    assert (error.args, vars(error)) == (("no",), {"status": 5})


def test_what_an_error_has_in_public_crosses_with_it() -> None:
    error = ValueError("no")
    vars(error).update(status=5, _secret=1, body=b"x", handler=print)
    again = decode({"$": "error", "v": encode_error(error)}, lambda *_: None)
    assert (again.args, vars(again)) == (("no",), {"status": 5, "body": b"x"})


def test_objects_are_kept_up_to_a_number() -> None:
    objects = Objects()
    first, second = Event(1, 1, "", "", "", ""), Event(2, 1, "", "", "", "")
    number, other = objects.keep(first), objects.keep(second)
    for index in range(MOST_OBJECTS - 1):
        assert objects.get(number) is first
        objects.keep((index,))
    with pytest.raises(ContractError, match="the server no longer has the object 2"):
        objects.get(other)
    assert objects.keep(first) == number
