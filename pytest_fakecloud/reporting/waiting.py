"""What has not come to an end, and why: messages, vectors that are not indexed, consumers behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..core.errors import telling
from ..core.timeparse import to_datetime
from .bodies import compact
from .summaries import Scene

if TYPE_CHECKING:
    from ..fakes import Fakes

__all__ = ["MOST", "span", "waiting"]

MOST = 8
"""The most lines; the rest is counted."""
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))


def waiting(cloud: Fakes, scene: Scene) -> list[str]:
    """A line for each thing that has not come to an end; empty when nothing waits."""
    lines: list[str] = []
    looks = {"queue": _messages, "vector": _vectors, "broker": _consumers}
    for handle in cloud.handles:
        look = looks.get(handle.service)
        if look is not None:
            with telling(f"what waits in {handle.name} cannot be told", lines.append):
                lines += look(handle, scene)
    more = len(lines) - MOST
    return lines[:MOST] + ([f"and {more} more"] if more > 0 else [])


def span(us: int) -> str:
    """A duration in its two largest units: ``13 h``, ``1 d 2 h``, ``1.5 s``."""
    seconds = us // 1_000_000
    if seconds < 60:
        return f"{us / 1e6:g} s"
    parts = []
    for unit, name in _UNITS:
        count, seconds = divmod(seconds, unit)
        if count:
            parts.append(f"{count} {name}")
    return " ".join([*parts, *([f"{seconds} s"] if seconds else [])][:2])


def _messages(queue: Any, scene: Scene) -> Iterator[str]:
    now = queue.clock.now_us()
    for message in queue.pending():
        about = f"{scene.short(message.id)} {message.method} {message.url}"
        tried = len(message.attempts)
        if tried:
            about += f" (tried {tried} of {message.max_retries + 1})"
        yield f"{about}: {_why(message, queue, now)}"
    for letter in queue.dead_letters():
        message = letter.message
        made = len(message.attempts)
        last = "no answer" if letter.status is None else f"status {letter.status}"
        yield (
            f"{scene.short(message.id)} {message.method} {message.url}: given up after {made} "
            f"attempt{'s' * (made > 1)}, last {last}; dead letter {letter.id}"
        )


def _why(message: Any, queue: Any, now: int) -> str:
    if message.state == "in_flight":
        return "in flight: the destination is still answering on this clock"
    record = message.record
    if record.due_us is None:
        if record.queue_name is not None and not record.attempts:
            return f"waits in queue {record.queue_name}: behind others, or the queue is paused"
        return f"waits: {record.wait_reason}"
    at = to_datetime(record.due_us)
    if record.due_us > now:
        reason = (
            "delay" if not record.attempts and record.not_before_us > now else record.wait_reason
        )
        return f"due {at:%H:%M:%S}Z in {span(record.due_us - now)} ({reason})"
    if queue.delivery == "driven":
        return f"due now: nothing drove the queue; call {queue.name}.run_until_idle()"
    return "due now: the background has not delivered it yet"


def _vectors(index: Any, scene: Scene) -> Iterator[str]:
    for namespace, count in _pending(index):
        where = f"namespace {compact(namespace)}" if namespace else "the default namespace"
        yield (
            f"{index.name}: {count} vector{'s' * (count > 1)} of {where} pending: no query sees "
            "them before they are indexed"
        )


def _pending(index: Any) -> Iterator[tuple[str, int]]:
    for name, space in index.engine.info().namespaces.items():
        if space.pending_vector_count:
            yield name, space.pending_vector_count


def _consumers(broker: Any, scene: Scene) -> Iterator[str]:
    for name in broker.groups():
        group = broker.group(name)
        behind = {tp: lag for tp, lag in group.lag.items() if lag}
        for tp, lag in behind.items():
            committed = group.committed.get(tp)
            at = "nothing committed" if committed is None else f"committed {committed}"
            yield (
                f"{broker.name}: group {name} is {lag} record{'s' * (lag > 1)} behind in "
                f"{tp.topic}-{tp.partition} ({at})"
            )
