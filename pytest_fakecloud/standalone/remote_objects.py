"""Connections to a stand-alone server, and local proxies of its fakes and other objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.concurrency.aio import Twin
from ..core.errors import ContractError
from ..core.wording import unknown_name
from ..services import find, handle_class
from .codec import decode, decode_error, encode
from .control import PREFIX
from .wire import Surface, surface_named, surface_of

if TYPE_CHECKING:
    from ..handle import Handle

CONNECTS_WITHIN = 10.0
"""Time limit in real seconds for a connection."""
ANSWERS_WITHIN = 60.0
"""Time limit in real seconds for a response; then the server is assumed to hang."""
CALLS_TAKE_AT_MOST = 600.0
"""Time limit in real seconds for a call of a method, to which its ``timeout=`` is added."""
_LOCAL = frozenset({"client", "async_client", "closed", "fixture", "service"})
"""Attributes of a remote handle that belong to this process."""
_IN_PROCESS_ONLY = {
    "intercept": "requests of this process cannot be redirected by another process",
    "between": "a function cannot be sent to another process",
    "on_close": "a function cannot be sent to another process",
}


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

    def call(
        self,
        target: int | str | None,
        name: str,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] = MappingProxyType({}),
    ) -> Any:
        """Call a method of a remote object: a number, a fake's name, or None for the cloud."""
        sent = [
            self.encoded(arg, f"argument {place} of {name}()") for place, arg in enumerate(args, 1)
        ]
        named = {key: self.encoded(value, f"{key}= of {name}()") for key, value in kwargs.items()}
        body = {"object": target, "name": name, "get": False, "args": sent, "kwargs": named}
        timeout = kwargs.get("timeout")
        more = timeout if isinstance(timeout, int | float) and 0 < timeout < 1e9 else 0
        return self._use(body, more)

    def read(self, target: int | str | None, name: str) -> Any:
        """Read a field of a remote object."""
        return self._use({"object": target, "name": name, "get": True, "args": [], "kwargs": {}})

    def _use(self, body: dict[str, Any], timeout: float = 0) -> Any:
        answer = self.request("POST", "/call", body, CALLS_TAKE_AT_MOST + timeout)
        with self._understood():
            if "raise" not in answer:
                return decode(answer["value"], partial(RemoteObject, self))
            error = decode_error(answer["raise"])
        raise error

    def encoded(self, value: Any, where: str) -> Any:
        """Return the JSON form of an argument; ``where`` describes it in errors."""
        if not isinstance(value, RemoteObject):
            return encode(value, None, where)
        if value._connection.url != self.url:
            raise ContractError(
                f"{where} is {value!r} of another server ({value._connection.url}): pass an object "
                f"of {self.url}"
            )
        return {"$": "object", "id": value._target, "c": "", "repr": ""}

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

    def request(
        self, method: str, path: str, body: Any = None, within: float | None = None
    ) -> dict[str, Any]:
        """Send a request whose response is a JSON object; errors raise ``ContractError``."""
        return self._object(self.ask(method, path, body, within))

    def _object(self, content: Any) -> dict[str, Any]:
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
            message = self._object(content).get("error", content)
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
                if not {"name", "fixture"} <= one.keys():
                    raise TypeError(f"a handle is {one!r}")
        return state

    def close(self) -> None:
        """Close the connections, and the clients that handles created."""
        self.exits.close()
        self.closed = True
        self._pool.clear()


