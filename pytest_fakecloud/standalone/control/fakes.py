"""Endpoints of the fakes of a cloud, of their faults, and of calls of their methods."""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import itertools
import json
from collections.abc import Mapping
from types import MemberDescriptorType
from typing import Any
from weakref import WeakKeyDictionary

from ... import _PART_NAMES, _PUBLIC_NAMES
from ...cloud.actions import from_elsewhere
from ...cloud.cloud import Cloud
from ...cloud.fake import FAKE_FIELDS, Fake, core_of
from ...cloud.services import find, own_prefix
from ...core.calls import Call, parts_of
from ...core.errors import shown, unknown_name
from ...core.plain_data import bytes_to_plain
from ...core.timers import to_datetime
from ...faults.fault import Fault, terms_of
from ...faults.plan import fault_kinds, injector_of
from ...http.messages import Request
from ...http.routing import Route
from ...inspect.data import whole_number
from ..addresses import Hosts, has_public_credentials
from ..first_calls import first_call
from ..state_file import inject
from . import shapes
from .endpoints import PREFIX, Part, Refused, contract, fake_named, fields, named
from .problems import open_letters_of

_MOST_USED_UP = 20


class FakeRoutes(Part):
    """Endpoints that start, describe and close fakes, inject faults, and call the methods that a test
    calls on its fixtures. ``records``: these calls appear in reports.
    """

    def __init__(self, cloud: Cloud, hosts: Hosts, *, records: bool = False) -> None:
        self._cloud = cloud
        self._records = records
        self._hosts = hosts
        self._numbers = WeakKeyDictionary[Fault, int]()
        """The ids of the faults that were described so far."""
        self._next_number = itertools.count(1)

    @classmethod
    def routes(cls) -> list[Route]:
        fake = f"{PREFIX}/fakes/{{name}}"
        return [
            cls.route("POST", f"{PREFIX}/fakes", "start_fake", cls.start_fake),
            cls.route("GET", fake, "fake", cls.get_fake),
            cls.route("DELETE", fake, "close_fake", cls.close_fake),
            cls.route("GET", f"{fake}/first-call", "first_call", cls.get_first_call),
            cls.route("GET", f"{fake}/faults", "faults", cls.get_faults),
            cls.route("POST", f"{fake}/faults", "add_fault", cls.add_fault),
            cls.route("DELETE", f"{fake}/faults", "clear_faults", cls.clear_faults),
            cls.route("DELETE", f"{fake}/faults/{{id}}", "remove_fault", cls.remove_fault),
            cls.route("POST", f"{PREFIX}/call", "call", cls.call, lingers=True),
        ]

    def start_fake(self, request: Request) -> shapes.FakeData:
        """Start another fake: ``{"fixture": "kv_server", "settings": {…}}``."""
        body = fields(request)
        fixture, settings = body["fixture"], body.get("settings", {})
        with contract():
            try:
                fake = start(self._cloud, self._hosts, fixture, settings)
                return describe(self._cloud, fake)
            except OSError as error:
                raise Refused(422, f"{fixture} cannot start at this address: {error}") from error

    def get_first_call(self, request: Request) -> shapes.FirstCallData:
        """Return a first call to a fake: its bare request, and programs of the official clients."""
        fake = named(self._cloud, request)
        call = first_call(fake.fixture)
        return {
            "does": call.does,
            "target": call.target,
            "body": json.dumps(call.body),
            "texts": call.texts(own_prefix(fake.name, fake.fixture)),
        }

    def get_fake(self, request: Request) -> shapes.FakeData:
        """Return one fake: its address, credentials and environment variables."""
        return describe(self._cloud, named(self._cloud, request))

    def close_fake(self, request: Request) -> shapes.Closed:
        """Close a fake."""
        named(self._cloud, request).close()
        return {"closed": True}

    # -- faults ----------------------------------------------------------------------------------

    def get_faults(self, request: Request) -> list[shapes.FaultData]:
        """Return the injected faults of a fake, and the last 20 of those that are used up."""
        return [self._fault(fault) for fault in _kept(named(self._cloud, request))]

    def _number_of(self, fault: Fault) -> int:
        number = self._numbers.get(fault)
        if number is None:
            number = self._numbers[fault] = next(self._next_number)
        return number

    def _fault(self, fault: Fault) -> shapes.FaultData:
        terms = terms_of(fault)
        return {
            "id": self._number_of(fault),
            "kind": fault.kind,
            "text": repr(fault),
            "description": fault.description,
            "where": {name: str(wanted) for name, wanted in terms.where.items()},
            "times": terms.times,
            "skip": terms.skip,
            "hits": fault.hits,
            "rows": list(terms.numbers),
            "active": fault.active,
            "made": None if terms.source is None else dict(terms.source),
        }

    def add_fault(self, request: Request) -> shapes.FaultData:
        """Inject a fault: ``{"kind": "respond", "args": [503], "times": 1, "route": "publish"}``."""
        body = fields(request, allow_others=True)
        plan = named(self._cloud, request).faults
        with contract():
            fault = inject(plan, fault_kinds(type(plan)), body)
        return self._fault(fault)

    def clear_faults(self, request: Request) -> list[shapes.FaultData]:
        """Remove all faults of a fake."""
        named(self._cloud, request).faults.clear()
        return []

    def remove_fault(self, request: Request) -> shapes.FaultData:
        """Remove one fault."""
        number = whole_number("id", request.params["id"])
        for fault in _kept(named(self._cloud, request)):
            if self._number_of(fault) == number:
                fault.remove()
                return self._fault(fault)
        raise Refused(404, f"there is no fault {number}")

    # -- calls of methods ------------------------------------------------------------------------

    def call(self, request: Request) -> shapes.Returned | shapes.Raised:
        """Call a method, or read a property, of a fake or of the cloud.

        ``{"object": name of a fake|null, "name": "assert_called", "args": […], "kwargs": {…}}``.
        ``object`` is null for the cloud. The name can begin with ``clock.``, ``destinations.``,
        ``faults.`` or ``journal.``, or with the method that looks a thing up: the first argument of
        ``topic.delete`` is the topic's name. Returns ``{"value": …}`` or ``{"raise": {"type",
        "text"}}``. Values are plain JSON: views become objects with their attributes, times ISO
        strings, and bytes strings (``{"base64": …}`` if they are not UTF-8).
        """
        body = fields(request)
        name, arguments, keywords = body["name"], body.get("args", []), body.get("kwargs", {})
        target, name = self._owner(body.get("object"), name)
        if inspect.ismethod(target):
            if not arguments:
                raise Refused(422, f"{name} needs the name of the {target.__name__} in args")
            try:
                target, arguments = target(arguments[0]), arguments[1:]
            except Exception as error:
                return _raised(error)
        offered = _offered(type(target))
        if name in _IN_PROCESS and hasattr(target, name):
            raise Refused(
                422,
                f"{name} is not a name of {type(target).__name__} that can be called over the control "
                "API: it needs the process of a Python test, or has an endpoint of its own "
                f"({PREFIX}/openapi.json lists all endpoints)",
            )
        if name not in offered:
            raise Refused(422, unknown_name(f"name of {type(target).__name__}", name, offered))
        if not offered[name] and (arguments or keywords):
            raise Refused(422, f"{name} is a property: leave out args and kwargs")
        try:
            member = getattr(target, name)
            if not offered[name]:
                return {"value": plain(member)}
            method = from_elsewhere(member) if self._records else member
            return {"value": plain(method(*arguments, **keywords))}
        except Exception as error:
            return _raised(error)

    def _owner(self, fake_name: str | None, name: str) -> tuple[Any, str]:
        """Return the object that has the named member, or the method that looks it up, and the
        member's name.
        """
        owner: Any = self._cloud if fake_name is None else fake_named(self._cloud, fake_name)
        part, dot, method = name.partition(".")
        if not dot:
            return owner, name
        parts = [part_name for part_name in (*_PARTS, *_THINGS) if hasattr(owner, part_name)]
        if part not in parts:
            raise Refused(422, unknown_name(f"part of {type(owner).__name__}", part, parts))
        return getattr(owner, part), method


