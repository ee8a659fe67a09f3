"""What all trials of a search explore, with what the caller wants of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..values.disturbances import Kind
from .programs import Program
from .promises import Promises


@dataclass(frozen=True, slots=True)
class Subject:
    """What all trials of a search have in common: the code, its promises, and the options.
    ``disturbable_fakes`` are the names of the fakes whose calls can have disturbances.
    """

    programs: Sequence[Program]
    promises: Promises
    disturbable_fakes: frozenset[str]
    kinds: frozenset[Kind]
    patience_us: int
    horizon_us: int | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """The drawn inputs that the programs run with, by name."""
    setup: Callable[[], object] | None = None
    """What the caller wants to be called before each trial."""
