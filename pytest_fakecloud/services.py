"""The services there are: one descriptor for each, and the only list of them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SERVICES", "Service"]


@dataclass(frozen=True, slots=True)
class Service:
    """One kind of fake: the name of its fixture, and where its handle is, imported when needed."""

    fixture: str
    module: str
    handle: str


SERVICES = (
    Service("kv_server", "pytest_fakecloud.kv.handle", "KVServer"),
    Service("vector_index", "pytest_fakecloud.vector.handle", "VectorIndex"),
    Service("broker", "pytest_fakecloud.broker.handle", "Broker"),
    Service("queue", "pytest_fakecloud.queue.handle", "Queue"),
    Service("callback_capture", "pytest_fakecloud.queue.capture.handle", "CallbackCapture"),
    Service("destination", "pytest_fakecloud.queue.capture.handle", "Destination"),
)