def start(cloud: Cloud, hosts: Hosts, fixture: str, settings: Mapping[str, Any]) -> Fake:
    """Start a fake for a client of the control API, guarded if its credentials are public.

    Raises ``ContractError`` for an address that only ``serve --host`` may open.
    """
    service = find(fixture)
    if isinstance(settings, Mapping):  # The cloud reports other settings.
        hosts.check_fake(service, settings)
    fake = cloud._start(fixture, settings)
    if has_public_credentials(service, settings):
        core_of(fake).app.guards.add(hosts.guard)
    return fake


def describe(cloud: Cloud, fake: Any) -> shapes.FakeData:
    """Return a fake's address and credentials, and how far its journal goes back."""
    core = core_of(fake)
    forgotten = core.context.recorder.forgotten[fake.name]
    entries = core.recorder.entries if forgotten else ()
    return {
        "name": fake.name,
        "fixture": fake.fixture,
        "service": fake.service,
        "url": fake.url,
        "env": fake.env,
        "headers": fake.headers,
        "faults": len(fake.faults),
        "dead_letters": len(open_letters_of(cloud, fake)),
        "forgotten": forgotten,
        "recorded_since": to_datetime(entries[0].at_us).isoformat() if entries else None,
    }


def _kept(fake: Fake) -> list[Fault]:
    used_up = [fault for fault in injector_of(fake.faults).kept() if not fault.active]
    return [*fake.faults, *used_up[-_MOST_USED_UP:]]


