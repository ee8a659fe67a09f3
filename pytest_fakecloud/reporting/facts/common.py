"""Facts that hold for every service: refusals, faults that never fired, fakes nobody called."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...core.calls import Call, Entry
from ..connections import on_connection
from ..summaries.summary import error_of, listed
from .look import Fact, Look

__all__ = ["FACTS"]

SLEPT_S = 1.0
"""How much real time, in seconds, a test waits before a clock that stands still is a fact."""
_INCOMPLETE = {"broken off", "lost", "truncated"}
"""Outcomes of a call whose answer its client did not get as it was."""
_LINGERING = {"consume", "fetch", "chat", "subscribe", "monitor"}
_BLOCKING = {"BLPOP", "BRPOP", "BLMOVE", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP", "BRPOPLPUSH",
             "WAIT", "DEBUG"}  # fmt: skip


def went_on(look: Look) -> Iterator[Fact]:
    """A 404 or 409 after which the application called the same fake again."""
    for number, call in enumerate(look.calls):
        if call.status not in (404, 409) or call.fault is not None or call.problem is not None:
            continue
        later = [one for one in look.calls[number + 1 :] if one.handle == call.handle]
        if later:
            yield Fact(
                f"{call.handle}: {call.method} {call.path} was answered {error_of(call)}, and "
                f"{len(later)} call{'s' * (len(later) > 1)} came after it",
                call.number,
            )


def missed_by_its_fault(look: Look) -> Iterator[Fact]:
    """A fault that never fired, beside the calls that came to its fake."""
    # What a test allows is no problem.
    told = [one.text for one in look.cloud.problems if one.kind == "unused_fault"]
    for handle in look.cloud.handles:
        if not any(text.startswith(f"{handle.name}: ") for text in told):
            continue
        came: dict[str, None] = {}
        for call in look.calls_of(handle):
            names = call.facts.get("command") or [call.route or f"{call.method} {call.path}"]
            came.update(dict.fromkeys(names if isinstance(names, list) else [str(names)]))
        if came:
            yield Fact(f"{handle.name}: a fault never fired; what came was {listed(list(came))}")


def uncalled(look: Look) -> Iterator[Fact]:
    """A fake that nobody called, while others were called and nothing went wrong with them."""
    if not look.entries or any(map(_went_wrong, look.entries)):
        return
    for handle in look.cloud.handles:
        if not len(handle.journal):
            yield Fact(f"{handle.name}: nobody called it")


def _went_wrong(entry: Entry) -> bool:
    """Whether an entry is of what may well have kept an application from its next call."""
    if isinstance(entry, Call):
        return entry.status is None or entry.status >= 400 or entry.outcome in _INCOMPLETE
    if entry.kind != "attempt":
        return False
    status = entry.data.get("status")
    return not isinstance(status, int) or status >= 300 or bool(entry.data.get("logged"))


def clock_stood_still(look: Look) -> Iterator[Fact]:
    """Real time in which the process did nothing while the cloud's clock stood still."""
    if look.idle_s is None or look.idle_s < SLEPT_S or look.cloud.clock.mode != "frozen":
        return
    # A call that waits for something to come takes its time in the fake.
    if any(call.route in _LINGERING or _blocks(call) for call in look.calls):
        return
    if look.entries and len({entry.at_us for entry in look.entries}) == 1:
        yield Fact(
            f"{look.idle_s:.1f} s of real time passed idle while the frozen clock stood still; "
            "fakecloud.clock.advance() moves it, sleeping does not"
        )


def _blocks(call: Call) -> bool:
    lines = call.facts.get("words") or ()
    return call.outcome != "answered" or any(
        line[0].upper() in _BLOCKING or "BLOCK" in map(str.upper, line) for line in lines
    )


def swallowed(look: Look) -> Iterator[Fact]:
    """A refusal after which the test failed with nothing but an assertion."""
    error, asserted = look.raised, False
    for _ in range(20):
        if error is None:
            break
        asserted = isinstance(error, AssertionError)
        if not asserted:
            return
        error = error.__cause__ or error.__context__
    tokens = {f"Bearer {getattr(one, 'read_only_token', '')}" for one in look.cloud.handles}
    for call in look.calls if asserted else ():
        refused = call.status in (400, 422) and call.fault is None and call.problem is None
        # A read-only token is a fact of its own.
        if refused and call.header("Authorization") not in tokens and not _sent_anew(call, look):
            what, answered = call.route, str(call.status)
            if on_connection(call):
                if call.number in look.scene.gathered or call.number in look.scene.told:
                    continue  # a client says hello as the server allows
                what, answered = call.facts["command"][0], "with an error"
            yield Fact(
                f"{call.handle}: this {what} was answered {answered}, and no exception of it "
                "reached the test",
                call.number,
            )


def _sent_anew(call: Call, look: Look) -> bool:
    """Whether a script was asked for by its hash, not known, and sent: the way of every client."""
    return b"NOSCRIPT" in call.answer and any(
        set(later.facts.get("command") or ()) & {"EVAL", "SCRIPT LOAD"}
        for later in look.calls
        if later.handle == call.handle and later.number > call.number
    )


FACTS: tuple[Callable[[Look], Iterator[Fact]], ...] = (
    went_on,
    swallowed,
    missed_by_its_fault,
    uncalled,
    clock_stood_still,
)
