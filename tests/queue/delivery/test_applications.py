# mypy: disable-error-code="import-untyped"
"""Test deliveries to WSGI and ASGI applications: what they receive, and how their responses count."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import fastapi
import flask
import pytest
import trio

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.queue.delivery import event_loops
from pytest_fakecloud.queue.delivery.applications import DestinationTimeoutError
from pytest_fakecloud.queue.delivery.destinations import route_context_of
from pytest_fakecloud.queue.model import Outcome

from ..edge import APP, Table, delivery

with warnings.catch_warnings():
    # The test client warns about the HTTP client that it is built on.
    warnings.simplefilter("ignore")
    from fastapi.testclient import TestClient


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


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        ("200 OK", [("X", 1)]),
        ("200 OK", [("X", None)]),
        ("200 OK", [(b"X", b"1")]),
        ("200 OK", [("X",)]),
        ("200 OK", [7]),
        ("0 none", []),
        ("1000 much", []),
        ("abc", []),
        ("", []),
    ],
)
def test_a_wsgi_answer_that_no_server_would_send(
    table: Table, status: str, headers: list[Any]
) -> None:
    def app(environ: dict[str, Any], start_response: Any) -> Any:
        start_response(status, headers)
        return [b"x"]

    table.wsgi(APP, app)
    outcome = table.deliver(delivery())
    assert outcome.status == 500
    assert outcome.exception is not None
    assert all(isinstance(part, str) for pair in outcome.headers for part in pair)


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


def test_synchronous_code_of_asgiref_runs_in_the_thread_that_delivers(table: Table) -> None:
    """Django accesses its database there, whose connection belongs to the test's thread."""
    sync = pytest.importorskip("asgiref.sync")
    threads: list[threading.Thread] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        threads.append(threading.current_thread())
        threads.append(await sync.sync_to_async(threading.current_thread)())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    table.asgi(APP, application, lifespan=False)
    for _ in range(2):
        assert table.deliver(delivery(APP)).status == 200
    loop, own = threading.current_thread() not in threads[::2], {threading.current_thread()}
    assert (loop, set(threads[1::2])) == (True, own)


@pytest.mark.parametrize("after_asgiref", [False, True])
@pytest.mark.parametrize("library", ["asyncio", "trio", "asgiref"])
def test_a_wsgi_application_does_not_run_in_the_loop_that_awaits(
    library: str, after_asgiref: bool
) -> None:
    """With asgiref, it runs in the thread that called async_to_sync(), as Django's own code does."""
    if after_asgiref:
        sync = pytest.importorskip("asgiref.sync")
        sync.async_to_sync(sync.sync_to_async(threading.current_thread))()
    threads: list[threading.Thread] = []
    loops: list[threading.Thread] = []

    def application(environ: Any, start_response: Any) -> list[bytes]:
        threads.append(threading.current_thread())
        start_response("200 OK", [])
        return [b""]

    async def main() -> None:
        loops.append(threading.current_thread())
        with Cloud(delivery="driven") as cloud:
            queue = cloud.queue()
            queue.destinations.wsgi(APP, application)
            queue.publish(APP)
            assert (await queue.aio.run_until_idle()).only().status == 200

    if library == "asgiref":
        pytest.importorskip("asgiref.sync").async_to_sync(main)()
        assert threads == [threading.current_thread()]
    else:
        asyncio.run(main()) if library == "asyncio" else trio.run(main)
    assert loops[0] not in threads


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


def fastapi_app(events: list[str]) -> fastapi.FastAPI:
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
    route_context_of(table).close()
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
        # A background task fails after the response is complete, so the delivery still has its 200.
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
            # Messages of other types are ignored.
            await send({"type": "http.response.debug", "info": {}})
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
    table.deadlines.cap = 0.1

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
    assert isinstance(outcome.exception, DestinationTimeoutError)
    assert "no answer within 0.1 s of real time" in str(outcome.exception)


def test_the_plain_form_in_a_running_loop_names_the_awaitable_one(table: Table) -> None:
    table.deadlines.cap = 0.1

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
    assert "use an awaitable method (await queue.aio.run_until_idle())" in text


