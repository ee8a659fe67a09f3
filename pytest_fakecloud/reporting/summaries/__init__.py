"""One short line for each kind of call: what was asked, what came back, and what belongs below."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from . import broker, kv, queue, vector
from .summary import Scene, Summary

if TYPE_CHECKING:
    from ...core.calls import Call

__all__ = ["Scene", "Summary", "summarise"]

_BY_SERVICE: Mapping[str, Callable[[Call, Scene], Summary | None]] = {
    "kv": kv.summary,
    "vector": vector.summary,
    "broker": broker.summary,
    "queue": queue.summary,
    "callback_capture": queue.callback,
    "destination": queue.callback,
}


def summarise(call: Call, scene: Scene) -> Summary | None:
    """What a call says in few words; None for one that its service has no words for.

    A body that nobody can read has none: the error that it got says more.
    """
    summary = _BY_SERVICE.get(call.service)
    if summary is None:
        return None
    try:
        return summary(call, scene)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
