"""Hints about requests that a library intercepted, or that a client sent to a closed fake."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from types import FrameType
from typing import NamedTuple
from urllib.parse import urlsplit

from ..cloud.base import BaseCloud, secrets_in
from ..cloud.fake import core_of, was_given
from ..cloud.services import named
from ..core.calls import Call
from ..http.hub import default_hub
from ..http.messages import bearer_token
from .inspection import attributes_of, chain, frames_of, locals_of, package_of, root

_CLIENTS = {"upstash_redis": "kv", "upstash_vector": "vector", "qstash": "queue"}
"""The packages of the official clients, with their services."""
_CONNECTION_ERRORS = {"builtins.OSError", "httpx.TransportError", "httpx2.TransportError"}
"""The base classes of the errors of clients that could not reach a server."""
FAKE_ADDRESS = re.compile(r"127\.0\.0\.1:(\d{4,5})|127\.0\.0\.1'?, port=(\d{4,5})")


def hints_about_error(cloud: BaseCloud, error: BaseException) -> list[str]:
    """Return hints about intercepted requests to a fake and about the addresses of closed fakes."""
    hints: list[str] = []
    for linked_error in chain(error):
        hints += [*_interception_hints(cloud, linked_error), *_tls_hints(cloud, linked_error)]
        if _CONNECTION_ERRORS & _kinds_of(linked_error):
            hints += _closed_fake_hints(cloud, f"{request_of(linked_error)} {linked_error}")
    return list(dict.fromkeys(hints))


def hints_about_silence(
    cloud: BaseCloud, names: Iterable[object], error: BaseException | None = None
) -> list[str]:
    """Return hints about what may have intercepted requests to the fakes that received no call.

    ``names`` are the values in the test's module; lazy objects among them are not evaluated.
    """
    uncalled = [fake for fake in cloud.fakes() if not len(fake.journal)]
    hints = []
    values, frames = [*names, *locals_of(error)], frames_of(error)
    if len(uncalled) == len(cloud.fakes()):
        hints = _unconnected_clients(cloud, values)
    # The application may have caught the errors of an active library.
    suspects = [
        library
        for library in _LIBRARIES
        if _is_active(library)
        or (not library.client and any(_activates(library, frame) for frame in frames))
    ]
    for library in _most_specific(suspects, {package_of(frame) for frame in frames}):
        for fake in uncalled:
            recipe = library.recipe.format(name=fake.name)
            hints.append(
                f"{fake.name} received no request; {library.name} was active in this test and "
                f"may have intercepted it: {recipe}"
            )
    return hints


def old_token_hints(cloud: BaseCloud) -> list[str]:
    """Explain requests from a client that still uses the token of a fake from an earlier test."""
    own = secrets_in(cloud)
    for call in cloud.journal.entries:
        if not isinstance(call, Call) or call.status != 401:
            continue
        token = bearer_token(call.request_headers.get("Authorization"))
        if token is not None and token not in own and was_given(token):
            return _fakes_that_stay(
                cloud, f"a client called {call.fake} with the token of a fake that is closed"
            )
    return []


# -- libraries -------------------------------------------------------------------------------------


class _Library(NamedTuple):
    """A library that intercepts requests."""

    name: str
    package: str
    """The package of the objects that it puts in the place of others."""
    error: str
    """The module and the name of the error that it raises."""
    recipe: str
    """How to let requests to fakes through."""
    text: str = ""
    """A part of the error's message."""
    patched: tuple[str, ...] = ()
    """Objects (``module:name``) that are of its package while it is active."""
    begins: str = ""
    """The names that activate it, separated by spaces."""
    blocks_all: bool = False
    """Whether it blocks all connections, with errors that may not contain an address."""
    client: str = ""
    """The package of the only client whose requests it intercepts, with the objects and the error of
    another library."""


