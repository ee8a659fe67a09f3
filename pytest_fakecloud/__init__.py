"""Real HTTP fakes of four cloud services as pytest fixtures.

The map of the package::

    plugin.py  session.py            the pytest face: options, hooks, fixtures, one run
    cli.py  standalone               the command, and fakes from outside their process
    reporting                        what a failing test shows
    cloud.py                         Cloud: one clock, one seed, any number of handles
    kv  vector  broker  queue        the services: handle, settings, model, errors, engine in each
    faults  http  core               misbehaviour; server and pipeline; clock, journal, ids, errors

``from pytest_fakecloud import Cloud`` gives the fakes without pytest. The names listed in
``__all__`` are public; all else may change.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .any_cloud import AnyCloud
    from .broker.handle import Broker
    from .cloud import Cloud
    from .core.clock import Clock
    from .core.errors import ContractError
    from .kv.handle import KVServer
    from .queue.capture.handle import Callback, CallbackCapture, Destination
    from .queue.delivery.drivers import NotIdle
    from .queue.delivery.replies import DeliveredRequest, Reply
    from .queue.errors import Loop
    from .queue.handle import Queue
    from .queue.model import Attempt
    from .queue.views import PublishedMessage
    from .vector.handle import VectorIndex

__all__ = [
    "AnyCloud",
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
    "AnyCloud": "any_cloud",
    "Attempt": "queue.model",
    "Broker": "broker.handle",
    "Callback": "queue.capture.handle",
    "CallbackCapture": "queue.capture.handle",
    "Clock": "core.clock",
    "Cloud": "cloud",
    "ContractError": "core.errors",
    "DeliveredRequest": "queue.delivery.replies",
    "Destination": "queue.capture.handle",
    "KVServer": "kv.handle",
    "Loop": "queue.errors",
    "NotIdle": "queue.delivery.drivers",
    "PublishedMessage": "queue.views",
    "Queue": "queue.handle",
    "Reply": "queue.delivery.replies",
    "VectorIndex": "vector.handle",
}


def __getattr__(name: str) -> Any:
    # Lazy, because every pytest run of an environment imports this package for its plugin.
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
