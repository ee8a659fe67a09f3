"""Faults: their effects on client and engine, matching, and counting."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import httpx
import pytest
import redis
import requests

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.calls import Call, faults_end, set_facts
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.faults.answers import Response
from pytest_fakecloud.faults.fault import Fault, ServiceFault
from pytest_fakecloud.faults.plan import FaultPlan, injector_of
from pytest_fakecloud.http.messages import Request

from ..demo import Demo, Raw
from ..harness import in_threads, wait_until
from .conftest import OwnPlan


@pytest.fixture
def client(demo: Demo) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=demo.url, timeout=10) as client:
        yield client


def statuses(client: httpx.Client, count: int, path: str = "/echo/x") -> list[int | str]:
    """Return the status, or the name of the client's exception, of this number of requests."""
    codes: list[int | str] = []
    for _ in range(count):
        try:
            codes.append(client.get(path).status_code)
        except httpx.HTTPError as error:
            codes.append(type(error).__name__)
    return codes


# -- answers in the endpoint's place -------------------------------------------------------------


def test_answer_replaces_the_endpoint(demo: Demo, client: httpx.Client) -> None:
    fault = demo.faults.respond(503)
    reply = client.post("/add/w")
    assert (reply.status_code, reply.json()) == (503, {"error": "Service Unavailable"})
    assert demo.words == []
    assert fault.hits == 1
    fault.remove()
    assert client.post("/add/w").status_code == 200
    assert fault.hits == 1


@pytest.mark.parametrize(
    ("body", "sent", "content_type"),
    [
        (None, b'{"error":"Too Many Requests"}', "application/json"),
        ({"why": "é"}, '{"why":"é"}'.encode(), "application/json"),
        ([], b"[]", "application/json"),
        ("busy", b"busy", "text/plain; charset=utf-8"),
        (b"\x00", b"\x00", "text/plain; charset=utf-8"),
        ("", b"", "text/plain; charset=utf-8"),
    ],
)
def test_bodies_of_answers(
    demo: Demo, client: httpx.Client, body: Any, sent: bytes, content_type: str
) -> None:
    demo.faults.respond(429, body)
    for _ in range(2):
        reply = client.get("/echo/x")
        assert (reply.content, reply.headers["content-type"]) == (sent, content_type)


def test_headers_of_an_answer_replace_the_usual_ones(demo: Demo, raw: Raw) -> None:
    demo.faults.respond(503, "busy", times=1, headers={"content-type": "text/x-odd"})
    reply = raw.get("/echo/x")
    assert (reply.status, reply.body) == (503, b"busy")
    names = [name.lower() for name, _ in reply.headers]
    assert sorted(names) == ["content-length", "content-type", "date"]
    assert reply.header("Content-Type") == "text/x-odd"
    demo.faults.respond(503, headers={"Connection": "close"}, times=1)
    assert raw.get("/echo/x").header("Connection") == "close"
    assert raw.is_closed()


def test_the_journal_names_the_fault(demo: Demo, client: httpx.Client) -> None:
    demo.faults.respond(503, times=1)
    statuses(client, 2)
    first, second = demo.journal.calls()
    assert (first.fault, first.status, first.outcome) == ("respond 503", 503, "answered")
    assert (second.fault, second.status) == (None, 200)


def replace_a_fault(faults: FaultPlan) -> None:
    faults.call(lambda: Response(body=b"own"), "after")
    faults.respond(503)


def replace_by_the_same(faults: FaultPlan) -> None:
    faults.call(lambda: Response(503, b"the body"), "after")


