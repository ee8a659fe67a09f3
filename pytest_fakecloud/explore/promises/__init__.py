"""The conditions that ``explore()`` checks, such as linearizability, effects that happen once, and
invariants.
"""

from __future__ import annotations

from .check import Check as Check
from .check import takes_argument as takes_argument
from .invariants import (
    monotonic_reads as monotonic_reads,
)
from .invariants import (
    nothing_lost as nothing_lost,
)
from .invariants import (
    once as once,
)
from .linearizability import follows as follows
from .linearizability import linearizable as linearizable
from .operations import observed as observed
from .over_time import (
    always as always,
)
from .over_time import (
    at_most_one as at_most_one,
)
from .over_time import (
    eventually as eventually,
)
from .over_time import (
    never as never,
)
from .over_time import (
    sometimes as sometimes,
)
from .promises import Promises as Promises
