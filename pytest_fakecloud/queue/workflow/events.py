"""Events that workflow runs wait for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..errors import bad_request
from ..model import HeaderList
from ..wire.delivery import encoded
from ..wire.text import as_wire, first_setting, header_map
from ..wire.values import read_duration, read_integer
from .model import Waiter
from .steps import check_step, wire_pairs, with_run_id

if TYPE_CHECKING:
    from .runs import WorkflowRuns


class RunEvents:
    """The waits of runs for events, and notifications for which no run has waited yet.

    The engine's lock must be held for every method.
    """

    def __init__(self, runs: WorkflowRuns) -> None:
        self._runs = runs
        self.waiters: list[Waiter] = []
        self._notified: dict[tuple[str, str], bytes] = {}

    def of(self, event_id: str) -> list[Waiter]:
        return [waiter for waiter in self.waiters if waiter.event_id == event_id]

    def wait(self, event_id: str, request: dict[str, Any], headers: HeaderList) -> Waiter:
        """Make a run wait for an event.

        Raises a 400 error for a malformed request and a 404 error for an unknown run.
        """
        run_id = first_setting(headers, "workflow-runid") or ""
        self._runs.get_live(run_id)
        step = request.get("step")
        url = request.get("timeoutUrl") or request.get("url")
        if not isinstance(step, dict) or not isinstance(url, str):
            raise bad_request("invalid body: a wait needs a url and a step")
        timeout_us = _timeout_us(request.get("timeout"))
        given = request.get("timeoutHeaders")
        pairs = wire_pairs(given) if isinstance(given, dict) else []
        pairs = [pair for pair in pairs if pair[0].lower() != "upstash-delay"]
        timed_out = {**step, "waitEventId": event_id, "waitTimeout": True}
        now = self._runs.engine.clock.now_us()
        pairs = with_run_id(pairs, run_id)
        pairs.append(("Upstash-Delay", f"{timeout_us // 1_000_000}s"))
        url = as_wire(url)
        check_step(url, pairs)
        published = self._runs.engine.publisher.publish(
            url, pairs, json.dumps(timed_out).encode(), counted=False
        )
        waiter = Waiter(
            event_id,
            run_id,
            published.accepted[0].message_id,
            now + timeout_us,
            request,
            header_map(headers),
        )
        self.waiters.append(waiter)
        early = self._notified.pop((run_id, event_id), None)
        if early is not None:
            self._wake(waiter, early)
        return waiter

    def notify(self, event_id: str, data: bytes, run_id: str | None = None) -> list[dict[str, Any]]:
        """Notify the runs that wait for an event.

        With a run id, only that run is notified. If it does not wait yet, its next wait for the
        event ends immediately.
        """
        woken = [
            waiter for waiter in self.of(event_id) if run_id is None or waiter.run_id == run_id
        ]
        for waiter in woken:
            self._wake(waiter, data)
        if run_id is not None and not woken:
            self._runs.get_live(run_id)
            self._notified[run_id, event_id] = data
        return [
            {"waiter": waiter.record(), "messageId": waiter.message_id, "error": ""}
            for waiter in woken
        ]

    def _wake(self, waiter: Waiter, data: bytes) -> None:
        self.drop(waiter.message_id)
        message = self._runs.engine.pending.get(waiter.message_id)
        if message is None:
            return
        now = self._runs.engine.clock.now_us()
        step = {
            **waiter.request["step"],
            "waitEventId": waiter.event_id,
            "waitTimeout": False,
            "out": encoded(data),
        }
        message.body = json.dumps(step).encode()
        message.not_before_us = now
        if message.due_us is not None:
            self._runs.engine.plan(message, now, f"notified of {waiter.event_id}")

    def drop(self, message_id: str) -> None:
        """End the wait with this timeout message."""
        self.waiters = [waiter for waiter in self.waiters if waiter.message_id != message_id]

    def release(self, run_id: str) -> None:
        """Forget the waits of a run, and the notifications that it has not waited for yet."""
        self.waiters = [waiter for waiter in self.waiters if waiter.run_id != run_id]
        self._notified = {key: data for key, data in self._notified.items() if key[0] != run_id}

    def snapshot(self) -> tuple[list[Waiter], dict[tuple[str, str], bytes]]:
        return list(self.waiters), dict(self._notified)

    def restore(self, saved: tuple[list[Waiter], dict[tuple[str, str], bytes]]) -> None:
        self.waiters, self._notified = list(saved[0]), dict(saved[1])


def _timeout_us(value: object) -> int:
    if value is None or value == "":
        return 7 * 86_400 * 1_000_000
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise bad_request(f"invalid timeout: {value!r}, expected seconds or a duration such as 1h")
    if isinstance(value, str) and not value.isdecimal():
        return read_duration(value, "timeout")
    seconds = value if isinstance(value, str) else f"{value:.0f}"
    return read_integer(seconds, "timeout") * 1_000_000
