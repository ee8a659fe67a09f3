"""The report nests calls in the requests to the application that caused them."""

from __future__ import annotations

import asyncio
import io
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any

import flask
import flask.signals
import httpx
import pytest
from starlette import responses, routing
from starlette.applications import Starlette

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.base import context_of
from pytest_fakecloud.process import applications
from pytest_fakecloud.process.applications import Listener
from pytest_fakecloud.reporting.report import report_of

from ..harness import Run, in_threads
from .shown import deliver
from .shown import shown as rows

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # a warning of the HTTP library that it imports
    from starlette import testclient

URL = "https://shop.example.com"


@pytest.fixture
def listener(cloud: Cloud) -> Iterator[Listener]:
    heard = Listener()
    heard.listen(context_of(cloud).recorder)
    yield heard
    heard.close()


def told(cloud: Cloud, listener: Listener) -> list[str]:
    return [
        f"{'  ' * row.depth}{row.what} {row.answer}".rstrip()
        for row in rows(cloud, served=listener.served)
    ]


def shop(redis: Any) -> flask.Flask:
    app = flask.Flask("shop")

    @app.post("/checkout")
    def checkout() -> Any:
        redis.incr("orders")
        return {}, 201

    @app.get("/broken")
    def broken() -> Any:
        redis.get("cart")
        return {}["customer"]

    @app.get("/outer")
    def outer() -> Any:
        redis.get("outer")
        app.test_client().post("/checkout")
        redis.get("outer")
        return ""

    return app


# -- Flask -----------------------------------------------------------------------------------------


def test_calls_stand_below_the_request_that_made_them(cloud: Cloud, listener: Listener) -> None:
    redis = cloud.kv_server().client()
    client = shop(redis).test_client()
    redis.get("before")
    client.post("/checkout?from=cart")
    redis.get("after")
    assert told(cloud, listener) == [
        "GET before null", "POST /checkout?from=cart (Flask) 201", "  INCR orders 1",
        "GET after null",
    ]  # fmt: skip
    [request] = listener.served
    assert (request.answer, request.answer_cut, request.answer_type) == (
        b"{}\n",
        None,
        "application/json",
    )


def test_a_request_that_went_well_and_called_nobody_is_left_out(
    cloud: Cloud, listener: Listener
) -> None:
    app = shop(cloud.kv_server().client())
    app.add_url_rule("/health", view_func=lambda: "fine")
    app.test_client().get("/health")
    app.test_client().get("/nowhere")
    assert told(cloud, listener) == ["GET /nowhere (Flask) 404"]


@pytest.mark.parametrize("propagates", [True, False])
def test_what_a_view_raised_is_told(cloud: Cloud, listener: Listener, propagates: bool) -> None:
    app = shop(cloud.kv_server().client())
    app.testing = propagates
    for _ in range(2):
        if propagates:
            with pytest.raises(KeyError):
                app.test_client().get("/broken")
        else:
            app.test_client().get("/broken")
    answer = "" if propagates else " 500"
    assert told(cloud, listener) == [f"GET /broken (Flask){answer}", "  GET cart null"] * 2
    row = rows(cloud, served=listener.served)[0]
    assert row.note.startswith("the handler raised KeyError: 'customer' (test_applications.py:")
    assert row.note.endswith(' in broken: return {}["customer"])')
    assert not row.ok


def test_a_request_inside_a_request(cloud: Cloud, listener: Listener) -> None:
    shop(cloud.kv_server().client()).test_client().get("/outer")
    assert told(cloud, listener) == [
        "GET /outer (Flask) 200", "  GET outer null", "  POST /checkout (Flask) 201",
        "    INCR orders 1", "  GET outer null",
    ]  # fmt: skip


def test_what_a_queue_delivered_has_one_row(cloud: Cloud, listener: Listener) -> None:
    queue = cloud.queue()
    queue.destinations.wsgi(URL, shop(cloud.kv_server().client()))
    deliver(queue, f"{URL}/checkout", retries=0)
    assert len(listener.served) == 1
    lines = told(cloud, listener)
    assert [line.rpartition("POST ")[2] for line in lines[:1]] == [f"{URL}/checkout 201"]
    assert lines[1:] == ["  INCR orders 1"]