@pytest.mark.parametrize(
    ("prepare", "target", "outcome"),
    [
        (lambda faults: None, "/echo/x", "answered"),
        (lambda faults: None, "/stream", "streamed"),
        (lambda faults: faults.drop(), "/echo/x", "dropped"),
        (lambda faults: faults.lose_response(), "/echo/x", "lost"),
        (lambda faults: faults.hang(), "/echo/x", "hung"),
        (lambda faults: faults.truncate(), "/echo/x", "truncated"),
        (lambda faults: faults.call(lambda: Response(body=b"own"), "after"), "/echo/x", "altered"),
        (lambda faults: faults.call(lambda: Response(body=b"own"), "after"), "/stream", "altered"),
        (lambda faults: faults.call(lambda: Response(body=b"own")), "/echo/x", "answered"),
        (replace_a_fault, "/echo/x", "answered"),
        (replace_by_the_same, "/status/200", "answered"),
        (lambda faults: faults.down(route="echo"), "/echo/x", "refused"),
    ],
)
def test_every_outcome_can_be_asked_for(
    demo: Demo, prepare: Callable[[FaultPlan], object], target: str, outcome: str
) -> None:
    prepare(demo.faults)
    demo.app.respond(Request("GET", target))
    demo.assert_called(outcome=outcome, times=1)
    demo.assert_not_called(outcome="open")


def test_a_stream_that_breaks_off_can_be_asked_for(demo: Demo, raw: Raw) -> None:
    assert not raw.get("/break").complete
    demo.assert_called(outcome="broken off", times=1)


