"""Closed lists of the types and names that a stand-alone server and its clients may exchange.

A received name is only a key of these lists: it never selects a module or a function directly.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

from ..core.calls import CALL_MAY_HAVE, CALL_NEEDS, Call, call_of
from ..core.matching import Field
from ..faults.plan import FaultPlan, fault_words
from ..handle import Handle
from ..services import SERVICES

_PACKAGE = "pytest_fakecloud"


def name_of(kind: type) -> str:
    """Return the wire name of a class, ``module:qualified.name``."""
    return f"{kind.__module__}:{kind.__qualname__}"


def _wire_names(classes: Mapping[str, str]) -> frozenset[str]:
    """Return the wire names of classes, whose names are listed by module of this package."""
    return frozenset(
        f"{_PACKAGE}.{module}:{name}" for module, names in classes.items() for name in names.split()
    )


def _imported(name: str) -> Any:
    """Return a listed class or table by its wire name, and import its module if necessary."""
    module, _, attribute = name.partition(":")
    return vars(importlib.import_module(module))[attribute]


# -- values ----------------------------------------------------------------------------------------

_VALUES = _wire_names(
    {
        "broker.model": "ConsumerConfig GroupView Header MemberView Metadata "
        "ProducerRecord Record TopicPartition TopicPartitionOffset TopicView",
        "broker.settings": "BrokerConfig BrokerLimits",
        "core.calls": "Call Event Headers",
        "core.problems": "Problem",
        "core.timers": "Fired",
        "http.messages": "Answer",
        "kv.search.index": "Search",
        "queue.delivery.replies": "DeliveredRequest Reply",
        "queue.engine.schedules": "Schedule",
        "queue.engine.history": "DeadLetter",
        "queue.model": "Attempt Delivery FlowSettings LogEntry Message Outcome PublishSettings "
        "Redaction",
        "queue.settings": "QueueConfig PlanLimits",
        "vector.settings": "VectorLimits",
    }
)
"""Dataclasses and named tuples that are sent field by field."""
_RESULTS = _wire_names({"core.results": "Results", "queue.delivery.drivers": "Attempts"})
"""List subclasses that are sent as their items and a few strings."""


class ValueType(NamedTuple):
    """A value's class, the names of its fields, and the fields that may be omitted."""

    kind: Any
    names: tuple[str, ...]
    optional: frozenset[str] = frozenset()

    def make(self, content: Mapping[str, Any]) -> Any:
        """Construct the value; raise ``ValueError`` for missing or unknown fields."""
        missing = set(self.names) - self.optional - content.keys()
        unknown = content.keys() - set(self.names)
        if missing or unknown:
            wrong = ", ".join(sorted(missing | set(map(str, unknown))))
            raise ValueError(f"missing or unknown fields of {self.kind.__name__}: {wrong:.200}")
        return call_of(content) if self.kind is Call else self.kind(**content)


def value_type(name: object) -> ValueType | None:
    """Return the value type with a wire name, or None if it is not listed."""
    return _value_type(name) if isinstance(name, str) and name in _VALUES else None


@cache
def _value_type(name: str) -> ValueType:
    kind = _imported(name)
    if kind is Call:
        return ValueType(kind, tuple(sorted(CALL_NEEDS | CALL_MAY_HAVE)), CALL_MAY_HAVE)
    if issubclass(kind, tuple):
        return ValueType(kind, kind._fields)
    return ValueType(kind, tuple(field.name for field in fields(kind)))


_FIELD_TABLES: Mapping[str, str] = {
    "attempt": "queue.fields:ATTEMPTS",
    "callback": "queue.capture.callbacks:FIELDS",
    "dead letter": "queue.views:DEAD_LETTERS",
    "delivery": "queue.delivery.replies:DELIVERIES",
    "failure callback": "queue.capture.callbacks:FIELDS",
    "handle": "handle:HANDLE_FIELDS",
    "member": "broker.model:MEMBER_FIELDS",
    "message": "queue.views:MESSAGES",
    "problem": "core.problems:PROBLEM_FIELDS",
    "schedule": "queue.views:SCHEDULES",
}
"""The table of fields for each kind of item, also used by the client."""


def item_field(kind: str, name: str) -> Field | None:
    """Return a field of a kind of item, or None if there is no such kind or field."""
    if kind not in _FIELD_TABLES:
        return None
    table: Mapping[str, Field] = _imported(f"{_PACKAGE}.{_FIELD_TABLES[kind]}")
    return table.get(name)


def results_type(name: object) -> Any:
    """Return the list class with a wire name, or None if it is not listed."""
    return _imported(name) if isinstance(name, str) and name in _RESULTS else None


# -- errors ----------------------------------------------------------------------------------------

_BUILT_IN = {
    f"builtins:{name}": kind
    for name, kind in vars(builtins).items()
    if isinstance(kind, type) and issubclass(kind, Exception)
}
_ERRORS = _wire_names(
    {
        "broker.errors": "BrokerError",
        "core.errors": "CannotTell ContractError ServiceError",
        "kv.errors": "CommandError RestError",
        "queue.delivery.drivers": "NotIdle",
        "queue.delivery.replies": "DestinationTimeout",
        "queue.delivery.sender": "UnstubbedDestination",
        "queue.errors": "Loop QueueError",
        "vector.errors": "VectorError",
    }
)


def error_type(name: str) -> type[Exception] | None:
    """Return the exception class with a wire name, or None if it is not listed."""
    return _imported(name) if name in _ERRORS else _BUILT_IN.get(name)


# -- objects that stay where they are --------------------------------------------------------------


