"""Hints about requests that did not reach their fake: what intercepted them, or where they were
sent.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from ..core.auth import bearer_token
from ..handle import closed_fakes_of, secrets_of, was_given
from ..http.hub import default_hub
from .masking import Mask

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud


@dataclass(frozen=True, slots=True)
class _Library:
    """A library that intercepts requests.

    ``error`` is the module and name of the error that it raises, ``text`` a part of its message,
    and ``recipe`` explains how to let requests to fakes through. While the library is active, it
    replaces the ``patched`` names (pairs of module and name) with objects of its ``package``.
    ``begins`` are the names that activate it. ``blocks_all`` is True if it blocks all connections
    and its error may not contain an address.
    """

    name: str
    package: str
    error: tuple[str, str]
    text: str
    recipe: str
    patched: tuple[tuple[str, str], ...] = ()
    begins: frozenset[str] = frozenset()
    blocks_all: bool = False


_LIBRARIES = (
    _Library(
        "responses",
        "responses",
        ("requests.exceptions", "ConnectionError"),
        "Connection refused by Responses",
        "let it through with responses.add_passthru({name}.url)",
        (("requests.adapters", "HTTPAdapter.send"),),
        frozenset({"activate", "mock", "RequestsMock", "start"}),
    ),
    _Library(
        "respx",
        "respx",
        ("respx.models", "AllMockedAssertionError"),
        "",
        'let it through with respx.route(host="127.0.0.1").pass_through()',
        (
            ("httpcore", "ConnectionPool.handle_request"),
            ("httpcore", "AsyncConnectionPool.handle_async_request"),
            ("httpx", "HTTPTransport.handle_request"),
        ),
        frozenset({"mock", "MockRouter", "start"}),
    ),
    _Library(
        "pytest-httpx",
        "pytest_httpx",
        ("httpx", "TimeoutException"),
        "No response can be found for",
        "let it through with @pytest.mark.httpx_mock("
        'should_mock=lambda request: request.url.host != "127.0.0.1")',
        (("httpx", "HTTPTransport.handle_request"),),
    ),
    _Library(
        "requests-mock",
        "requests_mock",
        ("requests_mock.exceptions", "NoMockAddress"),
        "",
        "let it through with requests_mock.Mocker(real_http=True)",
        (("requests", "Session.send"),),
        frozenset({"Mocker", "mock"}),
    ),
    _Library(
        "pook",
        "pook",
        ("pook.exceptions", "PookNoMatches"),
        "",
        "let it through with pook.use(network=True), or pook.enable_network()",
        (("urllib3.connectionpool", "HTTPConnectionPool.urlopen"),),
        frozenset({"activate", "on", "use"}),
    ),
    _Library(
        "VCR.py",
        "vcr",
        ("vcr.errors", "CannotOverwriteExistingCassetteException"),
        "",
        "let it through with vcr.VCR(ignore_localhost=True)",
        (("http.client", "HTTPConnection"),),
        frozenset({"use_cassette", "VCR"}),
    ),
    _Library(
        "pytest-socket",
        "pytest_socket",
        ("pytest_socket", "SocketBlockedError"),
        "",
        "allow loopback with @pytest.mark.enable_socket, or --allow-hosts=127.0.0.1 in place of "
        "--disable-socket",
        (("socket", "socket"),),
        frozenset({"disable_socket"}),
        blocks_all=True,
    ),
    _Library(
        "pytest-recording (--block-network)",
        "pytest_recording",
        ("builtins", "RuntimeError"),
        "Network is disabled",
        "allow loopback with --allowed-hosts=127.0.0.1, or "
        "@pytest.mark.block_network(allowed_hosts=['127.0.0.1'])",
        blocks_all=True,
    ),
    _Library(
        "pytest-socket",
        "pytest_socket",
        ("pytest_socket", "SocketConnectBlockedError"),
        "",
        "allow loopback with --allow-hosts=127.0.0.1, or @pytest.mark.allow_hosts(['127.0.0.1'])",
        blocks_all=True,
    ),
)


_CLIENTS = {"upstash_redis": "kv", "upstash_vector": "vector", "qstash": "queue"}
"""The packages of the official clients, with their services."""
_PLACE = re.compile(r"127\.0\.0\.1:(\d{4,5})|127\.0\.0\.1'?, port=(\d{4,5})")
_READERS = {"environ", "environ.get", "getenv"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SCHEMES = {"redis", "rediss", "http", "https"}
_MODULES = 300
"""Maximum number of modules whose source is searched for environment variables."""
_MOST = 8
"""Maximum number of variables that a hint names."""
_UNCONNECTED = re.compile(r"\b(?:Connect\w*Error|Connection refused)\b")
_CAUSE, _CONTEXT, _ARGS = (
    vars(BaseException)[name].__get__ for name in ("__cause__", "__context__", "args")
)
_EXCEPTIONS = vars(BaseExceptionGroup)["exceptions"].__get__


def hints(cloud: AnyCloud, error: BaseException) -> list[str]:
    """Return hints that name the library which intercepted a request to a fake, and say how to let
    requests through.
    """
    found = []
    for one in chain(error):
        kinds = {(kind.__module__, kind.__name__) for kind in type(one).__mro__}
        for library in _LIBRARIES:
            if library.error not in kinds or library.text not in str(one):
                continue
            seen = f"{_request_of(one)} {one}"
            named = [handle for handle in cloud.handles if handle.url in seen]
            for handle in named:
                recipe = library.recipe.format(name=handle.name)
                found.append(f"{library.name} intercepted a request to {handle.name}: {recipe}")
            if not named and library.blocks_all and not _elsewhere(str(one)):
                found.append(
                    f"{library.name} blocked the connection to the fakes: {library.recipe}"
                )
        if issubclass(type(one), OSError | _errors("httpx", "TransportError")):
            found += _of_earlier(cloud, f"{_request_of(one)} {one}")
    return list(dict.fromkeys(found))


def _errors(module: str, name: str) -> type[BaseException]:
    return getattr(sys.modules.get(module), name, OSError)


def _of_earlier(cloud: AnyCloud, address: str) -> list[str]:
    """Explain a client that used the address of an earlier test's fake."""
    found = _PLACE.search(address)
    port = int(found[1] or found[2]) if found else 0
    if not default_hub().ports.has_given(port):
        return []
    if any(handle.url.endswith(f":{port}") for handle in cloud.handles):
        return []
    return _fakes_that_stay(
        cloud, f"a client called 127.0.0.1:{port}, the address of a fake that is closed"
    )