def test_wrong_credentials_come_before_faults(demo: Demo, client: httpx.Client) -> None:
    fault = demo.faults.respond(503)
    assert client.get("/echo/x", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert fault.hits == 0


# -- connections ---------------------------------------------------------------------------------


@pytest.mark.parametrize("reset", [False, True])
def test_drop_closes_before_the_engine(demo: Demo, reset: bool) -> None:
    fault = demo.faults.drop(reset=reset, times=1)
    with Raw(demo.mount.address) as raw:
        raw.send("POST /add/w HTTP/1.1\r\nHost: h\r\n\r\n")
        if reset:
            with pytest.raises(ConnectionResetError):
                raw.rest()
        else:
            assert raw.rest() == b""
    assert demo.words == []
    assert fault.hits == 1
    assert demo.journal.calls().only().outcome == "dropped"


@pytest.mark.parametrize("reset", [False, True])
def test_lose_answer_closes_after_the_engine(demo: Demo, reset: bool) -> None:
    demo.faults.lose_response(reset=reset, times=1)
    with Raw(demo.mount.address) as raw:
        raw.send("POST /add/w HTTP/1.1\r\nHost: h\r\n\r\n")
        assert raw.is_closed()
    assert demo.words == ["w"]
    call = demo.journal.calls().only()
    assert (call.outcome, call.status) == ("lost", 200)


def test_losing_the_answer_of_a_stream(demo: Demo) -> None:
    demo.faults.lose_response()
    with Raw(demo.mount.address) as raw:
        raw.send("GET /endless HTTP/1.1\r\nHost: h\r\n\r\n")
        assert raw.is_closed()


def test_a_client_sees_a_dropped_connection_as_such(demo: Demo, client: httpx.Client) -> None:
    demo.faults.drop(times=1)
    with pytest.raises(httpx.RemoteProtocolError):
        client.get("/echo/x")
    demo.faults.drop(times=1)
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{demo.url}/echo/x", timeout=10)
    assert client.get("/echo/x").status_code == 200


def test_truncate_sends_half_the_body(demo: Demo) -> None:
    whole = b"the body"
    for keep, sent in [(None, whole[:4]), (0, b""), (3, whole[:3]), (99, whole[:7])]:
        with demo.faults.truncate(keep) as fault, Raw(demo.mount.address) as raw:
            reply = raw.get("/status/200")
            assert (reply.header("Content-Length"), reply.complete) == ("8", False)
            assert reply.body == sent
            assert fault.hits == 1
    assert {call.outcome for call in demo.journal.calls()} == {"truncated"}


def test_truncate_leaves_a_response_without_a_body_alone(demo: Demo, raw: Raw) -> None:
    demo.faults.truncate(0)
    reply = raw.get("/status/200", method="HEAD")
    assert (reply.status, reply.header("Content-Length")) == (200, "8")
    assert raw.is_closed()


def test_truncate_is_seen_by_clients(demo: Demo, client: httpx.Client) -> None:
    demo.faults.truncate()
    with pytest.raises(httpx.RemoteProtocolError):
        client.get("/echo/x")
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        requests.get(f"{demo.url}/echo/x", timeout=10)


@pytest.mark.parametrize(("keep", "chunks"), [(None, 1), (0, 0), (1, 1)])
def test_truncating_a_stream(demo: Demo, raw: Raw, keep: int | None, chunks: int) -> None:
    demo.faults.truncate(keep)
    reply = raw.get("/stream")
    assert reply.chunks == [b"data: 1\n\n"][:chunks]
    assert not reply.complete
    assert demo.context.violations == []


def test_hang_is_silent_until_the_client_gives_up(demo: Demo) -> None:
    fault = demo.faults.hang()
    with httpx.Client(base_url=demo.url, timeout=0.1) as client, pytest.raises(httpx.ReadTimeout):
        client.post("/add/w")
    assert demo.words == []
    assert fault.hits == 1
    assert demo.journal.calls().only().outcome == "hung"
    wait_until(lambda: not demo.mount.live)


@pytest.mark.parametrize("prepare", [lambda faults: faults.hang(), lambda faults: faults.delay(60)])
def test_a_wait_ends_when_the_fake_closes(
    demo: Demo, raw: Raw, prepare: Callable[[FaultPlan], Fault]
) -> None:
    prepare(demo.faults)
    raw.send("GET /echo/x HTTP/1.1\r\nHost: h\r\n\r\n")
    wait_until(demo.journal.calls)
    started = time.monotonic()
    demo.close()
    assert raw.is_closed()
    assert time.monotonic() - started < 0.9


def test_delay_waits_and_then_serves(demo: Demo, client: httpx.Client) -> None:
    fault = demo.faults.delay("50ms")
    started = time.perf_counter()
    assert client.get("/echo/x").status_code == 200
    assert 0.045 < time.perf_counter() - started < 5
    assert fault.hits == 1


def test_down_refuses_connections_until_up(demo: Demo, client: httpx.Client) -> None:
    assert client.get("/echo/x").status_code == 200
    demo.faults.down()
    assert statuses(client, 2) == ["ConnectError", "ConnectError"]
    demo.faults.up()
    assert client.get("/echo/x").status_code == 200
    with demo.faults.down():
        assert statuses(client, 1) == ["ConnectError"]
    assert client.get("/echo/x").status_code == 200
    assert demo.faults.unused() == []


def test_up_is_recorded_like_remove(demo: Demo) -> None:
    demo.faults.down()
    demo.faults.up()
    actions = demo.context.journal._recorder.shared.actions
    assert [action.kind for action in actions] == ["add_fault", "remove_fault"]


def test_faults_of_a_services_own_kinds_are_recorded_too() -> None:
    with Cloud(1, delivery="driven") as cloud:
        faults = cloud.queue().faults
        faults.drop()
        faults.unsigned()
        faults.burst_limit(3)
        actions = cloud.journal._recorder.shared.actions
        assert [action.data["fault"] for action in actions] == ["drop", "unsigned", "burst_limit 3"]


def test_down_behind_a_gateway(demo: Demo, client: httpx.Client) -> None:
    demo.faults.down(502)
    assert statuses(client, 2) == [502, 502]
    demo.faults.up()
    assert statuses(client, 1) == [200]


def test_a_part_of_the_service_down(demo: Demo, client: httpx.Client) -> None:
    demo.faults.down(route="add")
    with pytest.raises(httpx.TransportError):
        client.post("/add/w")
    assert demo.words == []
    assert statuses(client, 1) == [200]
    assert demo.journal.calls()[0].outcome == "refused"


def test_reset_of_the_fake_ends_every_fault(demo: Demo, client: httpx.Client) -> None:
    demo.faults.down()
    demo.faults.respond(503)
    demo.reset()
    assert not demo.faults
    assert demo.faults.unused() == []
    assert statuses(client, 1) == [200]


def test_a_fake_that_is_down_can_be_closed(demo: Demo) -> None:
    demo.faults.down()
    demo.close()
    demo.faults.up()


# -- sequences, limits, chance -------------------------------------------------------------------


def test_sequence_takes_step_by_step(demo: Demo, client: httpx.Client) -> None:
    steps: list[Any] = [503, None, (429, {"slow": "down"}), "drop", "lose_response", "truncate"]
    fault = demo.faults.sequence([*steps, Response(207, {"odd": 1})])
    assert statuses(client, 3) == [503, 200, 429]
    assert statuses(client, 3) == ["RemoteProtocolError"] * 3
    reply = client.get("/echo/x")
    assert (reply.status_code, reply.json()) == (207, {"odd": 1})
    assert statuses(client, 2) == [200, 200]
    assert fault.hits == 7


def test_sequence_goes_round_when_told(demo: Demo, client: httpx.Client) -> None:
    demo.faults.sequence([503, None], times=5)
    assert statuses(client, 6) == [503, 200, 503, 200, 503, 200]


def test_sequence_gives_each_step_once_to_many_threads(demo: Demo) -> None:
    demo.faults.sequence([503, 429, 500, 502] * 5)
    codes: list[int] = []

    def ask() -> None:
        with Raw(demo.mount.address) as raw:
            codes.extend(raw.get("/echo/x").status for _ in range(6))

    in_threads(*[ask] * 4)
    assert sorted(codes) == sorted([503, 429, 500, 502] * 5 + [200] * 4)


def test_rate_limit_counts_on_the_clock() -> None:
    with Demo(Context.alone(now="2026-01-01T00:00:00Z")) as demo, httpx.Client() as client:
        fault = demo.faults.rate_limit(2, per="10s")
        client.base_url = httpx.URL(demo.url)
        assert statuses(client, 3) == [200, 200, 429]
        demo.clock.advance(7.5)
        reply = client.get("/echo/x")
        assert reply.status_code == 429
        assert reply.headers["retry-after"] == "3"
        assert reply.headers["ratelimit-limit"] == "2"
        assert reply.headers["ratelimit-remaining"] == "0"
        assert reply.headers["ratelimit-reset"] == "3"
        demo.clock.advance(2.5)
        assert statuses(client, 3) == [200, 200, 429]
        assert fault.hits == 3
        fault.remove()
        demo.faults.rate_limit(0, status=420, body="enhance", headers={"X-Own": "1"})
        reply = client.get("/echo/x")
        assert (reply.status_code, reply.text, reply.headers["x-own"]) == (420, "enhance", "1")
        assert "retry-after" not in reply.headers


def test_random_is_repeatable_from_the_seed() -> None:
    def run(seed: int) -> list[int | str]:
        with Demo(Context.alone(seed=seed)) as demo, httpx.Client(base_url=demo.url) as client:
            demo.faults.random(0.5)
            return statuses(client, 30)

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert set(run(1)) == {200, 503}


# -- the test's own code -------------------------------------------------------------------------


def test_call_runs_before_and_after(demo: Demo, client: httpx.Client) -> None:
    seen: list[Any] = []
    demo.faults.call(lambda: seen.append(("before", list(demo.words))))
    demo.faults.call(lambda r: seen.append((r.call.status, list(demo.words))), "after")
    client.post("/add/w")
    assert seen == [("before", []), (200, ["w"])]


def test_what_call_returns_may_replace_the_answer(demo: Demo, client: httpx.Client) -> None:
    with demo.faults.call(lambda: Response(202, {"early": True})):
        reply = client.post("/add/w")
        assert (reply.status_code, reply.json()) == (202, {"early": True})
        assert demo.words == []
    with demo.faults.call(lambda request: Response(299, b"late"), "after"):
        reply = client.post("/add/w")
        assert (reply.status_code, reply.content) == (299, b"late")
        assert demo.words == ["w"]


def test_a_call_may_ask_the_same_fake(demo: Demo, client: httpx.Client) -> None:
    def other_client() -> None:
        with httpx.Client(base_url=demo.url) as other:
            assert other.post("/add/other").status_code == 200

    demo.faults.call(other_client, times=1)
    assert client.post("/add/w").json() == {"count": 2}
    assert demo.words == ["other", "w"]


def test_a_failing_call_is_the_tests_own_violation(demo: Demo, client: httpx.Client) -> None:
    def broken() -> None:
        raise KeyError("typo")

    demo.faults.call(broken)
    assert client.get("/echo/x").status_code == 500
    violation = demo.context.violations[0]
    assert violation.kind == "bug"
    assert "the function of <call broken before" in violation.text
    assert "KeyError('typo')" in violation.text
    assert "bug of pytest-fakecloud" not in violation.text
    assert faults_end(demo.journal.calls().only())


@pytest.mark.parametrize("matcher", ["when", "command"])
def test_a_failing_predicate_is_the_tests_own_violation(
    demo: Demo, client: httpx.Client, matcher: str
) -> None:
    def broken(value: object) -> bool:
        raise KeyError("typo")

    fault = demo.faults.respond(503, **{matcher: broken})  # type: ignore[arg-type]
    assert client.post("/add/w").status_code == 500
    (violation,) = demo.context.violations
    assert "because of an error in a callback of the test" in violation.text
    assert f"a predicate of {fault!r} failed: " in violation.text
    assert "KeyError('typo')" in violation.text
    assert (fault.hits, demo.words) == (0, [])


def test_pytest_fail_in_a_call_reaches_the_test(demo: Demo, client: httpx.Client) -> None:
    demo.faults.call(lambda: pytest.fail("not like this"), times=1)
    assert statuses(client, 2) == [500, 200]
    assert "not like this" in demo.context.violations[0].text


def test_listeners_hear_once_of_the_answer_to_a_call_that_pytest_fail_ends(
    demo: Demo, client: httpx.Client
) -> None:
    outcomes: list[str] = []
    remove = demo.context.journal._recorder.shared.listeners.add(
        lambda entry: outcomes.append(entry.outcome if isinstance(entry, Call) else entry.kind)
    )
    demo.faults.call(lambda: pytest.fail("not like this"), times=1)
    assert statuses(client, 1) == [500]
    remove()
    assert outcomes == ["open", "answered"]
    demo.context.violations.clear()


def test_pytest_fail_reaches_a_client_in_the_same_thread(demo: Demo) -> None:
    demo.faults.call(lambda: pytest.fail("not like this"), times=1)
    with pytest.raises(pytest.fail.Exception, match="not like this"):
        demo.app.respond(Request("GET", "/echo/x"), in_client=True)
    assert demo.journal.calls().only().outcome == "broken off"


def test_advancing_inside_a_call_is_an_error_only_inside_an_advance(demo: Demo) -> None:
    demo.clock.freeze()
    demo.faults.call(lambda: demo.clock.advance(1))
    with Raw(demo.mount.address) as raw:
        assert raw.get("/echo/x").status == 200

        def ask(at_us: int) -> int:
            return raw.get("/echo/x").status

        demo._timekeeper.call_at(demo.clock.now_us() + 1, ask)
        with pytest.raises(ContractError, match="already being advanced"):
            demo.clock.advance(1)


# -- matching ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matchers", "expected"),
    [
        ({"times": 2}, [503, 503, 200, 200]),
        ({"skip": 1}, [200, 503, 503, 503]),
        ({"skip": 1, "times": 1}, [200, 503, 200, 200]),
        ({"skip": 0, "times": 1}, [503, 200, 200, 200]),
    ],
)
def test_times_and_skip(
    demo: Demo, client: httpx.Client, matchers: dict[str, int], expected: list[int]
) -> None:
    demo.faults.respond(503, **matchers)  # type: ignore[arg-type]
    assert statuses(client, 4) == expected