@pytest.mark.parametrize(
    "kind", ["silent", "body first", "twice", "raises", "breaks off", "stops short", "no status"]
)
def test_an_asgi_application_that_breaks_its_protocol(table: Table, kind: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": []}
        if scope["type"] == "lifespan" or kind == "silent":
            return
        if kind == "raises":
            raise ValueError("boom")
        if kind == "body first":
            await send({"type": "http.response.body", "body": b""})
        await send({**start, "status": 0} if kind == "no status" else start)
        if kind == "twice":
            await send(start)
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
        if kind == "stops short":
            return
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


class Pooled:
    """An application with resources that are bound to the event loop of its start-up."""

    def __init__(self) -> None:
        self.starts = 0
        self.turn: asyncio.Lock | None = None
        app = fastapi.FastAPI(lifespan=self._lifespan)

        @app.post("/hook")
        async def hook(request: fastapi.Request) -> Any:
            assert self.turn is not None
            # The lock must be contended: only then does it check that it is used on its own loop.
            async with self.turn:
                other = asyncio.create_task(self._turn())
                await asyncio.sleep(0)
            await other
            return {"pool": getattr(request.state, "pool", None), "app": app.state.number}

        self.app = app

    @asynccontextmanager
    async def _lifespan(self, app: Any) -> Any:
        self.starts += 1
        self.turn = asyncio.Lock()
        await self.turn.acquire()
        self.turn.release()
        app.state.number = self.starts
        yield {"pool": f"pool {self.starts}"}
        self.turn = None

    async def _turn(self) -> None:
        assert self.turn is not None
        async with self.turn:
            await asyncio.sleep(0)


def test_an_application_is_called_in_the_loop_that_started_it(table: Table) -> None:
    pooled = Pooled()
    table.asgi(APP, pooled.app)
    for _ in range(2):
        assert json.loads(table.deliver(delivery()).body) == {"pool": "pool 1", "app": 1}
    assert pooled.starts == 1


def test_an_application_that_hangs_does_not_keep_others_from_stopping(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loops, "_SHUTDOWN_SECONDS", 0.05)
    stopped: list[str] = []

    def made(name: str) -> Any:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                await receive()
                await send({"type": "lifespan.startup.complete"})
                await receive()
                stopped.append(name)
                if name == "hangs":
                    await asyncio.Event().wait()
                await send({"type": "lifespan.shutdown.complete"})
                return
            await send({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body"})

        return app

    for name in ("hangs", "stops"):
        table.asgi(f"{APP}/{name}", made(name))
        assert table.status(f"{APP}/{name}") == 200
    route_context_of(table).close()
    assert stopped == ["hangs", "stops"]


@pytest.mark.parametrize("lifespan", [True, False])
def test_the_queue_runs_the_lifespan_unless_the_test_does(table: Table, lifespan: bool) -> None:
    events: list[str] = []
    app = fastapi_app(events)
    table.asgi(APP, app, lifespan=lifespan)
    with contextlib.nullcontext() if lifespan else TestClient(app):
        assert table.deliver(ECHO).status == 200
    assert events == (["start"] if lifespan else ["start", "stop"])
    with pytest.raises(ContractError, match="lifespan='auto' is unknown; pass True or False"):
        table.asgi(APP, app, lifespan="auto")  # type: ignore[arg-type]


def test_an_application_that_needs_its_lifespan_state_names_the_argument(table: Table) -> None:
    app = fastapi.FastAPI()

    @app.post("/hook")
    async def hook(request: fastapi.Request) -> Any:
        if request.url.query:
            raise ValueError("wrong")
        return request.state.pool

    table.asgi(APP, app, lifespan=False)
    for outcome, advice in (
        (table.deliver(delivery()), "lifespan=False: pass lifespan=True"),
        (asyncio.run(table.adeliver(delivery())), "with lifespan=True, or pass asgi() an app"),
    ):
        assert outcome.status == 500
        assert "the lifespan state has no 'pool', because " in str(outcome.exception)
        assert advice in str(outcome.exception)
        assert isinstance(outcome.exception.__cause__, AttributeError)  # type: ignore[union-attr]
    assert str(table.deliver(delivery(url=f"{APP}/hook?wrong")).exception) == "wrong"


def test_closing_a_table_ends_a_delivery_to_an_application(table: Table) -> None:
    called = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        called.set()
        await asyncio.Event().wait()

    table.asgi(APP, app, lifespan=False)
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(table.deliver, delivery())
        called.wait(30)
        route_context_of(table).close()
        assert "the queue was closed before the response" in str(outcome.result(30).exception)


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


def test_a_framework_that_was_imported_again_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test runner that imports Flask again leaves a signal object that Flask no longer sends."""
    signals = pytest.importorskip("flask.signals")
    from blinker import Namespace

    from pytest_fakecloud.queue.delivery.applications import caught_by_framework

    with caught_by_framework() as seen:
        signals.got_request_exception.send(None, exception=ValueError("first"))
    again = Namespace().signal("got-request-exception")
    monkeypatch.setattr(signals, "got_request_exception", again)
    with caught_by_framework() as seen_again:
        again.send(None, exception=ValueError("second"))
    assert [str(error) for error in (*seen, *seen_again)] == ["first", "second"]
