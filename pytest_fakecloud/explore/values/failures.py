"""The trials of ``every_failure()``, each with one failing call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from ...core.calls import Call
from ...core.errors import one_line, shown
from ...kv.command_fields import keys_of

FailureName = Literal[
    "respond", "drop", "lose_response", "failover", "moved", "ask", "cluster_down"
]
FAILURES: tuple[FailureName, ...] = get_args(FailureName)


@dataclass(frozen=True, slots=True, eq=False)
class Failure:
    """One trial with one failing call.

    ``number`` is the call's position, from 1, among the calls of the trial without faults that could
    fail, ``fault`` the kind of fault, ``call`` the recorded call. ``exception`` is the exception that
    the code raised, or None. ``broken`` is the ``AssertionError`` of a broken promise, or None.
    ``schedule`` is the schedule of the trial as a string, for ``replay_schedule``.
    """

    number: int
    fault: FailureName
    call: Call
    exception: BaseException | None
    broken: BaseException | None
    schedule: str

    @property
    def held(self) -> bool:
        """Whether the code's promise held."""
        return self.broken is None

    def __repr__(self) -> str:
        outcome = "held"
        if self.broken is not None:
            first = str(self.broken).partition("\n")[0]
            outcome = f"BROKEN: {first or shown(self.broken)}"
        elif self.exception is not None:
            outcome = f"held, raised {shown(self.exception)}"
        return f"<call {self.number} ({name_of(self.call)}) {self.fault}: {one_line(outcome)}>"


def name_of(call: Call) -> str:
    """Return a call as its fake, its commands with their keys, or its method and path."""
    lines = call.facts.get("words") if call.service == "kv" else None
    if isinstance(lines, list) and lines:
        commands = [str(command) for command in call.facts["command"]]
        name = ", ".join(
            " ".join([command, *(keys_of(line) or line[1:2])])
            for command, line in zip(commands, lines, strict=False)
        )
    else:
        name = f"{call.method} {call.path}"
    return one_line(f"{call.fake} {name}", 200)
