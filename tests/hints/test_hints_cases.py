"""Hints about intercepted requests, based on errors, replaced names, and names in the test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
import requests

from pytest_fakecloud import Cloud
from pytest_fakecloud.hints.missing_requests import (
    hints_about_error,
    hints_about_silence,
    old_token_hints,
)

from ..reporting.shown import linked

STAY = ["    [pytest]", "    fakecloud_scope = session", "    fakecloud_early = kv_server queue"]
AFTER = (
    ", for example an earlier test's. An application that creates its client once needs fakes that "
    "last; in pytest.ini:"
)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed="seed", now="2026-03-01T12:00:00Z", delivery="driven") as opened:
        opened.kv_server()
        opened.queue()
        yield opened


def made(path: str, *args: Any, base: type = object, **held: Any) -> Any:
    """Return an object with attributes, given the module and name of its class."""
    module, _, name = path.rpartition(".")
    instance = type(name, (base,), {"__module__": module})(*args)
    vars(instance).update(held)
    return instance


def error_of(path: str, text: str = "", base: type = Exception, **held: Any) -> Any:
    return made(path, text, base=base, **held)


def asked(url: str) -> Any:
    return SimpleNamespace(url=url)


# -- a library that intercepts ---------------------------------------------------------------------

RESPONSES = "requests.exceptions.ConnectionError"
NO_RESPONSE = "Connection refused by Responses - the call doesn't match: GET {}"
RESPX = "respx.models.AllMockedAssertionError"
POOK = "pook.exceptions.PookNoMatches"
VCR = "vcr.errors.CannotOverwriteExistingCassetteException"
BLOCKED = "pytest_socket.SocketBlockedError"
NO_CONNECT = "pytest_socket.SocketConnectBlockedError"
ALLOW = "allow loopback with --allow-hosts=127.0.0.1, or @pytest.mark.allow_hosts(['127.0.0.1'])"
TO_RESPX = (
    'respx intercepted a request to kv_server: let it through with respx.route(host="127.0.0.1")'
    ".pass_through()"
)
TO_POOK = (
    "pook intercepted a request to kv_server: let it through with pook.use(network=True), or "
    "pook.enable_network()"
)
CONNECT = "A test tried to use socket.socket.connect() with host {}"
REFUSALS: dict[str, tuple[Callable[[str], BaseException], list[str]]] = {
    "by its text": (
        lambda url: error_of(RESPONSES, NO_RESPONSE.format(f"{url}/get/k")),
        ["responses intercepted a request to kv_server: let it through with "
         "responses.add_passthru(kv_server.url)"],
    ),
    "of its class, with another text": (lambda url: error_of(RESPONSES, f"no way to {url}"), []),
    "with its text, of another class": (
        lambda url: error_of("shop.ConnectionError", NO_RESPONSE.format(url)), []
    ),
    "of a request elsewhere": (
        lambda url: error_of(RESPONSES, NO_RESPONSE.format("https://a.example.com/")), []
    ),
    "by the request it holds": (lambda url: error_of(RESPX, request=asked(url)), [TO_RESPX]),
    "by the request that failed": (
        lambda url: error_of(VCR, failed_request=SimpleNamespace(uri=f"{url}/get/k")),
        ["VCR.py intercepted a request to kv_server: let it through with "
         "vcr.VCR(ignore_localhost=True)"],
    ),
    "without a request": (lambda url: error_of(RESPX), []),
    "a class below it": (
        lambda url: error_of("shop.Mine", url, base=type(error_of(POOK))), [TO_POOK]
    ),
    "sockets": (
        lambda url: error_of(BLOCKED, "A test tried to use socket.socket."),
        ["pytest-socket blocked the connection to the fakes: allow loopback with "
         "@pytest.mark.enable_socket, or --allow-hosts=127.0.0.1 in place of --disable-socket"],
    ),
    "sockets to this machine": (
        lambda url: error_of(NO_CONNECT, CONNECT.format('"127.0.0.1" (allowed: "10.0.0.1").')),
        [f"pytest-socket blocked the connection to the fakes: {ALLOW}"],
    ),
    "sockets to this machine, none allowed": (
        lambda url: error_of(NO_CONNECT, CONNECT.format('"127.0.0.1"')),
        [f"pytest-socket blocked the connection to the fakes: {ALLOW}"],
    ),
    "sockets to another": (
        lambda url: error_of(NO_CONNECT, CONNECT.format('"10.0.0.1" (allowed: "127.0.0.1").')), []
    ),
    "pytest-recording": (
        lambda url: RuntimeError("Network is disabled for host '127.0.0.1'"),
        ["pytest-recording (--block-network) blocked the connection to the fakes: allow loopback with "
         "--allowed-hosts=127.0.0.1, or @pytest.mark.block_network(allowed_hosts=['127.0.0.1'])"],
    ),
    "sockets to a fake": (
        lambda url: error_of(NO_CONNECT, request=asked(url)),
        [f"pytest-socket intercepted a request to kv_server: {ALLOW}"],
    ),
    "the cause": (lambda url: linked(cause=error_of(RESPX, url)), [TO_RESPX]),
    "the context": (lambda url: linked(context=error_of(RESPX, url)), [TO_RESPX]),
    "an argument": (lambda url: KeyError("k", error_of(RESPX, url)), [TO_RESPX]),
    "of a group": (lambda url: ExceptionGroup("g", [KeyError(), error_of(RESPX, url)]), [TO_RESPX]),
    "of a group and its cause": (
        lambda url: linked(ExceptionGroup("g", [error_of(RESPX, url)]), cause=error_of(POOK, url)),
        [TO_POOK, TO_RESPX],
    ),
    "each of two": (
        lambda url: linked(cause=error_of(POOK, url),
                           context=linked(context=error_of(RESPX, url))),
        [TO_POOK, TO_RESPX],
    ),
    "twice the same": (
        lambda url: linked(error_of(RESPX, url), cause=error_of(RESPX, url)), [TO_RESPX]
    ),
    "in a circle": (lambda url: circle(error_of(RESPX, url)), [TO_RESPX]),
}  # fmt: skip


def circle(cause: BaseException) -> BaseException:
    """Return an error with a cause that is the context of its own context."""
    error, context = AssertionError(), KeyError()
    linked(error, cause=cause, context=linked(context, context=error))
    return error


@pytest.mark.parametrize(("refusal", "expected"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_is_told(
    cloud: Cloud, refusal: Callable[[str], BaseException], expected: list[str]
) -> None:
    assert sorted(hints_about_error(cloud, refusal(cloud.fakes()[0].url))) == expected


def test_an_error_that_has_no_request_to_give_says_nothing(cloud: Cloud) -> None:
    assert hints_about_error(cloud, httpx.ConnectError("no")) == []
    assert hints_about_error(cloud, linked(context=httpx.ReadTimeout("no"))) == []


# -- a fake that is closed -------------------------------------------------------------------------


@pytest.fixture
def closed() -> str:
    """Return the port of a closed fake."""
    with Cloud() as earlier:
        return earlier.kv_server().url.rpartition(":")[2]


ADDRESSED: dict[str, tuple[Callable[[str], BaseException], bool]] = {
    "an address": (lambda port: OSError(f"no way to http://127.0.0.1:{port}/get/k"), True),
    "a host and a port": (
        lambda port: ConnectionError(f"HTTPConnectionPool(host='127.0.0.1', port={port})"),
        True,
    ),
    "a request": (
        lambda port: httpx.ConnectError(
            "no", request=httpx.Request("GET", f"http://127.0.0.1:{port}")
        ),
        True,
    ),
    "no error of a network": (lambda port: KeyError(f"http://127.0.0.1:{port}"), False),
    "no address": (lambda port: OSError("no"), False),
    "elsewhere": (lambda port: OSError(f"http://10.0.0.1:{port}"), False),
    "no fake's": (lambda port: OSError("http://127.0.0.1:1080"), False),
}


@pytest.mark.parametrize(("error", "expected"), ADDRESSED.values(), ids=ADDRESSED)
def test_a_client_of_a_fake_that_is_closed_is_told_how_fakes_stay(
    cloud: Cloud, closed: str, error: Callable[[str], BaseException], expected: bool
) -> None:
    head = f"a client called 127.0.0.1:{closed}, the address of a fake that is closed{AFTER}"
    assert hints_about_error(cloud, error(closed)) == ([head, *STAY] if expected else [])


def test_a_client_of_an_open_fake_is_not(cloud: Cloud) -> None:
    for fake in cloud.fakes():
        assert hints_about_error(cloud, OSError(fake.url)) == []


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_errors_of_both_httpx_count(cloud: Cloud, closed: str, library: str) -> None:
    client = pytest.importorskip(library)
    request = client.Request("GET", f"http://127.0.0.1:{closed}/get/k")
    error = client.ConnectError("[Errno 111] Connection refused", request=request)
    assert len(hints_about_error(cloud, error)) == 4


def test_errors_of_the_system_count(cloud: Cloud, closed: str) -> None:
    assert len(hints_about_error(cloud, OSError(f"http://127.0.0.1:{closed}"))) == 4
    assert hints_about_error(cloud, KeyError()) == []


def came(cloud: Cloud, headers: Any) -> None:
    httpx.get(f"{cloud.fakes()[0].url}/get/k", headers=headers)


def test_the_token_of_a_fake_that_is_closed_is_known(cloud: Cloud) -> None:
    with Cloud() as earlier:
        old = dict(earlier.kv_server().headers)
    came(cloud, cloud.fakes()[0].headers)
    came(cloud, {"Authorization": "Bearer nobodys"})
    came(cloud, None)
    assert old_token_hints(cloud) == []
    came(cloud, old)
    head = f"a client called kv_server with the token of a fake that is closed{AFTER}"
    assert old_token_hints(cloud) == [head, *STAY]


def test_an_answer_made_on_purpose_tells_of_no_closed_fake(cloud: Cloud) -> None:
    cloud.fakes()[0].faults.respond(401, times=1)  # type: ignore[attr-defined]
    came(cloud, cloud.fakes()[0].headers)
    assert [call.status for call in cloud.journal.calls()] == [401]
    assert old_token_hints(cloud) == []


def test_an_old_token_that_was_no_hindrance_is_not_told(cloud: Cloud) -> None:
    with Cloud() as earlier:
        old = dict(earlier.kv_server().headers)
    httpx.post(cloud.callback_capture().callback_url, headers=old)
    assert [call.status for call in cloud.journal.calls()] == [200]
    assert old_token_hints(cloud) == []


# -- httpx2 ----------------------------------------------------------------------------------------

TO_HTTPX2 = (
    'pytest-httpx2{}: let it through with httpx2_mock.route(host="127.0.0.1").pass_through()'
)
TO_HTTPX2_PYTEST = (
    "httpx2-pytest{}: let it through with @pytest.mark.httpx2_mock("
    'should_mock=lambda request: request.url.host != "127.0.0.1")'
)
INTERCEPTED = " intercepted a request to kv_server"
SUSPECTED = "{} received no request; {{}} was active in this test and may have intercepted it"


def raised_in(package: str, error: BaseException) -> BaseException:
    """Return an error that has passed a function of a package."""
    space: dict[str, Any] = {"__name__": f"{package}._client"}
    exec("def send(error): raise error", space)
    with pytest.raises(type(error)) as info:
        space["send"](error)
    return info.value


@pytest.fixture
def httpcore2(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the pool of httpcore2 as pytest-httpx2 leaves it during a test: with respx's function."""
    module = ModuleType("httpcore2")
    vars(module)["ConnectionPool"] = type(
        "ConnectionPool", (), {"handle_request": function_of("respx.mocks")}
    )
    monkeypatch.setitem(sys.modules, "httpcore2", module)
    return module