@pytest.mark.parametrize(
    ("matchers", "hit"),
    [
        ({"route": "add"}, True),
        ({"route": "/add/w"}, True),
        ({"route": "POST /add/w"}, True),
        ({"route": "echo"}, False),
        ({"route": "GET /add/w"}, False),
        ({"command": "add"}, True),
        ({"command": "ADD"}, False),
        ({"command": "a*"}, True),
        ({"command": re.compile("^ad")}, True),
        ({"command": mock.ANY}, True),
        ({"route": "*/w"}, True),
        ({"route": "ad*"}, True),
        ({"route": "GET *"}, False),
        ({"route": re.compile("/add/.$")}, True),
        ({"command": "w"}, True),
        ({"command": "other"}, False),
        ({"command": lambda word: word.startswith("a")}, True),
        ({"when": lambda request: request.headers.get("x-who") == "me"}, True),
        ({"when": lambda request: request.call.facts["command"] == []}, False),
        ({"route": "add", "command": "other"}, False),
        ({"route": "add", "command": "w", "when": lambda request: True}, True),
    ],
)
def test_matchers(demo: Demo, client: httpx.Client, matchers: dict[str, Any], hit: bool) -> None:
    fault = demo.faults.respond(503, **matchers)
    assert client.post("/add/w?q=1", headers={"X-Who": "me"}).status_code == (503 if hit else 200)
    assert fault.hits == int(hit)


