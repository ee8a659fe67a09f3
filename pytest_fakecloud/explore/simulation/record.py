"""The record of a run: what happened in it, and the data that its steps access."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..footprint import ALL, CHECKS_PROMISE, Touch, touches_of_delivery
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
        notes: bool,
    ) -> None:
        self._world = world
        self._choice = choice
        self.stacks = stacks
        """Whether the lines of the application that make each call are recorded."""
        self.notes_points = notes
        """Whether the points at which events are possible are recorded."""
        self.aside_depth = 0
        self.records = stacks or (strategy is not None and strategy.records)
        self.run = Run(schedule, start_us=world.now_us())
        self.history = History(world.cloud, str(schedule))

    def touch(self, touches: Iterable[Touch]) -> None:
        """Record accesses of the current step."""
        if self.run.steps and not self.aside_depth:
            footprint = self.run.steps[-1].footprint
            for touch in touches:
                footprint.add(touch)
                if touch.writes and self._choice.always:
                    footprint.add(CHECKS_PROMISE)

    def touch_message(self, due: Due) -> None:
        if self.records:
            self.touch([*touches_of_delivery(due.queue.name, due.first_name, due.message)])

    def touch_history(self, writes: bool) -> None:
        if self._choice.is_history_read and self.records:
            self.touch([Touch("", "history", ALL, writes)])

    def touch_lock(self, name: str) -> None:
        """Record that a lock was acquired or released."""
        if self.records:
            self.touch([Touch("", "lock", name, True)])

    def note(self, process: str, number: int, choices: list[tuple[Kind, str]]) -> None:
        kinds = self._choice.kinds
        allowed = [choice for choice in choices if choice[0] in kinds]
        self.run.points.append(Point(process, number, allowed))

    def say(self, process: str, words: str, *, event: bool = False) -> None:
        line = Line(self._world.now_us(), process, words, event=event, step=len(self.run.steps) - 1)
        self.run.lines.append(line)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Do not explore the calls within the block, which a promise makes."""
        self.aside_depth += 1
        try:
            # The clients of a promise have the old tokens, as those of the code do.
            with self._world.disturbances.old_tokens():
                yield
        finally:
            self.aside_depth -= 1