def test_of_two_libraries_with_the_same_error_the_one_of_the_client_is_named(
    cloud: Cloud, httpcore2: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = cloud.fakes()[0].url
    through_httpx = raised_in("httpx", error_of(RESPX, url))
    through_httpx2 = raised_in("httpx2", error_of(RESPX, url))
    assert hints_about_error(cloud, through_httpx) == [TO_RESPX]
    assert hints_about_error(cloud, through_httpx2) == [TO_HTTPX2.format(INTERCEPTED)]
    # respx.mock(using="httpcore2") has ended when a report is made.
    monkeypatch.delitem(sys.modules, "httpcore2")
    assert hints_about_error(cloud, through_httpx2) == [TO_RESPX]


def test_the_mock_that_replaces_the_transport_of_httpx2_is_named(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"No response can be found for GET request on {cloud.fakes()[0].url}/get/k"
    error = error_of("httpx2.TimeoutException", text)
    assert hints_about_error(cloud, error) == [TO_HTTPX2_PYTEST.format(INTERCEPTED)]
    assert hints_about_error(cloud, error_of("httpx2.TimeoutException", "timed out")) == []


def suspected(hint: str) -> list[str]:
    name, _, recipe = hint.partition("{}")
    return [f"{SUSPECTED.format(fake).format(name)}{recipe}" for fake in ("kv_server", "queue")]


def test_a_mock_of_httpx2_that_is_active_is_suspected(
    cloud: Cloud, httpcore2: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hints_about_silence(cloud, []) == suspected(TO_HTTPX2)
    failed = raised_in("respx", raised_in("httpx2", AssertionError()))
    assert hints_about_silence(cloud, [], failed) == suspected(TO_HTTPX2)
    monkeypatch.delitem(sys.modules, "httpcore2")
    httpx2 = ModuleType("httpx2")
    vars(httpx2)["HTTPTransport"] = type(
        "HTTPTransport", (), {"handle_request": function_of("pytest_httpx2")}
    )
    monkeypatch.setitem(sys.modules, "httpx2", httpx2)
    assert hints_about_silence(cloud, []) == suspected(TO_HTTPX2_PYTEST)


# -- clients of other addresses --------------------------------------------------------------------

FIXTURE = (
    ", which is not the address of a fake: the fixture fakecloud_env (or fakecloud_env = true in "
    "pytest.ini) sets the variables such a client reads, before the application makes it"
)
PROD = "https://prod.example.com"


def redis_at(url: str) -> Any:
    return made("upstash_redis.client.Redis", url=url)


class Odd:
    __dict__ = "odd"  # type: ignore[assignment]


class Bare:
    __slots__ = ()


def module_with(**names: Any) -> ModuleType:
    module = ModuleType("shop")
    vars(module).update(names)
    return module


REDIS = f"the test has Redis of upstash_redis for {PROD}{FIXTURE}"
KNOWN: dict[str, tuple[list[Any], list[str]]] = {
    "a client": ([redis_at(PROD)], [REDIS]),
    "a client without TLS": (
        [redis_at("http://redis.example.com")],
        [REDIS.replace(PROD, "http://redis.example.com")],
    ),
    "a client in parts": (
        [made("upstash_redis.asyncio.client.Redis", http=SimpleNamespace(base=PROD, n=1))], [REDIS]
    ),
    "a client in an object": ([SimpleNamespace(redis=redis_at(PROD), n=1)], [REDIS]),
    "two addresses": (
        [redis_at(PROD), redis_at("https://b.example.com")],
        [REDIS, REDIS.replace(PROD, "https://b.example.com")],
    ),
    "two clients of one address": (
        [redis_at(PROD), made("qstash.client.QStash", url=PROD), redis_at(PROD)],
        [REDIS, f"the test has QStash of qstash for {PROD}{FIXTURE}"],
    ),
    "one whose fake is not there before one whose is": (
        [made("upstash_vector.client.Index", url=PROD), redis_at(PROD)], [REDIS]
    ),
    "no address": ([made("upstash_redis.client.Redis", url="", n=1)], []),
    "another library's": ([made("redis.client.Redis", url=PROD)], []),
    "a class": ([type(redis_at(PROD))], []),
    "in a module": ([module_with(redis=redis_at(PROD))], []),
    "odd objects": ([Odd(), Bare(), None, redis_at(PROD)], [REDIS]),
}  # fmt: skip


@pytest.mark.parametrize(("names", "expected"), KNOWN.values(), ids=KNOWN)
def test_a_client_of_another_address_is_told(
    cloud: Cloud, names: list[Any], expected: list[str]
) -> None:
    assert hints_about_silence(cloud, names) == expected


def test_a_client_of_a_fake_ends_the_suspicion(cloud: Cloud) -> None:
    own = redis_at(cloud.fakes()[0].url)
    assert hints_about_silence(cloud, [redis_at(PROD), own]) == []


def test_a_client_of_a_fake_that_is_closed_is_not_told_about_the_environment(
    cloud: Cloud, closed: str
) -> None:
    head = f"a client called 127.0.0.1:{closed}, the address of a fake that is closed{AFTER}"
    lines = hints_about_silence(cloud, [redis_at(PROD), redis_at(f"http://127.0.0.1:{closed}")])
    assert lines == [REDIS, head, *STAY]


def test_a_client_that_the_failing_function_knew_counts(cloud: Cloud) -> None:
    def fails() -> None:
        client = redis_at(PROD)
        raise AssertionError(client)

    with pytest.raises(AssertionError) as info:
        fails()
    assert hints_about_silence(cloud, [], info.value) == [REDIS]


def test_where_a_fake_was_called_no_client_is_suspected(cloud: Cloud) -> None:
    came(cloud, cloud.fakes()[0].headers)
    assert (
        hints_about_silence(cloud, [redis_at(PROD), made("qstash.client.QStash", url=PROD)]) == []
    )


# -- libraries that were active --------------------------------------------------------------------


def kept_away(*names: str) -> list[str]:
    return [
        f"{name} received no request; responses was active in this test and may have intercepted it: "
        f"let it through with responses.add_passthru({name}.url)"
        for name in names
    ]


def function_of(module: str) -> Any:
    def send(*_: object) -> None: ...

    send.__module__ = module
    return send


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (function_of("responses"), True), (function_of("responses.registries"), True),
        (made("responses.Mock"), True), (type(made("responses.Mock")), True),
        (ModuleType("responses"), True), (function_of("responses_of_ours"), False),
        (function_of("requests.adapters"), False), (ModuleType("shop"), False), (None, False),
    ],
)  # fmt: skip
def test_a_library_in_anothers_place_is_suspected(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, value: Any, expected: bool
) -> None:
    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", value)
    assert hints_about_silence(cloud, []) == (kept_away("kv_server", "queue") if expected else [])
    came(cloud, cloud.fakes()[0].headers)
    assert hints_about_silence(cloud, []) == (kept_away("queue") if expected else [])


def test_a_method_of_the_librarys_counts(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mock:
        __module__ = "responses"

        def send(self) -> None: ...

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", Mock().send)
    assert hints_about_silence(cloud, []) == kept_away("kv_server", "queue")


def test_libraries_that_nobody_imported_are_not_looked_for(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("httpcore", "requests.adapters", "urllib3.connectionpool"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert hints_about_silence(cloud, []) == []


def raised(source: str, **names: Any) -> BaseException:
    """Return the exception that a function with this source raises."""
    lines = "\n".join(f"    {line}" for line in [*source.splitlines(), "assert False"])
    space: dict[str, Any] = {"__name__": "test_shop", **names}
    exec(f"def fails():\n{lines}\n", space)
    with pytest.raises(AssertionError) as info:
        space["fails"]()
    return info.value


MOCKS = ModuleType("responses")
vars(MOCKS).update(start=lambda: None, calls=())
OTHER = ModuleType("mocks")
vars(OTHER).update(start=lambda: None)
NAMELESS = ModuleType("nameless")
vars(NAMELESS).update(start=lambda: None)
del NAMELESS.__name__
BEGUN: dict[str, tuple[Callable[[], BaseException], bool]] = {
    "its decorator": (lambda: raised("pass", __name__="responses"), True),
    "a module of its": (lambda: raised("pass", __name__="responses.registries"), True),
    "a module that has no name": (lambda: raised("pass", __name__=None), False),
    "begun": (lambda: raised("mocks.start()", mocks=MOCKS), True),
    "begun by a name of the function's own": (
        lambda: raised("inner = make()\ninner.start()", make=lambda: MOCKS), True
    ),
    "begun by its function": (
        lambda: raised("activate()", activate=function_of("responses")), True
    ),
    "only named": (lambda: raised("mocks.calls", mocks=MOCKS), False),
    "another's": (lambda: raised("mocks.start()", mocks=OTHER), False),
    "a nameless one": (lambda: raised("mocks.start()", mocks=NAMELESS), False),
    "another's, with it beside": (lambda: raised("other.start()", mocks=MOCKS, other=OTHER), False),
}  # fmt: skip


@pytest.mark.parametrize(("error", "expected"), BEGUN.values(), ids=BEGUN)
def test_a_library_that_the_failing_function_began_is_suspected(
    cloud: Cloud, error: Callable[[], BaseException], expected: bool
) -> None:
    assert hints_about_silence(cloud, [], error()) == (
        kept_away("kv_server", "queue") if expected else []
    )
