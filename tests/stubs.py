"""The stubs in ``_typing/``, which tell type checkers the settings of each service, and the fields by
which its calls can be filtered.

At run time, classes declare the settings, and tables of ``Field``s the keywords of a filter.
``python -m docs.generate`` writes the same names as ``TypedDict``s, one stub per service. A stub also
repeats the methods that all fakes share, with the keywords of its service, and ``core.pyi`` has
``Results.where()`` for each class of items.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest_fakecloud
from pytest_fakecloud.broker.model import (
    MEMBER_FIELDS,
    OFFSET_FIELDS,
    RECORD_FIELDS,
    MemberView,
    Record,
    TopicPartitionOffset,
)
from pytest_fakecloud.broker.settings import BrokerConfig, BrokerLimits
from pytest_fakecloud.broker.views import GROUP_FIELDS, TOPIC_FIELDS, GroupView, TopicView
from pytest_fakecloud.cloud.base import fixture_fake
from pytest_fakecloud.cloud.cloud import Cloud
from pytest_fakecloud.cloud.fake import FAKE_FIELDS, Fake
from pytest_fakecloud.core.calls import CALL_FIELDS, EVENT_FIELDS, Call, Event
from pytest_fakecloud.core.journal import Journal, Results
from pytest_fakecloud.core.matching import Field, fields_of
from pytest_fakecloud.core.recorder import Recorder
from pytest_fakecloud.core.settings import settings_of
from pytest_fakecloud.core.violations import ALLOWABLE, VIOLATION_FIELDS, Violation
from pytest_fakecloud.explore.values.failures import Failure
from pytest_fakecloud.faults.plan import FaultPlan, injector_of
from pytest_fakecloud.kv.command_fields import COMMAND_FIELDS
from pytest_fakecloud.kv.search.index import Search
from pytest_fakecloud.kv.search.views import SEARCH_FIELDS
from pytest_fakecloud.kv.settings import KVConfig
from pytest_fakecloud.queue.capture.callbacks import FIELDS as CALLBACKS
from pytest_fakecloud.queue.capture.callbacks import Callback
from pytest_fakecloud.queue.delivery.routes import (
    DELIVERIES,
    ROUTES,
    DeliveredRequest,
    DestinationRoute,
)
from pytest_fakecloud.queue.model import Attempt
from pytest_fakecloud.queue.settings import CallbackCaptureConfig, QueueConfig
from pytest_fakecloud.queue.views import (
    ATTEMPTS,
    DEAD_LETTERS,
    MESSAGES,
    SCHEDULES,
    DeadLetterView,
    PublishedMessage,
    ScheduleView,
)
from pytest_fakecloud.recordings.archives import Difference
from pytest_fakecloud.similarity.dense import Similarity
from pytest_fakecloud.vector.fake import QUERY_FIELDS, UPSERT_FIELDS
from pytest_fakecloud.vector.settings import VectorConfig, VectorLimits

PACKAGE = Path(pytest_fakecloud.__file__).parent
Names = Iterable[str]

ITEMS: Mapping[str, Mapping[str, tuple[type, Mapping[str, Field]]]] = {
    "core": {
        "FakeWhere": (Fake, FAKE_FIELDS),
        "ViolationWhere": (Violation, VIOLATION_FIELDS),
        "FailureWhere": (Failure, fields_of(Failure)),
        "DifferenceWhere": (Difference, fields_of(Difference)),
    },
    "kv": {"SearchWhere": (Search, SEARCH_FIELDS)},
    "broker": {
        "RecordWhere": (Record, RECORD_FIELDS),
        "OffsetWhere": (TopicPartitionOffset, OFFSET_FIELDS),
        "MemberWhere": (MemberView, MEMBER_FIELDS),
        "TopicWhere": (TopicView, TOPIC_FIELDS),
        "GroupWhere": (GroupView, GROUP_FIELDS),
    },
    "queue": {
        "AttemptFields": (Attempt, ATTEMPTS),
        "MessageWhere": (PublishedMessage, MESSAGES),
        "DeadLetterWhere": (DeadLetterView, DEAD_LETTERS),
        "ScheduleWhere": (ScheduleView, SCHEDULES),
        "DeliveryWhere": (DeliveredRequest, DELIVERIES),
        "RouteWhere": (DestinationRoute, ROUTES),
        "CallbackFields": (Callback, CALLBACKS),
    },
}
"""The items that ``Results.where()`` filters: their class and table, by the name of the type."""
PARTS: Mapping[str, Mapping[str, Names]] = {
    "core": {"ViolationFields": {name for facts in ALLOWABLE.values() for name in facts}},
    "kv": {"CommandFields": COMMAND_FIELDS, "SearchFields": SEARCH_FIELDS.keys() - {"index"}},
    "vector": {
        "UpsertFields": UPSERT_FIELDS.keys() - {"id"},
        "QueryFields": QUERY_FIELDS.keys() - {"topK"},
    },
    "broker": {
        "ListedFields": RECORD_FIELDS.keys() - {"topic"},
        "RecordFields": RECORD_FIELDS.keys() - {"topic", "value"},
    },
    "queue": {
        "ListedFields": MESSAGES.keys() - {"state"},
        "MessageFields": MESSAGES.keys() - {"state", "url"},
        "DeadLetterFields": DEAD_LETTERS.keys() - {"url"},
    },
}
"""The fields of other methods: without those that are parameters of their own, and of ``allow()``."""
CONDITIONS: Mapping[str, str] = {
    **dict.fromkeys(("partition", "offset", "timestamp", "top_k", "maxIdle"), "int"),
    **dict.fromkeys(("includeVectors", "includeMetadata", "includeData"), "bool"),
    **dict.fromkeys(("key", "data", "namespace", "filter"), "str"),
    **dict.fromkeys(("weightingStrategy", "fusionAlgorithm", "queryMode"), "str"),
    **dict.fromkeys(("metadata", "sparseVector"), "Mapping[str, Any]"),
    "headers": "Headers | Mapping[str, Condition[str]]",
    "vector": "Sequence[float] | Floats",
}
"""The types of values in conditions on records, upserts and queries, by field."""
SETTINGS: Mapping[str, tuple[type, ...]] = {
    "kv": (KVConfig,),
    "vector": (VectorConfig,),
    "broker": (BrokerConfig,),
    "queue": (QueueConfig, CallbackCaptureConfig),
}
"""The classes that declare the settings of a service's fakes."""
PREFIXES = {"core": "Cloud", "kv": "KV", "vector": "Vector", "broker": "Broker", "queue": "Queue"}
"""Beginnings of the names of a stub's types. ``Cloud`` types have the fields of all services."""
FAKES = ("kv_server", "vector_index", "broker", "queue")
_TITLE = '''"""The fields that filters and faults accept, and what has them, for type checkers.

``python -m docs.generate`` writes this file from the tables that are used at run time.
"""

'''
_NARROWER = "  # type: ignore[override]"
"""Ends methods that accept fewer fields than those of their base class, which accept all services'."""
_UNPACKED = re.compile(r"\bUnpack\[(?:Cloud)?(CallFields|EventFields|Matchers)\]")
"""The keywords of methods that all fakes share, which are different for each service."""


