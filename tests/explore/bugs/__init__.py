"""Small applications with a bug that occurs in practice, each with a corrected version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pytest_fakecloud import Cloud


@dataclass(frozen=True)
class Scenario:
    """The arguments of ``explore``: clients, workers, promise and setup."""

    run: Mapping[str, Callable[[], object]]
    check: Callable[..., object]
    workers: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    setup: Callable[[], object] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


Make: TypeAlias = Callable[[Cloud, bool], Scenario]
"""A function that returns a scenario in a cloud, with the bug or corrected."""
