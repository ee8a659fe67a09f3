"""Real HTTP fakes of four cloud services as pytest fixtures.

A test asks for a fixture and gets a handle::

    fixture             class             what it is
    kv_server           KVServer          key-value commands, over REST and on a database port
    vector_index        VectorIndex       vectors: dense, sparse, hybrid
    broker              Broker            a partitioned log with consumer groups
    queue               Queue             a message queue that delivers, retries and calls back
    callback_capture    CallbackCapture   the queue's callbacks and failure callbacks
    destination         Destination       a pytest-httpserver for deliveries
    fakecloud           Cloud             all fakes of a test: its clock, its problems, more fakes

Every handle (``Handle``) has ``url``, ``token`` and ``client()`` to get in, ``load()``, ``reset()``
and ``snapshot()`` for its data, ``faults`` (``FaultPlan``), ``journal`` (``Journal``, of ``Call``) and
``assert_called()``; each service has more. ``fakecloud.clock`` is a ``Clock``. What a fake can be
told is in ``KVSettings``, ``VectorSettings``, ``BrokerSettings`` and ``QueueSettings``.
``ContractError`` is a mistake of the test itself.

``with Cloud() as cloud: cloud.kv_server()`` gives the same without pytest, ``Cloud.connect(url)``
those of a server elsewhere.

The map of the package, for who changes it::

    plugin.py  session.py            the pytest face: options, hooks, fixtures, one run
    outcomes.py                      what a test's outcome says of its fakes
    cli.py  standalone               the command, and fakes from outside their process
    reporting  recordings.py         what a failing test shows, and archives of its calls
    cloud.py  any_cloud.py           Cloud: one clock, one seed, any number of handles
    services.py                      the only list of services
    kv  vector  broker  queue        the services: handle, settings, model, errors, engine in each
    faults  http  core               misbehaviour; server and pipeline; clock, journal, ids, errors

The names listed in ``__all__`` are public; all else may change.

PYTEST_DONT_REWRITE: there are no tests in here whose asserts pytest should rewrite.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .any_cloud import AnyCloud
    from .broker.errors import BrokerError
    from .broker.handle import Broker
    from .broker.model import (
        ConsumerConfig,
        GroupView,
        MemberView,
        Metadata,
        ProducerRecord,
        Record,
        TopicPartition,
        TopicPartitionOffset,
        TopicView,
    )
    from .broker.settings import BrokerLimits, BrokerSettings
    from .cloud import Cloud, CloudSnapshot
    from .core.calls import Call, Event
    from .core.clock import Clock
    from .core.errors import ContractError, ServiceError
    from .core.found import Found
    from .core.journal import Journal
    from .core.problems import Problem
    from .core.timekeeper import Fired
    from .core.timeparse import Duration, Instant
    from .explore.checks import linearizable, monotonic_reads, nothing_lost, observed, once
    from .explore.explore import BrokenSchedule, Exploration, replay_schedule
    from .explore.history import History, Operation
    from .failures import Failure, Failures
    from .faults.fault import Fault
    from .faults.plan import FaultPlan
    from .handle import Handle, Snapshot
    from .http.messages import Answer
    from .kv.errors import CommandError, RestError
    from .kv.handle import KVServer
    from .kv.python_values import KVReply, KVValue
    from .kv.races import Between
    from .kv.search.indexes import Search
    from .kv.search.views import SearchIndexView
    from .kv.settings import KVSettings
    from .outcomes import FakecloudWarning
    from .queue.capture.callbacks import Callback, Captured
    from .queue.capture.handle import CallbackCapture
    from .queue.capture.settings import CallbackCaptureSettings, DestinationSettings
    from .queue.delivery.destination_server import Destination
    from .queue.delivery.destinations import DestinationRoute, Destinations
    from .queue.delivery.drivers import Attempts, NotIdle
    from .queue.delivery.faults import QueueFaults
    from .queue.delivery.replies import DeliveredRequest, DestinationTimeout, Reply
    from .queue.delivery.sender import UnstubbedDestination
    from .queue.errors import Loop, QueueError
    from .queue.handle import Queue
    from .queue.model import Attempt
    from .queue.settings import QueueSettings
    from .queue.views import DeadLetterView, PublishedMessage, ScheduleView
    from .recordings import Difference, Differences
    from .standalone.remote import RemoteCloud
    from .vector.errors import VectorError
    from .vector.handle import PendingChanges, VectorIndex
    from .vector.settings import VectorLimits, VectorSettings


__all__ = [
    "Answer",
    "AnyCloud",
    "Attempt",
    "Attempts",
    "Between",
    "BrokenSchedule",
    "Broker",
    "BrokerError",
    "BrokerLimits",
    "BrokerSettings",
    "Call",
    "Callback",
    "CallbackCapture",
    "CallbackCaptureSettings",
    "Captured",
    "Clock",
    "Cloud",
    "CloudSnapshot",
    "CommandError",
    "ConsumerConfig",
    "ContractError",
    "DeadLetterView",
    "DeliveredRequest",
    "Destination",
    "DestinationRoute",
    "DestinationSettings",
    "DestinationTimeout",
    "Destinations",
    "Difference",
    "Differences",
    "Duration",
    "Event",
    "Exploration",
    "Failure",
    "Failures",
    "FakecloudWarning",
    "Fault",
    "FaultPlan",
    "Fired",
    "Found",
    "GroupView",
    "Handle",
    "History",
    "Instant",
    "Journal",
    "KVReply",
    "KVServer",
    "KVSettings",
    "KVValue",
    "Loop",
    "MemberView",
    "Metadata",
    "NotIdle",
    "Operation",
    "PendingChanges",
    "Problem",
    "ProducerRecord",
    "PublishedMessage",
    "Queue",
    "QueueError",
    "QueueFaults",
    "QueueSettings",
    "Record",
    "RemoteCloud",
    "Reply",
    "RestError",
    "ScheduleView",
    "Search",
    "SearchIndexView",
    "ServiceError",
    "Snapshot",
    "TopicPartition",
    "TopicPartitionOffset",
    "TopicView",
    "UnstubbedDestination",
    "VectorError",
    "VectorIndex",
    "VectorLimits",
    "VectorSettings",
    "linearizable",
    "monotonic_reads",
    "nothing_lost",
    "observed",
    "once",
    "replay_schedule",
]


class _AsCompiled:
    """Finds the modules of this package before pytest does, as they were compiled.

    pytest parses every module of a plugin's package anew to rewrite its asserts. All of ours take
    it 0.3 seconds of processor time, in a first run and wherever no bytecode may be written.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.startswith("pytest_fakecloud."):
            return PathFinder.find_spec(name, path, target)
        return None


if __spec__ is not None and type(__spec__.loader).__name__ == "AssertionRewritingHook":
    sys.meta_path.insert(0, _AsCompiled)


def __getattr__(name: str) -> Any:
    # Lazy, because every pytest run of an environment imports this package for its plugin.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .homes import HOMES

    return getattr(importlib.import_module(f"{__name__}.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