def test_only_matching_requests_count_for_times_and_skip(demo: Demo, client: httpx.Client) -> None:
    fault = demo.faults.respond(503, route="add", skip=1, times=1)
    statuses(client, 3)
    assert [client.post("/add/w").status_code for _ in range(3)] == [200, 503, 200]
    assert fault.hits == 1


def test_of_several_answers_the_first_is_used_up_first(demo: Demo, client: httpx.Client) -> None:
    demo.faults.respond(503, times=1)
    second = demo.faults.respond(429, times=2)
    assert statuses(client, 4) == [503, 429, 429, 200]
    assert second.hits == 2


def test_faults_of_different_kinds_work_together(demo: Demo, client: httpx.Client) -> None:
    spoil = demo.faults.truncate()
    replace = demo.faults.respond(503)
    seen = demo.faults.call(lambda: None)
    with pytest.raises(httpx.RemoteProtocolError):
        client.get("/echo/x")
    assert (seen.hits, spoil.hits, replace.hits) == (1, 1, 1)
    call = demo.journal.calls().only()
    assert (call.status, call.outcome) == (503, "truncated")
    assert call.fault == "call <lambda> before, truncate, respond 503"


def test_a_fault_on_an_unknown_path(demo: Demo, client: httpx.Client) -> None:
    demo.faults.respond(503, route="/nowhere")
    assert client.get("/nowhere").status_code == 503
    assert demo.context.violations == []
    assert client.get("/elsewhere").status_code == 404
    assert [violation.kind for violation in demo.context.violations] == ["unrouted"]