class _Remote:
    """An object on the server. Two proxies are equal if they refer to the same object."""

    _connection: Connection
    _target: int | str | None
    """The object's number, a fake's name, or None for the cloud."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise ContractError(
                f"{name} of {self!r} cannot be set from this process: it is on the server. Set it "
                "when the server or the fake starts, or use fakes in the test's own process"
            )
        object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Remote):
            return self._identity() == other._identity()
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, int | str | None]:
        return self._connection.url, self._target

    def _member(self, surface: Surface | None, name: str) -> Any:
        """Return a field's value or a method; raise ``AttributeError`` for any other name."""
        if surface is not None:
            if name == "aio":
                return Twin(self, surface.methods)
            if name in surface.methods:
                return self._method(name)
            if name in surface.fields:
                return self._connection.read(self._target, name)
        offered = () if surface is None else surface.names
        noun = f"attribute of {self!r} over a stand-alone server"
        raise AttributeError(unknown_name(noun, name, offered))

    def _method(self, name: str) -> Callable[..., Any]:
        def remote(*args: Any, **kwargs: Any) -> Any:
            return self._connection.call(self._target, name, args, kwargs)

        remote.__name__ = name
        return remote


class RemoteObject(_Remote):
    """Local proxy of an object that stays on the server. It forwards field reads and method calls.

    A proxy is also equal to a list with the same items, which are requested for the comparison.
    """

    def __init__(self, connection: Connection, number: int, class_name: str, text: str) -> None:
        self._connection = connection
        self._target = number
        self._text = text
        self._surface = surface_named(class_name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._member(self._surface, name)

    def _follow(self, protocol: str, *args: Any) -> Any:
        if self._surface is None or protocol not in self._surface.protocols:
            kind = "" if self._surface is None else self._surface.kind.__name__
            word = protocol.strip("_")
            raise TypeError(f"object of type {kind!r} has no {word}() over a stand-alone server")
        return self._connection.call(self._target, protocol, args)

    def __enter__(self) -> Any:
        found = self._follow("__enter__")
        return self if isinstance(found, RemoteObject) and found == self else found

    def __exit__(self, *exc: object) -> None:
        # An exception stays in this process: end the block on the server without it. The server
        # may then object that nothing happened in the block, which must not replace the exception.
        with suppress(ContractError) if any(exc) else nullcontext():
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
        # Most objects are only compared with None, so send a request only if one can be false.
        if self._surface is not None and "__bool__" in self._surface.protocols:
            return bool(self._follow("__bool__"))
        return True

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list | tuple):
            return list(self) == list(other)
        return super().__eq__(other)

    __hash__ = _Remote.__hash__

    def __repr__(self) -> str:
        return self._text


class _RemoteHandle(_Remote):
    """Mixin of handle classes whose fakes are on the server.

    An instance is one of a handle class only for ``isinstance()``: its ``__init__`` is not called,
    and all public attributes except those in ``_LOCAL`` are read from the server.
    """

    _handle_class: ClassVar[type[Handle]]

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name in _LOCAL:
            return object.__getattribute__(self, name)
        if name in _IN_PROCESS_ONLY:
            raise ContractError(
                f"{name} does not work over a stand-alone server: {_IN_PROCESS_ONLY[name]}. "
                "Use fakes in the test's own process for it"
            )
        if name == "name":
            return self._target
        if name == "close":
            return self._close
        _, surface = surface_of(type(self)._handle_class)
        return self._member(surface, name)

    def __repr__(self) -> str:
        return f"<{type(self)._handle_class.__name__} {self._target} at {self._connection.url}>"

    def _close(self) -> None:
        if not object.__getattribute__(self, "closed"):
            object.__setattr__(self, "closed", True)
            # The fake may already be closed by another client or by a restart of the server.
            if any(one["name"] == self._target for one in self._connection.state()["handles"]):
                self._connection.call(self._target, "close")


@cache
def _remote_class(original: type[Handle]) -> type:
    """Return a subclass of a handle class whose instances are remote, so that isinstance() works."""
    return type(original.__name__, (_RemoteHandle, original), {"_handle_class": original})


def remote_handle(connection: Connection, fixture: str, name: str) -> Handle:
    """Return a handle of a fake on the server, as an instance of the fixture's handle class."""
    made = _remote_class(handle_class(find(fixture)))  # type: ignore[arg-type]
    handle: Any = object.__new__(made)
    vars(handle).update(_connection=connection, _target=name, _exits=connection.exits, closed=False)
    return handle  # type: ignore[no-any-return]
