"""Real HTTP fakes of four cloud services as pytest fixtures.

A test requests a fixture and receives a fake::

    fixture             class             fake of
    kv_server           KVServer          key-value commands, over REST and the Redis protocol
    vector_index        VectorIndex       vectors: dense, sparse, hybrid
    broker              Broker            a partitioned log with consumer groups
    queue               Queue             a message queue with deliveries, retries and callbacks
    callback_capture    CallbackCapture   a receiver of the queue's callbacks
    destination         Destination       a server for deliveries
    fakecloud           Cloud             all fakes of a test: clock, violations, more fakes

Every fake (``Fake``) has ``url``, ``token`` and ``client()`` to connect, ``load()``, ``reset()``
and ``snapshot()`` for its data, ``faults`` (``FaultPlan``), ``journal`` (``Journal``, of ``Call``)
and ``assert_called()``. Each service adds its own methods. ``fakecloud.clock`` is a ``Clock``. The
settings are in ``KVSettings``, ``VectorSettings``, ``BrokerSettings`` and ``QueueSettings``.
``ContractError`` is raised for a mistake in the test itself.

Without pytest, ``with Cloud() as cloud: cloud.kv_server()`` starts a fake in this process.

The package for contributors::

    plugin.py  pytest_run/           pytest: options, hooks, fixtures; the state of one run
    cli.py  standalone/              the command, and fakes in another process
    verify/                          comparison with the real services
    explore/  recordings/            exploration of schedules; archives of calls and their replay
    reporting/                       reports of failing tests
    cloud/                           Cloud: one clock, one seed, any number of fakes
    kv/  vector/  broker/  queue/    the services: fake, settings, model, errors, engine in each
    process/                         what is replaced in the process: time, requests, variables
    faults/  http/                   injected faults; server and pipeline
    similarity/  core/               distances of vectors; clock, journal, ids, errors

``docs/contributing/map.md`` shows which of them may import which.

Only the names listed below are public; everything else may change.

PYTEST_DONT_REWRITE: tells pytest not to rewrite assertions here, because none belong to tests.
"""

from __future__ import annotations

import importlib
from typing import Any

_PUBLIC_NAMES = {
    name: module
    for module, names in {
        "broker.errors": "BrokerError",
        "broker.fake": "Broker BrokerSettings",
        "broker.faults": "BrokerFaults",
        "broker.model": "ProducerRecord Record TopicPartition",
        "broker.settings": "BrokerLimits",
        "broker.views": "GroupView TopicView",
        "cloud.cloud": "Cloud",
        "cloud.fake": "Fake Snapshot",
        "pytest_run.warning": "FakecloudWarning",
        "core.calls": "Call Event",
        "core.clock": "Clock",
        "core.errors": "ContractError FakecloudError ServiceError",
        "core.journal": "Journal Results",
        "core.timers": "Duration Instant",
        "core.violations": "Violation",
        "explore.guests.inputs.drawing": "drawn operations transactions",
        "explore.guests.isolation": "isolated",
        "explore.subject.programs": "observed replay_schedule",
        "explore.subject.promises": "always at_most_one eventually follows linearizable monotonic_reads "
        "never nothing_lost once sometimes",
        "explore.result.exploration": "BrokenPromiseError Exploration",
        "explore.values.history": "History",
        "faults.answers": "Response",
        "faults.fault": "Fault",
        "faults.plan": "FaultPlan",
        "kv.errors": "CommandError RestError",
        "kv.fake": "KVServer KVSettings",
        "kv.search.index": "Search",
        "kv.search.views": "SearchIndexView",
        "queue.actions": "Attempts FlowControl NotIdleError",
        "queue.capture.callbacks": "Callback",
        "queue.capture.fake": "CallbackCapture CallbackCaptureSettings",
        "queue.delivery.applications": "DestinationTimeoutError",
        "queue.delivery.destination_server": "Destination",
        "queue.delivery.destinations": "Destinations UnstubbedDestinationError",
        "queue.delivery.faults": "QueueFaults",
        "queue.delivery.routes": "DeliveredRequest",
        "queue.errors": "LoopError QueueError",
        "queue.fake": "Queue QueueSettings",
        "queue.model": "Attempt",
        "queue.settings": "DestinationSettings",
        "queue.views": "DeadLetterView PublishedMessage ScheduleView",
        "recordings.archives": "Difference",
        "vector.errors": "VectorError",
        "vector.fake": "VectorIndex VectorSettings",
        "vector.settings": "VectorLimits",
    }.items()
    for name in names.split()
}
"""The module of each public name. This is their only list: `python -m docs.generate` writes
``__init__.pyi``, which type checkers read, from it."""
_PART_NAMES = {
    name: module
    for module, names in {
        "explore.values.failures": "Failure",
        "core.calls": "Headers",
        "core.timers": "Fired",
        "explore.values.history": "Operation",
        "kv.interruptions": "Between",
        "queue.delivery.routes": "DestinationRoute",
    }.items()
    for name in names.split()
}
"""Documented classes whose objects tests get from public names, and that they need not import."""


def __getattr__(name: str) -> Any:
    # Import names on first use: every pytest run in an environment imports this package.
    if name == "__all__":
        return sorted(_PUBLIC_NAMES)
    if name not in _PUBLIC_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC_NAMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC_NAMES})
