"""The broker's REST API.

A body is parsed as JSON regardless of its Content-Type, a GET request can have a body, and a path
can end in a slash, because the vendor's documentation and public clients do all of this.

The vendor's documentation only says that "custom headers" of a webhook request become message
headers. Decided here: permanent HTTP field names of the IANA registry, hop-by-hop fields, and
headers that browsers and proxies add are not custom and are dropped. Names are compared without
regard to case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from ..core.assets import asset
from ..core.errors import ServiceError
from ..core.field_types import TEXT
from ..core.matching import Field
from ..http.app import App, Instruments
from ..http.messages import Answer, Json, Request, basic_credentials, json_value, same
from ..http.routing import Route
from .errors import BrokerError, illegal_argument, partly_appended
from .model import (
    CONSUMER_HEADERS,
    INT64_MAX,
    TOPIC,
    ConsumeRequest,
    EventKind,
    Header,
    Metadata,
    ProducerRecord,
    Record,
    TopicPartition,
    TopicPartitionOffset,
)

if TYPE_CHECKING:
    from .._typing.broker import BrokerFaultPlan
    from .fake import BrokerEngine

SUCCESS = {"result": "Success", "status": 200}
POLL_TIMEOUT_MS = 1000
MAX_TIMEOUT_MS = 600_000
"""Maximum timeout of a long poll; a longer one, which can only be a mistake, is rejected."""


class BrokerApp(App):
    """The HTTP app of a broker engine; ``token`` is the password of the user ``username``."""

    service = "broker"
    fact_fields: ClassVar[Mapping[str, Field]] = {
        "topic": Field(TOPIC, several=True),
        "group": Field(TEXT),
        "instance": Field(TEXT),
    }
    event_kinds: ClassVar[frozenset[str]] = frozenset(get_args(EventKind))
    event_fields: ClassVar[Mapping[str, Field]] = dict.fromkeys(
        ("group", "instance", "topics", "partitions", "generation", "assignment", "offsets",
         "reason", "cause", "keeps", "until_us", "idle"),
        Field(),
    )  # fmt: skip

    def __init__(
        self, instruments: Instruments, engine: BrokerEngine, username: str, faults: BrokerFaultPlan
    ) -> None:
        super().__init__(instruments)
        self.faults = faults
        self.engine = engine
        self.username = username
        self._config_headers = [
            (name, (prefix + name).lower())
            for prefix in engine.settings.header_prefixes
            for name in CONSUMER_HEADERS
        ]

    @classmethod
    def routes(cls) -> list[Route]:
        """Return all routes. Faults and the journal refer to a route by its first path segment."""
        consume = "/consume/{group}/{instance}"
        return [
            Route("GET", "/produce/{topic}/{message}", "produce", cls.produce_path),
            Route("GET POST", "/produce/{topic}", "produce", cls.produce),
            Route("GET POST", "/produce", "produce", cls.produce),
            Route("GET POST", "/fetch", "fetch", cls.fetch, lingers=True),
            Route("GET", consume + "/{topic}", "consume", cls.consume_path, lingers=True),
            Route("GET POST", consume, "consume", cls.consume, lingers=True),
            Route("GET POST", "/commit/{group}/{instance}", "commit", cls.commit),
            Route(
                "POST DELETE", "/delete-consumer/{group}/{instance}", "delete-consumer", cls.delete
            ),
            Route("GET", "/topics", "topics", cls.topics),
            Route("GET", "/consumers", "consumers", cls.consumers),
            Route("GET POST", "/committed/{group}/{instance}", "committed", cls.committed),
            Route("GET POST", "/offsets/{at}", "offsets", cls.offsets),
            Route("GET POST", "/webhook", "webhook", cls.webhook),
        ]

    # -- producing -------------------------------------------------------------------------------

    def produce_path(self, request: Request) -> object:
        """Fake ``GET /produce/TOPIC/MESSAGE`` and return one metadata object."""
        message = ProducerRecord(
            request.segment("topic"), request.segment("message"), request.query("key")
        )
        return self._append(request, [message])[0]._asdict()

    def produce(self, request: Request) -> object:
        """Fake ``/produce`` and ``/produce/TOPIC``; return a list of metadata in request order."""
        topic = request.segment("topic") if "topic" in request.params else None
        items = self._items(request, "a message or an array of them")
        messages = [item.message(topic) for item in items]
        return [metadata._asdict() for metadata in self._append(request, messages)]

    def _append(self, request: Request, messages: Sequence[ProducerRecord]) -> list[Metadata]:
        """Append a request's messages, or only those that the fault ``partial_produce`` keeps."""
        producing = self.engine.records
        if self.faults:
            from .faults import messages_to_keep

            keep = messages_to_keep(self.faults, request, messages, producing.check)
            if keep is not None:
                producing.produce(messages[:keep])
                request.call.reached = True
                raise partly_appended(keep)
        return producing.produce(messages)

    def webhook(self, request: Request) -> object:
        """Fake ``/webhook``: produce a message from the raw body and the custom headers."""
        topic = request.query("topic")
        if not topic:
            raise illegal_argument("The query parameter topic is missing")
        message = ProducerRecord(
            topic,
            request.body.decode("utf-8", "replace"),
            headers=message_headers(request.headers.pairs),
        )
        return [self._append(request, [message])[0]._asdict()]

    # -- reading ---------------------------------------------------------------------------------

    def fetch(self, request: Request) -> object:
        """Fake ``/fetch``: return the records that start at the given offsets."""
        fields = Fields(json_of(request.body, {}))
        positions = []
        if any(fields.get(name) is not None for name in ("topic", "partition", "offset")):
            positions.append(fields.position())
        positions += [item.position() for item in fields.objects("topicPartitionOffsets")]
        if not positions:
            raise illegal_argument(
                "Nothing to fetch: pass topic, partition and offset, or topicPartitionOffsets"
            )
        timeout = self._timeout(request, fields)
        return [record_json(record) for record in self.engine.records.fetch(positions, timeout)]

    def consume_path(self, request: Request) -> object:
        return self._consume(request, [request.segment("topic")], Fields({}))

    def consume(self, request: Request) -> object:
        """Fake ``/consume/GROUP/INSTANCE``, whose body contains ``topic`` or ``topics``."""
        fields = Fields(json_of(request.body, {}))
        topics = []
        topic = fields.text("topic")
        if topic is not None:
            topics.append(topic)
        listed = fields.get("topics")
        if listed is not None:
            if not (isinstance(listed, list) and all(isinstance(name, str) for name in listed)):
                raise illegal_argument(f"topics must be an array of strings, got {shown(listed)}")
            topics += listed
        if not topics:
            raise illegal_argument("Nothing to consume: pass topic or topics")
        return self._consume(request, topics, fields)

    def _consume(self, request: Request, topics: list[str], fields: Fields) -> object:
        headers, timeout = self._consumer_headers(request), self._timeout(request, fields)
        wanted = ConsumeRequest(*_instance(request), topics, headers, timeout, request.call)
        records = self.engine.groups.consume(wanted)
        if self.faults:
            from .faults import reordered

            records = reordered(self.faults, request, records)
        return [record_json(record) for record in records]

    def _consumer_headers(self, request: Request) -> dict[str, str]:
        config: dict[str, str] = {}
        for name, header in self._config_headers:
            value = request.fields.get(header)
            if value is not None:
                config.setdefault(name, value)
        return config

    def commit(self, request: Request) -> object:
        """Fake ``/commit/GROUP/INSTANCE``; without offsets, commit all delivered records."""
        items = json_of(request.body)
        offsets = [item.position() for item in fields_in([] if items is None else items)]
        self.engine.groups.commit(*_instance(request), offsets, request.call)
        return SUCCESS

    def delete(self, request: Request) -> object:
        self.engine.groups.delete(*_instance(request), request.call)
        return SUCCESS

    # -- metadata --------------------------------------------------------------------------------

    def topics(self, request: Request) -> object:
        """Fake ``GET /topics``: return the partition counts by topic name."""
        return self.engine.topics.counts()

    def consumers(self, request: Request) -> object:
        """Fake ``GET /consumers``: return the groups with their instances and partitions."""
        return [
            {
                "name": group,
                "instances": [
                    {
                        "name": name,
                        "topics": [
                            {"topic": topic, "partitions": partitions}
                            for topic, partitions in topics.items()
                        ],
                    }
                    for name, topics in instances.items()
                ],
            }
            for group, instances in self.engine.groups.consumers().items()
        ]

    def committed(self, request: Request) -> object:
        group, partitions = request.segment("group"), self._partitions(request)
        return [offset._asdict() for offset in self.engine.groups.committed(group, partitions)]

    def offsets(self, request: Request) -> object:
        """Fake ``/offsets/TIME``, where TIME is in milliseconds, ``earliest`` or ``latest``."""
        at: int | Literal["earliest", "latest"]
        match request.segment("at"):
            case "earliest" | "latest" as at:
                pass
            case text:
                at = digits(text, "The timestamp in the path", "milliseconds, earliest or latest")
        partitions = self._partitions(request)
        return [offset._asdict() for offset in self.engine.records.offsets(at, partitions)]

    def _partitions(self, request: Request) -> list[TopicPartition]:
        items = self._items(request, "an object with topic and partition, or an array")
        partitions = [item.partition() for item in items]
        # Reject an invalid timeout, although nothing waits.
        self._timeout(request, Fields({}))
        return partitions

    # -- parsing ---------------------------------------------------------------------------------

    def _items(self, request: Request, expected: str) -> Iterator[Fields]:
        if not request.body.strip():
            raise illegal_argument(f"The request body is empty: expected {expected}")
        return fields_in(json_of(request.body))

    def _timeout(self, request: Request, fields: Fields) -> int:
        timeout = fields.long("timeout", minimum=0)
        if timeout is None:
            text = request.query("timeout")
            timeout = POLL_TIMEOUT_MS if text is None else digits(text, "timeout", "milliseconds")
        if timeout > MAX_TIMEOUT_MS:
            raise illegal_argument(f"Invalid timeout {timeout}: expected 0 to {MAX_TIMEOUT_MS} ms")
        return timeout

    # -- authentication and errors ---------------------------------------------------------------

    def authenticate(self, request: Request) -> object:
        """Check HTTP Basic credentials or, for ``/webhook``, ``user`` and ``pass`` in the query."""
        username, password = self.username, self.token
        credentials = basic_credentials(request.fields.get("authorization"))
        if (
            credentials is not None
            and same(credentials[0], username)
            and same(credentials[1], password)
        ):
            return username
        if request.path.rstrip("/") == "/webhook":
            user, secret = request.query("user"), request.query("pass")
            if same(user, username) and same(secret, password):
                return username
        raise BrokerError(
            "unauthorized",
            "Unauthorized: missing or wrong credentials",
            headers=(("WWW-Authenticate", 'Basic realm="broker"'),),
        )

    def render_error(self, error: ServiceError) -> Json:
        """Return an error as ``{error, status}``, with replacements from the ``errors`` setting."""
        status, text = error.status, error.message
        if isinstance(error, BrokerError):
            other = (self.engine.settings.errors or {}).get(error.kind)
            if isinstance(other, int):
                status = other
            elif other is not None:
                status, text = other
        return Json({"error": text, "status": status}, status, error.headers)

    def unknown_path(self, request: Request) -> Answer:
        raise BrokerError("unknown_path", f"Invalid API call: {request.method} {request.path}")

    def wrong_method(self, request: Request, allowed: frozenset[str]) -> Answer:
        methods = ", ".join(sorted(allowed))
        raise BrokerError(
            "wrong_method",
            f"Method {request.method} is not allowed for {request.path}: use {methods}",
            headers=(("Allow", methods),),
        )

    def facts(self, request: Request) -> dict[str, Any]:
        """Return the group, the instance, and all topics in a request's path, query and body."""
        facts: dict[str, Any] = {
            name: request.segment(name) for name in ("group", "instance") if name in request.params
        }
        topics = [request.segment("topic")] if "topic" in request.params else []
        in_query = request.query("topic")
        if in_query is not None:
            topics.append(in_query)
        if request.body and request.path.rstrip("/") != "/webhook":
            topics += _topics_in(json_of(request.body))
        facts["topic"] = list(dict.fromkeys(topics))
        return facts