class Surface(NamedTuple):
    """The fields and methods of an object that a remote client may use. All others are rejected."""

    kind: Any
    methods: frozenset[str]
    fields: frozenset[str]
    protocols: frozenset[str]

    @property
    def names(self) -> list[str]:
        return sorted(self.methods | self.fields)


_HANDLE = "* clock closed faults journal name token"
_CAPTURE = (
    f"{_HANDLE} assertions handler_errors host log permanently_failed port "
    "check check_assertions check_handler_errors clear clear_assertions clear_handler_errors "
    "clear_log expect expect_oneshot_request expect_ordered_request expect_request format_matchers "
    "url_for"
)
_SCOPED_FAULTS = "queue.capture.handle:ScopedFaults"
_OFFERED: Mapping[str, str] = {
    "broker.handle:Broker": f"{_HANDLE} username",
    "kv.handle:KVServer": f"{_HANDLE} dialect",
    "queue.capture.handle:CallbackCapture": f"{_CAPTURE} callbacks failures",
    "queue.delivery.destination_server:Destination": _CAPTURE,
    "queue.handle:Queue": f"{_HANDLE} delivery destinations signature_clock",
    "vector.handle:VectorIndex": f"{_HANDLE} read_only_token",
    # A cloud offers no with-block, because it may be closed only by its owner.
    "any_cloud:AnyCloud": "allow clock env journal problems restore seed snapshot",
    "core.clock:Clock": "advance advance_to_next freeze mode move_to next_due now now_ms now_us "
    "resume run_due wait_cap",
    "core.journal:Journal": "assert_called assert_not_called calls clear entries events keep "
    "keep_bytes __len__",
    "faults.fault:Fault": "*",
    "faults.plan:FaultPlan": "*",
    "kv.search.views:SearchIndexView": "* name",
    "queue.capture.callbacks:Callback": "* at_us failure headers problem raw request",
    "queue.capture.callbacks:Captured": "* faults last only",
    "queue.delivery.destination_routes:DestinationRoute": "* deliveries given prefix where",
    "queue.delivery.destinations:Destinations": "* raise_exceptions",
    "queue.delivery.faults:QueueFaults": "*",
    "queue.views:DeadLetterView": "* at id message",
    "queue.views:PublishedMessage": "*",
    "queue.views:ScheduleView": "* id",
    "vector.handle:PendingChanges": "* last only where",
    _SCOPED_FAULTS: "*",
}
"""The names that the classes of this package offer.

``*`` includes the protocols that a class supports, and all public names that it declares, except
those in ``_IN_PROCESS``: a new method of a fake also works over a server.
"""
_IN_PROCESS = frozenset(
    {"aio", "application", "between", "client", "async_client", "intercept", "on_close"}
    | {"account", "dispatch", "bake", "dump_rdb", "start", "stop", "thread_target"}
)
"""Methods that no remote client may use: ``dump_rdb``, for example, writes files."""
_OUTSIDE: Mapping[str, str] = {
    "pytest_httpserver.httpserver:RequestHandler": "respond_with_data respond_with_json",
    "contextlib:_GeneratorContextManager": "__enter__ __exit__",
}
"""The names that classes of other packages offer, objects of which handles return."""
_OBJECTS = {**{f"{_PACKAGE}.{name}": offered for name, offered in _OFFERED.items()}, **_OUTSIDE}
_PROTOCOLS = frozenset({"__len__", "__iter__", "__getitem__", "__enter__", "__exit__"})


def _offer_of(name: str) -> str | None:
    """Return the names that a class offers, or None if clients may not use it."""
    is_handle = any(service.handle == name for service in SERVICES.values())
    return _OBJECTS.get(name, _HANDLE if is_handle else None)


def surface_named(name: object) -> Surface | None:
    """Return the ``Surface`` of a class by its wire name, or None if clients may not use it."""
    offered = _offer_of(name) if isinstance(name, str) else None
    try:
        return None if offered is None else _surface(str(name), offered)
    except ImportError:
        return None  # The server has a library that this process lacks.


def surface_of(kind: type) -> tuple[str, Surface | None]:
    """Return the wire name and the ``Surface`` of an object's class."""
    for owner in kind.__mro__:
        if _offer_of(name_of(owner)) is not None:
            return name_of(owner), surface_named(name_of(owner))
    return name_of(kind), None


@cache
def _surface(name: str, offered: str) -> Surface:
    kind, words = _imported(name), set(offered.split())
    if "*" in words:
        words |= _declared(kind) - _IN_PROCESS
        words |= {protocol for protocol in _PROTOCOLS if hasattr(kind, protocol)}
    protocols, names = words & _PROTOCOLS, words - _PROTOCOLS - {"*"}
    if "__len__" in protocols or hasattr(kind, "__bool__"):
        protocols.add("__bool__")
    methods = {each for each in names if _is_method(kind, each)}
    if name.endswith(_SCOPED_FAULTS):
        methods |= {*fault_words(FaultPlan)}  # Its __getattr__() creates them.
    return Surface(kind, frozenset(methods), frozenset(names - methods), frozenset(protocols))


def _is_method(kind: type, name: str) -> bool:
    found = inspect.getattr_static(kind, name, None)
    return inspect.isfunction(found) or isinstance(found, classmethod | staticmethod)


def _declared(kind: type) -> set[str]:
    """Return the public names that a class declares, or inherits from classes of this package."""
    return {
        name
        for owner in kind.__mro__
        if owner.__module__.startswith(f"{_PACKAGE}.") or issubclass(owner, Handle)
        for name in vars(owner)
        if not name.startswith("_")
    }


def fault_kinds(plan: type[FaultPlan]) -> list[str]:
    """Return the methods of a plan that inject a fault, except ``call()``, which takes a function."""
    return [name for name in fault_words(plan) if name != "call"]
