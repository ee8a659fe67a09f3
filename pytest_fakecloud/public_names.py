"""The module of each public name, which the package imports when the name is used.

Written by ``python -m tests.surface``.
"""

from __future__ import annotations


def _by_name(text: str) -> dict[str, str]:
    lines = map(str.split, text.strip().splitlines())
    return {name: module for module, *names in lines for name in names}


PUBLIC_NAMES = _by_name("""
broker.errors BrokerError
broker.fake Broker BrokerSettings
broker.faults BrokerFaults
broker.model ProducerRecord Record TopicPartition
broker.settings BrokerLimits
broker.views GroupView TopicView
cloud.cloud Cloud
cloud.every_failure BrokenRunsError
cloud.fake Fake Snapshot
cloud.session.warning FakecloudWarning
core.calls Call Event
core.clock Clock
core.errors ContractError FakecloudError ServiceError
core.journal Journal Results
core.timers Duration Instant
core.violations Violation
explore.programs observed replay_schedule
explore.promises always at_most_one eventually follows linearizable monotonic_reads never
explore.promises nothing_lost once sometimes
explore.result.exploration BrokenPromiseError Exploration
explore.trial History
faults.answers Response
faults.fault Fault
faults.plan FaultPlan
kv.errors CommandError RestError
kv.fake KVServer KVSettings
kv.search.index Search
kv.search.views SearchIndexView
queue.actions Attempts FlowControl NotIdleError
queue.capture.callbacks Callback
queue.capture.fake CallbackCapture CallbackCaptureSettings
queue.delivery.applications DestinationTimeoutError
queue.delivery.destination_server Destination
queue.delivery.destinations Destinations UnstubbedDestinationError
queue.delivery.faults QueueFaults
queue.delivery.routes DeliveredRequest
queue.errors LoopError QueueError
queue.fake Queue QueueSettings
queue.model Attempt
queue.settings DestinationSettings
queue.views DeadLetterView PublishedMessage ScheduleView
recordings.archives Difference
vector.errors VectorError
vector.fake VectorIndex VectorSettings
vector.settings VectorLimits
""")
PART_NAMES = _by_name("""
cloud.every_failure Failure
core.calls Headers
core.timers Fired
explore.trial Operation
kv.races Between
queue.delivery.routes DestinationRoute
""")
"""Documented classes whose objects tests get from public names, and that they need not import."""
