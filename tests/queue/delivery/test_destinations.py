"""Test the destinations of a queue: URL prefixes, handlers, prepared responses, reset and restore."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Generator
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.queue.delivery.applications import DestinationTimeoutError
from pytest_fakecloud.queue.delivery.destinations import Destinations, route_context_of, route_to
from pytest_fakecloud.queue.delivery.routes import DeliveredRequest, Response
from pytest_fakecloud.queue.model import SECOND

from ..edge import APP, Table, delivery


def test_the_longest_prefix_wins(table: Table) -> None:
    table.accept()
    table.respond(APP, 201)
    table.respond(APP + "/hook", 202)
    table.respond(APP + "/hook/deep", 203)
    got = [table.status(APP + path) for path in ("/hook/deep/er", "/hook/x", "/hook?x", "/other")]
    assert [*got, table.status("https://else.example.com/")] == [203, 202, 202, 201, 200]
    assert [route.prefix.removeprefix(APP) for route in table.routes()] == [
        "/hook/deep",
        "/hook",
        "",
        "*",
    ]


@pytest.mark.parametrize(
    ("prefix", "url", "takes"),
    [
        (APP, APP, True),
        (APP, APP + "/", True),
        (APP + "/", APP + "/any", True),
        (APP, "https://APP.example.com:443/x", True),
        (APP + ":443", APP + "/x", True),
        (APP, "https://user:pass@app.example.com/x", True),
        (APP, "http://app.example.com/x", False),
        (APP, "https://app.example.com:444/x", False),
        (APP, "https://app.example.com.evil.com/", False),
        (APP + "/hook", APP + "/hooks", False),
        (APP + "/hook", APP + "/hook/", True),
        (APP + "/hook/", APP + "/hook", False),
        (APP + "/hook?x=1", APP + "/hook?x=1&y=2", True),
        (APP + "/hook?x=1", APP + "/hook?x=12", False),
        (APP + "/a%2Fb", APP + "/a/b", False),
        ("http://[::1]:8000", "http://[::1]:8000/x", True),
        ("https://app.example.com/ä", "https://app.example.com/ä".encode().decode("latin-1"), True),
        (APP, "http://[broken", False),
        (APP, "https://app.example.com:x/", False),
        ("*", "http://[broken", True),
    ],
)
def test_urls_below_a_prefix(table: Table, prefix: str, url: str, takes: bool) -> None:
    table.accept(prefix)
    assert (route_to(table, url) is not None) is takes


@given(st.text(max_size=30))
def test_no_url_breaks_the_table(url: str) -> None:
    table = Destinations()
    table.accept(APP)
    assert route_to(table, url) is None or url.lower().startswith("https://")


def test_the_same_prefix_again_replaces_it_and_remove_takes_it_out(table: Table) -> None:
    first = table.respond(APP, 500)
    second = table.respond(APP + "/", 201)
    assert table.status(APP) == 201
    first.remove()
    assert table.status(APP) == 201
    second.remove()
    second.remove()
    assert route_to(table, APP) is None


def test_clear(table: Table) -> None:
    table.accept()
    table.accept(APP)
    table.clear()
    assert table.routes() == []


def test_a_route_keeps_what_came(table: Table) -> None:
    route = table.accept(APP)
    table.deliver(delivery(APP + "/1", b"one"))
    table.deliver(delivery(APP + "/2", b"two"))
    assert [seen.path for seen in route.deliveries] == ["/1", "/2"]
    assert route.deliveries.where(path="/2").only().text == "two"
    assert repr(route) == f"<DestinationRoute accept {APP} deliveries=2>"


def test_answers_in_turn_and_the_last_repeats(table: Table) -> None:
    table.respond(APP, 500, (429, "slow down", {"Retry-After": "7"}), 200)
    got = [table.deliver(delivery()) for _ in range(4)]
    assert [outcome.status for outcome in got] == [500, 429, 200, 200]
    assert got[1].body == b"slow down"
    assert got[1].headers == [("Retry-After", "7"), ("Content-Type", "text/plain; charset=utf-8")]


@pytest.mark.parametrize(
    ("body", "sent", "kind"),
    [
        (b"\xff", b"\xff", None),
        (bytearray(b"x"), b"x", None),
        ("tëxt", "tëxt".encode(), "text/plain; charset=utf-8"),
        ({"a": [1]}, b'{"a": [1]}', "application/json"),
        ([], b"[]", "application/json"),
        (None, b"", None),
    ],
)
def test_bodies(table: Table, body: object, sent: bytes, kind: str | None) -> None:
    table.respond(APP, (200, body))
    outcome = table.deliver(delivery())
    assert outcome.body == sent
    assert outcome.headers == ([("Content-Type", kind)] if kind else [])


def test_a_given_content_type_stays(table: Table) -> None:
    table.respond(APP, (200, {}, {"content-type": "application/problem+json"}))
    assert table.deliver(delivery()).headers == [("content-type", "application/problem+json")]


def test_an_answer_takes_virtual_time(table: Table) -> None:
    table.respond(APP, 200, Response(200, after="40s"), after=timedelta(seconds=29))
    first, second = table.deliver(delivery()), table.deliver(delivery())
    assert (first.status, first.virtual_us) == (200, 29 * SECOND)
    assert (second.status, second.virtual_us) == (None, 30 * SECOND)
    assert isinstance(second.exception, DestinationTimeoutError)
    assert "no answer within 30 s on the queue's clock" in str(second.exception)


def test_hang_and_refuse(table: Table) -> None:
    table.hang(APP + "/hang")
    table.refuse(APP + "/refuse")
    table.respond(APP + "/both", Response.hang(), Response.refuse(), 200)
    hung = table.deliver(delivery(APP + "/hang"))
    assert (hung.status, hung.virtual_us) == (None, 30 * SECOND)
    refused = table.deliver(delivery(APP + "/refuse"))
    assert isinstance(refused.exception, ConnectionRefusedError)
    assert (refused.status, refused.virtual_us) == (None, 0)
    both = [table.deliver(delivery(APP + "/both")).status for _ in range(3)]
    assert both == [None, None, 200]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            (200, {"X-A": "1"}, "ok"),
            "'ok' are not headers, so body and headers seem to be swapped; pass a dict or a list of"
            " (name, value), in a tuple as (status, body, headers)",
        ),
        ((200, [("X-A", "1")], b"ok"), "b'ok' are not headers, so body and headers seem to be"),
        ((200, {}, b""), "so body and headers seem to be swapped"),
        (
            ("ok", 200),
            "('ok', 200) is not a response; pass a status, (status, body), (status, body",
        ),
        ((200, "ok", 5), "5 are not headers; pass a dict"),
        ({200: object}, "is not JSON-serializable"),
    ],
)
@pytest.mark.parametrize("way", ["call", "async", "answers"])
def test_an_answer_in_another_shape_is_told_the_right_one(
    table: Table, answer: Any, text: str, way: str
) -> None:
    async def coroutine(request: DeliveredRequest) -> Any:
        return answer

    def give() -> None:
        if way == "answers":
            table.respond(APP, answer)
        table.call(APP, coroutine if way == "async" else lambda request: answer)
        table.deliver(delivery())

    with pytest.raises(ContractError, match=re.escape(text)):
        give()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ([503, 200], "[503, 200] would be the body of one response; pass respond(url, 503, 200)"),
        ([500], "[500] would be the body of one response; pass respond(url, 500)"),
        ("503", "'503' would be a body; pass the status 503"),
    ],
)
def test_statuses_in_another_shape_are_told_the_right_one(
    table: Table, answer: Any, text: str
) -> None:
    with pytest.raises(ContractError, match=re.escape(text)):
        table.respond(APP, answer)
    table.respond(APP, (200, answer))
    assert json.loads(table.deliver(delivery()).body) == json.loads(json.dumps(answer)) or (
        table.deliver(delivery()).body == b"503"
    )


def test_bodies_that_look_like_no_status_stay_bodies(table: Table) -> None:
    for body in ("42", [1, 2], [], [503, "x"], "1000"):
        table.respond(APP, body)
        assert table.deliver(delivery()).status == 200


def test_headers_of_an_answer_may_be_given_in_many_ways(table: Table) -> None:
    for headers in ({"Retry-After": 5}, [("Retry-After", "5")], iter([["Retry-After", "5"]])):
        table.respond(APP, (503, "", headers))
        for _ in range(2):
            assert ("Retry-After", "5") in table.deliver(delivery()).headers


def test_an_exception_as_answer_is_a_500_and_kept(table: Table) -> None:
    error = ValueError("boom")
    table.respond(APP, error)
    outcome = table.deliver(delivery())
    assert (outcome.status, outcome.exception) == (500, error)


def test_a_callable_sees_the_request(table: Table) -> None:
    seen: list[DeliveredRequest] = []
    table.call(APP, seen.append)
    table.deliver(
        delivery(APP + "/a%20b?x=1", b'{"n": 1}', [("Content-Type", "application/json")], "PUT")
    )
    (request,) = seen
    assert (request.method, request.url) == ("PUT", APP + "/a%20b?x=1")
    assert (request.path, request.query) == ("/a%20b", "x=1")
    assert (request.json(), request.text, request.body) == ({"n": 1}, '{"n": 1}', b'{"n": 1}')
    assert request.headers.get("content-TYPE") == "application/json"
    assert request.headers.get("x-missing") is None
    assert (request.message_id, request.retried) == ("msg_1", 2)
    assert request.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("value", "status", "body"),
    [
        (None, 200, b""),
        (204, 204, b""),
        ((503, "no"), 503, b"no"),
        (Response(201, b"x"), 201, b"x"),
        ("text", 200, b"text"),
        (b"raw", 200, b"raw"),
        ({"a": 1}, 200, b'{"a": 1}'),
    ],
)
def test_return_values_of_functions(table: Table, value: object, status: int, body: bytes) -> None:
    async def coroutine(request: DeliveredRequest) -> object:
        await asyncio.sleep(0)
        return value

    class Promise:
        def __init__(self, request: DeliveredRequest) -> None:
            self.work = coroutine(request)

        def __await__(self) -> Generator[Any, None, object]:
            return self.work.__await__()

    table.call(APP + "/plain", lambda request: value)
    table.call(APP + "/async", coroutine)
    table.call(APP + "/awaitable", Promise)
    for path in ("/plain", "/async", "/awaitable"):
        for outcome in (
            table.deliver(delivery(APP + path)),
            asyncio.run(table.adeliver(delivery(APP + path))),
        ):
            assert (outcome.status, outcome.body) == (status, body)


def test_a_callable_that_raises(table: Table) -> None:
    def broken(request: DeliveredRequest) -> None:
        raise KeyError("boom")

    async def broken_too(request: DeliveredRequest) -> None:
        raise KeyError("boom")

    table.call(APP + "/1", broken)
    table.call(APP + "/2", broken_too)
    for path in ("/1", "/2"):
        for outcome in (
            table.deliver(delivery(APP + path)),
            asyncio.run(table.adeliver(delivery(APP + path))),
        ):
            assert outcome.status == 500
            assert isinstance(outcome.exception, KeyError)


def test_a_callable_that_returns_nonsense_says_so(table: Table) -> None:
    table.call(APP, lambda request: 1.5)
    with pytest.raises(ContractError, match=r"1\.5 is not a response; pass a status"):
        table.deliver(delivery())
    with pytest.raises(ContractError, match=r"1\.5 is not a response; pass a status"):
        asyncio.run(table.adeliver(delivery()))


def test_a_failing_test_inside_a_handler_passes_through(table: Table) -> None:
    table.call(APP, lambda request: pytest.fail("from inside"))
    with pytest.raises(pytest.fail.Exception, match="from inside"):
        table.deliver(delivery())


def test_a_callable_runs_in_the_drivers_thread(table: Table) -> None:
    threads: list[object] = []
    table.call(APP, lambda request: threads.append(threading.current_thread()))
    table.deliver(delivery())
    asyncio.run(table.adeliver(delivery()))
    assert threads == [threading.current_thread()] * 2


def test_a_coroutine_that_never_ends_meets_the_cap(table: Table) -> None:
    table.deadlines.cap = 0.1
    ended: list[str] = []

    async def stuck(request: DeliveredRequest) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    table.call(APP, stuck)
    for outcome in (table.deliver(delivery()), asyncio.run(table.adeliver(delivery()))):
        assert isinstance(outcome.exception, DestinationTimeoutError)
        assert outcome.virtual_us == 0
    route_context_of(table).close()
    assert ended == ["ended"] * 2


def test_an_interceptor_sees_all_of_the_work_in_the_own_loop(table: Table) -> None:
    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def function(request: DeliveredRequest) -> int:
        return 202

    table.asgi(APP + "/app", application, lifespan=False)
    table.call(APP + "/function", function)
    table.call(APP + "/plain", lambda request: 203)
    seen: list[tuple[str, bool]] = []

    def around(where: str, proceed: Any, work: Any) -> Any:
        # The thread of the loop starts inside, because an exploration must not take part in it.
        before = set(threading.enumerate())
        result = proceed(work)
        seen.append((where, not before.issuperset(threading.enumerate())))
        return result

    remove = route_context_of(table).around_work.add(around)
    paths = ("/app", "/function", "/plain")
    assert [table.status(APP + path) for path in paths] == [201, 202, 203]
    assert seen == [("asgi", True), ("call", False)]
    remove()
    assert [table.status(APP + path) for path in paths] == [201, 202, 203]
    assert len(seen) == 2


def test_interceptors_of_work_surround_each_other(table: Table) -> None:
    async def function(request: DeliveredRequest) -> int:
        return 202

    def replaces(where: str, proceed: Any, work: Any) -> Any:
        work.close()
        return 204

    def adds_one(where: str, proceed: Any, work: Any) -> Any:
        return proceed(work) + 1

    table.call(APP, function)
    interceptors = route_context_of(table).around_work
    for interceptor in (replaces, adds_one):
        interceptors.add(interceptor)
    assert table.status(APP) == 205
    interceptors.remove(replaces)
    assert table.status(APP) == 203


def test_a_timeout_error_of_the_handler_is_its_own(table: Table) -> None:
    async def slow(request: DeliveredRequest) -> None:
        raise TimeoutError("mine")

    table.call(APP, slow)
    assert table.deliver(delivery()).status == 500
    assert asyncio.run(table.adeliver(delivery())).status == 500


@pytest.mark.parametrize("register", ["call", "wsgi", "asgi"])
def test_only_callables_are_taken(table: Table, register: str) -> None:
    with pytest.raises(ContractError, match=r"'x' is not .*callable"):
        getattr(table, register)(APP, "x")


def test_an_application_of_the_other_kind_is_told_where_it_belongs(table: Table) -> None:
    class Flask:
        def __call__(self, environ: Any, start_response: Any) -> Any: ...

    class FastAPI:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

    async def function(scope: Any, receive: Any, send: Any) -> None: ...

    with pytest.raises(
        ContractError, match=r"Flask object .* is a WSGI application: use \.wsgi\(\)"
    ):
        table.asgi(APP, Flask())  # type: ignore[arg-type]
    for app in (FastAPI(), function):
        with pytest.raises(ContractError, match=r"is an ASGI application: use \.asgi\(\)"):
            table.wsgi(APP, app)  # type: ignore[arg-type]
    for taken in (lambda environ, start_response: [], Mock(), Flask()):
        table.wsgi(APP, taken)
    for fine in (FastAPI(), function, Mock(), lambda *arguments: None):
        table.asgi(APP, fine)


def test_a_server_that_runs_for_long_keeps_the_last_deliveries() -> None:
    with Cloud(delivery="driven") as cloud:
        queue = cloud.queue()
        route = queue.destinations.accept(APP)
        for keep in (None, 8, 0):
            cloud.journal.keep = keep
            for number in range(30):
                queue.publish(APP, body=str(number))
            queue.run_until_idle()
            bodies = [received.text for received in route.deliveries]
            if keep is None:
                assert len(bodies) == 30
            elif keep:
                assert 8 <= len(bodies) <= 10
                assert bodies[-8:] == [str(number) for number in range(22, 30)]
            else:
                assert bodies == []


@pytest.mark.parametrize(
    ("wanted", "url", "takes"),
    [
        ("https://app.example.com/*/hook", "https://app.example.com/a/hook", True),
        ("https://app.example.com/*/hook", "https://app.example.com/a/hooks", False),
        (re.compile(r"/v\d+/"), "https://any.example.com/v2/x", True),
        (re.compile(r"/v\d+/"), "https://any.example.com/v/x", False),
        (lambda url: url.endswith("x"), "https://any.example.com/x", True),
        (r"https://app.example.com/\*", "https://app.example.com/*", True),
        (r"https://app.example.com/\*", "https://app.example.com/a", False),
    ],
)
def test_urls_may_be_patterns(wanted: Any, url: str, takes: bool) -> None:
    table = Destinations()
    route = table.respond(wanted, 201)
    assert (route_to(table, url) is route) is takes
    assert repr(route).startswith("<DestinationRoute respond ")


def test_prefixes_come_before_patterns_and_newer_patterns_before_older_ones() -> None:
    table = Destinations()
    prefix = table.accept("https://app.example.com/a")
    older = table.accept(re.compile("app"))
    everything = table.accept()
    assert route_to(table, "https://app.example.com/b") is older
    newer = table.accept("https://*.example.com/*")
    assert route_to(table, "https://app.example.com/a/1") is prefix
    assert route_to(table, "https://app.example.com/b") is newer
    assert route_to(table, "https://other.test/") is everything
    newer.remove()
    assert route_to(table, "https://app.example.com/b") is older


def test_a_function_of_a_url_that_raises_is_the_tests_mistake() -> None:
    table = Destinations()
    table.accept(lambda url: {}[url])
    with pytest.raises(ContractError, match="raised KeyError"):
        route_to(table, "https://app.example.com/")


async def _awaited(url: str) -> bool:
    return False
