"""The strands of a trial, and the names of those that its code starts."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..subject.programs import Program
from ..values.names import StrandName
from .strand import Strand
from .turns import StrandThread

if TYPE_CHECKING:
    from .loops import EventLoop

_UNKNOWN = -1
"""The identifier of a thread of the code that has not begun."""


class Strands(list[Strand]):
    """All strands of one trial, in the order in which they were created."""

    def __init__(self, programs: Sequence[Program]) -> None:
        super().__init__(
            Strand(program.name, "worker" if program.is_worker else "client", program.function)
            for program in programs
        )
        self.tasks: weakref.WeakKeyDictionary[Any, Strand] = weakref.WeakKeyDictionary()
        self.created_by: dict[str, int] = {}
        """The index of the step that created a strand or began a delivery, by its name."""
        self.ended_earlier: list[Strand] = []
        """The strands that had ended before the latest one was created."""
        self._names = {program.name for program in programs}

    def add(self, strand: Strand) -> Strand:
        self.ended_earlier = [other for other in self if other.state == "ended"]
        self.append(strand)
        return strand

    def new_thread(self, parent: Strand, thread: threading.Thread, created_by: int) -> Strand:
        """Add the strand of a thread that a strand starts in a step."""
        function = getattr(getattr(thread, "_target", None), "__name__", "").strip("_")
        name = self._new_name(StrandName.of(parent.root.name).thread, function, "thread")
        self.created_by[name] = created_by
        started = StrandThread(_UNKNOWN, thread)
        child = Strand(name, "thread", parent=parent, is_daemon=thread.daemon, thread=started)
        return self.add(child)

    def registered(self, host: Strand, loop: EventLoop, task: object) -> Strand:
        """Return the strand of a task in the event loop of a strand; add it at the first call."""
        strand = self.tasks.get(task)
        if strand is None:
            new_name = StrandName.of(host.root.name).task
            name = self._new_name(new_name, loop.function_of(task), "task")
            strand = self.add(Strand(name, "task", parent=host))
            strand.begin()
            self.tasks[task] = strand
        return strand

    def _new_name(self, named: Callable[[str], str], function: str, otherwise: str) -> str:
        """Return a name that no strand has, after the name of a function if it is an identifier."""
        name = named(function if function.isidentifier() else otherwise)
        names = itertools.chain([name], (f"{name}{number}" for number in itertools.count(2)))
        free_name = next(candidate for candidate in names if candidate not in self._names)
        self._names.add(free_name)
        return free_name
