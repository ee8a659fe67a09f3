"""The parts of a simulation."""

from __future__ import annotations

from dataclasses import dataclass

from ..fakes.fakes import Fakes
from .current_thread import CurrentThread
from .log import TrialLog
from .script import Script
from .strands import Strands
from .turns import Turns


@dataclass(eq=False)
class Part:
    """A part of a simulation, with those that all later parts may call, in this order."""

    _fakes: Fakes
    _script: Script
    _strands: Strands
    _turns: Turns
    _current_thread: CurrentThread
    _log: TrialLog
