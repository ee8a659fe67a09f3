"""Clouds in a stand-alone server, with the same handles as local clouds: ``Cloud.connect(url)``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Unpack, cast
from urllib.parse import parse_qs, urlsplit

from ..any_cloud import AnyCloud
from ..core.clock import Clock, Mode
from ..core.concurrency.aio import Twin
from ..core.errors import ContractError
from ..core.found import Found
from ..core.problems import ProblemFields
from ..core.timeparse import Instant, instant_us, to_datetime
from ..core.wording import unknown_name
from ..handle import ClosedFakes, Handle, found_handles
from ..services import SERVICES, find, handle_class
from .codec import decode, decode_error, encode
from .control.requests import PREFIX
from .environment import TOKEN_VARIABLE
from .wire import Surface, surface_named, surface_of

if TYPE_CHECKING:
    from ..core.journal import Journal
    from ..core.problems import Problem

# Attributes of a remote handle that run in this process, with data from the server.
_LOCAL = frozenset({"client", "async_client"})
_IN_PROCESS_ONLY = {
    "intercept": "requests of this process cannot be redirected by another process",
    "between": "a function cannot be sent to another process",
    "on_close": "a function cannot be sent to another process",
}


CONNECTS_WITHIN = 10.0
ANSWERS_WITHIN = 60.0
CALLS_TAKE_AT_MOST = 600.0
"""Time limits in real seconds, after which an unresponsive server is assumed to hang. A call of a
handle may move the clock through days of deliveries, so it has a longer limit, plus its own
``timeout=``.
"""


class Connection:
    """A connection to a control API, through which remote objects are used."""

    def __init__(self, url: str, token: str) -> None:
        import urllib3

        self.url = url.rstrip("/")
        self.closed = False
        self.exits = ExitStack()
        """Closes the clients that handles created, when this connection is closed."""
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._pool = urllib3.PoolManager(retries=False, maxsize=8)

    def use(
        self,
        target: int | str | None,
        name: str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        get: bool = False,
    ) -> Any:
        """Call a method of a remote object, or read a field of it."""
        body: dict[str, Any] = {"object": target, "name": name, "get": get}
        body["args"] = [
            self.encoded(arg, f"argument {place} of {name}()") for place, arg in enumerate(args, 1)
        ]
        body["kwargs"] = {
            key: self.encoded(value, f"{key}= of {name}()") for key, value in (kwargs or {}).items()
        }
        answer = self.request("POST", "/call", body, CALLS_TAKE_AT_MOST + _timeout(kwargs))
        with self._understood():
            error = decode_error(answer["raise"]) if "raise" in answer else None
            value = None if error is not None else decode(answer["value"], self.refer)
        if error is not None:
            raise error
        return value

    def encoded(self, value: Any, where: str) -> Any:
        """Return the JSON form of an argument; ``where`` describes it in errors."""
        if not isinstance(value, RemoteObject):
            return encode(value, None, where)
        if value._connection.url != self.url:
            raise ContractError(
                f"{where} is {value!r} of another server ({value._connection.url}): pass an object "
                f"of {self.url}"
            )
        return {"$": "object", "id": value._number, "c": "", "repr": ""}

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Convert errors caused by an unexpected response to ``ContractError``."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ContractError(
                f"{self.url} returned an unexpected response ({type(error).__name__}: {error}): "
                "it is not a control API of pytest-fakecloud, or has another version"
            ) from error

    def refer(self, number: int, class_name: str, text: str) -> RemoteObject:
        """Return the local proxy of an object that stays on the server."""
        return RemoteObject(self, number, class_name, text)

    def request(
        self, method: str, path: str, body: Any = None, within: float | None = None
    ) -> dict[str, Any]:
        """Send a request whose response is a JSON object; errors raise ``ContractError``."""
        content = self.ask(method, path, body, within)
        if not isinstance(content, dict):
            raise ContractError(f"{self.url} is not a control API: it returned {content!r:.100}")
        return content

    def ask(self, method: str, path: str, body: Any = None, within: float | None = None) -> Any:
        """Send a request and return the JSON of its response; errors raise ``ContractError``."""
        import urllib3

        if self.closed:
            raise ContractError(
                f"this connection to {self.url} is closed: make a new one with Cloud.connect(url)"
            )
        within = ANSWERS_WITHIN if within is None else within
        try:
            answer = self._pool.request(
                method,
                f"{self.url}{PREFIX}{path}",
                body=None if body is None else json.dumps(body).encode(),
                headers=self._headers,
                timeout=urllib3.Timeout(connect=CONNECTS_WITHIN, read=within),
            )
        except urllib3.exceptions.ReadTimeoutError as error:
            raise ContractError(
                f"{self.url} did not answer {method} {path} within {within:g} s: "
                "it hangs, or is another kind of server"
            ) from error
        except urllib3.exceptions.SSLError as error:
            raise ContractError(
                f"the TLS connection to {self.url} failed ({error}): set SSL_CERT_FILE to the file "
                "in the variables that the server prints, or pass its URL with http:// if it was "
                "started without --tls"
            ) from error
        except urllib3.exceptions.HTTPError as error:
            raise ContractError(
                f"no stand-alone server responds at {self.url} ({error}); "
                "start one with: pytest-fakecloud serve"
            ) from error
        try:
            content = json.loads(answer.data)
        except (ValueError, RecursionError):
            raise ContractError(
                f"{self.url} is not a control API: its response is not JSON"
            ) from None
        if answer.status >= 400:
            if not isinstance(content, dict):
                raise ContractError(
                    f"{self.url} is not a control API: it returned {content!r:.100}"
                )
            message = content.get("error", content)
            text = message.get("message", message) if isinstance(message, dict) else message
            raise ContractError(f"{self.url} rejected {method} {path}: {text}")
        return content

    def state(self) -> dict[str, Any]:
        """Return the server's summary: ``seed``, and ``handles`` with name and fixture."""
        state = self.request("GET", "/state")
        with self._understood():
            if not isinstance(state["seed"], int | str):
                raise TypeError(f"seed is {state['seed']!r}")
            for one in state["handles"]:
                one["name"], one["fixture"]
        return state

    def close(self) -> None:
        """Close the connections, and the clients that handles created."""
        self.exits.close()
        self.closed = True
        self._pool.clear()