def test_a_fault_is_a_context_manager(demo: Demo, client: httpx.Client) -> None:
    with demo.faults.respond(503) as fault:
        assert isinstance(fault, Fault)
        assert fault.active
        assert statuses(client, 1) == [503]
    assert not fault.active
    assert statuses(client, 1) == [200]
    fault.remove()


def test_a_fault_that_never_fired_is_known(demo: Demo, client: httpx.Client) -> None:
    used = demo.faults.respond(503, times=1)
    statuses(client, 1)
    with demo.faults.drop(command="nosuch") as unused:
        statuses(client, 1)
    never_drawn = demo.faults.random(0.0)
    assert demo.faults.unused() == [unused, never_drawn]
    assert statuses(client, 1) == [200]
    assert demo.faults.unused() == [unused]
    assert used.hits == 1
    assert "test_plan.py:" in repr(unused)
    assert "drop [command='nosuch'], 0 hits" in repr(unused)


# -- misuse --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: Response(body={1}), "the function of <call .* failed: .*not JSON-serializable"),
        (lambda: Response(199), "the response of <call .*199 is not a valid status"),
        (lambda: Response(after=1), "the response of <call .*after=1 is the time that a queue"),
        (
            lambda: Response(200, b"", {"Date": "today"}),
            "the response of <call .*would be ignored: the server sets this header",
        ),
        (
            lambda: asyncio.sleep(0),
            "the function of <call .* must be awaited: pass a plain function",
        ),
    ],
)
def test_what_a_call_returns_and_nobody_can_send_is_the_tests_own_violation(
    demo: Demo, client: httpx.Client, function: Callable[[], object], message: str
) -> None:
    demo.faults.call(function)
    assert client.get("/echo/x").status_code == 500
    violation = demo.context.violations[0]
    assert re.search(message, violation.text)
    assert "bug of pytest-fakecloud" not in violation.text


