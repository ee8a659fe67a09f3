"""Wording that does not depend on a service: errors, faults, credentials, the clock, actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.wording import counted, listed, plural
from .common import Sentences, Values

if TYPE_CHECKING:
    from ...core.calls import Event
    from ..scene import Scene


def action(event: Event, scene: Scene) -> str:
    given = ", ".join(event.data.get("arguments") or ())
    did = {"add_fault": "added", "remove_fault": "removed"}.get(event.kind)
    if did:
        limits = f" ({given})" if given else ""
        return f"{event.handle} fault {did}: {event.data['fault']}{limits}"
    if event.kind == "clear_faults":
        return f"{event.handle} faults cleared"
    message = event.data.get("message_id")
    made = f" -> {scene.short(message)}" if message else ""
    return f"{event.handle}.{event.kind}({given}){made}"


def _continued(values: Values, scene: Scene) -> str:
    later = counted(values["later"], "call")
    error = " ".join(filter(None, [values["status"], values["error"]]))
    return f"{values['call']} was answered {error}, and {later} followed"


def _swallowed(values: Values, scene: Scene) -> str:
    answered = values["status"] or "with an error"
    return f"this {values['call']} was answered {answered}, and the test saw no exception"


def _unused_fault(values: Values, scene: Scene) -> str:
    faults = values["faults"]
    named = f"the {plural('fault', len(faults))} {listed(faults)}" if faults else "a fault"
    return f"{named} never fired; the calls were {listed(values['calls'])}"


def _rejected(values: Values, scene: Scene) -> str:
    why = {
        "none": "no credentials were sent",
        "query": "the _token in the URL is wrong",
        "read_only": "the credentials are the read-only token",
        "unknown": f"the credentials are not those of {values['fake']}",
    }
    reasons = "; ".join(
        why.get(one["kind"]) or f"the credentials are those of {one['other']}"
        for one in values["reasons"]
    )
    return f"answered 401 to {values['rejected']} of {counted(values['calls'], 'call')}: {reasons}"


SENTENCES: Sentences = {
    "continued_after_error": _continued,
    "error_not_seen": _swallowed,
    "unused_fault": _unused_fault,
    "never_called": "no call was received",
    "clock_frozen": "{seconds:raw} s of wall-clock time passed while the fake clock was frozen; "
    "fakecloud.clock.advance() moves it, time.sleep() does not",
    "rejected": _rejected,
    "problem": "[{problem:raw}] {text:raw}",
    "failed": "{text:raw}",
    "more": "and {count:raw} more",
}
