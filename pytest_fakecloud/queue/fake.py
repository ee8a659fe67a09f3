"""The ``Queue`` class, the type of the ``queue`` fixture."""

from __future__ import annotations

import base64
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import urandom
from typing import TYPE_CHECKING, Any, ClassVar, Unpack
from urllib.parse import urlsplit

import orjson

from ..cloud.actions import action, look
from ..cloud.fake import Snapshot, secrets_of
from ..core.calls import Call
from ..core.errors import ContractError, brief, counted, did_you_mean, listed, shown
from ..core.field_types import MESSAGE_ID
from ..core.ids import BASE58, Ids, new_token
from ..core.journal import Results, expect, results_of
from ..core.matching import Query
from ..core.timers import Duration, weakly
from ..http.messages import bytes_of
from .actions import Attempts, QueueActions, QueueAio, load, run, text, until_idle
from .attempt_reports import AttemptReports, DeliveryViolations, FinishedDelivery, unfinished_text
from .delivery.destinations import Destinations, Sender
from .delivery.faults import DeliveryFaults, QueueFaults
from .engine.engine import Engine
from .model import DAY, Attempt, DeliveryInterceptor, SigningKeys
from .rest.app import QueueApp
from .settings import QueueConfig
from .signatures import Signer, explain
from .signatures import signature_clock as clock_of_signatures
from .views import (
    ATTEMPTS,
    DEAD_LETTERS,
    MESSAGES,
    SCHEDULES,
    STATE_NAMES,
    DeadLetterView,
    PublishedMessage,
    ScheduleView,
    found_messages,
    record_of,
)
from .wire.values import as_text

if TYPE_CHECKING:
    from qstash import QStash

    from .._typing.queue import AttemptFields, DeadLetterFields, ListedFields, MessageFields
    from .._typing.queue import QueueFake as Fake
    from .._typing.queue import QueueSettings as QueueSettings
    from ..http.hub import Mount
else:
    # For type checkers, ``_typing/queue.pyi`` declares this base class with the keywords of filters.
    from ..cloud.fake import Fake
    from ..core.settings import keywords_of

    QueueSettings = keywords_of(QueueConfig, "``Cloud.queue()`` and of the marker")

DEV_TOKEN = "eyJVc2VySUQiOiJkZWZhdWx0VXNlciIsIlBhc3N3b3JkIjoiZGVmYXVsdFBhc3N3b3JkIn0="
DEV_KEYS = ("sig_7kYjw48mhY7kAjqNGcy6cr29RJ6r", "sig_5ZB6DVzB1wjE8S6rZ7eenA8Pdnhs")
"""The vendor's public development credentials, which its development server and its clients know."""
_SHOWN = 3
"""Maximum number of undelivered messages listed in the warning."""
_LONGEST_CAP = 86_400.0
"""Maximum of ``attempt_cap`` in seconds. Operating systems can wait no longer than a few weeks."""
_COMPARED = 1000
"""Maximum number of messages whose ids are compared with an unknown one; more would take seconds."""
_SERVED_HISTORY_US = 7 * DAY


_BASE58_OF_BYTES = bytes(ord(BASE58[byte % len(BASE58)]) for byte in range(256))


def _new_key() -> str:
    return "sig_" + urandom(28).translate(_BASE58_OF_BYTES).decode()


