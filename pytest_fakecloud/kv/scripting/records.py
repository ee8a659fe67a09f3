"""Records the commands that scripts and functions execute, and the numbers that they return and the
server cuts to integers, for the report of a failing test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.calls import LIGHT
from ...core.recorder import Recorder, ScriptCommand
from ..errors import CommandError
from ..reply import Reply, size_of, to_json

if TYPE_CHECKING:
    from ..engine.sessions import Session

_KEPT = 256
"""Maximum number of characters that are kept of an argument that is longer than ``LIGHT`` bytes."""


def record_command(recorder: Recorder, session: Session, line: list[bytes], reply: Reply) -> None:
    """Record a command of a script, or with an empty line that it begins, unless no report needs that
    or the test itself runs the script.
    """
    if not recorder.shared.records_scripts or session.call is None:
        return
    if not line:
        recorder.record_script(session.call)
        return
    answer: dict[str, Any] | None = None
    if isinstance(reply, CommandError):
        answer = {"error": str(reply)}
    elif size_of(reply) <= LIGHT:
        answer = {"result": to_json(reply)}
    words = [_word(argument) for argument in line]
    recorder.record_script(session.call, ScriptCommand(session.db.index, words, answer))


def record_cut(recorder: Recorder, session: Session, number: float, integer: int) -> None:
    """Record a number that a script returned, and the integer to which the server cut it."""
    if recorder.shared.records_scripts and session.call is not None:
        recorder.record_cut(session.call, number, integer)


def _word(argument: bytes) -> str:
    text = argument.decode("utf-8", "replace")
    return text if len(argument) <= LIGHT else f"{text[:_KEPT]}…"
