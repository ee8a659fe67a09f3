"""What the parts of a simulation have in common."""

from __future__ import annotations

from dataclasses import dataclass

from ..fakes.fakes import Fakes
from .access_log import AccessLog
from .current_thread import ThreadInTrial
from .log import TrialLog
from .script import Script
from .strand import Strands
from .turns import Turns


@dataclass(frozen=True, slots=True)
class Common:
    """What each part of the simulation of one trial may use."""

    fakes: Fakes
    script: Script
    """What is played."""
    strands: Strands
    turns: Turns
    """Which strand runs."""
    current_thread: ThreadInTrial
    """Who asks."""
    log: TrialLog
    """What has happened."""
    access_log: AccessLog
    """What was accessed."""


class Part:
    """A part of a simulation. Its constructor also names the other parts that it calls."""

    def __init__(self, common: Common) -> None:
        self._fakes = common.fakes
        self._script = common.script
        self._strands = common.strands
        self._turns = common.turns
        self._current_thread = common.current_thread
        self._log = common.log
        self._access_log = common.access_log
