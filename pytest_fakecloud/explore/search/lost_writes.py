"""Lost writes: leave out each write of the code in turn, and see whether the promise notices."""

from __future__ import annotations

from ...core.errors import ContractError
from ...kv.accesses import KEY_OF_DB
from ..assertions import may_assert
from ..clients import functions_of
from ..result.story import line_text, lookups_of_trial
from ..trial import Line, Plan, Trial
from ..trust import Trust, names_data
from .player import Player

MOST_LEFT_OUT = 100
"""Maximum number of writes that are left out, each in a trial of its own."""


def examine(player: Player, undisturbed: Trial) -> Trust:
    """Leave out each write of the undisturbed trial in turn, and see whether the promise breaks.

    Raises ``ContractError`` if the promise notices no lost write and reads nothing that a trial
    wrote.
    """
    world = player.world
    touches = [touch for line in undisturbed.call_lines for touch in line.data if touch.writes]
    # A key that the promise writes itself, for example through the application, exists.
    own = {touch.read for touch in world.reads.touches if touch.writes}
    unwritten = {touch.name for touch in world.unwritten if touch.read not in own}
    trust = Trust(
        str(world.reads),
        tuple(sorted(unwritten)),
        tuple(touch.name for touch in touches if touch.kind.startswith(KEY_OF_DB)),
    )
    missed: list[str] = []
    lookups = lookups_of_trial(undisturbed)
    writes = [line for line in undisturbed.call_lines if line.writes]
    for line in writes[:MOST_LEFT_OUT]:
        is_noticed = _notices(player, line, undisturbed)
        if is_noticed is None:
            continue
        trust.writes += 1
        if not is_noticed:
            missed.append(line_text(line, lookups, with_answer=False))
    trust.unnoticed = tuple(missed)
    trust.is_outside = not trust.reads and bool(player.subject.promises.checks)
    is_checked = bool(player.subject.promises.checks) and not any(
        may_assert(function)
        for program in player.subject.programs
        for function in functions_of(program.function)
    )
    reads_data = any(touch not in world.unwritten for touch in world.reads.touches) or any(
        names_data(check) for check in player.subject.promises.checks
    )
    # Without writes, a key that stays as it was may be all that there is to promise.
    says_nothing = not reads_data and bool(trust.writes or not trust.reads)
    if is_checked and says_nothing and len(missed) == trust.writes:
        text = f"it read {trust.reads}, which no trial wrote" if trust.reads else "it read nothing"
        if missed:
            text += f", and it does not notice if a write is lost, such as {missed[0]}"
        raise ContractError(
            f"the promise holds whatever the code does: {text}. Read what must hold from the fakes "
            "or the history, or leave out trust=True if the promise is meant to say so little"
        )
    return trust


def _notices(player: Player, line: Line, undisturbed: Trial) -> bool | None:
    """Return whether the promise breaks without the effect of a call; None if that is unknown."""
    try:
        trial = player.play(Plan(left_out=(line.strand, line.point)))
    except Exception:
        return True  # The promise, or the code, cannot handle the data.
    if "left out" not in trial.flags:
        return None  # The call changes nothing.
    if trial.broken is not None:
        return True
    # The promise may allow that the code gives up.
    return None if trial.errors.keys() - undisturbed.errors.keys() else False