# -- calls of methods ------------------------------------------------------------------------------

_PACKAGE = f"{__package__.partition('.')[0]}."
_PARTS = ("clock", "destinations", "faults", "journal")
"""Attributes of a fake or a cloud whose methods can be called as ``journal.assert_called``."""
_THINGS = ("group", "message", "topic")
"""Methods that look up a thing, whose methods can be called as ``topic.delete``."""
_IN_PROCESS = frozenset(
    {"aio", "between", "client", "close", "connect", "dump_rdb"}
    | {"every_failure", "explore", "intercept", "on_close", "replay", "restore", "snapshot"}
)
"""Names that need objects of the server's process, write files, or have an endpoint of their own."""
_DEEPEST = 4
"""Levels of views that a result shows: a message leads to its callbacks, and these to it."""
_SHOWN = 500
"""Maximum number of characters of the representation of another object."""


def _offered(kind: type) -> Mapping[str, bool]:
    """Return the names that can be used on an object, and which of them are methods.

    They are what the classes of this package declare publicly: those of a fake, and the public class
    of anything else with its bases.
    """
    names = _PUBLIC_NAMES | _PART_NAMES
    public = next(
        (public_base for public_base in kind.__mro__ if public_base.__name__ in names), object
    )
    members: dict[str, bool] = dict.fromkeys(FAKE_FIELDS, False) if issubclass(kind, Fake) else {}
    for owner in (kind if issubclass(kind, Fake) else public).__mro__:
        if not owner.__module__.startswith(_PACKAGE):
            continue
        for name, member in vars(owner).items():
            if name.startswith("_") or name in _IN_PROCESS or name in members:
                continue
            if inspect.isfunction(member) or isinstance(member, classmethod | staticmethod):
                members[name] = True
            elif isinstance(member, property):
                members[name] = False
    return dict(sorted(members.items()))


def plain(value: Any, deepest: int = _DEEPEST) -> Any:
    """Return a value as JSON data; what JSON cannot represent is described by a string."""
    if value is None or isinstance(value, bool | int | str):
        return str.__str__(value) if isinstance(value, str) else value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes_to_plain(bytes(value))
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, Call):
        return plain({name: part for name, part in parts_of(value).items() if name[0] != "_"})
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(member, deepest) for name, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, deepest) for item in value]
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return plain(value.tolist(), deepest)
    if deepest:
        attributes = _attributes(value)
        if attributes:
            return {name: plain(getattr(value, name, None), deepest - 1) for name in attributes}
    return shown(value)[:_SHOWN]


def _attributes(value: object) -> list[str]:
    """Return the public names of the data of an object of this package: fields and properties."""
    kind = type(value)
    if isinstance(value, type) or not kind.__module__.startswith(_PACKAGE):
        return []
    members = [pair for owner in kind.__mro__ for pair in vars(owner).items()]
    data = (property, MemberDescriptorType)
    names = {name for name, member in members if isinstance(member, data)}
    if dataclasses.is_dataclass(value):
        names.update(field.name for field in dataclasses.fields(value))
    else:
        names.update(getattr(value, "__dict__", ()))
    return sorted(name for name in names if not name.startswith("_"))


def _raised(error: Exception) -> shapes.Raised:
    try:
        text = str(error)
    except Exception as another:
        text = f"its message cannot be read: {type(another).__name__}"
    return {"raise": {"type": type(error).__name__, "text": text}}