def _timeout(kwargs: Mapping[str, Any] | None) -> float:
    given = (kwargs or {}).get("timeout")
    return float(given) if isinstance(given, int | float) and 0 < given < 1e9 else 0.0


class RemoteObject:
    """Local proxy of an object that stays on the server. It forwards field reads and method calls."""

    def __init__(
        self, connection: Connection, number: int | str | None, class_name: str, text: str
    ) -> None:
        self._connection = connection
        self._number = number
        self._text = text
        self._surface = surface_named(class_name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _member(self._connection, self._number, self._surface, name, self)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise _cannot_set(self, name)
        object.__setattr__(self, name, value)

    def _follow(self, protocol: str, *args: Any) -> Any:
        if self._surface is None or protocol not in self._surface.protocols:
            kind = "" if self._surface is None else self._surface.kind.__name__
            word = protocol.strip("_")
            raise TypeError(f"object of type {kind!r} has no {word}() over a stand-alone server")
        return self._connection.use(self._number, protocol, args)

    def __enter__(self) -> Any:
        found = self._follow("__enter__")
        return self if isinstance(found, RemoteObject) and found == self else found

    def __exit__(self, *exc: object) -> None:
        self._follow("__exit__", None, None, None)

    def __len__(self) -> int:
        return int(self._follow("__len__"))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._follow("__iter__"))

    def __contains__(self, item: object) -> bool:
        return any(one == item for one in self)

    def __getitem__(self, index: Any) -> Any:
        return self._follow("__getitem__", index)

    def __bool__(self) -> bool:
        # Most objects are only compared with None, so send a request only if the object can be
        # false.
        if self._surface is not None and "__bool__" in self._surface.protocols:
            return bool(self._follow("__bool__"))
        return True

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RemoteObject):
            return other._identity() == self._identity()
        if isinstance(other, list | tuple):
            return list(self) == list(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, int | str | None]:
        return self._connection.url, self._number

    def __repr__(self) -> str:
        return self._text


def _cannot_set(owner: object, name: str) -> ContractError:
    return ContractError(
        f"{name} of {owner!r} cannot be set from this process: it is on the server. Set it when "
        "the server or the fake starts, or use fakes in the test's own process"
    )


def _member(
    connection: Connection,
    number: int | str | None,
    surface: Surface | None,
    name: str,
    owner: object,
) -> Any:
    """Return a field's value, or a method; raise ``AttributeError`` for a name that remote clients
    may not use.
    """
    if surface is not None:
        if name == "aio":
            return Twin(owner, surface.methods)
        if name in surface.methods:
            return _method(connection, number, name)
        if name in surface.fields:
            return connection.use(number, name, get=True)
    offered = () if surface is None else surface.names
    noun = f"attribute of {owner!r} over a stand-alone server"
    raise AttributeError(unknown_name(noun, name, offered))


def _method(connection: Connection, number: int | str | None, name: str) -> Callable[..., Any]:
    def remote(*args: Any, **kwargs: Any) -> Any:
        return connection.use(number, name, args, kwargs)

    remote.__name__ = name
    return remote