class Queue(QueueActions, Fake):
    """A fake of QStash, the HTTP message queue.

    ``settings`` are the keyword arguments in ``QueueSettings``.
    ``read_only_token`` is a second token that permits GET requests only; other requests with it are
    rejected with 403. Raises ``ContractError`` for an invalid setting.
    """

    service: ClassVar[str] = "queue"
    fixture: ClassVar[str] = "queue"

    _config_class = QueueConfig
    _config: QueueConfig
    _token_names = ("token", "read_only_token")
    _other_credential_names = ("_signing_keys",)
    _engine: Engine
    _app: QueueApp
    faults: QueueFaults

    def _make_app(self) -> QueueApp:
        config, context, name = self._config, self._context, self.name
        if config.history_us is None and context.journal.keep is not None:
            config = QueueConfig(**vars(config) | {"history_us": _SERVED_HISTORY_US})
        self._delivery = config.delivery or context.delivery
        in_background = self._delivery == "background"
        recorder = weakref.proxy(context.recorder)
        violations = DeliveryViolations(name, context.violations, context.timekeeper)
        self._sender = Sender(
            Destinations(raise_exceptions=config.raise_exceptions, recorder=recorder, name=name),
            unstubbed=config.unstubbed,
            report=violations.report_unstubbed,
            report_raised=violations.report_raised,
            cap=float(min(config.attempt_cap, _LONGEST_CAP)),
            is_fake=weakly(self._is_fake),
            time_passes=weakly(self._time_passes),
            side_by_side=in_background,
        )
        self._exits.callback(self._sender.close)
        release = self._sender.release
        self._exits.callback(self._timekeeper.moving_call_ends.remove, release)
        self._timekeeper.moving_call_ends.add(release)
        keys = DEV_KEYS if config.dev_credentials else (_new_key(), _new_key())
        self._signer = Signer(
            SigningKeys(*keys, _new_key),
            clock_of_signatures(config.signature_clock, context.timekeeper.now_us),
            context.ids.stream(name, "token ids"),
            header=f"{config.header_prefix}-Signature",
        )
        self._engine = Engine(
            context.timekeeper,
            context.ids,
            perform=self._sender.send,
            keys=self._signer.keys,
            name=name,
            settings=config,
            in_background=in_background,
            report=violations.report,
        )
        self._exits.callback(self._engine.close)
        self._engine.owner = weakref.proxy(self)
        self._reports = AttemptReports(self._engine, self._recorder, self._signer.now)
        self._engine.interceptors.faults.add(DeliveryFaults(self.faults))
        chain: list[DeliveryInterceptor] = [self._reports, self._signer]
        if in_background:
            chain.insert(1, violations)
        self._engine.deliveries.intercept(*chain)
        return QueueApp(self._instruments, self._engine, self._new_token())

    def _add_mount(self, mount: Mount) -> None:
        super()._add_mount(mount)
        # The engine enforces the plan's limits. Reject only bodies that are far too large here.
        limits = self._engine.data.limits
        mount.body_limit = 2 * max(limits.message_size, limits.batch_size)

    def _new_faults(self) -> QueueFaults:
        return QueueFaults(self._context.ids.stream(self.name, "faults"), self._timekeeper)

    @property
    def delivery(self) -> str:
        """``"driven"`` if calls of the test deliver messages, ``"background"`` if threads do."""
        return self._delivery

    @property
    def signature_clock(self) -> str:
        """The clock for the times in signatures: ``"receiver"``, ``"real"`` or ``"virtual"``."""
        return self._engine.data.settings.signature_clock

    @property
    def destinations(self) -> Destinations:
        """The handlers to which the queue delivers, by URL."""
        return self._sender.destinations

    # -- credentials and clients -----------------------------------------------------------------

    @property
    def current_signing_key(self) -> str:
        """The key that signs deliveries."""
        return self._engine.keys.current

    @property
    def next_signing_key(self) -> str:
        """The key that will sign deliveries after a rotation."""
        return self._engine.keys.next

    @property
    def read_only_token(self) -> str:
        """The token that permits GET requests only."""
        return self._app.read_only_token

    @read_only_token.setter
    def read_only_token(self, token: str) -> None:
        self._app.read_only_token = token

    @property
    def _signing_keys(self) -> tuple[str, str]:
        return self.current_signing_key, self.next_signing_key

    @_signing_keys.setter
    def _signing_keys(self, keys: tuple[str, str]) -> None:
        self._engine.keys.current, self._engine.keys.next = keys

    def _first_token(self) -> str:
        if self._config.dev_credentials and self._config.token is None:
            return DEV_TOKEN
        return super()._first_token()

    def _new_token(self) -> str:
        # Clients parse the user's id. The lengths 24 and 48 need no Base64 padding.
        content = {"UserID": new_token(24), "Password": new_token()}
        return base64.b64encode(orjson.dumps(content)).decode()

    @action
    def rotate_keys(self) -> tuple[str, str]:
        """Make the next signing key the current one, create a new next key, and return both."""
        self._context.former_secrets |= secrets_of(self)
        with self._engine.lock:
            keys = self._engine.keys
            keys.rotate()
            return keys.current, keys.next

    def explain_signature(
        self, signature: str | None, *, body: bytes | str, url: str | None = None
    ) -> str | None:
        """Return why a signature does not verify with this queue's keys, or None if it does.

        The official receivers report only the error of the second key. This method reports all
        errors, at the time that the queue's signatures use. ``url`` is the address at which the
        receiver was called.
        """
        token = None if signature is None else text("signature", signature)
        if url is not None:
            text("url", url)
        keys, now = self._engine.keys, self._signer.now()
        return explain(token, body=bytes_of(body), keys=keys, at=now, url=url)

    @property
    def env(self) -> dict[str, str]:
        """The environment variables that the official clients read, with this queue's values."""
        variables = {
            "QSTASH_URL": self.url,
            "QSTASH_TOKEN": self.token,
            "QSTASH_CURRENT_SIGNING_KEY": self.current_signing_key,
            "QSTASH_NEXT_SIGNING_KEY": self.next_signing_key,
            # Hide the developer's own QSTASH_REGION. Clients treat "" as missing.
            "QSTASH_REGION": "",
        }
        if self.token == DEV_TOKEN:
            return variables | {"QSTASH_DEV_PORT": str(urlsplit(self.url).port)}
        return variables | {"QSTASH_DEV": ""}

    def client(self, **options: Any) -> QStash:
        """Return the official client, configured for this fake.

        Raises ``ContractError`` if the client is not installed.
        """
        # It has no method of its own that closes it.
        client: QStash = self._official(
            partial(self._make, "QStash"), options, close="http._client.close"
        )
        return client

    def _make(self, name: str, **options: Any) -> Any:
        import qstash

        return getattr(qstash, name)(self.token, base_url=self.url, **{"retry": False, **options})

    def snapshot(self) -> Snapshot:
        """Return the current data and the state of the destinations."""
        return Snapshot(self.fixture, (self._engine.snapshot(), self.destinations._saved()))

    def _first_snapshot(self) -> Callable[[], Snapshot]:
        return partial(_first_snapshot, self._engine)

    def _forget_expectations(self) -> None:
        for route in self.destinations.routes():
            route._forget_expectation()

    def _unmet(self) -> list[str]:
        return [
            text for route in self.destinations.routes() if (text := route._unmet()) is not None
        ]

    @action
    def restore(self, snapshot: Snapshot) -> None:
        """Restore the data and the destinations of a snapshot. Journal, faults and clock do not
        change.
        """
        if isinstance(snapshot, Snapshot) and snapshot.fixture == self.fixture:
            data, routes = snapshot.data
            super().restore(snapshot._replace(data=data))
            self.destinations._restore(routes)
        else:
            # Raise the error about a snapshot of another fixture.
            super().restore(snapshot)

    @action
    def reset(self) -> None:
        super().reset()
        self._reports.forget()

    def _undo(self, snapshot: Snapshot) -> None:
        super()._undo(snapshot)
        data, _ = snapshot.data
        self._engine.restore_numbers(data)

    @action
    def load(self, data: Mapping[str, Any]) -> None:
        """Load URL groups, queues, schedules and messages. If anything is invalid, nothing is
        loaded.

        The data has the form `{"url_groups": {name: [url, ...]}, "queues": {name: {"parallelism":
        2}}, "schedules": [{"url", "cron", ...}], "messages": [{"url", ...}]}`. Each part is optional.
        The keys of a schedule are the arguments of ``schedule()``, those of a message the arguments of
        ``publish()``.
        """
        __tracebackhide__ = True
        load(self, data)

    # -- delivering ------------------------------------------------------------------------------

    @property
    def aio(self) -> QueueAio:
        """The asynchronous client, and awaitable versions of the methods that deliver messages."""
        return QueueAio(self, partial(self._make, "AsyncQStash"))

    def deliver_due(self) -> Attempts:
        """Deliver the messages that are due now, without moving the clock."""
        __tracebackhide__ = True
        return run(self._engine, [self._timekeeper.now_us])

    def run_until_idle(self, within: Duration = "30d") -> Attempts:
        """Move the clock from one due time to the next until every message is delivered.

        Schedules that become due on the way run, but the method does not wait for later runs.
        Stops early if the remaining messages wait for something other than time, such as a paused
        queue; ``.waiting`` of the result then has the reason.
        Raises ``NotIdleError`` if messages are still undelivered after ``within``, and ``LoopError`` if
        messages publish each other endlessly.
        """
        __tracebackhide__ = True
        return run(self._engine, until_idle(self._engine, within))

    def _undelivered(self) -> str | None:
        """Return a warning if the test published messages but neither delivered nor inspected any.

        Reading the journal, requesting messages from the service and injecting a fault into a
        request also count as inspecting. Messages of the baseline are not the test's. A queue that
        delivers in the background delivers what is due, so there the messages must be due later.
        """
        engine, recorder = self._engine, self._recorder
        if self._timekeeper.has_fired or engine.inspected or recorder.is_known:
            return None
        calls = [entry for entry in recorder.entries if isinstance(entry, Call)]
        if any(call.method == "GET" or call.fault is not None for call in calls):
            return None
        baseline, _ = self._baseline.snapshot.data
        with engine.lock:
            published = [
                message
                for id_, message in engine.data.messages.items()
                if id_ not in baseline.messages
            ]
            now = self._timekeeper.now_us()
            undelivered = [
                message for message in published if message.pending and message.kind == "message"
            ]
            if not undelivered or any(message.attempts for message in published):
                return None
            if self.delivery == "background" and not all(
                message.due_us is not None and message.due_us > now for message in undelivered
            ):
                return None
        requests = listed(
            [f"{message.settings.method} {as_text(message.url)}" for message in undelivered], _SHOWN
        )
        return (
            f"{self.name}: the test published {counted(len(undelivered), 'message')} and delivered "
            f"none of them: {requests}. Add {self.name}.run_until_idle()"
        )

    def _ran_in_another_thread(self) -> bool:
        return self._reports.ran_in_another_thread

    def _forget_looks(self) -> None:
        super()._forget_looks()
        self._engine.inspected = False

    def _time_passes(self) -> bool:
        return self.delivery == "background" and self.clock.mode == "running"

    def _is_fake(self, url: str) -> bool:
        return any(f"{url}/".startswith(f"{fake.url}/") for fake in self._context.fakes)

    # -- inspecting, without moving the clock -----------------------------------------------------

    def _note_inspection(self) -> None:
        self._engine.inspected = True
        self._timekeeper.settle()

    @look
    def messages(
        self, state: object = None, **where: Unpack[ListedFields]
    ) -> Results[PublishedMessage]:
        """Return the messages, including callbacks, in the order in which they were published.

        ``state`` is ``pending``, ``in_flight``, ``delivered``, ``dead_lettered`` or ``cancelled``,
        or a state name of the service. ``where`` are conditions on fields such as ``url``,
        ``label``, ``kind`` or ``queue``. Raises ``ContractError`` for a value that no message could
        have.
        """
        __tracebackhide__ = True
        self._note_inspection()
        of_service = isinstance(state, str) and state.upper() in STATE_NAMES
        conditions = _conditions(where, **{"service_state" if of_service else "state": state})
        query = Query(conditions, MESSAGES, "message")
        with self._engine.lock:
            self._engine.history.sweep()
            ids = list(self._engine.data.messages)
        messages = (PublishedMessage(self._engine, message_id) for message_id in ids)
        return found_messages(message for message in messages if query(message))

    @look
    def message(self, message_id: str) -> PublishedMessage:
        """Return the message with the given id; raise ``ContractError`` if it does not exist."""
        __tracebackhide__ = True
        self._note_inspection()
        if not isinstance(message_id, str):
            raise ContractError(
                f"message({shown(message_id)}) is invalid; pass the id of a message as a string"
            )
        # Return the first delivery of a v1 message to a topic, which has one delivery per endpoint.
        own_id = self._engine.data.task_ids(message_id)[0]
        if own_id not in self._engine.data.messages:
            latest_ids = [
                message.public_id
                for message in list(self._engine.data.messages.values())[-_COMPARED:]
            ]
            raise ContractError(
                f"this queue has no message {brief(message_id)}"
                f"{did_you_mean(message_id, latest_ids) or '.'} "
                f"Its latest messages: {listed(latest_ids[::-1]) or 'none'}"
            )
        return PublishedMessage(self._engine, own_id)

    @look
    def attempts(
        self, id: str | PublishedMessage | None = None, **where: Unpack[AttemptFields]
    ) -> Results[Attempt]:
        """Return all attempts, or the attempts of one message, oldest first.

        ``where`` are conditions on fields of an attempt, such as ``url`` or ``status``.
        """
        __tracebackhide__ = True
        self._note_inspection()
        query = Query(where, ATTEMPTS, "attempt")
        # The deliveries of a v1 message to a topic share their public id, but not their own id.
        message_id = record_of(id).id if isinstance(id, PublishedMessage) else id
        if message_id is not None and not isinstance(message_id, str):
            raise ContractError(
                f"attempts({shown(message_id)}) is invalid; pass a message or its id, or url="
            )
        MESSAGE_ID.check("id", message_id)
        with self._engine.lock:
            self._engine.history.sweep()
            messages = self._engine.data.messages
            attempts = [
                attempt
                for attempt in self._engine.data.attempts
                if message_id is None
                or message_id in (attempt.message_id, messages[attempt.message_id].public_id)
            ]
        return results_of(filter(query, attempts), ATTEMPTS, "attempt")

    @look
    def dead_letters(
        self, url: object = None, **where: Unpack[DeadLetterFields]
    ) -> Results[DeadLetterView]:
        """Return the dead letters that have not expired, oldest first.

        ``where`` are conditions on fields of a dead letter, such as ``status``.
        """
        __tracebackhide__ = True
        self._note_inspection()
        query = Query(_conditions(where, url=url), DEAD_LETTERS, "dead letter")
        with self._engine.lock:
            messages = self._engine.dead_letters.all()
        letters = (DeadLetterView(self._engine, message) for message in messages)
        return results_of(filter(query, letters), DEAD_LETTERS, "dead letter")

    @look
    def schedules(self) -> Results[ScheduleView]:
        """Return the schedules in the order in which they were created."""
        self._timekeeper.settle()
        schedules = (
            ScheduleView(self._engine, schedule_id)
            for schedule_id in list(self._engine.schedules.by_id)
        )
        return results_of(schedules, SCHEDULES, "schedule")

    # The look-ups with which reports repeat the actions on dead letters and schedules.

    def _dead_letter(self, id: str) -> DeadLetterView:
        return self.dead_letters(id=id).only()

    def _schedule(self, id: str) -> ScheduleView:
        return self.schedules().where(id=id).only()

    @look
    def pending(self) -> Results[PublishedMessage]:
        """Return the messages that are not yet delivered, dead-lettered or cancelled."""
        self._note_inspection()
        return found_messages(
            PublishedMessage(self._engine, message_id)
            for message_id in list(self._engine.data.pending)
        )

    @look
    def assert_published(
        self, url: object = None, *, times: int | None = None, **where: Unpack[MessageFields]
    ) -> Results[PublishedMessage]:
        """Assert that a matching message was published, and return all matching messages.

        ``times`` is the exact number of messages expected (at least one by default). Callbacks do
        not count, because the queue publishes them itself. The fields are those of ``messages()``.
        """
        __tracebackhide__ = True
        messages = self.messages()
        own = "a callback, which the queue published itself"
        return self._expect(
            "a message to be published",
            [message for message in messages if message.kind == "message"],
            _conditions(where, url=url),
            times,
            not_counted=((message, own) for message in messages if message.kind != "message"),
        )

    @look
    def assert_not_published(self, url: object = None, **where: Unpack[MessageFields]) -> None:
        """Assert that no matching message was published."""
        __tracebackhide__ = True
        self.assert_published(url, times=0, **where)

    @look
    def assert_delivered(
        self, url: object = None, *, times: int | None = None, **where: Unpack[MessageFields]
    ) -> Results[PublishedMessage]:
        """Assert that a matching message was delivered, and return all matching messages.

        ``times`` is the exact number of messages expected (at least one by default). Callbacks
        count. This method delivers nothing, so a message that is due but has not been attempted
        does not count.
        """
        __tracebackhide__ = True
        conditions = {**_conditions(where, url=url), "state": "delivered"}
        return self._expect("a message to be delivered", self.messages(), conditions, times)

    @look
    def assert_not_delivered(self, url: object = None, **where: Unpack[MessageFields]) -> None:
        """Assert that no matching message was delivered."""
        __tracebackhide__ = True
        self.assert_delivered(url, times=0, **where)

    @look
    def assert_dead_lettered(
        self, url: object = None, *, times: int | None = None, **where: Unpack[MessageFields]
    ) -> Results[PublishedMessage]:
        """Assert that a matching message was dead-lettered, and return all matching messages.

        ``times`` is the exact number of messages expected (at least one by default).
        """
        __tracebackhide__ = True
        conditions = {**_conditions(where, url=url), "state": "dead_lettered"}
        return self._expect("a message to be dead-lettered", self.messages(), conditions, times)

    @look
    def assert_not_dead_lettered(self, url: object = None, **where: Unpack[MessageFields]) -> None:
        """Assert that no matching message was dead-lettered."""
        __tracebackhide__ = True
        self.assert_dead_lettered(url, times=0, **where)

    def assert_idle(self) -> None:
        """Assert that every message is delivered, dead-lettered or cancelled."""
        __tracebackhide__ = True
        self._note_inspection()
        if self._engine.data.pending:
            raise AssertionError(f"the queue is not idle: {unfinished_text(self._engine)}")

    def _expect(
        self,
        what: str,
        messages: Iterable[PublishedMessage],
        conditions: Mapping[str, object],
        times: int | None,
        not_counted: Iterable[tuple[PublishedMessage, str]] = (),
    ) -> Results[PublishedMessage]:
        __tracebackhide__ = True
        query = Query(conditions, MESSAGES, "message")
        return expect(
            what,
            messages,
            query,
            times=times,
            show=lambda message: message.timeline,
            not_counted=[pair for pair in not_counted if query(pair[0])],
            if_empty=self._without_messages(),
        )

    def _without_messages(self) -> str:
        """Return what an assertion says if there are no messages, with the next run of a schedule."""
        active = [schedule for schedule in self.schedules() if not schedule.paused]
        runs = [time for schedule in active for time in schedule.next_runs(1)]
        if not runs:
            return "the queue has no messages"
        time = min(runs).isoformat()
        return (
            f"the queue has no messages; its next schedule runs at {time}: move the clock with "
            f"{self.name}.clock.move_to({time!r})"
        )


def _conditions(where: Mapping[str, Any], **first: object) -> dict[str, object]:
    """Merge conditions on fields; a condition in ``first`` that is None is left out."""
    return {name: value for name, value in first.items() if value is not None} | dict(where)


def finished_deliveries(queue: Queue) -> Iterable[FinishedDelivery]:
    """Return the most recent deliveries of a queue, for reports and replays."""
    return queue._reports.finished


def _first_snapshot(engine: Engine) -> Snapshot:
    """Return the data of a new queue, without destinations."""
    new = engine.twin(engine.clock, Ids(0))
    try:
        return Snapshot(Queue.fixture, (new.snapshot(), Destinations()._saved()))
    finally:
        new.close()