_LIBRARIES = (
    _Library("responses", "responses", "requests.exceptions.ConnectionError",
             "let it through with responses.add_passthru({name}.url)",
             "Connection refused by Responses", ("requests.adapters:HTTPAdapter.send",),
             "activate mock RequestsMock start"),
    _Library("respx", "respx", "respx.models.AllMockedAssertionError",
             'let it through with respx.route(host="127.0.0.1").pass_through()',
             patched=("httpcore:ConnectionPool.handle_request",
                      "httpcore:AsyncConnectionPool.handle_async_request",
                      "httpx:HTTPTransport.handle_request"),
             begins="mock MockRouter start"),
    _Library("pytest-httpx2", "respx", "respx.models.AllMockedAssertionError",
             'let it through with httpx2_mock.route(host="127.0.0.1").pass_through()',
             patched=("httpcore2:ConnectionPool.handle_request",), client="httpx2"),
    _Library("httpx2-pytest", "pytest_httpx2", "httpx2.TimeoutException",
             "let it through with @pytest.mark.httpx2_mock("
             'should_mock=lambda request: request.url.host != "127.0.0.1")',
             "No response can be found for", ("httpx2:HTTPTransport.handle_request",)),
    _Library("pytest-httpx", "pytest_httpx", "httpx.TimeoutException",
             "let it through with @pytest.mark.httpx_mock("
             'should_mock=lambda request: request.url.host != "127.0.0.1")',
             "No response can be found for", ("httpx:HTTPTransport.handle_request",)),
    _Library("requests-mock", "requests_mock", "requests_mock.exceptions.NoMockAddress",
             "let it through with requests_mock.Mocker(real_http=True)",
             patched=("requests:Session.send",), begins="Mocker mock"),
    _Library("pook", "pook", "pook.exceptions.PookNoMatches",
             "let it through with pook.use(network=True), or pook.enable_network()",
             patched=("urllib3.connectionpool:HTTPConnectionPool.urlopen",), begins="activate on use"),
    _Library("VCR.py", "vcr", "vcr.errors.CannotOverwriteExistingCassetteException",
             "let it through with vcr.VCR(ignore_localhost=True)",
             patched=("http.client:HTTPConnection",), begins="use_cassette VCR"),
    _Library("pytest-socket", "pytest_socket", "pytest_socket.SocketBlockedError",
             "allow loopback with @pytest.mark.enable_socket, or --allow-hosts=127.0.0.1 in place of "
             "--disable-socket",
             patched=("socket:socket",), begins="disable_socket", blocks_all=True),
    _Library("pytest-socket", "pytest_socket", "pytest_socket.SocketConnectBlockedError",
             "allow loopback with --allow-hosts=127.0.0.1, or @pytest.mark.allow_hosts(['127.0.0.1'])",
             blocks_all=True),
    _Library("pytest-recording (--block-network)", "pytest_recording", "builtins.RuntimeError",
             "allow loopback with --allowed-hosts=127.0.0.1, or "
             "@pytest.mark.block_network(allowed_hosts=['127.0.0.1'])",
             "Network is disabled", blocks_all=True),
)  # fmt: skip


def _interception_hints(cloud: BaseCloud, error: BaseException) -> Iterator[str]:
    """Yield hints if a library raised the error because it intercepted a request to a fake."""
    kinds, clients = _kinds_of(error), {package_of(frame) for frame in frames_of(error)}
    raising = [
        library
        for library in _LIBRARIES
        if library.error in kinds
        and library.text in str(error)
        and (not library.client or (library.client in clients and _is_active(library)))
    ]
    for library in _most_specific(raising, clients):
        address = f"{request_of(error)} {error}"
        addressed = [fake for fake in cloud.fakes() if fake.url in address]
        for fake in addressed:
            recipe = library.recipe.format(name=fake.name)
            yield f"{library.name} intercepted a request to {fake.name}: {recipe}"
        # '… connect() with host "10.0.0.1" (allowed: "127.0.0.1")' is about another host.
        text = str(error)
        is_other = "host" in text and "127.0.0.1" not in text.partition("(allowed")[0]
        if not addressed and library.blocks_all and not is_other:
            yield f"{library.name} blocked the connection to the fakes: {library.recipe}"


def _most_specific(libraries: Sequence[_Library], clients: Set[str]) -> Iterator[_Library]:
    """Yield libraries without those with the same error as a library for one of the clients."""
    specific = {library.error for library in libraries if library.client in clients}
    for library in libraries:
        if library.client or library.error not in specific:
            yield library


def _kinds_of(error: BaseException) -> set[str]:
    """Return the modules and names of an error's class and of its base classes."""
    return {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}


_WRONG_SCHEME = re.compile(
    r"WRONG_VERSION_NUMBER|wrong version number|record layer failure|RECORD_LAYER_FAILURE"
    r"|UNEXPECTED_EOF|unexpected eof|EOF occurred in violation|packet length too long"
)
"""Messages of OpenSSL about a server that does not use TLS."""
_UNTRUSTED = re.compile(r"CERTIFICATE_VERIFY_FAILED|certificate verify failed", re.IGNORECASE)
_CUT = re.compile(
    r"Connection aborted|Connection closed by server|Connection reset|disconnected without|RemoteDisc"
    r"|BadStatusLine|Server disconnected|Broken pipe"
)
"""Messages of clients whose connection a server has closed instead of answering."""


def _tls_hints(cloud: BaseCloud, error: BaseException) -> Iterator[str]:
    """Yield hints about a client that uses TLS with a plain fake, or no TLS with a fake that has it."""
    text, request = str(error), request_of(error)
    ports = {str(mount.port) for fake in cloud.fakes() for mount in core_of(fake).mounts}
    if ports.isdisjoint(re.findall(r"\d+", f"{request} {text}")):
        return  # It is about another server.
    if _UNTRUSTED.search(text) and cloud.authority is not None:
        yield (
            "a client does not trust the certificate of a fake with TLS: create it after the variables "
            "of the fixture fakecloud_env are set, or pass it fakecloud.authority.ca_file (Redis: "
            "ssl_ca_certs=, httpx: verify=fakecloud.authority.client_context())"
        )
    elif _WRONG_SCHEME.search(text) and cloud.authority is None:
        yield (
            "a client used TLS (https:// or rediss://) with a fake that serves without it: use the url "
            "or the database_url of the fake, or start it with @pytest.mark.fakecloud(tls=True)"
        )
    # A Redis client's error does not show whether it used TLS, so no call may have arrived.
    elif (_CUT.search(text) and cloud.authority is not None) and (
        request.startswith("http:") or not (request or cloud.journal.calls())
    ):
        yield (
            "a client used no TLS (http:// or redis://) with a fake that serves TLS: use the url or the "
            "database_url of the fake, which begin with https:// and rediss://"
        )


