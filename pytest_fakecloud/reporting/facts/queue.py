"""Facts about messages: deduplicated, answered in a way that asks for another retry, called back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from ..bodies import parsed
from .look import Fact, Look

__all__ = ["FACTS"]


def deduplicated(look: Look) -> Iterator[Fact]:
    """A publish request that was answered with an earlier message."""
    for handle in look.handles("queue"):
        for call in look.calls_of(handle):
            if call.route not in ("publish", "enqueue", "batch") or call.status not in (200, 202):
                continue
            found = parsed(call.answer)
            answers = found if isinstance(found, list) else [found]
            what = "this publish made no message: it" if len(answers) == 1 else "one of these"
            for one in answers:
                if isinstance(one, dict) and one.get("deduplicated") and "messageId" in one:
                    short = look.scene.short(one["messageId"])
                    yield Fact(
                        f"{handle.name}: {what} was deduplicated, the same as {short}", call.number
                    )


def answers_that_mislead(look: Look) -> Iterator[Fact]:
    """A 3xx, which is not followed, and a 489 without the header that ends the retries."""
    for event in look.events("attempt"):
        status = event.data.get("status")
        if not isinstance(status, int):
            continue
        short = look.scene.short(event.data.get("message_id"))
        if 300 <= status < 400:
            yield Fact(
                f"{event.handle}: {short} was answered {status}; the queue follows no redirect and "
                "takes only 200 to 299 for delivered",
                event.number,
            )


def several_callbacks(look: Look) -> Iterator[Fact]:
    """More than one callback about one message: one is sent for each attempt."""
    counts: Counter[tuple[str, str]] = Counter()
    last: dict[tuple[str, str], int] = {}
    for event in look.events("attempt"):
        if event.data.get("message_kind") == "callback" and event.data.get("number") == 1:
            about = event.handle, str(event.data.get("about"))
            counts[about] += 1
            last[about] = event.number
    for about, count in counts.items():
        if count > 1:
            yield Fact(
                f"{about[0]}: {count} callbacks were sent about {look.scene.short(about[1])}: one "
                "for each attempt, not only for the last",
                last[about],
            )


FACTS: tuple[Callable[[Look], Iterator[Fact]], ...] = (
    deduplicated,
    answers_that_mislead,
    several_callbacks,
)
