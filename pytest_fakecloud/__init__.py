"""Real HTTP fakes of four cloud services as pytest fixtures.

The map of the package::

    plugin.py  report.py  cli.py     the pytest face, the report of a failing test, the command
    cloud.py                         Cloud: one clock, one seed, any number of handles
    kv  vector  broker  queue        the services: engine, model, errors, routes, handle in each
    kernel                           server, pipeline, clock, journal, faults, auth, ids

``from pytest_fakecloud import Cloud`` gives the fakes without pytest. The names listed in
``__all__`` are public; all else may change.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .broker.handle import Broker
    from .cloud import Cloud
    from .kernel.clock import Clock
    from .kernel.errors import ContractError
    from .kv.handle import KVServer
    from .queue.capture import Callback, CallbackCapture, Destination
    from .queue.driving import NotIdle
    from .queue.handle import Queue
    from .queue.inspection import PublishedMessage
    from .queue.model import Attempt
    from .queue.replies import DeliveredRequest, Reply
    from .queue.settings import Loop
    from .vector.handle import VectorIndex

__all__ = [
    "Attempt",
    "Broker",
    "Callback",
    "CallbackCapture",
    "Clock",
    "Cloud",
    "ContractError",
    "DeliveredRequest",
    "Destination",
    "KVServer",
    "Loop",
    "NotIdle",
    "PublishedMessage",
    "Queue",
    "Reply",
    "VectorIndex",
]

_HOMES = {
    "Attempt": "queue.model",
    "Broker": "broker.handle",
    "Callback": "queue.capture",
    "CallbackCapture": "queue.capture",
    "Clock": "kernel.clock",
    "Cloud": "cloud",
    "ContractError": "kernel.errors",
    "DeliveredRequest": "queue.replies",
    "Destination": "queue.capture",
    "KVServer": "kv.handle",
    "Loop": "queue.settings",
    "NotIdle": "queue.driving",
    "PublishedMessage": "queue.inspection",
    "Queue": "queue.handle",
    "Reply": "queue.replies",
    "VectorIndex": "vector.handle",
}


def __getattr__(name: str) -> Any:
    # Lazy, because every pytest run of an environment imports this package for its plugin.
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
