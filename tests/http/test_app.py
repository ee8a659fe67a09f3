"""The request pipeline: its order, its records, and strict-mode violations."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import httpx
import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.calls import Call, weight_of
from pytest_fakecloud.core.errors import ContractError, ServiceError
from pytest_fakecloud.faults.plan import injector_of
from pytest_fakecloud.http.app import EXPLORATION, FAULTS, App, Interceptor
from pytest_fakecloud.http.messages import (
    Answer,
    AnyResponse,
    ConnectionEffect,
    Json,
    Proceed,
    Request,
    Stream,
    asks_to_close,
)

from ..demo import Demo, Raw


def ask(demo: Demo, method: str, target: str, **options: Any) -> Answer:
    response = demo.app.respond(Request(method, target, **options))
    assert isinstance(response, Answer)
    return response


# -- requests ------------------------------------------------------------------------------------


def test_a_request_keeps_what_came() -> None:
    headers = [("X-Two", "a"), ("x-two", "b"), ("Host", "h")]
    request = Request("GET", "/a%2Fb?c=%20&d", headers, b"body", ("127.0.0.1", 5))
    assert (request.path, request.query_string) == ("/a%2Fb", "c=%20&d")
    assert request.query_items() == [("c", " "), ("d", "")]
    assert (request.query("c"), request.query("d"), request.query("e")) == (" ", "", None)
    assert (request.headers.get("X-TWO"), request.headers.get("no")) == ("a", None)
    assert str(request) == "GET /a%2Fb?c=%20&d"
    assert Request("GET", "/").query_items() == []
    assert Request("GET", "/").query("x") is None


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("http://h:1/a?b", "/a", "b"), ("http://h", "/", ""), ("HTTPS://h/a//b", "/a//b", ""),
        ("*", "/", ""), ("", "/", ""), ("/http://h/a", "/http://h/a", ""), ("/?", "/", ""),
        ("//a", "//a", ""),
    ],
)  # fmt: skip
def test_targets(target: str, path: str, query: str) -> None:
    request = Request("GET", target)
    assert (request.path, request.query_string, request.target) == (path, query, target)


@pytest.mark.parametrize(
    ("value", "closes"),
    [("close", True), ("Keep-Alive, Close", True), ("closed", False), ("", False)],
)
def test_a_connection_header_is_a_list_of_words(value: str, closes: bool) -> None:
    assert asks_to_close(value) is closes


# -- the pipeline --------------------------------------------------------------------------------


def test_a_call_is_recorded_with_its_answer(demo: Demo) -> None:
    assert ask(demo, "POST", "/add/w", body=b"x") == Answer(b'{"count":1}')
    call = demo.journal.calls().only()
    assert (call.method, call.target, call.request_body, call.route) == (
        "POST",
        "/add/w",
        b"x",
        "add",
    )
    assert (call.status, call.response_body, call.outcome) == (200, b'{"count":1}', "answered")
    assert call.facts == {"command": ["add", "w"]}
    assert demo.context.journal.calls() == [call]


def test_endpoints_see_principal_params_and_call(demo: Demo) -> None:
    calls: list[Call] = []
    demo.faults.call(lambda request: calls.append(request.call))
    ask(demo, "POST", "/add/w%2Fv")
    (request,) = demo.app.seen
    assert request.principal == "somebody"
    assert request.params == {"word": "w%2Fv"}
    assert request.route == "add"
    assert calls == demo.journal.calls()


class Note(str):
    """A part of a call to which, unlike to calls and strings, there can be weak references."""


def test_an_entry_that_the_journal_forgets_is_gone_at_once(demo: Demo) -> None:
    ask(demo, "POST", "/add/w")
    note = Note()
    demo.journal.calls().only().note = note
    entry = weakref.ref(note)
    del note
    assert entry() is not None
    demo.app.seen.clear()
    gc.disable()
    try:
        demo.context.journal.clear()
        demo.journal.clear()
        assert entry() is None
    finally:
        gc.enable()


def test_the_pipelines_order(demo: Demo) -> None:
    order: list[str] = []

    class Ordered(App):
        service = "demo"

        @classmethod
        def routes(cls) -> list[Any]:
            return []

        def authenticate(self, request: Request) -> object:
            order.append(f"authenticate after {len(self.recorder.entries)} records")
            return None

        def unknown_path(self, request: Request) -> Answer:
            order.append("route")
            return Answer(b"nowhere", 404)

    app = Ordered(demo._instruments)
    injector_of(demo.faults).attach(app)
    demo._timekeeper.call_at(0, lambda at: order.append("settle"))
    demo.faults.call(lambda: order.append("fault"))
    app.respond(Request("GET", "/x"))
    assert order == ["settle", "authenticate after 1 records", "fault", "route"]


# -- the chain -----------------------------------------------------------------------------------


def test_interceptors_surround_an_exchange_in_the_order_of_their_positions(demo: Demo) -> None:
    seen: list[str] = []

    def noting(name: str) -> Interceptor:
        def interceptor(request: Request, proceed: Proceed) -> AnyResponse:
            seen.append(f"{name} {request.route} {request.principal}")
            response = proceed()
            seen.append(name)
            return response

        return interceptor

    removals = [
        demo.app.chain.add(FAULTS, noting("first fault")),
        demo.app.chain.add(FAULTS, noting("second fault")),
        demo.app.chain.add(EXPLORATION, noting("explore")),
    ]
    assert ask(demo, "POST", "/add/w").status == 200
    inner = ["explore", "first fault", "second fault"]
    asked = [f"{name} add somebody" for name in inner]
    assert seen == [*asked, *reversed(inner)]
    for remove in removals:
        remove()
        remove()
    seen.clear()
    assert ask(demo, "POST", "/add/w").status == 200
    assert seen == []
    assert demo.app.chain.members == ()


def test_guards_reject_requests_before_their_authentication(demo: Demo) -> None:
    seen: list[tuple[int, Call]] = []

    def guard(request: Request) -> None:
        assert request.principal is None
        if request.path == "/forbidden":
            raise ServiceError(403, "not from here")

    demo.app.guards.add(guard)
    demo.app.rejection_listeners.add(
        lambda request, error: seen.append((error.status, request.call))
    )
    demo.app.chain.add(EXPLORATION, lambda request, proceed: pytest.fail("was not admitted"))
    assert ask(demo, "POST", "/add/w", headers=[("Authorization", "Bearer wrong")]).status == 401
    assert ask(demo, "POST", "/forbidden").status == 403
    assert seen == list(zip((401, 403), demo.journal.calls(), strict=True))
    assert [call.outcome for call in demo.journal.calls()] == ["answered", "answered"]


def test_an_error_of_the_service_that_passes_the_chain_is_no_rejection(demo: Demo) -> None:
    def interceptor(request: Request, proceed: Proceed) -> AnyResponse:
        raise ServiceError(418, "not from an endpoint")

    rejected: list[Request] = []
    demo.app.rejection_listeners.add(lambda request, error: rejected.append(request))
    demo.app.chain.add(EXPLORATION, interceptor)
    assert ask(demo, "POST", "/add/w").status == 500
    assert rejected == []
    assert "not from an endpoint" in demo.context.violations.pop().text


def test_faults_are_in_the_chain_only_while_they_can_fire(demo: Demo) -> None:
    chain = demo.app.chain
    demo.faults.respond(503, times=1)
    forever = demo.faults.respond(429)
    assert [position for position, _ in chain.members] == [FAULTS]
    assert [ask(demo, "POST", "/add/w").status for _ in range(2)] == [503, 429]
    forever.remove()
    assert chain.members == ()
    demo.faults.drop()
    assert chain.members != ()
    demo.faults.clear()
    assert chain.members == ()


# -- errors --------------------------------------------------------------------------------------


def test_a_wrong_token_is_answered_and_no_violation(demo: Demo) -> None:
    answer = ask(demo, "GET", "/nowhere", headers=[("authorization", "Bearer wrong")])
    assert (answer.status, answer.body) == (401, b'{"error":"wrong token"}')
    assert demo.context.violations == []


def test_what_a_service_refuses_is_an_answer_and_no_violation(demo: Demo) -> None:
    answer = ask(demo, "GET", "/refuse")
    assert (answer.status, answer.headers) == (418, (("X-Pot", "tea"),))
    assert demo.context.violations == []
    assert demo.journal.calls().only().outcome == "answered"


def test_an_unknown_path_is_a_violation_with_a_hint(demo: Demo) -> None:
    assert ask(demo, "GET", "/ehco/x").status == 404
    violation = demo.context.violations[0]
    assert violation.kind == "unrouted"
    assert "demo got GET /ehco/x: no route for it; nearest: GET /echo/{tail*}" in violation.text
    assert 'fakecloud.allow("unrouted", path="/ehco/x")' in violation.text
    assert violation.facts == {"path": "/ehco/x", "method": "GET", "fake": "demo"}
    assert demo.journal.calls().only().violation == "unrouted"


def test_a_wrong_method_is_a_violation_with_the_right_ones(demo: Demo) -> None:
    answer = ask(demo, "DELETE", "/echo/x")
    assert answer.status == 405
    assert ("Allow", "GET, HEAD, POST, PUT") in answer.headers
    assert "the path accepts GET, HEAD, POST, PUT" in demo.context.violations[0].text


def test_a_bug_is_a_500_and_a_violation_with_its_traceback(demo: Demo) -> None:
    assert ask(demo, "GET", "/bug").status == 500
    violation = demo.context.violations[0]
    assert violation.kind == "bug"
    assert isinstance(violation.exception, ZeroDivisionError)
    assert "in bug_here" in violation.text
    call = demo.journal.calls().only()
    assert (call.status, call.violation) == (500, "bug")
    assert "in bug_here" in call.note


def test_a_bug_in_the_facts_is_no_bug_of_the_call(
    demo: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def facts(request: Request) -> dict[str, Any]:
        raise ValueError

    monkeypatch.setattr(demo.app, "facts", facts)
    demo.faults.respond(503, command="x")
    assert ask(demo, "POST", "/add/w").status == 200
    assert demo.journal.calls().only().facts == {}


def test_a_fault_on_a_service_error_can_still_spoil_it(demo: Demo) -> None:
    demo.faults.lose_response()
    response = demo.app.respond(Request("GET", "/refuse"))
    assert isinstance(response, ConnectionEffect)
    assert response.answer is not None
    assert response.answer.status == 418


def test_a_stream_is_passed_on(demo: Demo) -> None:
    assert isinstance(demo.app.respond(Request("GET", "/stream")), Stream)
    assert demo.journal.calls().only().outcome == "streamed"


# -- JSON ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ({"a": [1, None, True, "é"]}, '{"a":[1,null,true,"é"]}'.encode()),
        (None, b"null"),
        ("text", b'"text"'),
        (2**64, b"18446744073709551616"),
        (-(10**30), b"-1000000000000000000000000000000"),
        ({1: "a"}, b'{"1":"a"}'),
        ("\ud83d", b'"\xed\xa0\xbd"'),
        (["\udc00", 10**20], b'["\xed\xb0\x80",100000000000000000000]'),
    ],
)
def test_dump(demo: Demo, value: object, sent: bytes) -> None:
    assert demo.app.dump(value) == sent


def test_an_answer_may_be_bytes_or_any_object(demo: Demo) -> None:
    assert demo.app._encoded(Answer(b"raw")) == Answer(b"raw")
    assert demo.app._encoded(Json({"a": 1}, 201)) == Answer(b'{"a":1}', 201)
    assert demo.app._encoded([1]) == Answer(b"[1]")


# -- through a fake ----------------------------------------------------------------------------


def test_what_breaks_the_server_is_a_violation(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(request: Request, **_: object) -> Any:
        raise KeyError("outside of the pipeline")

    monkeypatch.setattr(demo.app, "respond", broken)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{demo.url}/echo/x")
    demo.close()
    (violation,) = demo.context.violations
    assert violation.kind == "bug"
    assert "outside of the pipeline" in violation.text


def test_fakes_of_one_context_share_journal_and_violations() -> None:
    context = Context.alone()
    with Demo(context) as first, Demo(context) as second:
        assert (first.name, second.name) == ("demo", "demo_2")
        httpx.get(f"{first.url}/echo/x")
        httpx.get(f"{second.url}/nowhere")
        assert [call.fake for call in context.journal.calls()] == ["demo", "demo_2"]
        assert [violation.facts["fake"] for violation in context.violations] == ["demo_2"]


def test_what_strangers_send_is_not_kept_whole(demo: Demo) -> None:
    body = b"x" * 500_000
    with httpx.Client(base_url=demo.url, headers={"Authorization": "Bearer wrong"}) as client:
        for _ in range(5):
            assert client.post("/echo/a", content=body).status_code == 401
    for call in demo.journal.calls():
        assert call.cut == {"facts": 500_000, "request_body": 500_000}
        assert weight_of(call) < 10_000


@pytest.mark.parametrize(
    ("header", "status"),
    [("", 200), ("Authorization: Bearer wrong\r\n", 401), ("Broken: 1\r\n", 500)],
)
def test_a_request_is_authenticated_once_after_its_body_has_arrived(
    demo: Demo, monkeypatch: pytest.MonkeyPatch, header: str, status: int
) -> None:
    seen: list[str] = []
    authenticate, match = demo.app.authenticate, demo.app.table.match

    def noting(request: Request) -> object:
        seen.append("authenticate")
        if "broken" in request.fields:
            raise KeyError("in the authentication")
        return authenticate(request)

    monkeypatch.setattr(demo.app, "authenticate", noting)
    monkeypatch.setattr(
        demo.app.table, "match", lambda *key: (seen.append("match"), match(*key))[1]
    )
    head = f"POST /echo/a HTTP/1.1\r\nHost: h\r\n{header}Content-Length: 4\r\n\r\n"
    with Raw(demo.mount.address) as raw:
        raw.send(head.encode() + b"bo")
        raw.send(b"dy")
        assert raw.reply().status == status
    assert seen.count("authenticate") == 1
    call = demo.journal.calls().only()
    assert (call.status, call.request_body, call.route) == (status, b"body", "echo")
    assert call.cut == {}
    assert [violation.kind for violation in demo.context.violations] == ["bug"] * (status == 500)


@pytest.mark.parametrize(
    "asking",
    [
        "Content-Length: 20000",
        "Transfer-Encoding: chunked",
        "Content-Length: 4\r\nExpect: 100-continue",
    ],
    ids=["large", "of unknown size", "asked for"],
)
def test_a_rejected_request_is_answered_without_its_body(demo: Demo, asking: str) -> None:
    head = f"POST /echo/a HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer wrong\r\n{asking}\r\n\r\n"
    with Raw(demo.mount.address) as raw:
        raw.send(head.encode())
        reply = raw.reply()
        assert (reply.status, reply.interim) == (401, 0)
        assert raw.is_closed()
    call = demo.journal.calls().only()
    assert (call.status, call.request_body) == (401, b"")


def test_a_large_body_follows_a_head_that_is_admitted(demo: Demo) -> None:
    with Raw(demo.mount.address) as raw:
        raw.send(b"POST /echo/a HTTP/1.1\r\nHost: h\r\nContent-Length: 40000\r\n\r\n")
        for _ in range(4):
            raw.send(b"x" * 10_000)
        assert raw.reply().status == 200
    assert demo.journal.calls().only().request_body == b"x" * 40_000


def test_large_bodies_are_kept_until_there_are_too_many(demo: Demo) -> None:
    demo.context.journal.keep_bytes = 4_000_000
    with httpx.Client(base_url=demo.url) as client:
        for _ in range(5):
            client.post("/echo/a", content=b"x" * 500_000)
    # Each body is kept twice: in the request and in the echo.
    assert [bool(call.cut) for call in demo.journal.calls()] == [True, True, False, False, False]
    with pytest.raises(ContractError, match="cannot tell the request_body"):
        demo.journal.calls()[0].request_json()
    assert len(demo.assert_called("echo", times=5)) == 5


def test_long_targets_leave_short_violations(demo: Demo) -> None:
    with httpx.Client(base_url=demo.url) as client:
        client.get("/" + "x" * 60_000)
    (violation,) = demo.context.violations
    assert len(violation.text) < 6_000
    assert "(60,001 characters)" in violation.text


def test_a_kind_of_events_of_every_service_cannot_be_one_of_a_service() -> None:
    with pytest.raises(ContractError, match=r"Locks\.event_kinds has 'expired'"):
        type("Locks", (App,), {"event_kinds": frozenset(("expired", "granted"))})
