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

    plugin.py                        pytest: options, hooks, fixtures
    cli.py  standalone/              the command, and fakes in another process
    reporting  recordings/           reports of failing tests, and archives of their calls
    cloud                            Cloud: one clock, one seed, any number of fakes; one pytest run
    kv  vector  broker  queue        the services: fake, settings, model, errors, engine in each
    faults  http  core               faults; server and pipeline; clock, journal, ids, errors

Only the names imported below are public; everything else may change.

PYTEST_DONT_REWRITE: tells pytest not to rewrite assertions here, because none belong to tests.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# The list of public names, from which `python -m tests.surface` derives everything else. The aliases
# re-export the names to type checkers. isort would put each name on a line of its own.
# isort: off
if TYPE_CHECKING:
    from .broker.errors import BrokerError as BrokerError
    from .broker.fake import Broker as Broker, BrokerSettings as BrokerSettings
    from .broker.faults import BrokerFaults as BrokerFaults
    from .broker.model import (
        ProducerRecord as ProducerRecord,
        Record as Record,
        TopicPartition as TopicPartition,
    )
    from .broker.views import GroupView as GroupView, TopicView as TopicView
    from .broker.settings import BrokerLimits as BrokerLimits
    from .cloud.cloud import Cloud as Cloud
    from .core.calls import Call as Call, Event as Event
    from .core.clock import Clock as Clock
    from .core.errors import (
        ContractError as ContractError,
        FakecloudError as FakecloudError,
        ServiceError as ServiceError,
    )
    from .core.journal import Results as Results
    from .core.journal import Journal as Journal
    from .core.violations import Violation as Violation
    from .core.timers import Duration as Duration, Instant as Instant
    from .explore.programs import observed as observed, replay_schedule as replay_schedule
    from .explore.result.exploration import (
        BrokenPromiseError as BrokenPromiseError,
        Exploration as Exploration,
    )
    from .explore.promises import (
        always as always,
        at_most_one as at_most_one,
        eventually as eventually,
        follows as follows,
        linearizable as linearizable,
        monotonic_reads as monotonic_reads,
        never as never,
        nothing_lost as nothing_lost,
        once as once,
        sometimes as sometimes,
    )
    from .explore.trial import History as History
    from .cloud.every_failure import BrokenRunsError as BrokenRunsError
    from .faults.fault import Fault as Fault
    from .faults.plan import FaultPlan as FaultPlan
    from .faults.answers import Response as Response
    from .cloud.fake import Fake as Fake, Snapshot as Snapshot
    from .kv.errors import CommandError as CommandError, RestError as RestError
    from .kv.fake import KVServer as KVServer, KVSettings as KVSettings
    from .kv.search.index import Search as Search
    from .kv.search.views import SearchIndexView as SearchIndexView
    from .cloud.session.warning import FakecloudWarning as FakecloudWarning
    from .queue.actions import Attempts as Attempts, FlowControl as FlowControl
    from .queue.actions import NotIdleError as NotIdleError
    from .queue.capture.callbacks import Callback as Callback
    from .queue.capture.fake import (
        CallbackCapture as CallbackCapture,
        CallbackCaptureSettings as CallbackCaptureSettings,
    )
    from .queue.delivery.destination_server import Destination as Destination
    from .queue.delivery.destinations import Destinations as Destinations
    from .queue.delivery.faults import QueueFaults as QueueFaults
    from .queue.delivery.routes import DeliveredRequest as DeliveredRequest
    from .queue.delivery.applications import DestinationTimeoutError as DestinationTimeoutError
    from .queue.delivery.destinations import UnstubbedDestinationError as UnstubbedDestinationError
    from .queue.errors import LoopError as LoopError, QueueError as QueueError
    from .queue.fake import Queue as Queue, QueueSettings as QueueSettings
    from .queue.model import Attempt as Attempt
    from .queue.settings import DestinationSettings as DestinationSettings
    from .queue.views import (
        DeadLetterView as DeadLetterView,
        PublishedMessage as PublishedMessage,
        ScheduleView as ScheduleView,
    )
    from .recordings.archives import Difference as Difference
    from .vector.errors import VectorError as VectorError
    from .vector.fake import VectorIndex as VectorIndex, VectorSettings as VectorSettings
    from .vector.settings import VectorLimits as VectorLimits

    # The classes of values that tests get from the names above and need not import.
    from .core.calls import Headers  # noqa: F401
    from .core.timers import Fired  # noqa: F401
    from .cloud.every_failure import Failure  # noqa: F401
    from .explore.trial import Operation  # noqa: F401
    from .kv.races import Between  # noqa: F401
    from .queue.delivery.routes import DestinationRoute  # noqa: F401


if not TYPE_CHECKING:
    # Hidden from type checkers, which would accept any name of a module with ``__getattr__``.

    def __getattr__(name: str) -> Any:
        # Import names on first use: every pytest run in an environment imports this package.
        from .public_names import PUBLIC_NAMES

        if name == "__all__":
            return sorted(PUBLIC_NAMES)
        if name not in PUBLIC_NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{PUBLIC_NAMES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