# -- a service's own kinds -----------------------------------------------------------------------


def test_a_service_adds_kinds_and_asks_for_them(plan: OwnPlan) -> None:
    fault = plan.duplicate(url="http://a/", times=1)

    call = Call(1, 0, "queue", "queue", "POST", "/")
    set_facts(call, {"url": "http://a/"})
    attempt = SimpleNamespace(call=call)
    assert injector_of(plan).claim("reorder", attempt) is None
    claimed = injector_of(plan).claim("duplicate", attempt)
    assert claimed is fault
    assert injector_of(plan).claim("duplicate", attempt) is None
    assert fault.hits == 1
    assert call.fault == "duplicate"
    with pytest.raises(
        ContractError,
        match=r"'label' is not a field of a fault. Known fields: message_id, route, skip, times, url",
    ):
        plan.duplicate(label="x")


def test_a_services_own_kind_does_not_touch_requests(demo: Demo, client: httpx.Client) -> None:
    fault = demo.faults._add(ServiceFault(injector_of(demo.faults), "tamper", "tamper", {}))
    assert statuses(client, 2) == [200, 200]
    assert fault.hits == 0


# -- a plan that is made on first use --------------------------------------------------------------


def test_threads_that_use_the_faults_first_share_them() -> None:
    for _ in range(20):
        with Cloud(delivery="driven") as cloud:
            kv = cloud.kv_server()
            plans: list[FaultPlan] = []
            in_threads(*[lambda: plans.append(kv.faults)] * 4)  # noqa: B023
            assert [plan is kv.faults for plan in plans] == [True] * 4


def test_faults_of_a_closed_fake_that_had_none_delay_nothing() -> None:
    with Cloud() as cloud:
        kv = cloud.kv_server()
    started = time.monotonic()
    assert not kv.faults
    assert kv.faults.down().hits == 0
    injector_of(kv.faults).pause(60)
    assert time.monotonic() - started < 30
    assert not kv.faults.is_down


def test_a_late_fault_reaches_a_port_that_is_open_already() -> None:
    with Cloud() as cloud:
        kv = cloud.kv_server()
        client = redis.Redis.from_url(kv.database_url)
        assert client.ping()
        kv.faults.down()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        client.close()


def test_a_reset_removes_unused_faults() -> None:
    with Cloud() as cloud:
        kv = cloud.kv_server()
        kv.faults.respond(503)
        kv.reset()
        assert not kv.faults
        assert not cloud.violations()
