"""The endpoint that calls a method of a fake, of its parts or of the cloud, with plain JSON."""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
from base64 import b64encode
from collections.abc import Mapping
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

from ...core.calls import Call, parts_of
from ...core.errors import shown
from ...core.wording import unknown_name
from ...handle import HANDLE_FIELDS, Handle
from ...http.messages import Request
from ...http.routing import Route
from ...public_names import PART_NAMES, PUBLIC_NAMES
from . import PREFIX, Refused, fields, handle_named
from .shapes import Raised, Returned

if TYPE_CHECKING:
    from ...cloud import Cloud

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


class CallRoutes:
    """Endpoint that calls the methods that a test calls on its fixtures."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def routes(self) -> list[Route]:
        return [Route("POST", f"{PREFIX}/call", "call", self.call, lingers=True)]

    def call(self, request: Request) -> Returned | Raised:
        """Call a method, or read a property, of a fake or of the cloud.

        ``{"object": name of a fake|null, "name": "assert_called", "args": […], "kwargs": {…}}``.
        ``object`` is null for the cloud. The name can begin with ``clock.``, ``destinations.``,
        ``faults.`` or ``journal.``, or with the method that looks a thing up: the first argument of
        ``topic.delete`` is the topic's name. Returns ``{"value": …}`` or ``{"raise": {"type",
        "text"}}``. Values are plain JSON: views become objects with their attributes, times ISO
        strings, and bytes strings (``{"base64": …}`` if they are not UTF-8).
        """
        body = fields(request)
        name, arguments, keywords = body.get("name"), body.get("args", []), body.get("kwargs", {})
        if not isinstance(name, str):
            raise Refused(422, f"name must be the name of a method or a property, got {name!r}")
        if not isinstance(arguments, list) or not isinstance(keywords, dict):
            raise Refused(422, "args must be a list, and kwargs an object")
        target, name = self._owner(body.get("object"), name)
        if inspect.ismethod(target):
            if not arguments:
                raise Refused(422, f"{name} needs the name of the {target.__name__} in args")
            try:
                target, arguments = target(arguments[0]), arguments[1:]
            except Exception as error:
                return _raised(error)
        offered = _offered(type(target))
        if name not in offered:
            raise Refused(422, unknown_name(f"name of {type(target).__name__}", name, offered))
        if not offered[name] and (arguments or keywords):
            raise Refused(422, f"{name} is a property: leave out args and kwargs")
        try:
            found = getattr(target, name)
            return {"value": plain(found(*arguments, **keywords) if offered[name] else found)}
        except Exception as error:
            return _raised(error)

    def _owner(self, wanted: object, name: str) -> tuple[Any, str]:
        """Return the object that has the named member, or the method that looks it up, and the
        member's name.
        """
        if wanted is None:
            owner: Any = self._cloud
        elif isinstance(wanted, str):
            owner = handle_named(self._cloud, wanted)
        else:
            raise Refused(422, f"object must be the name of a fake or null, got {wanted!r:.100}")
        part, dot, rest = name.partition(".")
        if not dot:
            return owner, name
        parts = [one for one in (*_PARTS, *_THINGS) if hasattr(owner, one)]
        if part not in parts:
            raise Refused(422, unknown_name(f"part of {type(owner).__name__}", part, parts))
        return getattr(owner, part), rest


def _offered(kind: type) -> Mapping[str, bool]:
    """Return the names that can be used on an object, and which of them are methods.

    They are what the classes of this package declare publicly: those of a fake, and the public class
    of anything else with its bases.
    """
    names = PUBLIC_NAMES | PART_NAMES
    public = next((one for one in kind.__mro__ if one.__name__ in names), object)
    found: dict[str, bool] = dict.fromkeys(HANDLE_FIELDS, False) if issubclass(kind, Handle) else {}
    for owner in (kind if issubclass(kind, Handle) else public).__mro__:
        if not owner.__module__.startswith(_PACKAGE):
            continue
        for name, member in vars(owner).items():
            if name.startswith("_") or name in _IN_PROCESS or name in found:
                continue
            if inspect.isfunction(member) or isinstance(member, classmethod | staticmethod):
                found[name] = True
            elif isinstance(member, property):
                found[name] = False
    return dict(sorted(found.items()))


def plain(value: Any, deepest: int = _DEEPEST) -> Any:
    """Return a value as JSON data; what JSON cannot represent is described by a string."""
    if value is None or isinstance(value, bool | int | str):
        return str.__str__(value) if isinstance(value, str) else value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(data).decode()}
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, Call):
        return plain({name: one for name, one in parts_of(value).items() if name[0] != "_"})
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {_key(name): plain(one, deepest) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one, deepest) for one in value]
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return plain(value.tolist(), deepest)
    if deepest:
        attributes = _attributes(value)
        if attributes:
            return {name: plain(getattr(value, name, None), deepest - 1) for name in attributes}
    return shown(value)[:_SHOWN]


def _key(name: object) -> str:
    found = plain(name)
    return found if isinstance(found, str) else str(found)


def _attributes(value: object) -> list[str]:
    """Return the public names of the data of an object of this package: fields and properties."""
    kind = type(value)
    if isinstance(value, type) or not kind.__module__.startswith(_PACKAGE):
        return []
    if dataclasses.is_dataclass(value):
        names = {one.name for one in dataclasses.fields(value)}
    else:
        members = [pair for owner in kind.__mro__ for pair in vars(owner).items()]
        data = (property, MemberDescriptorType)
        names = {name for name, member in members if isinstance(member, data)}
        names.update(getattr(value, "__dict__", ()))
    return sorted(name for name in names if not name.startswith("_"))


def _raised(error: Exception) -> Raised:
    return {"raise": {"type": type(error).__name__, "text": _text_of(error)}}


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as another:
        return f"its message cannot be read: {type(another).__name__}"
