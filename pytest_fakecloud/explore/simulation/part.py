"""The parts of a simulation, and what they need of the world around it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..fakes.fakes import Fakes
from .current_thread import CurrentThread
from .log import TrialLog
from .pool import Threads
from .script import Script
from .strands import Strands
from .turns import Turns

if TYPE_CHECKING:
    from .loops import AsyncLibrary
    from .outsiders import Outsiders


class Surroundings(ABC):
    """All that a simulation needs of the world, which outlives it."""

    fakes: Fakes
    threads: Threads
    """Threads for strands."""
    outsiders: Outsiders
    """The threads that began before the exploration."""
    async_libraries: list[AsyncLibrary]
    """The libraries whose event loops are known."""

    @abstractmethod
    def awaited(self, value: Any) -> Any:
        """Return a value or, if it is a coroutine, its result in a loop that runs on fake time."""

    @abstractmethod
    def async_library(self) -> AsyncLibrary | None:
        """Return the library whose event loop this thread runs, if any; the loop may be unexplored."""


@dataclass(eq=False)
class Part:
    """A part of a simulation, with those that all later parts may call, in this order."""

    _world: Surroundings
    _fakes: Fakes
    _script: Script
    _strands: Strands
    _turns: Turns
    _current_thread: CurrentThread
    _log: TrialLog