class _RemoteHandle:
    """Mixin for handle classes that forwards attribute access to the fake on the server."""

    _connection: Connection
    _remote_name: str
    _made: ClassVar[dict[type, type]] = {}
    _handle_class: ClassVar[type[Handle]]

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name in _LOCAL or name in ("service", "fixture", "closed"):
            return object.__getattribute__(self, name)
        if name in _IN_PROCESS_ONLY:
            raise ContractError(
                f"{name} does not work over a stand-alone server: {_IN_PROCESS_ONLY[name]}. "
                "Use fakes in the test's own process for it"
            )
        if name == "name":
            return self._remote_name
        if name == "close":
            return self._close
        _, surface = surface_of(type(self)._handle_class)
        return _member(self._connection, self._remote_name, surface, name, self)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name != "closed":
            raise _cannot_set(self, name)
        object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _RemoteHandle):
            return self._identity() == other._identity()
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, str]:
        return self._connection.url, self._remote_name

    def __repr__(self) -> str:
        shown = type(self)._handle_class.__name__
        return f"<{shown} {self._remote_name} at {self._connection.url}>"

    def _close(self) -> None:
        if not object.__getattribute__(self, "closed"):
            object.__setattr__(self, "closed", True)
            # The fake may already be closed by another client or by a restart of the server.
            if any(one["name"] == self._remote_name for one in self._connection.state()["handles"]):
                self._connection.use(self._remote_name, "close")


def remote_handle(connection: Connection, fixture: str, name: str) -> Handle:
    """Return a handle of a fake on the server, as an instance of the fixture's handle class."""
    original = handle_class(find(fixture))
    made = _RemoteHandle._made.get(original)
    if made is None:
        made = type(original.__name__, (_RemoteHandle, original), {"_handle_class": original})
        _RemoteHandle._made[original] = made
    handle: Any = object.__new__(made)
    object.__setattr__(handle, "_connection", connection)
    object.__setattr__(handle, "_remote_name", name)
    object.__setattr__(handle, "closed", False)
    object.__setattr__(handle, "_exits", connection.exits)
    return handle  # type: ignore[no-any-return]