def record_json(record: Record) -> dict[str, object]:
    """Return a record as the API represents it, with ``""`` for a missing key."""
    topic, partition, offset, timestamp, key, value, headers = record
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "key": key or "",
        "value": value,
        "headers": [{"key": name, "value": text} for name, text in headers],
    }


def _instance(request: Request) -> tuple[str, str]:
    return request.segment("group"), request.segment("instance")


def _topics_in(body: Any) -> list[str]:
    topics: list[str] = []
    for item in body if isinstance(body, list) else [body]:
        if isinstance(item, dict):
            named = [item.get("topic"), *_list(item.get("topics"))]
            topics += [name for name in named if isinstance(name, str)]
            topics += _topics_in(_list(item.get("topicPartitionOffsets")))
    return topics


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


# -- bodies of requests -------------------------------------------------------------------------

_SHOWN = 60
# A string without a closing quote matches up to the end of the body. Otherwise the search would
# start again at every quote inside it, which takes quadratic time.
_STRING = rb'(?s)"(?:\\.?|[^"\\])*+"?'


def json_of(body: bytes, default: object = None) -> Any:
    """Return the parsed body, or a default if it is blank."""
    if not body.strip():
        return default
    try:
        return json_value(body)
    except (ValueError, RecursionError) as error:
        reason = str(error) or "it is nested too deeply"
        if re.search(rb",\s*[\]}]", re.sub(_STRING, b'""', body)):
            reason = f"JSON allows no trailing comma before ] or }} ({reason})"
        raise illegal_argument(f"The request body is not valid JSON: {reason}") from None


