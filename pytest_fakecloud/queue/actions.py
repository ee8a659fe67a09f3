"""Actions of the ``queue`` fake: publishing, scheduling, loading data and delivering.

Arguments are validated and converted to headers. Every function raises ``ContractError`` for an
invalid argument, so that a mistake in a test cannot be confused with an error of the service or a
bug of the fake. Data is loaded into a copy of the queue first, so that invalid data changes nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Required, TypedDict, Unpack

from ..cloud.actions import action
from ..cloud.fake import Aio, core_of
from ..core.clock import Target, Timekeeper
from ..core.errors import ContractError, FakecloudError, counted, unknown_name
from ..core.ids import Ids
from ..core.journal import Results
from ..core.settings import SWITCH, choice, whole
from ..core.timers import Duration, Fired, duration_us, to_datetime
from ..http.messages import bytes_of, json_bytes
from .attempt_reports import timeline, unfinished_text
from .engine.engine import Engine
from .engine.publishing import Published
from .model import Api, Attempt, HeaderList
from .views import ATTEMPTS, PublishedMessage, ScheduleView
from .wire.values import as_wire, canonical, unprefixed

if TYPE_CHECKING:
    from qstash import AsyncQStash

    from .fake import Queue


class FlowControl(TypedDict, total=False):
    """Flow control of a message to publish.

    Messages with the same ``key`` share its limits: at most ``parallelism`` deliveries at a time,
    and at most ``rate`` deliveries started within each ``period`` (one second by default).
    """

    key: Required[str]
    parallelism: int
    rate: int
    period: Duration


class MessageOptions(TypedDict, total=False):
    """The keyword arguments that ``publish()`` and ``schedule()`` share. None is the default of all
    but ``json`` and ``body``.

    ``json`` is sent as JSON in place of ``body``. ``headers`` are forwarded to the destination,
    ``settings`` are additional ``Upstash-*`` headers of the request. ``queue`` is the name of an
    ordered queue.
    """

    json: Any
    body: bytes | str
    headers: Mapping[str, str] | None
    delay: Duration | None
    retries: int | None
    callback: str | None
    failure_callback: str | None
    queue: str | None
    method: str | None
    label: str | Sequence[str] | None
    timeout: Duration | None
    flow_control: FlowControl | None
    settings: Mapping[str, str] | None


def text(name: str, value: object) -> str:
    """Return a string as UTF-8, with one character per byte."""
    if not isinstance(value, str):
        raise ContractError(f"{name}={value!r} is not a string; pass a str")
    return as_wire(value)


def service_duration(name: str, value: Duration) -> str:
    """Return a duration as the service writes it (``"90s"``, ``"1500000us"``)."""
    microseconds = duration_us(value)
    seconds, fraction = divmod(microseconds, 1_000_000)
    return f"{microseconds}us" if fraction else f"{seconds}s"


def body_of(options: MessageOptions) -> bytes:
    body = options.get("body", b"")
    if "json" in options:
        if body != b"":
            raise ContractError("pass json= or body=, not both")
        return json_bytes("json", options["json"])
    if isinstance(body, str | bytes | bytearray | memoryview):
        return bytes_of(body)
    raise ContractError(
        f"body={body!r} is invalid; pass bytes or a string, or json= for any other value"
    )


def setting_pairs(settings: object) -> HeaderList:
    pairs = _pairs("settings", settings)
    for name, _ in pairs:
        if unprefixed(name) is None and name.lower() != "content-type":
            raise ContractError(
                f"settings={{{name!r}: ...}} is not a header of the service; pass"
                f" 'Upstash-{name}', or use headers= for the destination's headers"
            )
    return pairs


def labels_of(name: str, label: object) -> str:
    labels = [label] if isinstance(label, str) or not isinstance(label, Iterable) else [*label]
    return ",".join(text(name, value) for value in labels)


def flow_control_pairs(flow_control: object) -> HeaderList:
    names = FlowControl.__annotations__
    if not isinstance(flow_control, Mapping) or "key" not in flow_control:
        raise ContractError(
            f"flow_control={flow_control!r} is invalid; pass a dict of {', '.join(names)}, of which"
            " key is required"
        )
    limits = []
    for name, value in flow_control.items():
        if name not in names:
            raise ContractError(unknown_name("key of flow_control", name, names))
        if name == "period":
            limits.append(f"period={service_duration('period', value)}")
        elif name != "key":
            if isinstance(value, bool) or not isinstance(value, int):
                raise ContractError(
                    f"flow_control[{name!r}]={value!r} is invalid; pass a whole number"
                )
            limits.append(f"{name}={value}")
    pairs = [("Upstash-Flow-Control-Key", text("flow_control['key']", flow_control["key"]))]
    if limits:
        pairs.append(("Upstash-Flow-Control-Value", ",".join(limits)))
    return pairs


_FORMATS: dict[str, Callable[[str, Any], str]] = {
    "method": text,
    "callback": text,
    "failure_callback": text,
    "deduplication_id": text,
    "retries": lambda _, value: str(value),
    "label": labels_of,
    "delay": service_duration,
    "timeout": service_duration,
}
"""For each argument that becomes a header of the same name, the function that formats it."""


def publish_pairs(options: MessageOptions, deduplication_id: str | None = None) -> HeaderList:
    """Return the headers of a request to publish a message or to create a schedule."""
    pairs = setting_pairs(options.get("settings"))
    forward = _pairs("headers", options.get("headers"))
    pairs += [(f"Upstash-Forward-{name}", value) for name, value in forward]
    arguments = {**options, "deduplication_id": deduplication_id}
    for name, formatted in _FORMATS.items():
        value = arguments.get(name)
        if value is not None:
            header = canonical(name.replace("_", "-"))
            pairs.append((f"Upstash-{header}", formatted(name, value)))
    flow_control = options.get("flow_control")
    if flow_control is not None:
        pairs += flow_control_pairs(flow_control)
    if "json" in options:
        pairs.append(("Content-Type", "application/json"))
    return pairs


def _pairs(what: str, headers: object) -> HeaderList:
    if headers is None:
        return []
    if not isinstance(headers, Mapping):
        raise ContractError(f"{what}={headers!r} is invalid; pass a dict of strings")
    return [
        (text(f"{what} name", name), text(f"{what}[{name!r}]", headers[name])) for name in headers
    ]


class QueueActions:
    """Mixin of ``Queue`` with the actions of a client. These calls are not recorded in the journal."""

    _engine: Engine

    @action
    def publish(
        self,
        url: str,
        *,
        deduplication_id: str | None = None,
        api: Api = "v2",
        **options: Unpack[MessageOptions],
    ) -> PublishedMessage:
        """Publish a message without HTTP and return it, or the first message if ``url`` is a URL
        group.

        The other arguments are ``json`` or ``body``, ``headers``, ``delay``, ``retries``,
        ``callback``, ``failure_callback``, ``queue``, ``method``, ``label``, ``timeout``,
        ``flow_control`` and ``settings``. ``headers`` are forwarded to the destination.
        ``flow_control`` is a dict of a key and its limits:
        `{"key": "tenant-1", "parallelism": 2, "rate": 10, "period": "1m"}`. ``settings`` are
        additional ``Upstash-*`` headers of the request. Raises ``QueueError`` where the service
        would return an error, and ``ContractError`` for arguments that no request could contain.
        """
        __tracebackhide__ = True
        choice("v1", "v2").read("api", api)
        pairs = publish_pairs(options, deduplication_id)
        result = self._publish(url, pairs, options, api=api)
        if not result.accepted:
            raise ContractError(f"nothing was published to {url!r}: the group has no endpoints")
        return PublishedMessage(self._engine, result.accepted[0].message_id)

    @action
    def schedule(
        self, url: str, cron: str, *, id: str | None = None, **options: Unpack[MessageOptions]
    ) -> ScheduleView:
        """Create a schedule, or replace the schedule with that id.

        ``cron`` is a cron expression, with an optional time zone: `"CRON_TZ=Europe/Berlin 0 9 * * *"`.
        The other arguments are those of ``publish()``, for each message that the schedule publishes.
        Raises ``QueueError`` where the service would return an error, and ``ContractError`` for
        arguments that no request could contain.
        """
        __tracebackhide__ = True
        pairs = [("Upstash-Cron", text("cron", cron))]
        if id is not None:
            pairs.append(("Upstash-Schedule-Id", text("id", id)))
        pairs += publish_pairs(options)
        result = self._publish(url, pairs, options, schedule_only=True)
        return ScheduleView(self._engine, str(result.schedule_id))

    def _publish(
        self, url: str, pairs: HeaderList, options: MessageOptions, **request: Any
    ) -> Published:
        __tracebackhide__ = True
        _check_open(self._engine)
        for name in options:
            if name not in MessageOptions.__annotations__:
                raise TypeError(f"unexpected keyword argument {name!r}")
        queue = options.get("queue")
        return self._engine.publisher.publish(
            text("url", url),
            pairs,
            body_of(options),
            queue_name=None if queue is None else text("queue", queue),
            **request,
        )


class _Trial(QueueActions):
    """A copy of a queue with the same rules, on its own frozen clock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.twin(Timekeeper(now=engine.clock.now()), Ids(0))
        self.saved = engine.snapshot()
        self._engine.restore(self.saved)


