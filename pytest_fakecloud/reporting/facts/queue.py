"""Facts about messages: deduplicated, answered in a way that asks for another retry, called back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from ..bodies import parsed
from ..summaries.summary import worked
from .look import Fact, Look

__all__ = ["FACTS"]

_DEDUPLICATING = {"upstash-deduplication-id", "upstash-content-based-deduplication"}


def deduplicated(look: Look) -> Iterator[Fact]:
    """A publish request that was answered with an earlier message."""
    for handle in look.handles("queue"):
        bodies: dict[str, bytes] = {}
        for call in look.calls_of(handle):
            if call.route not in ("publish", "enqueue", "batch") or call.status not in (
                200,
                201,
                202,
            ):
                continue
            found = parsed(call.answer)
            answers = found if isinstance(found, list) else [found]
            what = "this publish made no message: it" if len(answers) == 1 else "one of these"
            for one in answers:
                if isinstance(one, dict) and one.get("deduplicated") and "messageId" in one:
                    short = look.scene.short(one["messageId"])
                    text = f"{what} was deduplicated, the same as {short}"
                    if call.header("Upstash-Content-Based-Deduplication") and len(answers) == 1:
                        text = f"this publish made no message: its content is that of {short}"
                    elif len(answers) == 1 and bodies.get(one["messageId"], call.body) != call.body:
                        text = f"this publish made no message: deduplicated as {short}, "
                        text += "whose body differs"
                    yield Fact(f"{handle.name}: {text}", call.number)
                elif isinstance(one, dict) and "messageId" in one and len(answers) == 1:
                    bodies[one["messageId"]] = call.body


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


def published_again(look: Look) -> Iterator[Fact]:
    """A publish request that came again because its answer was lost, and made a second message."""
    for handle in look.handles("queue"):
        lost: dict[tuple[str, bytes], str] = {}
        for call in look.calls_of(handle):
            names = {name.lower() for name, _ in call.headers}
            if call.route not in ("publish", "enqueue") or names & _DEDUPLICATING:
                continue
            alike, first = (call.target, call.body), look.scene.made.get(call.number)
            if first is not None:
                lost[alike] = look.scene.short(first)
            elif worked(call) and alike in lost:
                yield Fact(
                    f"{handle.name}: this publish came again, without a deduplication id, after the "
                    f"answer that named {lost.pop(alike)} was lost: both are sent",
                    call.number,
                )


def handled_twice(look: Look) -> Iterator[Fact]:
    """A delivery that came twice on purpose, and whose receiver wrote the same both times."""
    for event in look.events("attempt"):
        faults = str(event.data.get("fault") or "").split(", ")
        began = event.data.get("began")
        if "duplicate" not in faults or not isinstance(began, int) or not event.data.get("alone"):
            continue
        inside = [call for call in look.calls if began < call.number < event.number]
        words = [(one.handle, one.method, one.target, one.body) for one in inside]
        half = len(words) // 2
        if half and words[:half] == words[half:]:
            yield Fact(
                f"{event.handle}: {look.scene.short(event.data.get('message_id'))} came twice "
                "(fault: duplicate) and led to the same "
                f"{f'{half} calls' if half > 1 else 'call'} twice",
                event.number,
            )


def logged_and_accepted(look: Look) -> Iterator[Fact]:
    """A delivery that was answered with a 2xx though its receiver had logged an exception."""
    for event in look.events("attempt"):
        status = event.data.get("status")
        if isinstance(status, int) and 200 <= status < 300 and event.data.get("logged"):
            short = look.scene.short(event.data.get("message_id"))
            yield Fact(
                f"{event.handle}: {short} was answered {status} though its receiver logged an "
                "exception: no retry",
                event.number,
            )


FACTS: tuple[Callable[[Look], Iterator[Fact]], ...] = (
    deduplicated,
    answers_that_mislead,
    several_callbacks,
    published_again,
    handled_twice,
    logged_and_accepted,
)