def stubs() -> dict[Path, str]:
    """Return the text of each stub by its path."""
    with Cloud(seed=1, clock="frozen") as cloud:
        fakes: list[Any] = [fixture_fake(cloud, name) for name in FAKES]
        classes = {fake.service: _service_classes(fake) for fake in fakes}
        classes["core"] = _core_classes(cloud.journal._recorder)
    owners = {
        node.name: f"pytest_fakecloud._typing.{service}"
        for service, text in classes.items()
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef)
    }
    return {
        PACKAGE / "_typing" / f"{service}.pyi": f"{_TITLE}{_imports(text, owners)}{text}"
        for service, text in classes.items()
    }


def _service_classes(fake: Any) -> str:
    own, plan = PREFIXES[fake.service], fake.faults
    classes = [
        *map(_settings, SETTINGS[fake.service]),
        *_keywords_of_journal(fake.journal._recorder, own),
        _keywords(f"{own}Matchers", injector_of(plan).fact_fields, "Matchers"),
        *_listed(fake.service),
        _results(f"{own}Calls", "Call", f"{own}CallFields"),
        _results(f"{own}Events", "Event", f"{own}EventWhere"),
    ]
    results = {"Results[Call]": f"{own}Calls", "Results[Event]": f"{own}Events"}
    attributes = [f"journal: {own}Journal", f"faults: {own}FaultPlan"]
    classes += [
        _repeated(Journal, own, results, note=_NARROWER),
        _repeated(FaultPlan, own, results),
        _repeated(Fake, own, results, attributes),
    ]
    if injector_of(plan).service_fields:
        classes.append(
            _keywords(f"{own}ServiceMatchers", injector_of(plan).service_fields, "ServiceMatchers")
        )
    return "\n".join(classes)


