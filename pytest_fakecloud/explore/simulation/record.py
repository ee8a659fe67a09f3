"""The record of a run: what happened in it, and the data that its steps access."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..footprint import Touch, touches_of_delivery
from ..history import History
from ..run import Choice, Line, Point, Run, Strategy
from ..runtime.deliveries import Due
from ..schedule import Kind, Schedule

if TYPE_CHECKING:
    from ..world import World


class Record:
    """Records a run for its story, for the search, and for the promise."""

    def __init__(
        self,
        world: World,
        schedule: Schedule,
        choice: Choice,
        strategy: Strategy | None,
        *,
        stacks: bool,
    ) -> None:
        self._world = world
        self._choice = choice
        self._strategy = strategy
        self._stacks = stacks
        self._aside = 0
        self.records = stacks or (strategy is not None and strategy.records)
        self.run = Run(schedule, start_us=world.now_us())
        self.history = History(world.cloud, str(schedule))

    def touch(self, touches: Iterable[Touch]) -> None:
        """Record accesses of the current step."""
        if self.run.steps and not self._aside:
            footprint = self.run.steps[-1].footprint
            for touch in touches:
                footprint.add(touch)
                if touch.writes and self._choice.always:
                    # The result of a promise that is checked after every step depends on the order
                    # of all writes.
                    footprint.add(Touch("", "promise", "*", True))

    def _touch_message(self, due: Due) -> None:
        if self.records:
            self.touch([*touches_of_delivery(due.queue.name, due.first_name, due.message)])

    def _touch_history(self, writes: bool) -> None:
        if self._choice.is_history_read and self.records:
            self.touch([Touch("", "history", "*", writes)])

    def touch_lock(self, name: str) -> None:
        """Record that a lock was acquired or released."""
        if self.records:
            self.touch([Touch("", "lock", name, True)])

    def _note(self, process: str, number: int, choices: list[tuple[Kind, str]]) -> None:
        kinds = self._choice.kinds
        allowed = [choice for choice in choices if choice[0] in kinds]
        self.run.points.append(Point(process, number, allowed))

    def _say(self, process: str, words: str, *, event: bool = False) -> None:
        line = Line(self._world.now_us(), process, words, event=event, step=len(self.run.steps) - 1)
        self.run.lines.append(line)