def _check_open(engine: Engine) -> None:
    __tracebackhide__ = True
    if engine.data.closed:
        raise ContractError(f"{engine.owner.name} is closed: create another one")


def load(queue: QueueActions, content: Mapping[str, Any]) -> None:
    __tracebackhide__ = True
    _check_open(queue._engine)
    data = _known("the data", content, ("url_groups", "queues", "schedules", "messages"))
    messages = _published("a message", "messages", data, QueueActions.publish)
    schedules = _published("a schedule", "schedules", data, QueueActions.schedule)
    with queue._engine.lock:
        trial = _Trial(queue._engine)
        _load_into(trial, data, schedules, messages)
        try:
            _load_into(queue, data, schedules, messages)
        except BaseException:
            # The data are valid, so a signal's handler has interrupted it.
            queue._engine.restore(trial.saved)
            queue._engine.restore_numbers(trial.saved)
            raise


def _load_into(
    place: QueueActions,
    data: Mapping[str, Any],
    schedules: list[dict[str, Any]],
    messages: list[dict[str, Any]],
) -> None:
    _add(place, data)
    for schedule in schedules:
        place.schedule(**schedule)
    for message in messages:
        place.publish(**message)


def _add(place: QueueActions, data: Mapping[str, Any]) -> None:
    """Add the URL groups and queues; raise an error for the first invalid part."""
    engine = place._engine
    for name, endpoints in _typed("url_groups", data.get("url_groups", {}), dict).items():
        group = text("url_groups name", name)
        pairs = [_endpoint(name, endpoint) for endpoint in _typed(name, endpoints, list)]
        engine.url_groups.add_all(group, pairs)
    for name, settings in _typed("queues", data.get("queues", {}), dict).items():
        engine.queues.upsert(text("queues name", name), **_queue(name, settings))


