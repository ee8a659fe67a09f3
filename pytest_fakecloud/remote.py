"""The same handles over a stand-alone server: ``Cloud.connect(url)``."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from .cloud import SERVICES, Cloud
from .control.api import PREFIX
from .control.codec import class_named, decode, decode_error, encode
from .kernel.aio import Twin
from .kernel.clock import Mode
from .kernel.errors import ContractError
from .kernel.handle import Gone, Handle
from .kernel.instants import Instant, instant_us, to_datetime
from .kernel.journal import Found

__all__ = ["RemoteCloud", "connect"]

TOKEN_VARIABLE = "PYTEST_FAKECLOUD_TOKEN"

# What a remote handle does in this process, from what the server says of it.
_LOCAL = frozenset({"client", "async_client", "make_client", "make_async_client", "context", "app"})
_IN_PROCESS_ONLY = {
    "intercept": "requests of this process cannot be answered by another one",
    "between": "a function cannot be sent to another process",
    "on_close": "a function cannot be sent to another process",
}


class Connection:
    """One control API: sends uses of remote objects and reads what comes back."""

    def __init__(self, url: str, token: str) -> None:
        import urllib3

        self.url = url.rstrip("/")
        self.exits = ExitStack()
        """What ends with the connection: the clients that handles made."""
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._pool = urllib3.PoolManager(retries=False, maxsize=8, timeout=urllib3.Timeout(None))

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
            _sent(arg, f"argument {place} of {name}()") for place, arg in enumerate(args, 1)
        ]
        body["kwargs"] = {
            key: _sent(value, f"{key}= of {name}()") for key, value in (kwargs or {}).items()
        }
        answer = self.request("POST", "/call", body)
        if "raise" in answer:
            raise decode_error(answer["raise"])
        return decode(answer["value"], self.refer)

    def refer(self, number: int, class_name: str, text: str) -> RemoteObject:
        """What stands here for an object that stays on the server."""
        return RemoteObject(self, number, class_name, text)

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """One request to the control API; its errors are ``ContractError``."""
        import urllib3

        try:
            answer = self._pool.request(
                method,
                f"{self.url}{PREFIX}{path}",
                body=None if body is None else json.dumps(body).encode(),
                headers=self._headers,
            )
        except urllib3.exceptions.HTTPError as error:
            raise ContractError(
                f"no stand-alone server answers at {self.url} ({error}); "
                "start one with: pytest-fakecloud serve"
            ) from error
        try:
            content = json.loads(answer.data)
        except ValueError:
            raise ContractError(f"{self.url} is no control API: it answered no JSON") from None
        if answer.status >= 400:
            message = content.get("error", {})
            text = message.get("message") if isinstance(message, dict) else message
            raise ContractError(f"{self.url} refused {method} {path}: {text}")
        return content

    def close(self) -> None:
        """Close the connections, and the clients that handles made."""
        self.exits.close()
        self._pool.clear()


def _sent(value: Any, where: str) -> Any:
    if isinstance(value, RemoteObject):
        return {"$": "object", "id": value._number, "c": "", "repr": ""}
    return encode(value, None, where)


class RemoteObject:
    """An object that stays on the server: its fields and methods work from here."""

    def __init__(
        self, connection: Connection, number: int | str | None, class_name: str, text: str
    ) -> None:
        self._connection = connection
        self._number = number
        self._text = text
        try:
            self._class = class_named(class_name)
        except (ContractError, AttributeError, ImportError):
            self._class = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _member(self._connection, self._number, self._class, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._connection.use(self._number, "__call__", args, kwargs)

    def __enter__(self) -> Any:
        found = self._connection.use(self._number, "__enter__")
        same = isinstance(found, RemoteObject) and found._number == self._number
        return self if same else found

    def __exit__(self, *exc: object) -> None:
        self._connection.use(self._number, "__exit__", (None, None, None))

    def __len__(self) -> int:
        return int(self._connection.use(self._number, "__len__"))

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        return self._connection.use(self._number, "__getitem__", (index,))

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RemoteObject):
            return other._number == self._number
        if isinstance(other, list | tuple):
            return list(self) == list(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._number)

    def __repr__(self) -> str:
        return self._text


def _member(connection: Connection, number: int | str | None, owner: Any, name: str) -> Any:
    if name == "aio":
        return Twin(RemoteObject(connection, number, "", ""), _AnyName())
    static = inspect.getattr_static(owner, name, None) if owner is not None else None
    if inspect.isfunction(static) or isinstance(static, classmethod | staticmethod):
        return _method(connection, number, name)
    found = connection.use(number, name, get=True)
    if isinstance(found, RemoteObject) and found._text.startswith("<bound method"):
        return _method(connection, number, name)
    return found


def _method(connection: Connection, number: int | str | None, name: str) -> Callable[..., Any]:
    def remote(*args: Any, **kwargs: Any) -> Any:
        return connection.use(number, name, args, kwargs)

    remote.__name__ = name
    return remote


class _AnyName(frozenset[str]):
    """Every public name has a twin: the call goes to the server from a worker thread."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and not name.startswith("_")