def test_requests_of_several_threads_claim_nothing(cloud: Cloud, listener: Listener) -> None:
    redis = cloud.kv_server().client()
    app = flask.Flask("shop")
    meet = threading.Barrier(2, timeout=10)

    @app.get("/<name>")
    def view(name: str) -> str:
        meet.wait()
        redis.get(name)
        meet.wait()
        return ""

    in_threads(*(partial(app.test_client().get, f"/{name}") for name in "ab"))
    lines = told(cloud, listener)
    assert sorted(lines) == ["GET /a (Flask) 200", "GET /b (Flask) 200", "GET a null", "GET b null"]


def test_requests_of_several_threads_one_after_the_other(cloud: Cloud, listener: Listener) -> None:
    client = shop(cloud.kv_server().client()).test_client()
    for _ in range(2):
        in_threads(lambda: client.post("/checkout"))
    row = "POST /checkout (Flask) 201"
    assert told(cloud, listener) == [row, "  INCR orders 1", row, "  INCR orders 2"]


def test_a_request_may_end_while_others_begin(listener: Listener) -> None:
    interval = sys.getswitchinterval()

    def request() -> None:
        for _ in range(1000):
            environ = {"REQUEST_METHOD": "GET"}
            listener.begin("WSGI", environ)
            # Search all requests, because none has this environment.
            listener.end(object(), None)
            listener.end(environ, None)

    sys.setswitchinterval(1e-6)
    try:
        in_threads(*[request] * 4)
    finally:
        sys.setswitchinterval(interval)


