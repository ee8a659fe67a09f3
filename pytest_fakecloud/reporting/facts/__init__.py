"""What is worth a look: facts about what happened, never guesses, nearest to the failure first.

Each fact is a function of what was looked at; it is silent where it has nothing to say, and one that
raises costs the report a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...core.errors import telling
from . import broker, common, kv, kv_series, queue, vector
from .look import Fact, Look

if TYPE_CHECKING:
    from ...any_cloud import AnyCloud
    from ..applications import Served
    from ..summaries import Scene

__all__ = ["MOST", "Fact", "Look", "facts"]

MOST = 10
"""The most facts of one report."""
_FACTS: tuple[Callable[[Look], Iterator[Fact]], ...] = (
    *kv.FACTS,
    *kv_series.FACTS,
    *vector.FACTS,
    *broker.FACTS,
    *queue.FACTS,
    *common.FACTS,
)


def facts(
    cloud: AnyCloud,
    scene: Scene,
    idle_s: float | None = None,
    raised: BaseException | None = None,
    served: Sequence[Served] = (),
) -> list[Fact]:
    """The facts about what a cloud saw.

    ``idle_s`` is how long the test waited in real time, ``raised`` what it failed with, ``served``
    what the application under test was asked.
    """
    look = Look(cloud, scene, idle_s, raised, served)
    found: list[Fact] = []
    for fact in _FACTS:
        untold: list[str] = []
        with telling(f"a fact ({fact.__name__}) cannot be told", untold.append):
            found += fact(look)
        found += [Fact(line) for line in untold]
    once = {one.text: one for one in found}
    return sorted(once.values(), key=lambda one: -one.number)[:MOST]