class _RemoteHandle:
    """Mixed into a handle class: its engine is elsewhere, its surface is here."""

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
        return _member(self._connection, self._remote_name, type(self)._handle_class, name)

    def __repr__(self) -> str:
        shown = type(self)._handle_class.__name__
        return f"<{shown} {self._remote_name} at {self._connection.url}>"

    def _close(self) -> None:
        if not object.__getattribute__(self, "closed"):
            object.__setattr__(self, "closed", True)
            self._connection.request("DELETE", f"/handles/{self._remote_name}")


def remote_handle(connection: Connection, fixture: str, name: str) -> Handle:
    """The handle of a fake on the server, of the fixture's own class."""
    import importlib

    module, class_name = SERVICES[fixture]
    original = getattr(importlib.import_module(module), class_name)
    made = _RemoteHandle._made.get(original)
    if made is None:
        made = type(class_name, (_RemoteHandle, original), {"_handle_class": original})
        _RemoteHandle._made[original] = made
    handle: Any = object.__new__(made)
    object.__setattr__(handle, "_connection", connection)
    object.__setattr__(handle, "_remote_name", name)
    object.__setattr__(handle, "closed", False)
    object.__setattr__(handle, "_exits", connection.exits)
    return handle  # type: ignore[no-any-return]


class RemoteCloud(Cloud):
    """A cloud that runs in a stand-alone server; its handles are the same classes.

    What cannot cross to another process (functions, applications, predicates, embedders) is a
    ``ContractError`` that names it. Leaving the with-block closes what was started through this
    connection and leaves the rest of the server alone.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        given = token or parse_qs(parts.query).get("token", [""])[0]
        given = given or os.environ.get(TOKEN_VARIABLE, "")
        if not given:
            raise ContractError(
                f"{url} needs its control token: Cloud.connect(url, token=…), "
                f"?token=… in the URL, or the variable {TOKEN_VARIABLE}"
            )
        self._connection = Connection(f"{parts.scheme}://{parts.netloc}", given)
        self._started: list[Handle] = []
        self._fixture_handles: dict[str, Handle] = {}
        self._own: dict[str, Handle] = {}
        """The fakes that the present test has settings for."""
        self.fixture_settings = {}
        self.authority = None
        self.gone = Gone()
        self.closed = False
        try:
            self._state()
        except ContractError:
            self._connection.close()
            raise

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._connection.request("GET", "/state")
        return state

    @property
    def seed(self) -> int | str:  # type: ignore[override]
        """The server's seed."""
        seed: int | str = self._state()["seed"]
        return seed

    def reseed(self, seed: int | str) -> None:
        """Start the server's randomness over from another seed."""
        self._connection.request("PUT", "/seed", {"seed": seed})

    @property
    def clock(self) -> Any:  # type: ignore[override]
        """The server's clock."""
        return self._connection.use(None, "clock", get=True)

    @property
    def journal(self) -> Any:  # type: ignore[override]
        """The server's journal."""
        return self._connection.use(None, "journal", get=True)

    @property
    def handles(self) -> Found[Handle]:
        """All fakes of the server; those that are the present test's own come first."""
        own = {handle.name for handle in self._own.values()}
        known = [one for one in self._state()["handles"] if one["fixture"] in SERVICES]
        known.sort(key=lambda one: one["name"] not in own)
        return Found(remote_handle(self._connection, one["fixture"], one["name"]) for one in known)

    @property
    def env(self) -> dict[str, str]:
        """The environment variables of all handles."""
        found: dict[str, str] = self._connection.use(None, "env", get=True)
        return found

    @property
    def problems(self) -> Any:
        """What a strict test would fail for, in the whole server."""
        return self._connection.use(None, "problems", get=True)

    def start(self, fixture: str, settings: Mapping[str, Any]) -> Handle:
        """Start one more fake on the server."""
        if fixture not in SERVICES:
            raise ContractError(
                f"{fixture!r} is no service; the services are: {', '.join(SERVICES)}"
            )
        sent = {key: _sent(value, f"{key}= of {fixture}()") for key, value in settings.items()}
        plain = decode(sent, self._connection.refer)
        state = self._connection.request(
            "POST", "/handles", {"fixture": fixture, "settings": plain}
        )
        handle = remote_handle(self._connection, fixture, state["name"])
        self._started.append(handle)
        return handle

    def fixture_handle(self, fixture: str) -> Any:
        """The test's own fake of that kind, the server's first one, or a new one."""
        handle = self._own.get(fixture) or self._fixture_handles.get(fixture)
        if handle is None:
            found = [one for one in self.handles if type(one).fixture == fixture]
            handle = found[0] if found else self.start(fixture, {})
            self._fixture_handles[fixture] = handle
        return handle

    def on_start(self, listener: Callable[[Handle], None]) -> None:
        """Nothing: the server does not tell when others start fakes."""

    def allow(self, kind: str, **where: object) -> None:
        """Do not count a kind of problem."""
        self._connection.use(None, "allow", (kind,), where)

    def snapshot(self) -> Any:
        """The present data of all handles, kept on the server."""
        return self._connection.use(None, "snapshot")

    def restore(self, snapshot: Any) -> None:
        """Put the data of a snapshot back."""
        self._connection.use(None, "restore", (snapshot,))

    def reset(self) -> None:
        """Return every handle of the server to its baseline."""
        self._connection.request("POST", "/reset", {})

    def begin(self, now: Instant | None = None, clock: Mode | None = None) -> None:
        """Start over for another test, whose settings are the server's unless ``adapt`` is called."""
        self._give_own_back()
        instant = None if now is None else to_datetime(instant_us(now)).isoformat()
        self._connection.request("POST", "/begin", {"now": instant, "clock": clock})

    def adapt(self, settings: Mapping[str, Any]) -> None:
        """Take on the settings of one test, until the next ``begin()``.

        ``now``, ``clock`` and ``seed`` are the server's until then; a service with settings gets a
        fake of its own beside the server's, for the test's fixtures.
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

    def every_failure(self, run: Callable[[], object], **options: Any) -> Any:
        """Not over a server: its predicate cannot cross."""
        raise ContractError(
            "every_failure does not work over a stand-alone server: it watches each call with a "
            "function. Use fakes in the test's own process for it"
        )

    def replay(self, file: str | Path, **options: Any) -> Any:
        """Send a recorded session to the server's fakes and compare the answers."""
        from .control.record import replay

        return replay(self, file, **options)

    def keep_only(self, known: Any) -> None:
        """Close what was started through this connection and is not known."""
        kept = {handle.name for handle in (*known, *self._fixture_handles.values())}
        for handle in list(self._started):
            if handle.name not in kept:
                handle.close()
                self._started.remove(handle)

    def close(self) -> None:
        """Close what was started through this connection, and the connection."""
        if self.closed:
            return
        self.closed = True
        for handle in self._started:
            handle.close()
        self._connection.close()

    def __repr__(self) -> str:
        return f"<Cloud at {self._connection.url}>"


def connect(url: str, token: str | None = None) -> RemoteCloud:
    """The cloud of a stand-alone server; ``ContractError`` when none answers there."""
    return RemoteCloud(url, token)