def test_what_a_server_leaves_out_is_told_as_the_standard_has_it(listener: Listener) -> None:
    more = {"wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(), "wsgi.errors": io.StringIO()}
    environ = {"REQUEST_METHOD": "GET", "SERVER_NAME": "a", "SERVER_PORT": "80", **more}
    list(flask.Flask("shop")(environ, lambda *_: None))
    assert [request.target for request in listener.served] == ["GET /"]


def test_the_newest_requests_are_remembered(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applications, "_MOST", 2)
    listener = Listener()
    listener.listen(context_of(cloud).recorder)
    client = flask.Flask("shop").test_client()
    for number in range(3):
        client.get(f"/{number}")
    assert [request.target for request in listener.served] == ["GET /1", "GET /2"]
    listener.close()


def test_nothing_of_ours_is_raised_into_the_application(cloud: Cloud, listener: Listener) -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    app = flask.Flask("shop")

    @app.get("/")
    def view() -> str:
        raise Unspeakable

    app.add_url_rule("/fine", view_func=lambda: "fine")
    assert app.test_client().get("/").status_code == 500
    assert listener.served[0].raised == "the handler raised Unspeakable"
    listener.recorder = object()  # type: ignore[assignment]
    assert app.test_client().get("/").status_code == 500
    assert app.test_client().get("/fine").status_code == 200


def test_a_closed_listener_hears_nothing(cloud: Cloud) -> None:
    before = len(flask.signals.request_started.receivers)
    listener = Listener()
    for _ in range(2):
        listener.listen(context_of(cloud).recorder)
        assert len(flask.signals.request_started.receivers) == before + 1
    listener.close()
    assert len(flask.signals.request_started.receivers) == before
    shop(cloud.kv_server().client()).test_client().post("/checkout")
    assert not listener.served


def test_between_two_clouds_nothing_is_remembered(cloud: Cloud, listener: Listener) -> None:
    client = shop(cloud.kv_server().client()).test_client()
    client.post("/checkout")
    listener.listen(None)
    client.post("/checkout")
    assert not listener.served
    with Cloud() as other:
        listener.listen(context_of(other).recorder)
        client.post("/checkout")
        assert len(listener.served) == 1


SIGNALS = ("request_started", "got_request_exception", "request_finished")


@pytest.mark.parametrize(
    "module",
    [object(), SimpleNamespace(**{name: SimpleNamespace(connect=list) for name in SIGNALS})],
    ids=["no signals", "signals of another kind"],
)
def test_another_module_of_that_name_is_no_reason_to_fail(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    monkeypatch.setitem(sys.modules, "flask", module)
    listener = Listener()
    listener.listen(context_of(cloud).recorder)
    listener.close()


# -- ASGI ------------------------------------------------------------------------------------------


def asgi_shop(kv: Any) -> Any:
    async def checkout(request: Any) -> Any:
        kv.incr("orders")
        if (await request.json()).get("item") == "rum":
            raise ValueError("too young")
        return responses.PlainTextResponse("", 429)

    return Starlette(routes=[routing.Route("/checkout", checkout, methods=["POST"])])


async def ask(library: Any, app: Any) -> int:
    """Send a request through an ``ASGITransport`` of httpx or httpx2; return its status."""
    transport = library.ASGITransport(app)
    async with library.AsyncClient(transport=transport, base_url="http://shop") as web:
        return int((await web.post("/checkout", json={"item": "gin"})).status_code)


@pytest.mark.parametrize("is_alias", [False, True])
def test_requests_through_httpx2_are_rows(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, is_alias: bool
) -> None:
    httpx2 = pytest.importorskip("httpx2")
    if is_alias:  # what alias_httpx() does in a process that has not imported httpx
        monkeypatch.setitem(sys.modules, "httpx", httpx2)
    original = httpx2.ASGITransport.handle_async_request
    with closing(Listener()) as listener:
        listener.listen(context_of(cloud).recorder)
        assert asyncio.run(ask(httpx2, asgi_shop(cloud.kv_server().client()))) == 429
        assert told(cloud, listener) == [
            'POST /checkout {"item":"gin"} (Starlette) 429',
            "  INCR orders 1",
        ]
    assert httpx2.ASGITransport.handle_async_request is original


def test_requests_of_an_asgi_test_client_are_rows(cloud: Cloud, listener: Listener) -> None:
    app = asgi_shop(cloud.kv_server().client())
    client = testclient.TestClient(app)
    assert client.post("/checkout?a=1", json={"item": "tea"}).status_code == 429
    with pytest.raises(ValueError, match="too young"):
        client.post("/checkout", json={"item": "rum"})

    assert asyncio.run(ask(httpx, app)) == 429
    report_rows = report_of(cloud, served=list(listener.served)).rows
    assert [(row.operation, row.depth, row.status) for row in report_rows] == [
        ("POST /checkout?a=1", 0, 429), ("INCR", 1, 200), ("POST /checkout", 0, 500),
        ("INCR", 1, 200), ("POST /checkout", 0, 429), ("INCR", 1, 200),
    ]  # fmt: skip
    assert [request.framework for request in listener.served] == ["Starlette"] * 3
    assert listener.served[0].body == '{"item":"tea"}'
    assert [request.answer for request in listener.served] == [None] * 3


def test_requests_to_several_applications_of_a_framework_name_them(
    cloud: Cloud, listener: Listener
) -> None:
    redis = cloud.kv_server().client()
    for flask_client in (first := shop(redis).test_client(), shop(redis).test_client(), first):
        flask_client.post("/checkout")
    asgi = asgi_shop(redis)
    for app in (asgi, asgi_shop(redis), asgi):
        asyncio.run(ask(httpx, app))
    testclient.TestClient(asgi_shop(redis)).post("/checkout", json={})
    requests = [text for text in told(cloud, listener) if "/checkout" in text]
    assert [text.partition("(")[2].partition(")")[0] for text in requests] == [
        "Flask", "Flask 2", "Flask", "Starlette", "Starlette 2", "Starlette", "Starlette 3"
    ]  # fmt: skip


def test_the_applications_of_forgotten_requests_are_not_counted(
    cloud: Cloud, listener: Listener
) -> None:
    redis = cloud.kv_server().client()
    shop(redis).test_client().post("/checkout")
    listener.forget_since(0)
    shop(redis).test_client().post("/checkout")
    assert [request.instance for request in listener.served] == [1]


# -- Django ----------------------------------------------------------------------------------------


@pytest.fixture
def django_urls(cloud: Cloud) -> Iterator[None]:
    django = pytest.importorskip("django")
    from django.conf import settings

    if not settings.configured:
        settings.configure(SECRET_KEY="x", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], USE_TZ=True)
        django.setup()
    from django.test import override_settings

    global _redis
    _redis = cloud.kv_server().client()
    with override_settings(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"]):
        yield
    _redis = None


_redis: Any = None
_parallel: asyncio.Barrier | None = None
"""Lets requests to /slow make their calls only while all of them are in progress."""


def _urlpatterns() -> list[Any]:
    from django.http import HttpResponse
    from django.urls import path

    def checkout(request: Any) -> Any:
        _redis.incr("orders")
        return HttpResponse("", status=201)

    def broken(request: Any) -> Any:
        _redis.get("cart")
        return {}["customer"]

    async def slow(request: Any) -> Any:
        if _parallel is not None:
            await _parallel.wait()
        _redis.get("slow")
        if _parallel is not None:
            await _parallel.wait()
        return HttpResponse("", status=202)

    return [path("checkout", checkout), path("broken", broken), path("slow", slow)]


def __getattr__(name: str) -> Any:
    if name == "urlpatterns":
        return _urlpatterns()
    raise AttributeError(name)


@pytest.mark.parametrize("between", [0, 6])
def test_djangos_client(
    cloud: Cloud,
    django_urls: None,
    listener: Listener,
    between: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The receivers work even if another listener wraps the function that calls them."""
    from django.dispatch import Signal
    from django.test import Client

    for _ in range(between):
        send = Signal.send
        monkeypatch.setattr(
            Signal, "send", lambda *args, _send=send, **named: _send(*args, **named)
        )
    Client().post("/checkout?from=cart")
    assert (listener.served[0].answer, listener.served[0].answer_cut) == (b"", None)
    with pytest.raises(KeyError):
        Client().get("/broken")
    Client(raise_request_exception=False).get("/broken")
    _redis.get("after")
    assert told(cloud, listener) == [
        "POST /checkout?from=cart (Django) 201", "  INCR orders 1",
        *["GET /broken (Django) 500", "  GET cart null"] * 2, "GET after null",
    ]  # fmt: skip
    assert ' in broken: return {}["customer"])' in rows(cloud, served=listener.served)[2].note


def test_djangos_asynchronous_client(
    cloud: Cloud, django_urls: None, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.test import AsyncClient

    async def ask() -> None:
        await AsyncClient().get("/slow", QUERY_STRING=b"bytes")
        monkeypatch.setattr(sys.modules[__name__], "_parallel", asyncio.Barrier(2))
        await asyncio.gather(AsyncClient().get("/slow?1"), AsyncClient().get("/slow?2"))

    asyncio.run(ask())
    lines = told(cloud, listener)
    # The query string is bytes from a server and a string from Django's client.
    assert lines[:2] == ["GET /slow?bytes (Django) 202", "  GET slow null"]
    # With two parallel requests, the caller is unknown.
    assert sorted(lines[2:]) == [
        "GET /slow?1 (Django) 202", "GET /slow?2 (Django) 202", "GET slow null", "GET slow null",
    ]  # fmt: skip


def test_djangos_signals_of_somebody_else(
    cloud: Cloud, django_urls: None, listener: Listener
) -> None:
    """A signal without a request, or for an unknown request, changes nothing."""
    from django.core import signals

    signals.request_started.send(sender=object)
    environ = {"REQUEST_METHOD": "GET"}
    signals.request_started.send(sender=object, environ=environ)
    # This signal is sent outside of an except block, so Python has no current exception.
    signals.got_request_exception.send(sender=None, request=SimpleNamespace(environ=environ))
    try:
        raise KeyError("theirs")
    except KeyError:
        signals.got_request_exception.send(sender=None)
        signals.got_request_exception.send(sender=None, request=SimpleNamespace(environ={}))
    signals.request_finished.send(sender=object)
    assert [(request.target, request.ended, request.raised) for request in listener.served] == [
        ("GET /", 0, "")
    ]


# -- in a run --------------------------------------------------------------------------------------

FLASK = """
    import flask
    import pytest

    @pytest.fixture
    def client(kv_server):
        redis, app = kv_server.client(), flask.Flask("shop")

        @app.post("/checkout")
        def checkout():
            return str(redis.incr("orders"))

        return app.test_client()

    @pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)
    def test_it(client):
        assert client.post("/checkout").text == "0"

    def test_passes(client):
        client.post("/checkout")
        assert len(flask.request_started.receivers) == 1

    def test_without_fakes():
        assert not flask.request_started.receivers
"""
TOLD = ["--> application POST /checkout (Flask) <-- 200", "  --> kv_server INCR orders <-- 1"]


@pytest.mark.parametrize(
    "options", [(), ("-ofakecloud_scope=session", "-knot without", "--fakecloud-report=out")]
)
def test_a_report_has_them(run: Run, options: tuple[str, ...]) -> None:
    mark = '@pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=1)'
    result = run(FLASK.replace(mark, "") if options else FLASK, *options)
    result.assert_outcomes(failed=1, passed=1 if options else 2, deselected=1 if options else 0)
    # Remove the marks from each line, and the time of day.
    lines = [re.sub(r"^..([\d:.]+ )?", "", line) for line in result.outlines]
    told = [line.partition("  test_")[0] for line in lines if line.startswith(tuple(TOLD))]
    assert told == TOLD


def test_nobody_listens_where_no_report_is_wanted(run: Run) -> None:
    source = FLASK.replace("receivers) == 1", "receivers) == 0")
    run(source, "--fakecloud-journal=never").assert_outcomes(failed=1, passed=2)
