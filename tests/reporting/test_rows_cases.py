"""Rows of entries made by hand: each word of an attempt, an answer, an order, a request served."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.calls import Call, Event, end_faults
from pytest_fakecloud.core.timeparse import instant_us
from pytest_fakecloud.reporting import rows as module
from pytest_fakecloud.reporting.applications import Served
from pytest_fakecloud.reporting.rows import Row, parts_of, rows, scene_of

NOON = "2026-03-01T12:00:00Z"
START = instant_us(NOON)
HOOK = "https://app.example.com/hook"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed="seed", now=NOON, delivery="driven") as opened:
        yield opened


def attempt(number: int = 5, **data: Any) -> Event:
    given = {"message_id": "msg_a", "url": HOOK, "number": 1, "status": 200, **data}
    text = f"attempt {given['number']} POST {given['url']} -> {given['status']}"
    return Event(number, START, "queue", "queue", "attempt", text, given)


def event(
    number: int, kind: str, /, *, service: str = "broker", at_us: int = START, **data: Any
) -> Event:
    return Event(number, at_us, service, service, kind, "text", data)


def call(number: int = 1, *, service: str = "shop", facts: Any = None, **more: Any) -> Call:
    """A call of a service that has no words of its own for it, unless it is given another."""
    names = ("method", "target", "headers", "body")
    method, target, headers, body = (
        more.pop(name, default)
        for name, default in zip(names, ("POST", "/a", (), b""), strict=True)
    )
    made = Call(
        number, START, service, service, method, target, headers, body, None, lambda _: facts or {}
    )
    made.status, made.outcome = 200, "answered"
    for name, value in more.items():
        setattr(made, name, value)
    return made


def only(cloud: Cloud, *entries: Any) -> Row:
    (row,) = rows(cloud, entries)
    return row


# -- attempts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "ok"), [(199, False), (200, True), (299, True), (300, False), (None, False)]
)
def test_an_attempt_went_well_with_200_to_299(cloud: Cloud, status: int | None, ok: bool) -> None:
    assert only(cloud, attempt(status=status)).ok is ok


ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "no more than its status": ({"status": 500}, "500"),
    "the words of its status": ({"status": 404, "answer": "Not Found"}, "404"),
    "a text": ({"status": 422, "answer": "no customer"}, "422 no customer"),
    "a text that begins with the status": ({"status": 422, "answer": "422 no"}, "422 no"),
    "a text that ends with it": ({"status": 422, "answer": "no 422 "}, "422 no 422"),
    "HTML": (
        {"status": 422, "answer": "<b>no</b> such", "answer_type": "text/html"}, "422 no such"
    ),
    "text like HTML": ({"status": 422, "answer": "<b>no</b>"}, "422 <b>no</b>"),
    "a long text": ({"status": 422, "answer": "x" * 400}, "422 " + "x" * 400),
    "a status without words": ({"status": 599, "answer": "odd"}, "599 odd"),
    "a place": ({"status": 302, "answer": "moved", "location": "/b"}, "302 to /b"),
    "an error that its note names": (
        {"status": None, "note": "None: it broke"}, "None: it broke"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "answer"), ANSWERS.values(), ids=ANSWERS)
def test_the_answer_of_an_attempt(cloud: Cloud, data: dict[str, Any], answer: str) -> None:
    row = only(cloud, attempt(**data))
    assert (row.answer, row.note) == (answer, "")


SIGNED = {"status": 401, "answer": "", "signature": ["signed for it"]}
TENANT = [["X-Tenant", "acme"]]
SENT: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "JSON": ({"sent": '{"n": 1}'}, ('sent {"n":1}',)),
    "HTML": ({"sent": "<b>x</b>", "sent_type": "text/html"}, ("sent x",)),
    "nothing but a header": (
        {"sent": "", "sent_headers": TENANT}, ("sent no body with header X-Tenant: acme",)
    ),
    "nothing": ({"sent": ""}, ()),
    "what was signed, to the letter": (
        {**SIGNED, "sent": '{"n": 1}'}, ('sent {"n": 1}', "signed for it")
    ),
    "what was signed, in lines": (
        {**SIGNED, "sent": '{\n"n": 1}'}, ('sent {"n":1}', "signed for it")
    ),
    "what was signed, long": (
        {**SIGNED, "sent": "x" * 400}, ("sent " + "x" * 400, "signed for it")
    ),
    "nothing that was signed": ({**SIGNED, "sent": ""}, ("signed for it",)),
    "nothing that was signed, with a header": (
        {**SIGNED, "sent": "", "sent_headers": TENANT},
        ("sent with header X-Tenant: acme", "signed for it"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "remarks"), SENT.values(), ids=SENT)
def test_what_an_attempt_was_sent(
    cloud: Cloud, data: dict[str, Any], remarks: tuple[str, ...]
) -> None:
    assert only(cloud, attempt(**{"status": 500, **data})).remarks == remarks


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


CALLBACKS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "that failed": (
        {"body": coded("no"), "sourceBody": coded('{"n": 1}')}, {"answer": ""},
        'status 500, body Base64 of no, sourceBody Base64 of {"n":1}',
    ),
    "that went well": (
        {"body": coded("no"), "sourceBody": coded("x"), "retried": 1, "maxRetries": 3},
        {"status": 200}, "status 500, retried 1 of 3, body Base64 of no",
    ),
    "with a long body": (
        {"body": coded("x" * 133), "sourceBody": ""}, {"answer": ""},
        f"status 500, body Base64 of {'x' * 133}",
    ),
    "with a longer one": (
        {"body": coded("x" * 134), "sourceBody": ""}, {"answer": ""},
        f"status 500, body Base64 of {'x' * 84}…{'x' * 41} #",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "data", "told"), CALLBACKS.values(), ids=CALLBACKS)
def test_what_a_callback_told(
    cloud: Cloud, sent: dict[str, Any], data: dict[str, Any], told: str
) -> None:
    body = json.dumps({"status": 500, "sourceMessageId": "msg_b", **sent})
    row = only(
        cloud,
        attempt(**{"status": 500, "sent": body, "message_kind": "failure_callback",
                   "about": "msg_b", **data}),
    )  # fmt: skip
    assert row.what == f"failure callback 1 of msg_a about msg_b POST {HOOK}"
    (remark,) = row.remarks
    if told.endswith("#"):
        assert len(remark) == len("sent status 500, body Base64 of ") + 132
        assert remark.startswith(f"sent {told[:60]}")
    else:
        assert remark == f"sent {told}"


@pytest.mark.parametrize(
    ("url", "target"),
    [("{}/hook", "kv_server"), (HOOK, HOOK), ("http://[::1", "http://[::1")],
    ids=["a fake of the cloud", "elsewhere", "no address"],
)
def test_an_attempt_goes_to_the_lane_of_its_address(cloud: Cloud, url: str, target: str) -> None:
    given = url.format(cloud.kv_server().url)
    row = only(cloud, attempt(url=given, fault="duplicate"))
    assert (row.source, row.target, row.fault) == ("queue", target, "duplicate")
    assert row.what == f"attempt 1 of msg_a POST {given}"


def test_what_is_no_url_is_a_path() -> None:
    parts = parts_of("http://[::1")
    assert tuple(parts) == ("", "", "http://[::1", "", "")
    assert parts_of("https://a.example.com/b?c=1").netloc == "a.example.com"


# -- other events ----------------------------------------------------------------------------------


def test_an_event_tells_what_it_is_in_its_lane(cloud: Cloud) -> None:
    assert only(cloud, event(3, "create", url=HOOK, number=2, name="é")) == Row(
        3, START, "broker", "broker", "create: text", "", True, began=3, kind="broker create",
        sent=f'{{\n  "url": "{HOOK}",\n  "number": 2,\n  "name": "é"\n}}',
    )  # fmt: skip


def test_an_event_without_data_has_nothing_to_unfold(cloud: Cloud) -> None:
    assert only(cloud, event(3, "create")).sent == ""
    assert only(cloud, event(3, "create", traceback="line 1\nline 2")).sent.strip() == (
        "line 1\nline 2"
    )


@pytest.mark.parametrize(
    ("data", "kind"),
    [({"held": True}, "held"), ({"held": False}, "broken"), ({}, "undisturbed")],
)
def test_runs_differ_in_whether_the_promise_held(
    cloud: Cloud, data: dict[str, Any], kind: str
) -> None:
    assert only(cloud, event(3, "run", service="cloud", **data)).kind == f"cloud run {kind}"


REASONS = [
    ("a joined", ("g", "a")),
    ("my worker left", ("g", "my worker")),
    ("the test asked for it", ("g", "")),
    ("the session of a expired", ("g", "")),
    ("t has more partitions", ("g", "")),
]


@pytest.mark.parametrize(("reason", "consumer"), REASONS, ids=[reason for reason, _ in REASONS])
def test_a_rebalance_is_of_who_joined_or_left(
    cloud: Cloud, reason: str, consumer: tuple[str, str]
) -> None:
    row = only(cloud, event(3, "rebalance", group="g", reason=reason))
    assert (row.consumer, row.kind) == (consumer, f"broker rebalance {reason.split()[-1]}")


# -- calls -----------------------------------------------------------------------------------------

HTML = [("content-TYPE", "text/html")]
CALLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a page": (
        {"answer": b"<b>fine</b> so", "answer_headers": [("A", "b"), *HTML]}, {"answer": "200 fine so"}
    ),
    "text like a page": ({"answer": b"<b>fine</b>"}, {"answer": "200 <b>fine</b>"}),
    "a long answer": ({"answer": b"x" * 400}, {"answer": "200 " + "x" * 400}),
    "an answer that was lost": (
        {"answer": b"x", "outcome": "lost"}, {"answer": "200 lost x", "ok": False}
    ),
    "no answer": (
        {"status": None, "outcome": "dropped"}, {"answer": "dropped", "got": "dropped", "ok": False}
    ),
    "399": ({"status": 399}, {"answer": "399", "ok": True, "got": "399"}),
    "400": ({"status": 400}, {"answer": "400", "ok": False, "got": "400 Bad Request"}),
    "a stream": ({"outcome": "streamed"}, {"answer": "200 streamed", "ok": True}),
    "a page that came": (
        {"body": b"<b>two</b> words", "headers": HTML}, {"what": "POST /a", "detail": "two words"}
    ),
    "a long body": ({"body": b"x" * 400}, {"detail": "x" * 400}),
    "a bug": ({"problem": "bug", "note": "lines of it"}, {"note": ""}),
    "a problem": ({"problem": "unrouted", "note": "no route"}, {"note": "no route"}),
    "no JSON, as long as shown": ({"body": b"x" * 20_000}, {"sent": "POST /a\n\n" + "x" * 20_000}),
    "no JSON, longer": (
        {"body": b"x" * 20_001}, {"sent": "POST /a\n\n" + "x" * 20_000 + "\n… 1 more bytes"}
    ),
    "JSON": ({"body": '{"n":"é"}'.encode()}, {"sent": 'POST /a\n\n{\n  "n": "é"\n}'}),
    "a password": (
        {"service": "kv", "body": b'["AUTH","secret"]', "facts": {"words": [["AUTH", "secret"]]}},
        {"sent": "POST /a\n\n***"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), CALLS.values(), ids=CALLS)
def test_a_call_of_which_nothing_else_is_known(
    cloud: Cloud, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    row = only(cloud, call(**given))
    assert {name: getattr(row, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("at_call", "at_attempt", "fault"),
    [(None, "duplicate", "duplicate"), ("drop", "duplicate", "drop"), (None, None, "")],
)
def test_what_was_done_to_a_delivery_stands_in_its_row(
    cloud: Cloud, at_call: str | None, at_attempt: str | None, fault: str
) -> None:
    came = call(2, headers=[("Upstash-Message-Id", "msg_a")], target="/", fault=at_call)
    row = only(cloud, came, attempt(4, url="http://127.0.0.1:1", began=1, fault=at_attempt))
    assert (row.source, row.target, row.what) == ("queue", "shop", "attempt 1 of msg_a POST /")
    assert (row.fault, row.began, row.also, row.attempt) == (fault, 1, 4, 1)


def test_an_entry_that_cannot_be_told_says_so_without_secrets(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = cloud.kv_server().token

    def breaks(*_: object) -> Any:
        raise KeyError(token)

    monkeypatch.setattr(module, "_call_row", breaks)
    broken, other = rows(cloud, [call(1), event(2, "create")])
    assert broken == Row(1, START, "shop", "shop", broken.what, "", False, began=1)
    assert broken.what.startswith("this entry cannot be told: KeyError: '***'")
    assert other.what == "create: text"


# -- order -----------------------------------------------------------------------------------------


def consumes(number: int = 1, route: str = "consume", **facts: Any) -> Call:
    given = {"group": "g", "instance": "a", "topic": "t", **facts}
    return call(number, service="broker", route=route, facts=given)


FOLLOW: dict[str, tuple[Call, Event, int]] = {
    "its own": (consumes(), event(2, "join", group="g", instance="a"), 1),
    "another's": (consumes(), event(2, "join", group="g", instance="b"), 0),
    "another group's": (consumes(), event(2, "join", group="h", instance="a"), 0),
    "later": (consumes(), event(2, "join", group="g", instance="a", at_us=START + 1), 0),
    "of another fake": (
        consumes(), event(2, "join", service="other", group="g", instance="a"), 0
    ),
    "of another call": (consumes(), event(2, "leave", group="g", instance="a"), 0),
    "its rebalance": (consumes(), event(2, "rebalance", group="g", reason="a joined"), 1),
    "another rebalance": (consumes(), event(2, "rebalance", group="g", reason="a left"), 0),
    "after a call that does nothing to groups": (
        consumes(route="produce"), event(2, "join", group="g", instance="a"), 0
    ),
    "after a call without a route": (
        consumes(route=""), event(2, "join", group="g", instance="a"), 0
    ),
}  # fmt: skip


@pytest.mark.parametrize(("asked", "came", "depth"), FOLLOW.values(), ids=FOLLOW)
def test_what_a_group_does_at_once_stands_below_its_call(
    cloud: Cloud, asked: Call, came: Event, depth: int
) -> None:
    first, second = rows(cloud, [asked, came])
    assert (first.depth, second.depth, second.follows) == (0, depth, depth)


def test_what_follows_a_call_of_a_delivery_stands_two_deep(cloud: Cloud) -> None:
    entries = [
        consumes(2), event(3, "join", group="g", instance="a"), attempt(4, began=1, alone=True),
        event(5, "create"),
    ]  # fmt: skip
    assert [row.depth for row in rows(cloud, entries)] == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("fault", "below", "expected"),
    [
        ("call x before", True, "call x before it; carried out after the rows below"),
        ("delay 1 s, call x before", True, "delay 1 s, call x before"),
        ("call x before", False, "call x before"),
        ("call x", True, "call x"),
        ("delay before", False, "delay before"),
    ],
)
def test_a_call_that_was_held_up_says_so(
    cloud: Cloud, fault: str, below: bool, expected: str
) -> None:
    held = call(1, fault=fault)
    if below:
        end_faults(held, 3)
    first, second = rows(cloud, [held, call(2)])
    assert (first.fault, second.depth) == (expected, int(below))


# -- the application's requests --------------------------------------------------------------------


def served(began: int, ended: int, **more: Any) -> Served:
    given = {"target": "POST /hook", "status": 200, **more}
    return Served(began, START, given.pop("target"), "Flask", None, 0, ended=ended, **given)


def outline(found: list[Row]) -> list[str]:
    return [f"{row.depth} {row.what.partition(' (')[0].partition(' of')[0]}" for row in found]


def test_a_request_served_is_a_row_of_its_own(cloud: Cloud) -> None:
    (row,) = rows(cloud, [], [served(1, 9, status=500, raised="KeyError: 'a'")])
    assert row == Row(
        1, START, "client", "application", "POST /hook (Flask)", "500", False, began=1,
        note="KeyError: 'a'", sent="POST /hook", kind="application request",
    )  # fmt: skip


def held(number: int, until: int) -> Call:
    """A call during which a fault ran something of the test's."""
    found = call(number, target="/hook", fault="call x")
    end_faults(found, until)
    return found


