"""Libraries that intercept requests: which one raised an error, and which were active in a test."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

from .introspection import frames_of, root

if TYPE_CHECKING:
    from ...any_cloud import AnyCloud


@dataclass(frozen=True, slots=True)
class _Library:
    """A library that intercepts requests.

    ``errors`` are the modules and names of the errors that it raises, ``text`` is a part of their
    messages, and ``recipe`` explains how to let requests to fakes through. While the library is
    active, it replaces the ``patched`` names (pairs of module and name) with objects of its
    ``package``. ``begins`` are the names that activate it. ``blocks_all`` is True if it blocks all
    connections and its error may not contain an address.
    """

    name: str
    package: str
    errors: tuple[tuple[str, str], ...]
    recipe: str
    text: str = ""
    patched: tuple[tuple[str, str], ...] = ()
    begins: frozenset[str] = frozenset()
    blocks_all: bool = False


_LIBRARIES = (
    _Library(
        name="responses",
        package="responses",
        errors=(("requests.exceptions", "ConnectionError"),),
        text="Connection refused by Responses",
        recipe="let it through with responses.add_passthru({name}.url)",
        patched=(("requests.adapters", "HTTPAdapter.send"),),
        begins=frozenset({"activate", "mock", "RequestsMock", "start"}),
    ),
    _Library(
        name="respx",
        package="respx",
        errors=(("respx.models", "AllMockedAssertionError"),),
        recipe='let it through with respx.route(host="127.0.0.1").pass_through()',
        patched=(
            ("httpcore", "ConnectionPool.handle_request"),
            ("httpcore", "AsyncConnectionPool.handle_async_request"),
            ("httpx", "HTTPTransport.handle_request"),
        ),
        begins=frozenset({"mock", "MockRouter", "start"}),
    ),
    _Library(
        name="pytest-httpx",
        package="pytest_httpx",
        errors=(("httpx", "TimeoutException"),),
        text="No response can be found for",
        recipe="let it through with @pytest.mark.httpx_mock("
        'should_mock=lambda request: request.url.host != "127.0.0.1")',
        patched=(("httpx", "HTTPTransport.handle_request"),),
    ),
    _Library(
        name="requests-mock",
        package="requests_mock",
        errors=(("requests_mock.exceptions", "NoMockAddress"),),
        recipe="let it through with requests_mock.Mocker(real_http=True)",
        patched=(("requests", "Session.send"),),
        begins=frozenset({"Mocker", "mock"}),
    ),
    _Library(
        name="pook",
        package="pook",
        errors=(("pook.exceptions", "PookNoMatches"),),
        recipe="let it through with pook.use(network=True), or pook.enable_network()",
        patched=(("urllib3.connectionpool", "HTTPConnectionPool.urlopen"),),
        begins=frozenset({"activate", "on", "use"}),
    ),
    _Library(
        name="VCR.py",
        package="vcr",
        errors=(("vcr.errors", "CannotOverwriteExistingCassetteException"),),
        recipe="let it through with vcr.VCR(ignore_localhost=True)",
        patched=(("http.client", "HTTPConnection"),),
        begins=frozenset({"use_cassette", "VCR"}),
    ),
    _Library(
        name="pytest-socket",
        package="pytest_socket",
        errors=(("pytest_socket", "SocketBlockedError"),),
        recipe="allow loopback with @pytest.mark.enable_socket, or --allow-hosts=127.0.0.1 in place "
        "of --disable-socket",
        patched=(("socket", "socket"),),
        begins=frozenset({"disable_socket"}),
        blocks_all=True,
    ),
    _Library(
        name="pytest-socket",
        package="pytest_socket",
        errors=(("pytest_socket", "SocketConnectBlockedError"),),
        recipe="allow loopback with --allow-hosts=127.0.0.1, or "
        "@pytest.mark.allow_hosts(['127.0.0.1'])",
        blocks_all=True,
    ),
    _Library(
        name="pytest-recording (--block-network)",
        package="pytest_recording",
        errors=(("builtins", "RuntimeError"),),
        text="Network is disabled",
        recipe="allow loopback with --allowed-hosts=127.0.0.1, or "
        "@pytest.mark.block_network(allowed_hosts=['127.0.0.1'])",
        blocks_all=True,
    ),
)


def interception_hints(cloud: AnyCloud, error: BaseException) -> Iterator[str]:
    """Yield hints if a library raised the error because it intercepted a request to a fake."""
    kinds = {(kind.__module__, kind.__name__) for kind in type(error).__mro__}
    for library in _LIBRARIES:
        if kinds.isdisjoint(library.errors) or library.text not in str(error):
            continue
        address = f"{request_of(error)} {error}"
        addressed = [handle for handle in cloud.handles if handle.url in address]
        for handle in addressed:
            recipe = library.recipe.format(name=handle.name)
            yield f"{library.name} intercepted a request to {handle.name}: {recipe}"
        if not addressed and library.blocks_all and not _names_another_host(str(error)):
            yield f"{library.name} blocked the connection to the fakes: {library.recipe}"


def suspicion_hints(cloud: AnyCloud, error: BaseException | None) -> Iterator[str]:
    """Yield hints about libraries that are active, or were in the frames of the error, for each fake
    that received no request. The application may have caught a library's error.
    """
    frames = frames_of(error)
    for library in _LIBRARIES:
        if not _is_active(library) and not any(_activates(library, frame) for frame in frames):
            continue
        for handle in cloud.handles:
            if not len(handle.journal):
                recipe = library.recipe.format(name=handle.name)
                yield (
                    f"{handle.name} received no request; {library.name} was active in this test and "
                    f"may have intercepted it: {recipe}"
                )


def request_of(error: BaseException) -> str:
    """Return the address of the request that an error refers to; an empty string if there is none."""
    for carrier, name in (("failed_request", "uri"), ("request", "url")):
        # httpx raises an error if the attribute is not set; other libraries may too.
        with suppress(Exception):
            address = getattr(getattr(error, carrier, None), name, None)
            if address:
                return str(address)
    return ""


def _names_another_host(text: str) -> bool:
    return "host" in text and "127.0.0.1" not in text.partition("(allowed")[0]


def _is_active(library: _Library) -> bool:
    for module, name in library.patched:
        value: object = sys.modules.get(module)
        for part in name.split("."):
            value = inspect.getattr_static(value, part, None)
        if value is not None and root(value) == library.package:
            return True
    return False


def _activates(library: _Library, frame: FrameType) -> bool:
    """Return whether a function in a traceback belongs to the library or activates it."""
    home = frame.f_globals.get("__name__")
    if type(home) is str and home.partition(".")[0] == library.package:
        return True
    names = frame.f_code.co_names
    if library.begins.isdisjoint(names):
        return False
    known = {**frame.f_globals, **frame.f_locals}
    mentioned = (*names, *frame.f_code.co_varnames)
    return any(root(known[one]) == library.package for one in mentioned if one in known)
