"""The data that requests to the vector index read and write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.touches import ALL, READS_CLOCK, Touch

if TYPE_CHECKING:
    from ..http.messages import Request
    from .fake import VectorIndex

_WHOLE_INDEX = ("info", "list-namespaces", "rename-namespace", "reset")
"""Routes that can affect all namespaces."""
_READS = ("query", "fetch", "range", "random", "info", "list", "resumable")


def touches_of_request(fake: VectorIndex, request: Request) -> Sequence[Touch]:
    """Return what a request touches, based on its route."""
    route = request.route
    is_resumable = route.startswith("resumable")
    is_whole = route in _WHOLE_INDEX or is_resumable
    name = ALL if is_whole else request.params.get("namespace", "") or "default"
    touches = [READS_CLOCK, Touch(fake.name, "namespace", name, not route.startswith(_READS))]
    if is_resumable:
        touches.append(Touch(fake.name, "cursor", ALL, True))
    return touches