SERVED: dict[str, tuple[list[Any], list[Served], list[str]]] = {
    "what a queue delivered has its row": (
        [call(3), attempt(5, began=1, alone=True, status=500)],
        [served(2, 4, status=500), served(6, 7, status=500, target="GET /b")],
        ["0 attempt 1", "1 POST /a", "0 GET /b"],
    ),
    "what a fault did has a row of its own": (
        [held(1, 5)],
        [served(2, 4, status=500)],
        ["0 POST /hook", "1 POST /hook"],
    ),
    "another path": (
        [call(3), attempt(5, began=1, alone=True)],
        [served(2, 4, target="POST /other")],
        ["0 attempt 1", "1 POST /other", "2 POST /a"],
    ),
    "a query": (
        [call(3), attempt(5, began=1, alone=True, url=f"{HOOK}?a=1")],
        [served(2, 4, target="POST /hook?a=1?b")],
        ["0 attempt 1", "1 POST /a"],
    ),
    "after the delivery": (
        [attempt(5, began=1, alone=True), call(7)],
        [served(6, 8)],
        ["0 attempt 1", "0 POST /hook", "1 POST /a"],
    ),
    "beside what is delivered in the background": (
        [call(3), attempt(4, began=2, alone=False)],
        [served(1, 5, target="GET /b")],
        ["0 GET /b", "0 attempt 1", "0 POST /a"],
    ),
    "after it": (
        [attempt(4, began=2, alone=False), call(6)],
        [served(5, 7, target="GET /b")],
        ["0 attempt 1", "0 GET /b", "1 POST /a"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("entries", "requests", "expected"), SERVED.values(), ids=SERVED)
def test_requests_and_deliveries_stand_in_order(
    cloud: Cloud, entries: list[Any], requests: list[Served], expected: list[str]
) -> None:
    assert outline(rows(cloud, entries, requests)) == expected


# -- what is looked up -----------------------------------------------------------------------------


def test_of_some_entries_nothing_else_is_told(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def scene(given: object, entries: Any) -> Any:
        asked.append(given)
        return scene_of(None, entries)

    monkeypatch.setattr(module, "scene_of", scene)
    assert rows(cloud) == []
    assert [row.number for row in rows(cloud, [call(7)])] == [7]
    assert asked == [cloud, None]


def stub(service: str, **methods: Any) -> Any:
    return SimpleNamespace(service=service, name=service, **methods)


def message(id: str, url: str = HOOK) -> Any:
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    return SimpleNamespace(id=id, url=url, created=at)


def queue_of(*messages: Any, name: str = "queue") -> Any:
    found = stub("queue", messages=lambda: list(messages))
    found.name = name
    return found


def cloud_of(*handles: Any) -> Any:
    return SimpleNamespace(handles=handles)


def test_ids_are_known_from_events_and_from_queues() -> None:
    entries = [
        call(1), event(2, "attempt", message_id="msg_one_and_more", about="msg_two_and_more"),
        event(3, "dead", about="msg_unknown"), event(4, "attempt", message_id="msg_one_and_more"),
    ]  # fmt: skip
    assert scene_of(None, entries).ids == {
        "msg_one_and_more": "msg_one_",
        "msg_two_and_more": "msg_two_",
    }
    handles = [
        stub("kv"),
        stub("queue", messages=lambda: 1 / 0),
        queue_of(message("msg_three_and_more")),
        stub("broker", topics=lambda: ["t"], topic=lambda name: stub(name, end_offsets=[3, 0])),
    ]
    scene = scene_of(cloud_of(*handles), [])
    assert scene.ids == {"msg_three_and_more": "msg_thre"}
    assert scene.published == {"msg_three_and_more": "12:00:00"}
    assert scene.ends == {("broker", "t"): [3, 0]}


def test_ids_are_as_short_as_all_of_them_differ() -> None:
    ids = ["msg_aaaaa1_more", "msg_aaaaa2_more"]
    entries = [event(n, "attempt", message_id=one) for n, one in enumerate(ids)]
    assert list(scene_of(None, entries).ids.values()) == ["msg_aaaaa1", "msg_aaaaa2"]


def lost(number: int = 1, url: str = HOOK) -> Call:
    return call(
        number, service="queue", status=201, outcome="lost", reached=True, facts={"url": url}
    )


def test_the_message_of_a_request_whose_answer_was_lost_is_found() -> None:
    other = "https://b.example.com"
    queue = queue_of(message("msg_one"), message("msg_two", other))
    second = queue_of(message("msg_three"), name="second")
    answered = call(2, service="queue", status=201, answer=b'{"messageId":"msg_two"}')
    assert scene_of(cloud_of(stub("kv"), queue, second), [lost()]).made == {1: "msg_one"}
    assert scene_of(cloud_of(queue), [lost(1, other), answered]).made == {}
    two = queue_of(message("msg_one"), message("msg_four"))
    assert scene_of(cloud_of(two), [lost()]).made == {}
    assert scene_of(None, [lost()]).made == {}