class Fields:
    """The fields of a JSON object, of which those that are absent or null are None.

    ``where`` is the prefix of field names in errors, such as ``[1].``, or empty. Methods raise
    ``BrokerError`` for invalid values.
    """

    def __init__(self, value: object, where: str = "") -> None:
        if not isinstance(value, dict):
            subject = f"{where.rstrip('.')} must be" if where else "The request body must be"
            raise illegal_argument(f"{subject} a JSON object, got {shown(value)}")
        self._values = value
        self._where = where

    def get(self, name: str) -> Any:
        return self._values.get(name)

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None or type(value) is str:
            return value
        raise illegal_argument(f"{self._where}{name} must be a string, got {shown(value)}")

    def required_text(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise illegal_argument(f"{self._where}{name} is missing")
        return value

    def long(self, name: str, *, minimum: int = -INT64_MAX - 1) -> int | None:
        """Return a 64-bit integer."""
        value = self._values.get(name)
        if value is None:
            return None
        name = self._where + name
        if isinstance(value, bool) or not isinstance(value, int):
            raise illegal_argument(f"{name} must be an integer, got {shown(value)}")
        if not -INT64_MAX - 1 <= value <= INT64_MAX:
            raise illegal_argument(f"{name} does not fit into 64 bits: {shown(value)}")
        if value < minimum:
            raise illegal_argument(f"{name} must be at least {minimum}, got {value}")
        return value

    def required_long(self, name: str, *, minimum: int = -INT64_MAX - 1) -> int:
        value = self.long(name, minimum=minimum)
        if value is None:
            raise illegal_argument(f"{self._where}{name} is missing")
        return value

    def objects(self, name: str, expected: str = "an array") -> Iterator[Fields]:
        """Return the fields of each object in an array."""
        value = self._values.get(name)
        if value is None:
            return iter(())
        name = self._where + name
        if not isinstance(value, list):
            raise illegal_argument(f"{name} must be {expected}, got {shown(value)}")
        return fields_in(value, name)

    def message(self, topic: str | None) -> ProducerRecord:
        """Return the message of a produce request; ``topic`` is the topic in its path."""
        return ProducerRecord(
            self.required_text("topic") if topic is None else topic,
            self.required_text("value"),
            self.text("key"),
            self.long("partition"),
            self.long("timestamp"),
            tuple(
                Header(header.required_text("key"), header.required_text("value"))
                for header in self.objects("headers", "an array of objects with key and value")
            ),
        )

    def partition(self) -> TopicPartition:
        return TopicPartition(self.required_text("topic"), self.required_long("partition"))

    def position(self) -> TopicPartitionOffset:
        return TopicPartitionOffset(*self.partition(), self.required_long("offset", minimum=0))


def fields_in(value: object, name: str = "") -> Iterator[Fields]:
    """Yield the fields of each object in the array ``name``, or of a single object."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield Fields(item, f"{name}[{index}].")
    else:
        yield Fields(value)


def digits(text: str, name: str, expected: str) -> int:
    """Return a decimal number of a path or query; raise ``BrokerError`` if it is invalid."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= INT64_MAX):
        raise illegal_argument(f"{name} must be {expected}, got {text[:40]!r}")
    return int(text)


def shown(value: object) -> str:
    """Return a JSON value as ASCII text for an error message, shortened if it is long."""
    text = ""
    # Write the value in pieces and stop when there is enough text. Writing a deeply nested value as
    # a whole could exceed the recursion limit, although it could be parsed.
    for piece in json.JSONEncoder().iterencode(value):
        text += piece
        if len(text) > _SHOWN:
            return text[:_SHOWN] + "..."
    return text


# -- headers of webhook requests ----------------------------------------------------------------


@cache
def standard_fields() -> frozenset[str]:
    """Return the standard field names, which do not become message headers, in lower case."""
    return frozenset(re.sub(r"(?m)^#.*", "", asset(__file__, "http_fields.txt")).split())


_PREFIXES = ("sec-", "x-forwarded-")


def message_headers(headers: Iterable[tuple[str, str]]) -> tuple[Header, ...]:
    """Return the custom headers of a request, with their order, spelling and repetitions."""
    standard = standard_fields()
    return tuple(
        Header(_text(name), _text(value))
        for name, value in headers
        if not (name.lower() in standard or name.lower().startswith(_PREFIXES))
    )


def _text(raw: str) -> str:
    """Decode a header as UTF-8, which clients usually send, although it was read as Latin-1."""
    try:
        return raw.encode("latin-1").decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError):
        return raw