def request_of(error: BaseException) -> str:
    """Return the address of the request that an error refers to; empty if there is none."""
    for carrier, name in (("failed_request", "uri"), ("request", "url")):
        # httpx raises an error if the attribute is not set; other libraries may too.
        with suppress(Exception):
            address = getattr(getattr(error, carrier, None), name, None)
            if address:
                return str(address)
    return ""


def _is_active(library: _Library) -> bool:
    for path in library.patched:
        module, _, name = path.partition(":")
        value: object = sys.modules.get(module)
        for part in name.split("."):
            value = inspect.getattr_static(value, part, None)
        if value is not None and root(value) == library.package:
            return True
    return False


def _activates(library: _Library, frame: FrameType) -> bool:
    """Return whether a function in a traceback belongs to the library or activates it."""
    if package_of(frame) == library.package:
        return True
    names = frame.f_code.co_names
    if not set(library.begins.split()) & set(names):
        return False
    values_by_name = {**frame.f_globals, **frame.f_locals}
    mentioned = (*names, *frame.f_code.co_varnames)
    return any(
        root(values_by_name[name]) == library.package
        for name in mentioned
        if name in values_by_name
    )


# -- clients ---------------------------------------------------------------------------------------


def _closed_fake_hints(cloud: BaseCloud, address: str) -> list[str]:
    """Explain a client that used the address of an earlier test's fake."""
    match = FAKE_ADDRESS.search(address)
    port = int(match[1] or match[2]) if match else 0
    for fake in cloud.fakes() if match and "://" in address else ():
        if urlsplit(getattr(fake, "database_url", "")).port == port:
            return [
                f"an HTTP client called 127.0.0.1:{port}, which is {fake.name}.database_url and "
                f"speaks the Redis protocol: give the client {fake.name}.url"
            ]
    is_open = any(fake.url.endswith(f":{port}") for fake in cloud.fakes())
    if is_open or not default_hub().ports.has_given(port):
        return []
    return _fakes_that_stay(
        cloud, f"a client called 127.0.0.1:{port}, the address of a fake that is closed"
    )


def _fakes_that_stay(cloud: BaseCloud, what: str) -> list[str]:
    names = " ".join(dict.fromkeys(fake.fixture for fake in cloud.fakes()))
    return [
        f"{what}, for example an earlier test's. An application that creates its client once needs "
        "fakes that last; in pytest.ini:",
        "    [pytest]",
        "    fakecloud_scope = session",
        f"    fakecloud_early = {names}",
    ]


def _unconnected_clients(cloud: BaseCloud, values: Iterable[object]) -> list[str]:
    """Explain the test's official clients if none of them uses the address of a fake."""
    urls = tuple(fake.url for fake in cloud.fakes())
    hints = []
    for (package, address), client in _clients(values).items():
        if address.startswith(urls):
            return []
        if _CLIENTS[package] not in [fake.service for fake in cloud.fakes()]:
            continue
        hints += _closed_fake_hints(cloud, address) or [
            f"the test has {type(client).__name__} of {package} "
            f"for {address}, which is not the address of a fake: the fixture fakecloud_env "
            "(or fakecloud_env = true in pytest.ini) sets the variables such a client reads, before "
            "the application makes it"
        ]
    return list(dict.fromkeys(hints))


def official_clients(errors: Iterable[BaseException]) -> Iterator[tuple[str, str, str]]:
    """Yield the package, the address and the fixture of official clients whose calls raised errors."""
    for error in errors:
        packages = {package_of(frame) for frame in frames_of(error)}
        for package, address in _clients(locals_of(error)):
            if package in packages and (fixture := fixture_of_client(package)):
                yield package, address, fixture


def fixture_of_client(package: str) -> str:
    """Return the fixture of the service whose official client a package is; empty for others."""
    service = named(_CLIENTS.get(package, ""))
    return "" if service is None else service.fixture


def _clients(values: Iterable[object]) -> dict[tuple[str, str], object]:
    """Return the official clients among values and their attributes, by package and address."""
    clients: dict[tuple[str, str], object] = {}
    for candidate in (part for value in values for part in (value, *attributes_of(value).values())):
        package = root(type(candidate))
        if package in _CLIENTS and (url := _url_of(candidate)):
            clients.setdefault((package, url), candidate)
    return clients


def _url_of(client: object) -> str:
    """Return the first URL among the attributes of a client and of its parts; empty without one."""
    parts = list(attributes_of(client).values())
    for attribute in (*parts, *(value for part in parts for value in attributes_of(part).values())):
        if isinstance(attribute, str) and attribute.startswith(("http://", "https://")):
            return attribute
    return ""