def _fakes_that_stay(cloud: AnyCloud, what: str) -> list[str]:
    names = " ".join(dict.fromkeys(handle.fixture for handle in cloud.handles))
    return [
        f"{what}, for example an earlier test's. An application that creates its client once needs "
        "fakes that last; in pytest.ini:",
        "    [pytest]",
        "    fakecloud_scope = session",
        f"    fakecloud_early = {names}",
    ]


def strangers(cloud: AnyCloud) -> list[str]:
    """Explain requests from a client that still uses the token of a fake from an earlier test."""
    own = closed_fakes_of(cloud).secrets.union(*(secrets_of(handle) for handle in cloud.handles))
    for call in cloud.journal.calls():
        token = bearer_token(call.headers.get("Authorization")) if call.status == 401 else None
        if token is not None and token not in own and was_given(token):
            return _fakes_that_stay(
                cloud, f"a client called {call.handle} with the token of a fake that is closed"
            )
    return []


def _unconnected(
    cloud: AnyCloud, names: Iterable[object], error: BaseException | None
) -> list[str]:
    """Explain the test's official clients that use other addresses, unless a client uses the
    address of a fake.
    """
    urls = [handle.url for handle in cloud.handles]
    found = []
    for (package, address), client in _clients([*names, *locals_of(error)]).items():
        if any(address.startswith(url) for url in urls):
            return []
        if _CLIENTS[package] not in [handle.service for handle in cloud.handles]:
            continue
        found += _of_earlier(cloud, address) or [
            f"the test has {type(client).__name__} of {package} "
            f"for {address}, which is not the address of a fake: the fixture fakecloud_env "
            "(or fakecloud_env = true in pytest.ini) sets the variables such a client reads, before "
            "the application makes it"
        ]
    return list(dict.fromkeys(found))