def _core_classes(recorder: Recorder) -> str:
    overloads = {"CloudCallFields": "Call", "CloudEventWhere": "Event"}
    overloads |= {
        name: kind.__name__ for every in ITEMS.values() for name, (kind, _) in every.items()
    }
    lines = [_where(f"self: Items[{item}]", "T", name) for name, item in overloads.items()]
    lines.append(_where("self: Items[dict[str, Any]]", "T", "").replace("Unpack[]", "object"))
    lines.append(_where("self", "T", "").replace(", **fields: Unpack[]", ""))
    classes = [
        _keywords("CallFields", CALL_FIELDS),
        _keywords("EventFields", EVENT_FIELDS),
        *_keywords_of_journal(recorder, "Cloud"),
        *_listed("core"),
        'T = TypeVar("T")\n',
        _class("Items(list[T])", [text for line in lines for text in ("@overload", line)]),
    ]
    return "\n".join(classes)


def _keywords_of_journal(recorder: Recorder, own: str) -> list[str]:
    calls = recorder.call_fields.keys() - CALL_FIELDS.keys()
    events = recorder.event_fields.keys() - EVENT_FIELDS.keys()
    return [
        _keywords(f"{own}CallFields", calls, "CallFields"),
        _keywords(f"{own}EventFields", events, "EventFields"),
        _keywords(f"{own}EventWhere", ["kind"], f"{own}EventFields"),
    ]


def _listed(service: str) -> list[str]:
    """Return the types of the keywords that select the items of a service."""
    items = {name: fields for name, (_, fields) in ITEMS.get(service, {}).items()}
    types = CONDITIONS if service in ("broker", "vector") else {}
    return [
        *(_keywords(name, fields) for name, fields in items.items()),
        *(_keywords(name, fields, of=types) for name, fields in PARTS.get(service, {}).items()),
    ]


def _class(head: str, lines: Iterable[str]) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"class {head}:\n{body}" if body else f"class {head}: ...\n"


def _keywords(name: str, fields: Names, base: str = "TypedDict", of: Mapping[str, str] = {}) -> str:
    kinds = {
        field: f"Condition[{of[field]}]" if field in of else "object" for field in sorted(fields)
    }
    return _class(
        f"{name}({base}, total=False)",
        [f"{parameter}: {kind}" for parameter, kind in kinds.items()],
    )


def _settings(declared: type) -> str:
    name = declared.__name__.replace("Config", "Settings")
    lines = (
        f"{name}: {type_text(setting.kind.accepts)}"
        for name, setting in settings_of(declared).items()
    )
    return _class(f"{name}(TypedDict, total=False)", lines)


