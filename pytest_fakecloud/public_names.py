"""The module of each public name, which the package imports when the name is used.

Written by ``python -m tests.surface``.
"""

from __future__ import annotations

_NAMES_BY_MODULE = """
base_cloud CloudSnapshot
broker.errors BrokerError
broker.faults BrokerFaults
broker.handle Broker
broker.model ProducerRecord Record TopicPartition
broker.settings BrokerLimits BrokerSettings
broker.views GroupView TopicView
cloud Cloud
core.calls Call Event Headers
core.clock Clock
core.errors ContractError FakecloudError ServiceError
core.journal Journal
core.problems Problem
core.results Results
core.timeparse Duration Instant
core.timers Fired
every_failure BrokenRunsError Failure
explore.decorators replay_schedule
explore.promises always at_most_one eventually follows linearizable monotonic_reads never
explore.promises nothing_lost observed once sometimes
explore.result.exploration BrokenPromiseError Exploration
explore.run History Operation
faults.answers Response
faults.fault Fault
faults.plan FaultPlan
handle Handle Snapshot
kv.errors CommandError RestError
kv.handle KVServer
kv.python_values KVReply KVValue
kv.races Between
kv.search.index Search
kv.search.views SearchIndexView
kv.settings KVSettings
queue.arguments FlowControl
queue.capture.callbacks Callback
queue.capture.handle CallbackCapture
queue.delivery.destination_routes DestinationRoute
queue.delivery.destination_server Destination
queue.delivery.destinations Destinations
queue.delivery.drivers Attempts NotIdleError
queue.delivery.faults QueueFaults
queue.delivery.replies DeliveredRequest DestinationTimeoutError
queue.delivery.sender UnstubbedDestinationError
queue.errors LoopError QueueError
queue.handle Queue
queue.model Attempt
queue.settings CallbackCaptureSettings DestinationSettings QueueSettings
queue.views DeadLetterView PublishedMessage ScheduleView
recordings Difference Differences
session.warning FakecloudWarning
vector.errors VectorError
vector.handle VectorIndex
vector.settings VectorLimits VectorSettings
"""
PUBLIC_NAMES: dict[str, str] = {
    name: module
    for module, *names in map(str.split, _NAMES_BY_MODULE.strip().splitlines())
    for name in names
}