def _clients(values: Iterable[object]) -> dict[tuple[str, str], object]:
    """Return the official clients among the given values and their attributes, by package and
    address. A client that is a part of another one is left out.
    """
    found: dict[tuple[str, str], object] = {}
    for value in values:
        for one in (value, *_attributes(value).values()):
            if (package := root(type(one))) in _CLIENTS:
                parts = list(_attributes(one).values())
                parts += [each for part in parts for each in _attributes(part).values()]
                texts = [each for each in parts if isinstance(each, str)]
                urls = [text for text in texts if text.startswith(("http://", "https://"))]
                if urls:
                    found.setdefault((package, urls[0]), one)
    return found


def _attributes(value: object) -> dict[str, object]:
    """Return the attributes of an object without running its code, so that lazy objects are not
    evaluated.
    """
    if issubclass(type(value), type | ModuleType):
        return {}
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if type(found) is dict else {}


def locals_of(error: BaseException | None) -> list[object]:
    return [value for frame in frames_of(error) for value in frame.f_locals.values()]


def frames_of(error: BaseException | None) -> list[FrameType]:
    return [frame for frame, _ in walk_tb(None if error is None else error.__traceback__)]


def suspicions(
    cloud: AnyCloud, names: Iterable[object], error: BaseException | None = None
) -> list[str]:
    """Return hints about what may have intercepted requests to the fakes that received no call.

    The application may have caught a library's error, so name every library that is active now or
    was during the test. ``names`` are the values in the test's module. They are not inspected by
    running their code, so lazy objects (Django's ``SimpleLazyObject``, werkzeug's ``LocalProxy``)
    are not evaluated.
    """
    silent = [handle for handle in cloud.handles if not len(handle.journal)]
    if not silent:
        return []
    found: list[str] = []
    if len(silent) == len(cloud.handles):
        found += _unconnected(cloud, names, error)
    frames = frames_of(error)
    for library in _LIBRARIES:
        if _is_active(library) or any(_began(library, frame) for frame in frames):
            for handle in silent:
                recipe = library.recipe.format(name=handle.name)
                found.append(
                    f"{handle.name} received no request; {library.name} was active in this test and "
                    f"may have intercepted it: {recipe}"
                )
    return found


def _is_active(library: _Library) -> bool:
    for module, name in library.patched:
        value: object = sys.modules.get(module)
        for part in name.split("."):
            value = inspect.getattr_static(value, part, None)
        if value is not None and root(value) == library.package:
            return True
    return False


def _began(library: _Library, frame: FrameType) -> bool:
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


def root(value: Any) -> str:
    """Return the package that defines a module, a function or a value's class, without running its
    code.
    """
    kind = type(value)
    name: object
    if issubclass(kind, ModuleType):
        name = inspect.getattr_static(value, "__name__", None)
    elif kind is MethodType:
        return root(value.__self__)
    elif kind is FunctionType or kind is BuiltinFunctionType:
        name = value.__module__
    else:
        name = inspect.getattr_static(value, "__module__", None)
    return name.partition(".")[0] if type(name) is str else ""


def _request_of(error: BaseException) -> str:
    """Return the address of the request that an error refers to; an empty string if there is none."""
    for carrier, name in (("failed_request", "uri"), ("request", "url")):
        # httpx raises an error if the attribute is not set; other libraries may too.
        with suppress(Exception):
            address = getattr(getattr(error, carrier, None), name, None)
            if address:
                return str(address)
    return ""


