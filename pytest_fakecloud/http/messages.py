"""Data types of requests, responses, streams, and the effects of faults on connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from ..core.calls import Call, Headers, Outcome
from .readers import decode_segment, query_items

HeaderPairs: TypeAlias = Sequence[tuple[str, str]]
JSON_TYPE = "application/json"
EffectKind: TypeAlias = Literal["drop", "refuse", "lose", "hang", "truncate"]
_NO_CALL = Call(0, 0, "", "", "", "")
"""The call of requests that are not recorded, which must not change it."""


class Request:
    """A request as received: nothing is decoded, and repeated headers are not merged.

    ``target`` is the raw request target (its bytes as Latin-1); ``path`` and ``query_string`` are
    its two parts. ``headers`` is a case-insensitive mapping. ``fields`` maps lower-case header
    names to first values; it is shared between requests and must not be modified. ``client`` is the
    peer's address, ``principal`` the result of authentication. ``route`` is the name of the matched
    endpoint, ``params`` are the raw parameters in its path. ``call`` is the request's entry in the
    journal. ``head_bytes`` is the approximate size of a received head (target and headers).
    """

    def __init__(
        self,
        method: str,
        target: str,
        headers: Headers | HeaderPairs = (),
        body: bytes = b"",
        client: tuple[str, int] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self.method = method
        self.target = target
        path, _, self.query_string = target.partition("?")
        # Remove the origin from an absolute URL, which clients send to a fake that is their proxy.
        if not path.startswith("/"):
            _, _, rest = path.partition("://")
            path = "/" + rest.partition("/")[2]
        self.path = path
        self.headers = headers if isinstance(headers, Headers) else Headers(tuple(headers))
        self.body = body
        self.client = client
        self.principal: Any = None
        self.params: dict[str, str] = {}
        self.route = ""
        self.head_bytes = 0
        self.call: Call = _NO_CALL
        # Computed for every request, because every service reads the credentials from it.
        # Reversed, so that the first value of a repeated header wins.
        self.fields = (
            {name.lower(): value for name, value in reversed(self.headers.pairs)}
            if fields is None
            else fields
        )

    def __str__(self) -> str:
        return f"{self.method} {self.target}"

    def segment(self, name: str) -> str:
        """Return a parameter of the path, decoded."""
        return decode_segment(self.params[name])

    def query_items(self) -> list[tuple[str, str]]:
        """Return the decoded names and values of the query in order, including duplicates."""
        return query_items(self.query_string) if self.query_string else []

    def query(self, name: str) -> str | None:
        """Return the first value of a query parameter, or None."""
        return next((value for key, value in self.query_items() if key == name), None)


def asks_to_close(connection: str) -> bool:
    """Return whether the value of a Connection header contains ``close``."""
    return "close" in map(str.strip, connection.lower().split(","))


@dataclass(slots=True)
class Answer:
    """A complete response. ``bytes`` bodies are sent unchanged, other objects as JSON."""

    body: object = b""
    status: int = 200
    headers: HeaderPairs = ()
    content_type: str | None = JSON_TYPE


@dataclass(eq=False, slots=True)
class Stream:
    """A response whose chunks are sent as they are produced (server-sent events).

    ``on_close`` makes a waiting ``chunks`` end. It is called in another thread when the client
    disconnects, and in any case after ``chunks`` was closed, so it can be called twice.
    """

    chunks: Iterator[bytes]
    content_type: str = "text/event-stream"
    status: int = 200
    headers: HeaderPairs = ()
    on_close: Callable[[], None] | None = None

    def end(self) -> None:
        """Close ``chunks``, then call ``on_close``."""
        close_chunks(self.chunks)
        if self.on_close is not None:
            self.on_close()


class Effect(NamedTuple):
    """The effect that an injected fault has on the connection, instead of a response.

    ``kind`` is ``"drop"`` (close without a response, before the engine), ``"lose"`` (close without
    sending ``answer``, after the engine), ``"refuse"`` (as if no server listened), ``"hang"`` (send
    nothing until the client or the server closes) or ``"truncate"`` (announce the whole response,
    send the first ``keep`` bytes of its body, close). ``reset`` closes with a TCP reset.
    """

    kind: EffectKind
    answer: Answer | None = None
    keep: int = 0
    reset: bool = False


def close_chunks(chunks: object) -> None:
    """Close a generator; do nothing for an iterable without ``close()``."""
    close = getattr(chunks, "close", None)
    if close is not None:
        close()


AnyResponse: TypeAlias = Answer | Stream | Effect
Serve: TypeAlias = Callable[[], AnyResponse]
"""A function that returns the response that a request gets without faults."""

OUTCOME_OF_EFFECT: Mapping[EffectKind, Outcome] = {
    "drop": "dropped",
    "refuse": "refused",
    "lose": "lost",
    "hang": "hung",
    "truncate": "truncated",
}
"""The outcome that the journal records for a call, by the kind of its effect."""
