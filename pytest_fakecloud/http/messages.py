"""What goes in and what comes out: requests as they came, answers, streams, and ruined connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..core.calls import Call, Headers, Outcome
from .readers import query_items

HeaderPairs: TypeAlias = Sequence[tuple[str, str]]
JSON_TYPE = "application/json"


class Request:
    """A request as it came in: nothing decoded, nothing merged.

    ``target`` is the raw request target (Latin-1 text of the bytes), ``path`` and ``query_string``
    its two halves, ``headers`` a mapping that ignores case, ``fields`` the first value of each by
    its name in lower case (many requests share one: only to be read), ``client`` the peer's address,
    ``principal`` what authentication returned, ``params`` the raw parameters of the route's pattern,
    ``route`` the endpoint's name, ``call`` the journal's record until the answer is made.
    ``head_bytes`` is about how long target and headers are, where they came over a socket.
    """

    __slots__ = (
        "body",
        "call",
        "client",
        "fields",
        "head_bytes",
        "headers",
        "method",
        "params",
        "path",
        "principal",
        "query_string",
        "route",
        "target",
    )

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
        # A client behind a proxy setting sends the absolute form; only its path matters here.
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
        # Every service looks for its credentials there.
        self.fields = first_of_each(self.headers.pairs) if fields is None else fields

    def __str__(self) -> str:
        return f"{self.method} {self.target}"

    def query_items(self) -> list[tuple[str, str]]:
        """Decoded names and values of the query, in order, duplicates and empty values kept."""
        return query_items(self.query_string) if self.query_string else []

    def query(self, name: str) -> str | None:
        """The first query value of that name, or None."""
        if not self.query_string:
            return None
        return next((value for key, value in self.query_items() if key == name), None)


def first_of_each(headers: HeaderPairs) -> dict[str, str]:
    """The first value of each header, by its name in lower case."""
    found: dict[str, str] = {}
    for name, value in headers:
        found.setdefault(name.lower(), value)
    return found


_NO_CALL = Call(0, 0, "", "", "", "")


@dataclass(slots=True)
class Answer:
    """A whole response: ``bytes`` bodies go out as they are, any other object as JSON."""

    body: object = b""
    status: int = 200
    headers: HeaderPairs = ()
    content_type: str | None = JSON_TYPE


@dataclass(slots=True)
class Stream:
    """A response whose chunks come as they are made (server-sent events).

    ``chunks`` is closed when the client goes or the server does; ``on_close`` runs once after.
    """

    chunks: Iterator[bytes]
    content_type: str = "text/event-stream"
    status: int = 200
    headers: HeaderPairs = ()
    on_close: Callable[[], None] | None = None


@dataclass(slots=True)
class Effect:
    """What a fault does to the connection instead of answering well.

    ``kind`` is ``"drop"`` (close without an answer, the engine was not reached), ``"lose"`` (the
    same, after the engine did what ``answer`` would have told), ``"refuse"`` (as if nobody
    listened), ``"hang"`` (stay silent until the client gives up or the server closes) or
    ``"truncate"`` (announce the whole answer, send the first ``keep`` bytes of its body, close).
    ``reset`` closes with a TCP reset.
    """

    kind: str
    answer: Answer | None = None
    keep: int = 0
    reset: bool = False


Response: TypeAlias = Answer | Stream | Effect
Serve: TypeAlias = Callable[[], Response]
"""What would happen to a request without a fault."""

OUTCOME_OF_EFFECT: Mapping[str, Outcome] = {
    "drop": "dropped",
    "refuse": "refused",
    "lose": "lost",
    "hang": "hung",
    "truncate": "truncated",
}
"""What the journal calls a request that an effect befell."""