def _elsewhere(text: str) -> bool:
    return "host" in text and "127.0.0.1" not in text.partition("(allowed")[0]


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes and contexts, and the errors in its arguments and groups,
    recursively.
    """
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        # Read the attributes through the built-in classes, because subclasses may override them.
        linked = [_CAUSE(one), _CONTEXT(one), *_ARGS(one)]
        if issubclass(type(one), BaseExceptionGroup):
            linked += _EXCEPTIONS(one)
        waiting += [each for each in linked if issubclass(type(each), BaseException)]


def unread_variables(cloud: AnyCloud, fixtures: Iterable[str], log: str) -> list[str]:
    """Explain a test that uses ``fakecloud_env`` and whose fakes received no request."""
    if "fakecloud_env" not in fixtures or cloud.journal.entries:
        return []
    own, found = sorted(cloud.env), []
    families = tuple({name.partition("_")[0] + "_" for name in own})
    places = {place[0] for url in cloud.env.values() if (place := _PLACE.search(url))}
    for at, name, default, early in _variables_read():
        address = default if default.partition("://")[0] in _SCHEMES else ""
        if name in cloud.env:
            found += [f"    {at} reads {name} when it is imported"] if early else []
            continue
        value, near = os.environ.get(name), difflib.get_close_matches(name, own, 1, 0)
        instead = "".join(f"; fakecloud_env sets {one}" for one in near)
        if value is None and (name.startswith(families) or address):
            used = f" (so its default {Mask().text(address)} is used)" if address else ""
            found.append(f"    {at} reads {name}, which is not set{used}{instead}")
        elif (
            value
            and value.partition("://")[0] in _SCHEMES
            and not any(one in value for one in places)
        ):
            found.append(f"    {at} reads {name}, which is set to another address{instead}")
    failed = _UNCONNECTED.search(log)
    if found:
        return ["no fake received a request:", *found[:_MOST]]
    log_has = f"; the log has {failed[0]}" if failed else ""
    return [
        f"no fake received a request{log_has}; the application may read other variables than "
        "fakecloud_env sets:",
        f"    {', '.join(own)}",
    ]


def _variables_read() -> Iterator[tuple[str, str, str, bool]]:
    """Yield the environment variables that modules below the working directory read.

    Each is a tuple of its location in the source, the name, the default if it is a string, and
    whether the module reads the variable while it is imported. Only ``os.environ`` and
    ``os.getenv()`` with a literal name are recognised.
    """
    here = Path.cwd()
    files = {file for module in tuple(sys.modules.values())
             if type(file := getattr(module, "__file__", None)) is str and file.endswith(".py")
             and Path(file).is_relative_to(here) and not file.startswith(sys.prefix)}  # fmt: skip
    for file in sorted(files)[:_MODULES]:
        try:
            tree = ast.parse(Path(file).read_bytes())
        except (OSError, ValueError, SyntaxError):
            continue
        inside = {id(node) for one in ast.walk(tree) if isinstance(one, _FUNCTIONS)
                  for part in (one.body if isinstance(one.body, list) else [one.body])
                  for node in ast.walk(part)}  # fmt: skip
        for node in ast.walk(tree):
            if isinstance(node, ast.Subscript):
                reader, given = ast.unparse(node.value), [node.slice]
            elif isinstance(node, ast.Call):
                reader, given = ast.unparse(node.func), node.args[:2]
            else:
                continue
            texts = [str(one.value) if isinstance(one, ast.Constant) else "" for one in given]
            if reader.rpartition("os.")[2] in _READERS and texts and texts[0]:
                at = f"{Path(file).relative_to(here)}:{node.lineno}"
                yield at, texts[0], (texts[1:] or [""])[0], id(node) not in inside