def _endpoint(group: str, endpoint: object) -> tuple[str, str | None]:
    fields: dict[str, Any] = {"url": endpoint}
    if isinstance(endpoint, Mapping):
        fields = _known(f"an endpoint of {group}", endpoint, ("url", "name"))
    name = fields.get("name")
    if name is not None:
        text("name", name)
    return text("url", fields.get("url")), name


QUEUE_SETTINGS = ("parallelism", "paused")
"""Fields of a queue that data to load can have. `Queues.upsert()` takes them."""


def _queue(name: str, fields: object) -> dict[str, Any]:
    settings = {} if fields is None else _known(f"queue {name}", fields, QUEUE_SETTINGS)
    whole(1).read("parallelism", settings.setdefault("parallelism", 1))
    SWITCH.read("paused", settings.setdefault("paused", False))
    return settings | {"paused": bool(settings["paused"])}


def _published(
    where: str, part: str, data: Mapping[str, Any], method: Callable[..., Any]
) -> list[dict[str, Any]]:
    calls = [_keywords(where, item, method) for item in _typed(part, data.get(part, []), list)]
    for arguments in calls:
        if isinstance(arguments.get("label"), Iterator):
            # Copy an iterator, because it is used twice, for the copy and for the queue.
            arguments["label"] = [*arguments["label"]]
    return calls


