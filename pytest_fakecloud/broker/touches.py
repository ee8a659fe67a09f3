"""The data that requests to the broker read and write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..core.touches import ALL, READS_CLOCK, Touch

if TYPE_CHECKING:
    from ..http.messages import Request
    from .fake import Broker

_ROUTES: Mapping[str, tuple[tuple[str, str, bool], ...]] = {
    "produce": (("topic", "topic", True),),
    "fetch": (("topic", ALL, False),),
    "consume": (("topic", ALL, False), ("group", "group", True)),
    "commit": (("group", "group", True),),
    "committed": (("group", "group", False),),
    "offsets": (("topic", ALL, False),),
    "topics": (("topic", ALL, False),),
    "consumers": (("group", ALL, False),),
    "delete-consumer": (("group", "group", True),),
}
"""What each route touches: the kind, the parameter with the name, and whether they write."""


def touches_of_request(fake: Broker, request: Request) -> Sequence[Touch]:
    """Return what a request touches, based on its route; an unknown one writes everything."""
    touches = [READS_CLOCK]
    everything = (("topic", ALL, True), ("group", ALL, True))
    for kind, name, writes in _ROUTES.get(request.route, everything):
        value = ALL if name == ALL else request.params.get(name, ALL)
        touches.append(Touch(fake.name, kind, value, writes))
    return touches
