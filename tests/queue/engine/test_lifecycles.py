"""Test random lifecycles: no message is lost, whatever is paused, cancelled, crashed or restored.

The state machine drives an engine whose destinations behave as their URLs say. At the end it
resumes and drains everything and checks the whole history.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.core.timers import to_datetime
from pytest_fakecloud.queue.engine.engine import Engine
from pytest_fakecloud.queue.model import DAY, SECOND, Delivery, FaultDecisions, Message, Outcome
from pytest_fakecloud.queue.saved import plain_of, read_copy
from pytest_fakecloud.queue.settings import PlanLimits, QueueConfig
from pytest_fakecloud.queue.wire.waits import next_wait

from .bench import FakeSigner

QUEUES = ("single", "wide")
FLOWS = ("narrow", "slow")
FLOW_VALUES = {"narrow": "parallelism=1", "slow": "rate=2,period=1m"}
ENDS = {"DELIVERED", "FAILED", "CANCELED"}


class CrashNow(FaultDecisions):
    """Crash after the next response, once."""

    def __init__(self) -> None:
        self.armed = False
        self.crashed = 0

    def before(self, message: Message, delivery: Delivery) -> tuple[str, ...]:
        if not self.armed:
            return ()
        self.armed = False
        self.crashed += 1
        return ("crash_after_response",)


def outcome_of(delivery: Delivery) -> Outcome:
    """Return the outcome for a URL: ``/fail2/take5`` fails twice and takes 5 s."""
    failing = re.search(r"/fail(\d+)", delivery.url)
    taking = re.search(r"/take(\d+)", delivery.url)
    took = int(taking.group(1)) * SECOND if taking else 0
    if failing and delivery.attempt < int(failing.group(1)):
        headers = [("Retry-After", "7")] if "/after" in delivery.url else []
        if "/refuse" in delivery.url:
            return Outcome(exception=ConnectionRefusedError("no"), virtual_us=took)
        return Outcome(503, headers, virtual_us=took)
    return Outcome(200, virtual_us=took)


paths = st.builds(
    lambda fail, take, more: f"https://app.example.com{fail}{take}{more}",
    st.sampled_from(["", "", "/fail1", "/fail2", "/fail9"]),
    st.sampled_from(["", "", "/take5", "/take90"]),
    st.sampled_from(["", "/after", "/refuse"]),
)
callbacks = st.sampled_from(
    [None, None, *(f"https://cb.example.com/{path}" for path in ("", "fail1", "fail9/take5"))]
)


class Lives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Timekeeper(now="2026-03-01T00:00:00Z")
        signer = FakeSigner()
        self.engine = Engine(
            self.clock,
            Ids(7),
            perform=self._perform,
            keys=signer.keys,
            settings=QueueConfig(limits={"retention_us": 36_500 * DAY}),
        )
        self.crash = CrashNow()
        self.engine.deliveries.intercept(signer)
        self.engine.interceptors.faults.add(self.crash)
        self.sent: list[tuple[str, int, int]] = []
        self.accepted: set[str] = set()
        self.saved: tuple[list[Any], set[str], int, int] | None = None
        self.paused_at_some_time = False

    async def _perform(self, delivery: Delivery, in_loop: bool) -> Outcome:
        assert not self.engine.lock._is_owned()  # type: ignore[attr-defined]
        self.sent.append((delivery.message_id, delivery.attempt, self.clock.now_us()))
        return outcome_of(delivery)

    def _publish(self, destination: str, headers: dict[str, str], **options: Any) -> None:
        result = self.engine.publisher.publish(
            destination, list(headers.items()), b"body", **options
        )
        self.accepted |= {message.message_id for message in result.accepted}

    @initialize(most=st.sampled_from([None, None, 2]))
    def queues(self, most: int | None) -> None:
        self.engine.data.limits = PlanLimits(
            **vars(self.engine.data.limits) | {"parallelism": most}
        )
        self.engine.queues.upsert("single", parallelism=1, paused=False)
        self.engine.queues.upsert("wide", parallelism=2, paused=False)
        with self.engine.lock:
            group = self.engine.url_groups.create("group")
            for number in (1, 2):
                self.engine.url_groups.add(
                    group, f"https://g{number}.example.com/fail{number}", None
                )

    @rule(
        url=st.one_of(paths, st.just("group")),
        retries=st.integers(0, 3),
        delay=st.sampled_from([0, 0, 30, 3600]),
        callback=callbacks,
        failure=callbacks,
        queue=st.sampled_from([None, None, *QUEUES]),
        flow=st.sampled_from([None, None, *FLOWS]),
        fixed=st.booleans(),
        api=st.sampled_from(["v2", "v2", "v1"]),
    )
    def publish(
        self,
        url: str,
        retries: int,
        delay: int,
        callback: str | None,
        failure: str | None,
        queue: str | None,
        flow: str | None,
        fixed: bool,
        api: Any,
    ) -> None:
        headers = {"Upstash-Retries": str(retries)}
        if delay:
            headers["Upstash-Delay"] = f"{delay}s"
        if callback:
            headers["Upstash-Callback"] = callback
        if failure:
            headers["Upstash-Failure-Callback"] = failure
        if flow:
            headers["Upstash-Flow-Control-Key"] = flow
            headers["Upstash-Flow-Control-Value"] = FLOW_VALUES[flow]
        if fixed:
            headers["Upstash-Retry-Delay"] = "5000 * (retried + 1)"
        if queue:
            headers["Upstash-Queue-Name"] = queue
        self._publish(url, headers, api=api)

    @rule(number=st.integers(0, 3))
    def publish_perhaps_again(self, number: int) -> None:
        self._publish("https://app.example.com/", {"Upstash-Deduplication-Id": f"d{number}"})

    @rule(span=st.sampled_from(["0s", "1s", "13s", "2m", "1h", "25h"]))
    def advance(self, span: str) -> None:
        self.clock.advance(span)

    @rule()
    def advance_to_next(self) -> None:
        self.clock.advance_to_next()

    @rule(name=st.sampled_from(QUEUES), pause=st.booleans())
    def pause_queue(self, name: str, pause: bool) -> None:
        self.paused_at_some_time = True
        self.engine.queues.set_paused(name, pause)

    @rule(name=st.sampled_from(FLOWS), pause=st.booleans())
    def pause_flow(self, name: str, pause: bool) -> None:
        self.paused_at_some_time = True
        with self.engine.lock:
            key = self.engine.flow_control.by_name.get(name)
            if key is not None:
                key.paused = pause
                self.engine.flow_control.start_waiting(key)

    @rule(pick=st.integers(0, 1000))
    def cancel(self, pick: int) -> None:
        pending = list(self.engine.data.pending.values())
        if pending:
            self.engine.lifecycle.cancel_all([pending[pick % len(pending)]])

    @rule(pick=st.integers(0, 1000))
    def retry_dead_letter(self, pick: int) -> None:
        rows = self.engine.dead_letters.all()
        if rows:
            row = rows[pick % len(rows)]
            (again,) = self.engine.publisher.retry_dead_letters([row])
            self.engine.dead_letters.delete([row])
            self.accepted.add(again.message_id)

    @rule()
    def crash_after_response(self) -> None:
        self.crash.armed = True

    @rule(minutes=st.sampled_from(["*/20", "5"]))
    def schedule(self, minutes: str) -> None:
        self._publish(
            "https://s.example.com/fail1",
            {"Upstash-Cron": f"{minutes} * * * *", "Upstash-Schedule-Id": "only"},
        )

    @rule()
    def unschedule(self) -> None:
        if "only" in self.engine.schedules.by_id:
            self.engine.schedules.delete("only")

    @rule()
    def save(self) -> None:
        self.saved = (
            self.engine.snapshot(),
            set(self.accepted),
            len(self.sent),
            self.crash.crashed,
        )

    @rule()
    def restore(self) -> None:
        if self.saved is not None:
            data, accepted, count, crashed = self.saved
            self.engine.restore(data)
            self.accepted = set(accepted)
            self.crash.crashed = crashed
            del self.sent[count:]
            # The clock is not restored, so attempts of the snapshot may be late.
            self.paused_at_some_time = True

    @rule()
    def restart(self) -> None:
        """Load what a file keeps of the engine, as a server does when it starts again."""
        content = json.loads(json.dumps(plain_of(self.engine.snapshot())))
        self.engine.restore(read_copy(content, "saved"))

    @invariant()
    def who_is_pending_waits_for_something(self) -> None:
        engine = self.engine
        for message in engine.data.pending.values():
            assert message.state not in ENDS
            waits = (
                message.due_us is not None
                or message.id in engine.data.answered
                or any(
                    message.id in queue.waiting or message.id in queue.parked
                    for queue in engine.queues.by_name.values()
                )
                or message.id in engine.flow_control.waiting_for_slot
                or any(message.id in key.waiting for key in engine.flow_control.by_name.values())
            )
            assert waits, message
        for queue in engine.queues.by_name.values():
            assert len(queue.active) <= queue.parallelism
        narrow = engine.flow_control.by_name.get("narrow")
        assert narrow is None or len(narrow.active) <= 1
        assert set(engine.data.answered) <= engine.flow_control.slots
        assert all(
            message_id in engine.data.answered
            or engine.data.messages[message_id].due_us is not None
            for message_id in engine.flow_control.slots
        )
        most = engine.data.limits.parallelism
        assert most is None or len(engine.flow_control.slots) <= most

    def teardown(self) -> None:
        engine = self.engine
        self.crash.armed = False
        self.unschedule()
        for name in QUEUES:
            engine.queues.set_paused(name, False)
        for key in engine.flow_control.by_name.values():
            key.paused = False
            engine.flow_control.start_waiting(key)
        steps = 0
        while self.clock.next_due_us() is not None:
            self.clock.move_to(to_datetime(max(self.clock.next_due_us() or 0, self.clock.now_us())))
            steps += 1
            assert steps < 20_000
        self._everything_ended_once()
        self._attempts_were_on_time()
        self._queues_kept_order()
        self._flows_kept_their_limits()
        self._callbacks_match_attempts()
        super().teardown()

    def _everything_ended_once(self) -> None:
        engine = self.engine
        assert not engine.data.pending
        assert not engine.data.answered
        assert not engine.flow_control.slots
        assert self.accepted <= set(engine.data.messages) | set(engine.data.groups_of_tasks)
        for message in engine.data.messages.values():
            ends = [entry.state for entry in message.log if entry.state in ENDS]
            assert ends == [message.state]
            assert (message.dlq_id is not None) == (message.state == "FAILED")
            assert message.open_children == 0
        sends = Counter((message_id, attempt) for message_id, attempt, _ in self.sent)
        tasks = {task for ids in engine.data.groups_of_tasks.values() for task in ids}
        shared = {engine.data.messages[task].public_id for task in tasks}
        extra = sum(n - 1 for (key, _), n in sends.items() if key not in shared)
        assert extra <= self.crash.crashed

    def _attempts_were_on_time(self) -> None:
        for message in self.engine.data.messages.values():
            for attempt in message.attempts:
                assert attempt.at_us >= message.not_before_us
            held = message.queue_name or message.settings.flow or self.paused_at_some_time
            held = held or self.engine.data.limits.parallelism
            if held or not message.attempts:
                continue
            assert message.attempts[0].at_us == message.not_before_us
            retried = 0
            for before, attempt in zip(message.attempts, message.attempts[1:], strict=False):
                assert before.ended_us is not None
                if before.state == "lost":
                    assert attempt.at_us == before.ended_us
                    continue
                wait, _ = next_wait(
                    message.settings.retry_delay, retried, before.headers.pairs, before.ended_us
                )
                assert attempt.at_us == before.ended_us + wait
                retried += 1

    def _queues_kept_order(self) -> None:
        if self.saved is not None:
            return
        in_queue = sorted(
            (
                message
                for message in self.engine.data.messages.values()
                if message.queue_name == "single"
            ),
            key=lambda item: item.number,
        )
        free_from = 0
        for message in in_queue:
            if message.attempts:
                assert message.attempts[0].at_us >= free_from
                ends = [message, *self._about(message)]
                if message.state != "CANCELED":
                    free_from = max(free_from, *(_left_us(end) for end in ends))
        for name in QUEUES:
            started = [
                queued.attempts[0].sequence
                for queued in sorted(
                    self.engine.data.messages.values(), key=lambda item: item.number
                )
                if queued.queue_name == name
                and queued.attempts
                and queued.settings.flow is None
                and not queued.settings.delay_us
            ]
            assert started == sorted(started)

    def _about(self, message: Message) -> list[Message]:
        direct = [
            caused
            for caused in self.engine.data.messages.values()
            if caused.source_id == message.id
        ]
        return direct + [deeper for caused in direct for deeper in self._about(caused)]

    def _flows_kept_their_limits(self) -> None:
        spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for message in self.engine.data.messages.values():
            if message.settings.flow is not None:
                for attempt in message.attempts:
                    end = attempt.ended_us or attempt.at_us
                    spans[message.settings.flow.key].append((attempt.at_us, end))
        for (_, end), (start, _) in zip(
            sorted(spans["narrow"]), sorted(spans["narrow"])[1:], strict=False
        ):
            assert start >= end
        if self.saved is None:
            key = self.engine.flow_control.by_name.get("slow")
            if key is not None:
                windows = Counter(
                    (start - key.period_start_us) // key.period_us for start, _ in spans["slow"]
                )
                assert all(count <= 2 for count in windows.values())

    def _callbacks_match_attempts(self) -> None:
        about: dict[str, list[Message]] = defaultdict(list)
        for message in self.engine.data.messages.values():
            if message.source_id is not None:
                about[message.source_id].append(message)
        for message in self.engine.data.messages.values():
            kinds = Counter(caused.kind for caused in about[message.id])
            attempts = [attempt for attempt in message.attempts if attempt.state != "lost"]
            wanted = len(attempts) if message.settings.callback else 0
            assert kinds["callback"] == wanted
            failed = message.state == "FAILED" and message.api == "v2"
            assert kinds["failure_callback"] == int(
                failed and message.settings.failure_callback is not None
            )
            reports = [
                json.loads(caused.body) for caused in about[message.id] if caused.kind == "callback"
            ]
            answered = [attempt.status or 0 for attempt in attempts]
            assert [report["status"] for report in reports] == (answered if wanted else [])


def _left_us(message: Message) -> int:
    """Return when a message stopped blocking others: for a cancelled one, when it was cancelled."""
    for entry in message.log:
        if entry.state == "CANCEL_REQUESTED":
            return entry.time_us
    return message.finished_us or 0


Lives.TestCase.settings = settings(
    stateful_step_count=40, suppress_health_check=[HealthCheck.too_slow]
)
TestLives = Lives.TestCase