def _typed(name: str, value: object, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ContractError(f"load(): {name} must be a {kind.__name__}, got {value!r}")
    return value


def _known(where: str, fields: object, expected: Iterable[str]) -> dict[str, Any]:
    """Return a mapping as a dict; raise ``ContractError`` for unknown keys."""
    if not isinstance(fields, Mapping):
        raise ContractError(f"load(): {where} must be a dict, got {fields!r}")
    names = list(expected)
    unknown = [name for name in fields if name not in names]
    if unknown:
        raise ContractError(f"load(): {unknown_name(f'key of {where}', unknown[0], names)}")
    return dict(fields)


def _keywords(where: str, fields: object, method: Callable[..., Any]) -> dict[str, Any]:
    """Return keyword arguments for a method; raise ``ContractError`` if any is unknown or missing."""
    own = {
        name: parameter
        for name, parameter in inspect.signature(method).parameters.items()
        if name not in ("self", "options")
    }
    keywords = _known(where, fields, [*own, *MessageOptions.__annotations__])
    missing = [
        name
        for name, parameter in own.items()
        if parameter.default is parameter.empty and name not in keywords
    ]
    if missing:
        raise ContractError(f"load(): {where} needs {', '.join(missing)}, got {fields!r}")
    return keywords


class Attempts(Results[Attempt]):
    """The attempts that a call made, oldest first. ``waiting`` describes the undelivered messages."""

    waiting: str = "nothing"
    _fields = ATTEMPTS
    _kind = "attempt"


class NotIdleError(FakecloudError, AssertionError):
    """Raised if a queue still has messages to deliver when the given time has passed.

    ``run_until_idle(within=...)`` raises it with the timelines of the first undelivered messages.
    """

    __module__ = "pytest_fakecloud"


def run(engine: Engine, targets: Iterable[Target]) -> Attempts:
    """Move the clock to each of these times in this thread, and make the attempts due until then."""
    __tracebackhide__ = True
    _check_open(engine)
    fired: list[Fired] = []
    with engine.clock.moving_call():
        for target in targets:
            fired += engine.clock.fire(target)
        return _report(engine, fired)


async def run_async(engine: Engine, targets: Iterable[Target]) -> Attempts:
    """Like ``run()``, but await the attempts in the running event loop."""
    __tracebackhide__ = True
    _check_open(engine)
    fired: list[Fired] = []
    with engine.clock.moving_call():
        for target in targets:
            fired += await engine.clock.fire_async(target)
        return _report(engine, fired)


def until_idle(engine: Engine, within: Duration) -> Iterator[Target]:
    """Yield the due times of all messages; raise ``NotIdleError`` before the moves of the clock to them
    add up to more than ``within``.
    """
    __tracebackhide__ = True
    clock = engine.clock
    # Limit the moves only. A running clock also moves during the deliveries, after which a message
    # with a delay of exactly ``within`` would be due too late.
    left = duration_us(within)
    yield clock.now_us
    while engine.data.pending:
        due = engine.next_due_us()
        if due is None:
            break
        move = max(0, due - clock.now_us())
        if move > left:
            pending = list(engine.data.pending.values())
            lines = [
                f"the queue is not idle after {within!r}: the next message is due at"
                f" {to_datetime(due).isoformat()}, and the clock is at"
                f" {to_datetime(clock.now_us()).isoformat()};"
                f" {counted(len(pending), 'undelivered message')}. Pass a longer within=, or cancel"
                " them"
            ]
            lines += [timeline(engine, message) for message in pending[:3]]
            raise NotIdleError("\n".join(lines))
        left -= move
        yield partial(at_least_now, clock, due)


def _report(engine: Engine, fired: Iterable[Fired]) -> Attempts:
    attempts = Attempts(())
    for event in fired:
        if isinstance(event.result, Attempt) and event.result.message_id in engine.data.messages:
            attempts.append(event.result)
    if engine.data.pending:
        attempts.waiting = unfinished_text(engine)
    return attempts


def at_least_now(clock: Timekeeper, instant_us: int) -> int:
    # Do not go back: a running clock may already be later than the due time.
    return max(instant_us, clock.now_us())


class QueueAio(Aio["AsyncQStash"]):
    """The asynchronous client, and awaitable versions of the methods that deliver, for destinations
    in the test's own event loop.
    """

    _fake: Queue
    _make: Callable[..., AsyncQStash]

    async def deliver_due(self) -> Attempts:
        """Awaitable version of ``Queue.deliver_due``."""
        __tracebackhide__ = True
        engine = core_of(self._fake).engine
        return await run_async(engine, [engine.clock.now_us])

    async def run_until_idle(self, within: Duration = "30d") -> Attempts:
        """Awaitable version of ``Queue.run_until_idle``."""
        __tracebackhide__ = True
        engine = core_of(self._fake).engine
        return await run_async(engine, until_idle(engine, within))
