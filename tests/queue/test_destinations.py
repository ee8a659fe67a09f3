# mypy: disable-error-code="import-untyped"
"""The table of destinations: prefixes, applications, callables and prepared answers."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import fastapi
import flask
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kernel.errors import ContractError
from pytest_fakecloud.queue.deadlines import Deadlines
from pytest_fakecloud.queue.destinations import (
    DeliveredRequest,
    Destinations,
    DestinationTimeout,
    Reply,
)
from pytest_fakecloud.queue.model import SECOND, Delivery, Headers, Outcome

APP = "https://app.example.com"


def delivery(
    url: str = APP + "/hook",
    body: bytes = b"",
    headers: Headers | None = None,
    method: str = "POST",
    timeout_us: int = 30 * SECOND,
) -> Delivery:
    return Delivery("msg_1", url, method, headers or [], body, 2, 0, timeout_us)


@pytest.fixture
def deadlines() -> Iterator[Deadlines]:
    deadlines = Deadlines(0.3)
    yield deadlines
    deadlines.close()


@pytest.fixture
def table(deadlines: Deadlines) -> Iterator[Table]:
    table = Table(deadlines)
    yield table
    table.close()


class Table(Destinations):
    """The table under test, with the two ways to deliver to it."""

    def __init__(self, deadlines: Deadlines) -> None:
        super().__init__()
        self.deadlines = deadlines

    def deliver(self, sent: Delivery) -> Outcome:
        route = self.find(sent.url)
        assert route is not None, f"no route for {sent.url}"
        return route.take(sent, self.deadlines)

    async def adeliver(self, sent: Delivery) -> Outcome:
        route = self.find(sent.url)
        assert route is not None, f"no route for {sent.url}"
        return await route.atake(sent, self.deadlines)

    def status(self, url: str) -> int | None:
        return self.deliver(delivery(url)).status


# -- prefixes --------------------------------------------------------------------------------------


def test_the_longest_prefix_wins(table: Table) -> None:
    table.accept()
    table.answers(APP, 201)
    table.answers(APP + "/hook", 202)
    table.answers(APP + "/hook/deep", 203)
    got = [table.status(APP + path) for path in ("/hook/deep/er", "/hook/x", "/hook?x", "/other")]
    assert [*got, table.status("https://else.example.com/")] == [203, 202, 202, 201, 200]
    assert [route.prefix.removeprefix(APP) for route in table.routes] == [
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
def test_what_a_prefix_takes(table: Table, prefix: str, url: str, takes: bool) -> None:
    table.accept(prefix)
    assert (table.find(url) is not None) is takes


@given(st.text(max_size=30))
def test_no_url_breaks_the_table(url: str) -> None:
    table = Destinations()
    table.accept(APP)
    assert table.find(url) is None or url.lower().startswith("https://")


@pytest.mark.parametrize("url", ["", "app.example.com", "/hook", "ftp://x/", "https://", 7, None])
def test_what_is_no_destination(table: Table, url: Any) -> None:
    with pytest.raises(ContractError, match="give an absolute URL"):
        table.accept(url)


def test_the_same_prefix_again_replaces_it_and_remove_takes_it_out(table: Table) -> None:
    first = table.answers(APP, 500)
    second = table.answers(APP + "/", 201)
    assert table.status(APP) == 201
    first.remove()
    assert table.status(APP) == 201
    second.remove()
    second.remove()
    assert table.find(APP) is None


def test_clear(table: Table) -> None:
    table.accept()
    table.accept(APP)
    table.clear()
    assert table.routes == []


def test_a_route_keeps_what_came(table: Table) -> None:
    route = table.accept(APP)
    table.deliver(delivery(APP + "/1", b"one"))
    table.deliver(delivery(APP + "/2", b"two"))
    assert [seen.path for seen in route.deliveries] == ["/1", "/2"]
    assert route.deliveries.where(path="/2").only().text == "two"
    assert repr(route) == f"<DestinationRoute accept {APP} deliveries=2>"


# -- prepared answers ------------------------------------------------------------------------------


def test_answers_in_turn_and_the_last_repeats(table: Table) -> None:
    table.answers(APP, 500, (429, "slow down", {"Retry-After": "7"}), 200)
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
    table.answers(APP, (200, body))
    outcome = table.deliver(delivery())
    assert outcome.body == sent
    assert outcome.headers == ([("Content-Type", kind)] if kind else [])


def test_a_given_content_type_stays(table: Table) -> None:
    table.answers(APP, (200, {}, {"content-type": "application/problem+json"}))
    assert table.deliver(delivery()).headers == [("content-type", "application/problem+json")]


def test_an_answer_takes_virtual_time(table: Table) -> None:
    table.answers(APP, 200, Reply(200, after="40s"), after=timedelta(seconds=29))
    first, second = table.deliver(delivery()), table.deliver(delivery())
    assert (first.status, first.virtual_us) == (200, 29 * SECOND)
    assert (second.status, second.virtual_us) == (None, 30 * SECOND)
    assert isinstance(second.exception, DestinationTimeout)
    assert "no answer within 30 s on the queue's clock" in str(second.exception)


def test_hang_and_refuse(table: Table) -> None:
    table.hang(APP + "/hang")
    table.refuse(APP + "/refuse")
    table.answers(APP + "/both", Reply.hang(), Reply.refuse(), 200)
    hung = table.deliver(delivery(APP + "/hang"))
    assert (hung.status, hung.virtual_us, hung.refused) == (None, 30 * SECOND, False)
    refused = table.deliver(delivery(APP + "/refuse"))
    assert isinstance(refused.exception, ConnectionRefusedError)
    assert (refused.status, refused.virtual_us) == (None, 0)
    both = [table.deliver(delivery(APP + "/both")).status for _ in range(3)]
    assert both == [None, None, 200]


@pytest.mark.parametrize(
    "answer", ["", 99, 600, True, 2.5, (), (200, "", {}, 1, 2), object()], ids=repr
)
def test_what_is_no_answer(table: Table, answer: Any) -> None:
    if answer == "":
        with pytest.raises(ContractError, match="at least one answer"):
            table.answers(APP)
        return
    with pytest.raises(ContractError, match="is not an"):
        table.answers(APP, answer)


def test_a_bad_duration(table: Table) -> None:
    with pytest.raises(ContractError, match="is not a duration"):
        Reply(after="soon")


def test_an_exception_as_answer_is_a_500_and_kept(table: Table) -> None:
    error = ValueError("boom")
    table.answers(APP, error)
    outcome = table.deliver(delivery())
    assert (outcome.status, outcome.exception) == (500, error)


# -- callables -------------------------------------------------------------------------------------


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
    assert request.header("content-TYPE") == "application/json"
    assert request.header("x-missing") is None
    assert (request.message_id, request.retried) == ("msg_1", 2)
    assert request.headers == [("Content-Type", "application/json")]


@pytest.mark.parametrize(
    ("value", "status", "body"),
    [
        (None, 200, b""),
        (204, 204, b""),
        ((503, "no"), 503, b"no"),
        (Reply(201, b"x"), 201, b"x"),
        ("text", 200, b"text"),
        (b"raw", 200, b"raw"),
        ({"a": 1}, 200, b'{"a": 1}'),
    ],
)
def test_what_a_callable_may_return(table: Table, value: object, status: int, body: bytes) -> None:
    async def coroutine(request: DeliveredRequest) -> object:
        await asyncio.sleep(0)
        return value

    table.call(APP + "/plain", lambda request: value)
    table.call(APP + "/async", coroutine)
    for path in ("/plain", "/async"):
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
    outcome = table.deliver(delivery())
    assert outcome.status == 500
    assert "1.5 is not an answer" in str(outcome.exception)


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
    ended: list[str] = []

    async def stuck(request: DeliveredRequest) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    table.call(APP, stuck)
    for outcome in (table.deliver(delivery()), asyncio.run(table.adeliver(delivery()))):
        assert isinstance(outcome.exception, DestinationTimeout)
        assert outcome.virtual_us == 0
    table.close()
    assert ended == ["ended"] * 2


def test_a_timeout_error_of_the_handler_is_its_own(table: Table) -> None:
    async def slow(request: DeliveredRequest) -> None:
        raise TimeoutError("mine")

    table.call(APP, slow)
    assert table.deliver(delivery()).status == 500
    assert asyncio.run(table.adeliver(delivery())).status == 500


@pytest.mark.parametrize("register", ["call", "wsgi", "asgi"])
def test_only_callables_are_taken(table: Table, register: str) -> None:
    with pytest.raises(ContractError, match="got 'x'"):
        getattr(table, register)(APP, "x")


# -- WSGI applications -----------------------------------------------------------------------------


def flask_app() -> flask.Flask:
    app = flask.Flask("destination")

    @app.route("/echo/<path:rest>", methods=["GET", "POST", "PUT"])
    def echo(rest: str) -> Any:
        request = flask.request
        return {
            "rest": rest,
            "raw": request.environ["RAW_URI"],
            "method": request.method,
            "query": request.args.to_dict(),
            "headers": {name.lower(): value for name, value in request.headers},
            "body": request.get_data(as_text=True),
            "url": request.url,
            "remote": request.remote_addr,
        }

    @app.post("/broken")
    def broken() -> Any:
        raise RuntimeError("in the view")

    @app.post("/said")
    def said() -> Any:
        return "said", 503

    return app


def test_a_wsgi_application_gets_the_whole_request(table: Table) -> None:
    table.wsgi(APP, flask_app())
    outcome = table.deliver(
        delivery(
            APP + "/echo/a%2Fb%20c?x=1",
            b"hello",
            [("Content-Type", "text/plain"), ("X-Twice", "1"), ("X-Twice", "2"), ("X-A_b", "c")],
            "PUT",
        )
    )
    assert outcome.status == 200
    seen = json.loads(outcome.body)
    headers = seen.pop("headers")
    assert seen == {
        "rest": "a/b c",
        "raw": "/echo/a%2Fb%20c?x=1",
        "method": "PUT",
        "query": {"x": "1"},
        "body": "hello",
        "url": APP + "/echo/a/b%20c?x=1",
        "remote": "127.0.0.1",
    }
    assert headers["host"] == "app.example.com"
    assert headers["content-type"] == "text/plain"
    assert headers["content-length"] == "5"
    assert headers["x-twice"] == "1,2"


def test_a_wsgi_answer_comes_back_whole(table: Table) -> None:
    table.wsgi(APP, flask_app())
    outcome = table.deliver(delivery(APP + "/said"))
    assert (outcome.status, outcome.body, outcome.exception) == (503, b"said", None)
    assert ("Content-Type", "text/html; charset=utf-8") in outcome.headers
    assert outcome.where == "wsgi"


@pytest.mark.parametrize("testing", [False, True])
def test_an_exception_in_a_view_is_kept_even_when_the_framework_answers(
    table: Table, testing: bool
) -> None:
    app = flask_app()
    app.testing = testing
    table.wsgi(APP, app)
    outcome = table.deliver(delivery(APP + "/broken"))
    assert outcome.status == 500
    assert isinstance(outcome.exception, RuntimeError)


def test_the_exception_of_another_request_is_not_taken_for_this_one(table: Table) -> None:
    app = flask_app()
    table.wsgi(APP, app)
    app.test_client().post("/broken")
    assert table.deliver(delivery(APP + "/said")).exception is None


def test_a_streaming_wsgi_application_is_closed(table: Table) -> None:
    closed: list[bool] = []

    class Body:
        def __iter__(self) -> Iterator[bytes]:
            yield b"b"

        def close(self) -> None:
            closed.append(True)

    def app(environ: dict[str, Any], start_response: Any) -> Body:
        write = start_response("200 OK", [("X", "1")])
        write(b"a")
        return Body()

    table.wsgi(APP, app)
    outcome = table.deliver(delivery())
    assert (outcome.body, closed) == (b"ab", [True])


@pytest.mark.parametrize("kind", ["silent", "twice", "late"])
def test_a_wsgi_application_that_breaks_its_protocol(table: Table, kind: str) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Any:
        if kind == "silent":
            return []
        start_response("200 OK", [])
        if kind == "twice":
            start_response("200 OK", [])
            return []
        return (1 / 0 for _ in range(1))

    table.wsgi(APP, app)
    outcome = table.deliver(delivery())
    assert outcome.status == 500
    assert outcome.exception is not None


def test_django_and_its_exceptions(table: Table) -> None:
    django = pytest.importorskip("django")
    from django.conf import settings

    if not settings.configured:
        settings.configure(
            DEBUG=False, SECRET_KEY="x", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], USE_TZ=True
        )
        django.setup()
    from django.core.wsgi import get_wsgi_application
    from django.test import override_settings

    with override_settings(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"]):
        table.wsgi(APP, get_wsgi_application())
        assert table.deliver(delivery(APP + "/fine", method="GET")).body == b"fine"
        outcome = table.deliver(delivery(APP + "/broken", method="GET"))
    assert outcome.status == 500
    assert isinstance(outcome.exception, ZeroDivisionError)


def _urlpatterns() -> list[Any]:
    from django.http import HttpResponse
    from django.urls import path

    return [
        path("fine", lambda request: HttpResponse("fine")),
        path("broken", lambda request: 1 / 0),
    ]


def __getattr__(name: str) -> Any:
    if name == "urlpatterns":
        return _urlpatterns()
    raise AttributeError(name)


# -- ASGI applications -----------------------------------------------------------------------------


def fastapi_app(events: list[str]) -> fastapi.FastAPI:
    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def lifespan(app: fastapi.FastAPI) -> Any:
        events.append("start")
        yield {"pool": "ready"}
        events.append("stop")

    app = fastapi.FastAPI(lifespan=lifespan)

    @app.put("/echo/{rest:path}")
    async def echo(rest: str, request: fastapi.Request) -> Any:
        return {
            "rest": rest,
            "raw": request.scope["raw_path"].decode(),
            "query": dict(request.query_params),
            "body": (await request.body()).decode(),
            "twice": request.headers.getlist("x-twice"),
            "host": request.headers["host"],
            "length": request.headers["content-length"],
            "pool": getattr(request.state, "pool", None),
            "loop": id(asyncio.get_running_loop()),
        }

    @app.post("/broken")
    async def broken() -> None:
        raise RuntimeError("in the view")

    @app.post("/stream")
    async def stream() -> Any:
        async def chunks() -> Any:
            for number in range(3):
                await asyncio.sleep(0)
                yield str(number)

        return fastapi.responses.StreamingResponse(chunks())

    @app.post("/after")
    async def after(tasks: fastapi.BackgroundTasks) -> None:
        def fail() -> None:
            raise RuntimeError("after the answer")

        tasks.add_task(fail)

    return app


ECHO = delivery(
    APP + "/echo/a%2Fb%20c?x=1",
    b"hello",
    [("Content-Type", "text/plain"), ("X-Twice", "1"), ("X-Twice", "2"), ("Content-Length", "9")],
    "PUT",
)


def test_an_asgi_application_in_a_loop_of_its_own(table: Table) -> None:
    events: list[str] = []
    table.asgi(APP, fastapi_app(events))
    outcome = table.deliver(ECHO)
    assert (outcome.status, outcome.where) == (200, "asgi")
    seen = json.loads(outcome.body)
    first_loop = seen.pop("loop")
    assert seen == {
        "rest": "a/b c",
        "raw": "/echo/a%2Fb%20c",
        "query": {"x": "1"},
        "body": "hello",
        "twice": ["1", "2"],
        "host": "app.example.com",
        "length": "5",
        "pool": "ready",
    }
    assert json.loads(table.deliver(ECHO).body)["loop"] == first_loop
    assert events == ["start"]
    table.close()
    assert events == ["start", "stop"]


def test_an_asgi_application_in_the_running_loop(table: Table) -> None:
    events: list[str] = []
    table.asgi(APP, fastapi_app(events))

    async def main() -> tuple[int, Any]:
        outcome = await table.adeliver(ECHO)
        return id(asyncio.get_running_loop()), json.loads(outcome.body)

    loop, seen = asyncio.run(main())
    assert seen["loop"] == loop
    assert seen["pool"] is None
    assert events == []


@pytest.mark.parametrize("path", ["/broken", "/stream", "/after"])
def test_asgi_answers_and_exceptions(table: Table, path: str) -> None:
    table.asgi(APP, fastapi_app([]))
    for outcome in (
        table.deliver(delivery(APP + path)),
        asyncio.run(table.adeliver(delivery(APP + path))),
    ):
        if path == "/stream":
            assert (outcome.status, outcome.body, outcome.exception) == (200, b"012", None)
            continue
        # A background task fails after the answer is out: the client has its 200.
        assert outcome.status == (500 if path == "/broken" else 200)
        assert isinstance(outcome.exception, RuntimeError)


def test_an_asgi_application_under_trio(table: Table) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(await receive())

        async def watch() -> None:
            seen.append(await receive())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await send({"type": "http.response.start", "status": 202})
            await send({"type": "http.response.body", "body": b"ok"})

    table.asgi(APP, app)
    outcome = trio.run(table.adeliver, delivery(body=b"x"))
    assert (outcome.status, outcome.body) == (202, b"ok")
    assert seen == [
        {"type": "http.request", "body": b"x", "more_body": False},
        {"type": "http.disconnect"},
    ]


@pytest.mark.parametrize("library", ["asyncio", "trio", "own loop"])
def test_an_asgi_application_that_never_answers_meets_the_cap(table: Table, library: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            raise AssertionError("no lifespan here")
        while True:
            await receive()

    table.asgi(APP, app)
    if library == "asyncio":
        outcome = asyncio.run(table.adeliver(delivery()))
    elif library == "trio":
        outcome = trio.run(table.adeliver, delivery())
    else:
        outcome = table.deliver(delivery())
    assert isinstance(outcome.exception, DestinationTimeout)
    assert "no answer within 0.3 s of real time" in str(outcome.exception)


def test_the_cap_holds_under_freezegun_in_the_running_loop(table: Table) -> None:
    import freezegun

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    table.asgi(APP, app)

    async def main() -> Outcome:
        with freezegun.freeze_time("2030-01-01"):
            return await table.adeliver(delivery())

    assert isinstance(asyncio.run(main()).exception, DestinationTimeout)


def test_the_plain_form_in_a_running_loop_names_the_awaitable_one(table: Table) -> None:
    async def main() -> Outcome:
        loop = asyncio.get_running_loop()
        needed = loop.create_future()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(wait(), loop))

        async def wait() -> None:
            await needed

        table.asgi(APP, app)
        outcome = table.deliver(delivery())
        needed.cancel()
        return outcome

    text = str(asyncio.run(main()).exception)
    assert "use the awaitable form (await queue.aio.advance(...))" in text


@pytest.mark.parametrize("kind", ["silent", "body first", "twice", "raises", "breaks off"])
def test_an_asgi_application_that_breaks_its_protocol(table: Table, kind: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": []}
        if scope["type"] == "lifespan" or kind == "silent":
            return
        if kind == "raises":
            raise ValueError("boom")
        if kind == "body first":
            await send({"type": "http.response.body", "body": b""})
        await send(start)
        if kind == "twice":
            await send(start)
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
        raise ValueError("boom")

    table.asgi(APP, app)
    outcome = table.deliver(delivery())
    assert outcome.status == 500
    assert outcome.exception is not None


def test_a_lifespan_that_fails_to_start_fails_the_attempt(table: Table) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "lifespan"
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no database"})

    table.asgi(APP, app)
    outcome = table.deliver(delivery())
    assert outcome.status == 500
    assert "lifespan did not start: no database" in str(outcome.exception)


def test_cancelling_the_driver_cancels_the_application(table: Table) -> None:
    ended: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    table.asgi(APP, app)

    async def main() -> None:
        task = asyncio.create_task(table.adeliver(delivery()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)

    asyncio.run(main())
    assert ended == ["cancelled"]