def type_text(accepted: Any) -> str:
    """Return the source of a type, which is the same in every version of Python."""
    origin, inner = typing.get_origin(accepted), typing.get_args(accepted)
    if accepted in (None, types.NoneType):
        return "None"
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, inner))}]"
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(type_text, inner)).replace("timedelta | float | str", "Duration")
    name = getattr(origin or accepted, "__name__", "Any")
    if origin is collections.abc.Callable:
        *parameters, result = inner
        return f"Callable[{_listed_types(*parameters)}, {type_text(result)}]"
    return name + _listed_types(inner) if inner else name


def _listed_types(kinds: Iterable[Any]) -> str:
    return f"[{', '.join(map(type_text, kinds))}]"


def _where(self: str, item: str, fields: str, result: str = "Results[T]") -> str:
    predicate = f"predicate: Callable[[{item}], bool] | None = None"
    return f"def where({self}, {predicate}, /, **fields: Unpack[{fields}]) -> {result}: ..."


def _results(name: str, item: str, fields: str) -> str:
    """Return a subclass of ``Results`` whose ``where()`` takes the fields of one service."""
    lines = [
        _where("self", item, fields, name) + _NARROWER,
        *("@overload", f"def __getitem__(self, index: SupportsIndex, /) -> {item}: ..."),
        *("@overload", f"def __getitem__(self, index: slice, /) -> {name}: ..."),
    ]
    return _class(f"{name}(Results[{item}])", lines)


def _repeated(
    shared: type, own: str, results: Mapping[str, str], attributes: Names = (), note: str = ""
) -> str:
    """Return a subclass that repeats the methods of ``shared`` that take the fields of a service."""
    (parsed,) = ast.parse(inspect.getsource(shared)).body
    lines = [*attributes]
    for method in parsed.body if isinstance(parsed, ast.ClassDef) else ():
        if isinstance(method, ast.FunctionDef):
            method.body = [ast.Expr(ast.Constant(...))]
            text = ast.unparse(method).replace(":\n    ...", ": ...")
            renamed = _UNPACKED.sub(rf"Unpack[{own}\1]", text)
            if renamed != text:
                for result, of_service in results.items():
                    renamed = renamed.replace(f"-> {result}", f"-> {of_service}")
                lines.append(renamed + note)
    return _class(f"{own}{shared.__name__}({shared.__name__})", lines)


def _imports(text: str, owners: Mapping[str, str]) -> str:
    """Return imports of the names that the text of a stub uses and does not define."""
    tree = ast.parse(text)
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)} | {"T"}
    named = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    used = {node.id for node in named if isinstance(node.ctx, ast.Load)} - own - {*vars(builtins)}
    modules = {
        kind.__name__: kind.__module__ for every in ITEMS.values() for kind, _ in every.values()
    }
    for shared in (Journal, FaultPlan, Fake, Results, Call, Event):
        source = inspect.getsource(sys.modules[shared.__module__])
        modules |= _imported(ast.parse(source), shared.__module__)
        modules[shared.__name__] = shared.__module__
    modules |= dict.fromkeys(("Matchers", "ServiceMatchers"), FaultPlan.__module__)
    modules |= {"PathLike": "os", **owners}
    modules |= {kind.__name__: kind.__module__ for kind in (BrokerLimits, VectorLimits)}
    modules |= {"Condition": Field.__module__, "Headers": Record.__module__}
    modules["Floats"] = Similarity.__module__
    modules |= dict.fromkeys(typing.__all__, "typing")
    modules |= dict.fromkeys(collections.abc.__all__, "collections.abc")
    lines = [f"import {name}" for name in used - modules.keys()]
    for origin in {modules[name] for name in used & modules.keys()}:
        names = ", ".join(sorted(name for name in used if modules.get(name) == origin))
        lines.append(f"from {origin} import {names}")
    return "".join(f"{line}\n" for line in sorted(lines)) + "\n"


def _imported(tree: ast.Module, module: str) -> dict[str, str]:
    """Return the module from which a module imports each name."""
    package = module.split(".")
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = package[: -node.level] if node.level else []
            origin = ".".join([*base, node.module or ""])
            modules |= {alias.name: origin for alias in node.names}
    return modules