class RemoteCloud(AnyCloud):
    """A cloud that runs in a stand-alone server. Its handles have the classes of a local cloud's
    handles.

    Functions, applications, predicates and embedders cannot be sent to another process and raise
    ``ContractError``. Leaving the with-block closes only the fakes that were started through this
    connection.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        if not isinstance(url, str):
            raise ContractError(
                f"url={url!r} is not a string: pass the address that the server prints"
            )
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
        except ValueError as error:
            raise ContractError(f"{url!r} is not a URL: {error}") from error
        if "token" in parse_qs(parts.query):
            raise ContractError(
                "a URL must not contain the control token, because URLs end up in logs; pass token=… "
                f"or set {TOKEN_VARIABLE}"
            )
        given = token or os.environ.get(TOKEN_VARIABLE, "")
        if not isinstance(given, str) or not (given.isascii() and given.isprintable()):
            raise ContractError(
                f"{given!r} is not a control token: pass the string of printable ASCII characters "
                "that the server prints when it starts"
            )
        if not given:
            raise ContractError(
                f"{url} needs its control token: Cloud.connect(url, token=…), or the variable "
                f"{TOKEN_VARIABLE}"
            )
        self._connection = Connection(f"{parts.scheme}://{parts.netloc}", given)
        super().__init__()
        self._started: list[Handle] = []
        self._own: dict[str, Handle] = {}
        """Fakes started because the current test has settings for them."""
        self._nobody = ClosedFakes()
        try:
            self._state()
        except ContractError:
            self._connection.close()
            raise

    def _state(self) -> dict[str, Any]:
        return self._connection.state()

    @property
    def seed(self) -> int | str:
        seed: int | str = self._state()["seed"]
        return seed

    def reseed(self, seed: int | str) -> None:
        self._connection.request(
            "PUT", "/seed", {"seed": self._connection.encoded(seed, "the seed")}
        )

    @property
    def clock(self) -> Clock:
        return cast("Clock", self._connection.use(None, "clock", get=True))

    @property
    def journal(self) -> Journal:
        return cast("Journal", self._connection.use(None, "journal", get=True))

    @property
    def authority(self) -> None:
        """Always None, because the certificate authority is on the server. ``env`` contains the
        path of its certificate.
        """

    @property
    def _closed_fakes(self) -> ClosedFakes:
        """Always empty, because the server keeps the data that its reports need."""
        return self._nobody

    @property
    def handles(self) -> Found[Handle]:
        """All fakes of the server; the current test's own fakes come first."""
        own = {handle.name for handle in self._own.values()}
        known = [one for one in self._state()["handles"] if one["fixture"] in SERVICES]
        known.sort(key=lambda one: one["name"] not in own)
        return found_handles(
            remote_handle(self._connection, one["fixture"], one["name"]) for one in known
        )

    @property
    def env(self) -> dict[str, str]:
        found: dict[str, str] = self._connection.use(None, "env", get=True)
        return found

    @property
    def problems(self) -> Found[Problem]:
        return cast("Found[Problem]", self._connection.use(None, "problems", get=True))

    def start(self, fixture: str, settings: Mapping[str, Any]) -> Handle:
        fixture = find(fixture).fixture
        sent = {
            key: self._connection.encoded(value, f"{key}= of {fixture}()")
            for key, value in settings.items()
        }
        made = self._connection.request("POST", "/handles", {"fixture": fixture, "settings": sent})
        handle = remote_handle(self._connection, fixture, str(made.get("name")))
        self._started.append(handle)
        for listener in self._listeners:
            listener(handle)
        return handle

    def fixture_handle(self, fixture: str) -> Any:
        """Return the test's own fake of this kind. Without one, return the server's first fake of
        this kind or start a new fake.
        """
        fixture = find(fixture).fixture
        handle = self._own.get(fixture) or self._fixture_handles.get(fixture)
        if handle is None or handle.closed:
            found = [one for one in self.handles if type(one).fixture == fixture]
            handle = found[0] if found else self.start(fixture, {})
            self._fixture_handles[fixture] = handle
        return handle

    def allow(self, kind: str, **where: Unpack[ProblemFields]) -> None:
        if kind == "refused":
            # This process, not the server, warns about rejected credentials.
            self._allowed.add(kind, where)
        else:
            self._connection.use(None, "allow", (kind,), where)

    def snapshot(self) -> Any:
        """Return a snapshot of the data of all handles; the data stays on the server."""
        return self._connection.use(None, "snapshot")

    def restore(self, snapshot: Any) -> None:
        self._connection.use(None, "restore", (snapshot,))

    def reset(self) -> None:
        self._connection.request("POST", "/reset", {})

    def begin(self, now: Instant | None = None, clock: Mode | None = None) -> None:
        """Start over for another test, with the server's own settings until ``_adapt()`` is called."""
        self._give_own_back()
        instant = None if now is None else to_datetime(instant_us(now)).isoformat()
        mode = self._connection.encoded(clock, "clock= of begin()")
        self._connection.request("POST", "/begin", {"now": instant, "clock": mode})
        self._allowed.clear()
        self._listeners.clear()
        # Forget fakes that another client or a restart of the server has closed. Their next use
        # starts new fakes.
        known = {one["name"] for one in self._state()["handles"]}
        for fixture, handle in list(self._fixture_handles.items()):
            if handle.name not in known:
                del self._fixture_handles[fixture]

    def _adapt(self, settings: Mapping[str, Any]) -> None:
        """Apply the settings of one test until the next ``begin()``.

        ``now``, ``clock`` and ``seed`` apply to the whole server. For each service with settings, a
        separate fake is started for the test's fixtures.
        """
        if settings.get("now") is not None or settings.get("clock") is not None:
            self.begin(settings.get("now"), settings.get("clock"))
        if settings.get("seed") is not None:
            self.reseed(settings["seed"])
        for fixture in SERVICES:
            if settings.get(fixture):
                self._own[fixture] = self.start(fixture, settings[fixture])

    def _give_own_back(self) -> None:
        while self._own:
            _, handle = self._own.popitem()
            self._started.remove(handle)
            handle.close()

    def _require_local(self, method: str) -> NoReturn:
        raise ContractError(
            f"{method} does not work over a stand-alone server, because it controls the fakes' calls "
            "and clock from this process. Use fakes in the test's own process for it"
        )

    def _keep_only(self, known: Any) -> None:
        """Close the fakes that were started through this connection, except those in ``known``."""
        kept = {handle.name for handle in (*known, *self._fixture_handles.values())}
        for handle in list(self._started):
            if handle.name not in kept:
                handle.close()
                self._started.remove(handle)

    def close(self) -> None:
        """Close the fakes that were started through this connection, then the connection.

        A server that no longer responds is ignored.
        """
        if self.closed:
            return
        self.closed = True
        for handle in self._started:
            with suppress(ContractError):
                handle.close()
        self._connection.close()

    def __repr__(self) -> str:
        return f"<Cloud at {self._connection.url}>"


def connect(url: str, token: str | None = None) -> RemoteCloud:
    """Connect to a stand-alone server. Raises ``ContractError`` if no server responds at the URL."""
    return RemoteCloud(url, token)
