"""Encoding of values for the control API: data is sent by value, other objects by reference.

Values are JSON with type tags, and each tag has its own decoder. Nothing is pickled, and received
names are only looked up in the closed lists of ``wire``.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import datetime as dt
import itertools
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from ..core.call_fields import CALL_FIELDS
from ..core.calls import Call, parts_of
from ..core.errors import ContractError, shown
from ..core.field_types import ABSENT
from ..core.matching import Field
from ..core.results import Results
from .patterns import LinearPattern
from .wire import error_type, item_field, name_of, results_type, surface_of, value_type

TAG = "$"
_FLAGS = int(re.ASCII | re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE | re.UNICODE)
MOST_OBJECTS = 100_000
"""Maximum number of objects that a server keeps; the least recently used are dropped."""
_SHOWN = 500
"""Maximum number of characters of a representation or an error that is sent or shown."""
_SENT = frozenset({"waiting"})
"""Names of the attributes of a list that are sent along with its items; their values are strings."""

Refer: TypeAlias = Callable[[int, str, str], Any]
Reader: TypeAlias = Callable[[Mapping[str, Any], Refer], Any]


class Unreadable(ValueError):
    """Raised for JSON data that is not in the codec's form."""


class Objects:
    """Objects that the server keeps for its remote clients, by number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._objects: OrderedDict[int, Any] = OrderedDict()
        self._known: dict[int, int] = {}

    def keep(self, value: object) -> int:
        """Keep an object and return its number. The same object always has the same number."""
        with self._lock:
            number = self._known.get(id(value))
            if number is None:
                number = next(self._numbers)
                self._objects[number] = value
                self._known[id(value)] = number
                if len(self._objects) > MOST_OBJECTS:
                    _, forgotten = self._objects.popitem(last=False)
                    del self._known[id(forgotten)]
            else:
                self._objects.move_to_end(number)
            return number

    def get(self, number: int) -> Any:
        """Return the object with a number; raise ``ContractError`` if the server has none."""
        with self._lock:
            if number in self._objects:
                self._objects.move_to_end(number)
                return self._objects[number]
        raise ContractError(
            f"the server no longer has the object {number}: it was reset or restarted"
        )

    def forget(self) -> None:
        with self._lock:
            self._objects.clear()
            self._known.clear()


class _ByReference(Exception):
    """Raised for a value that cannot be copied and must be sent by reference."""


def encode(value: Any, objects: Objects | None = None, where: str = "the value") -> Any:
    """Return a value as JSON data.

    The server passes ``objects``: an object that is not data is kept there and sent as a reference,
    while lists and mappings around it are still sent by value, item by item. In a client, which
    passes no ``objects``, it raises ``ContractError``; the message begins with ``where``.
    """
    try:
        return _copy(value) if objects is None else _copy_or_refer(value, objects)
    except RecursionError:
        raise ContractError(
            f"{where} cannot be sent to another process: it contains itself, or is nested too deeply"
        ) from None
    except _ByReference as error:
        raise ContractError(
            f"{where} cannot be sent to another process: {error}. "
            "Use fakes in the test's own process for it"
        ) from None


def _copy_or_refer(value: Any, objects: Objects) -> Any:
    with contextlib.suppress(_ByReference):
        return _copy(value)
    kind = name_of(type(value))
    if isinstance(value, list) and results_type(kind) is not None and _is_plain(value):
        return _results(value, [_copy_or_refer(item, objects) for item in value])
    if type(value) is list:
        return {TAG: "list", "v": [_copy_or_refer(item, objects) for item in value]}
    if isinstance(value, Mapping):
        pairs = [[_copy_or_refer(one, objects) for one in pair] for pair in value.items()]
        return {TAG: "dict", "v": pairs}
    return {
        TAG: "object",
        "id": objects.keep(value),
        "c": surface_of(type(value))[0],
        "repr": shown(value)[:_SHOWN],
    }


def _copy(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float) or type(value) is str:
        return value
    if isinstance(value, str):
        # Ignore the __str__ of subclasses: that of an enum returns the member's name.
        return str.__str__(value)
    if isinstance(value, Results):
        if results_type(name_of(type(value))) is None or not _is_plain(value):
            raise _ByReference(f"{shown(value)} is a {type(value).__name__}")
        return _results(value, _copies(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _data(value, dict(zip(value._fields, value, strict=True)))
    if isinstance(value, list):
        return _copies(value)
    if isinstance(value, Mapping) and not dataclasses.is_dataclass(value):
        if all(type(key) is str and key != TAG for key in value):
            return {key: _copy(item) for key, item in value.items()}
        return {TAG: "dict", "v": [[_copy(k), _copy(v)] for k, v in value.items()]}
    if isinstance(value, re.Pattern | LinearPattern) and isinstance(value.pattern, str):
        return {TAG: "pattern", "v": [value.pattern, value.flags & _FLAGS]}
    for kinds, tag, write in _WRITERS:
        if isinstance(value, kinds):
            return {TAG: tag, "v": write(value)}
    if isinstance(value, Call):
        return _data(value, parts_of(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _data(value, {f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return _copy(value.tolist())
    what = "a function" if callable(value) else f"a {type(value).__name__}"
    raise _ByReference(f"{shown(value)} is {what}")


def _is_plain(value: list[Any]) -> bool:
    """Return whether a list can be sent as its items, the names of their fields, and strings.

    The function that describes an empty list is not sent.
    """
    return all(
        name in ("_fields", "_kind", "_notes") or (name in _SENT and isinstance(text, str))
        for name, text in vars(value).items()
    )


def _results(value: Any, items: list[Any]) -> dict[str, Any]:
    fields = None if value._fields is None else list(value._fields)
    sent = {name: vars(value)[name] for name in _SENT if name in vars(value)}
    made = {TAG: "results", "v": items, "c": name_of(type(value)), "of": value._kind, "f": fields}
    return {**made, "sent": sent} if sent else made


def _data(value: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    name = name_of(type(value))
    if value_type(name) is None:
        raise _ByReference(f"{shown(value)} is a {type(value).__name__}")
    return {TAG: "data", "c": name, "v": {key: _copy(item) for key, item in fields.items()}}


def decode(value: Any, refer: Callable[[int, str, str], Any]) -> Any:
    """Return the value that JSON data encodes; ``refer`` returns the value for a reference.

    Raises ``Unreadable`` for foreign data, ``ContractError`` for an invalid value or reference.
    """
    try:
        return _decoded(value, refer)
    except (ContractError, Unreadable):
        raise
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, re.error) as error:
        raise Unreadable(f"{type(error).__name__}: {error}"[:_SHOWN]) from None


def _decoded(value: Any, refer: Refer) -> Any:
    if isinstance(value, list):
        return [_decoded(item, refer) for item in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {key: _decoded(item, refer) for key, item in value.items()}
    tag = value[TAG]
    reader = _READERS.get(tag) if isinstance(tag, str) else None
    if reader is None:
        raise Unreadable(f"{tag!r:.100} is not a type tag")
    return reader(value, refer)


def _content(value: Mapping[str, Any], *kinds: type) -> Any:
    """Return the content ``v`` of a tagged value; raise ``Unreadable`` for another form or type."""
    if value.keys() != {TAG, "v"} or type(value["v"]) not in kinds:
        raise Unreadable(f"{value!r:.200} is not a {value[TAG]}")
    return value["v"]


def _read_path(value: Mapping[str, Any], _: Refer) -> Path:
    text = _content(value, str)
    if "\0" in text:
        raise Unreadable("a path cannot contain a NUL")
    return Path(text)


def _read_pattern(value: Mapping[str, Any], _: Refer) -> LinearPattern:
    text, flags = _content(value, list)
    if not isinstance(text, str) or type(flags) is not int or flags & ~_FLAGS:
        raise Unreadable(f"{value!r:.200} is not a pattern")
    return LinearPattern(text, flags)


def _read_timedelta(value: Mapping[str, Any], _: Refer) -> dt.timedelta:
    """Read ``[days, seconds, microseconds]``, which is exact, or a number of seconds."""
    content = _content(value, list, int, float)
    if not isinstance(content, list):
        return dt.timedelta(seconds=content)
    days, seconds, microseconds = content
    return dt.timedelta(days, seconds, microseconds)


def _read_list(make: Callable[[list[Any]], Any]) -> Reader:
    return lambda value, refer: make([_decoded(item, refer) for item in _content(value, list)])


def _read_results(value: Mapping[str, Any], refer: Refer) -> list[Any]:
    kind = results_type(value["c"])
    items, of, names = value["v"], value.get("of", "item"), value.get("f")
    sent = value.get("sent", {})
    if kind is None or not value.keys() <= {TAG, "v", "c", "of", "f", "sent"}:
        raise Unreadable(f"{value['c']!r:.100} is not a known class of lists")
    if not isinstance(items, list) or not isinstance(of, str) or not _are_names(names):
        raise Unreadable(f"{value!r:.200} is not an encoded list")
    if not isinstance(sent, dict) or not all(
        name in _SENT and hasattr(kind, name) and isinstance(text, str)
        for name, text in sent.items()
    ):
        raise Unreadable(f"{sent!r:.200} are not attributes of this list")
    made: list[Any] = kind(_decoded(item, refer) for item in items)
    if names is not None:
        # Field readers are functions and cannot be sent, so look them up by the kind of item.
        made._fields = {name: _field(of, name) for name in names}  # type: ignore[attr-defined]
        made._kind = of  # type: ignore[attr-defined]
    vars(made).update(sent)
    return made


def _are_names(names: object) -> bool:
    return names is None or (
        isinstance(names, list)
        and all(isinstance(name, str) and not name.startswith("_") for name in names)
    )


def _field(of: str, name: str) -> Field:
    if of == "call":
        return CALL_FIELDS.get(name) or Field(read=lambda call: call.facts.get(name, ABSENT))
    if of == "event" and name != "kind":
        return Field(read=lambda event: event.data.get(name, ABSENT))
    return item_field(of, name) or Field()


def _read_data(value: Mapping[str, Any], refer: Refer) -> Any:
    kind, content = value_type(value["c"]), value["v"]
    if kind is None or value.keys() != {TAG, "v", "c"} or not isinstance(content, dict):
        raise Unreadable(f"{value['c']!r:.100} is not a known class of values")
    return kind.make({key: _decoded(item, refer) for key, item in content.items()})


def _read_object(value: Mapping[str, Any], refer: Refer) -> Any:
    number, name, text = value["id"], value["c"], value["repr"]
    if type(number) is not int or not isinstance(name, str) or not isinstance(text, str):
        raise Unreadable(f"{value!r:.200} is not an object")
    return refer(number, name, text)


_READERS: Mapping[str, Reader] = {
    "bytes": lambda value, _: base64.b64decode(_content(value, str), validate=True),
    "data": _read_data,
    "datetime": lambda value, _: dt.datetime.fromisoformat(_content(value, str)),
    "dict": lambda value, refer: {
        _decoded(key, refer): _decoded(item, refer) for key, item in _content(value, list)
    },
    "error": lambda value, _: decode_error(_content(value, dict)),
    "frozenset": _read_list(frozenset),
    "list": _read_list(list),
    "object": _read_object,
    "path": _read_path,
    "pattern": _read_pattern,
    "results": _read_results,
    "set": _read_list(set),
    "timedelta": _read_timedelta,
    "tuple": _read_list(tuple),
}
"""Decoder of each type tag."""


def _copies(values: Iterable[Any]) -> list[Any]:
    return [_copy(item) for item in values]


_WRITERS: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
    (bytes | bytearray, "bytes", lambda value: base64.b64encode(value).decode("ascii")),
    (tuple, "tuple", _copies),
    (set, "set", _copies),
    (frozenset, "frozenset", _copies),
    (dt.datetime, "datetime", dt.datetime.isoformat),
    (dt.timedelta, "timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    (Path, "path", lambda value: str(value.absolute())),
    (BaseException, "error", lambda value: encode_error(value)),
)
"""Types whose values are sent with a tag, and the function that returns the content."""


def encode_error(error: BaseException) -> dict[str, Any]:
    """Return an exception as JSON data: its class, its text, and the fields that can be copied."""
    fields = {}
    for key, item in vars(error).items():
        if _may_be_field(key):
            with contextlib.suppress(_ByReference, RecursionError):
                fields[key] = _copy(item)
    return {"c": name_of(type(error)), "text": _said(error), "fields": fields}


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as another:
        return f"its message cannot be read: {type(another).__name__}"


def decode_error(data: Mapping[str, Any]) -> BaseException:
    """Return the exception that JSON data describes; a ``RuntimeError`` for an unknown class.

    Raises ``Unreadable`` for data that ``encode_error`` does not produce.
    """
    if not isinstance(data, dict) or data.keys() != {"c", "text", "fields"}:
        raise Unreadable(f"{data!r:.200} is not an encoded error")
    name, text, given = data["c"], data["text"], data["fields"]
    if not isinstance(name, str) or not isinstance(text, str) or not isinstance(given, dict):
        raise Unreadable(f"{data!r:.200} is not an encoded error")
    fields = {
        key: decode(item, lambda *_: None) for key, item in given.items() if _may_be_field(key)
    }
    kind = error_type(name)
    if kind is not None:
        # Some classes, such as ``UnicodeError``, cannot be built from a string alone.
        with contextlib.suppress(TypeError):
            error = kind.__new__(kind, text)
            error.args = (text,)
            vars(error).update(fields)
            # The string of a KeyError is the repr of its argument.
            if str(error) == text or issubclass(kind, KeyError):
                return error
    return RuntimeError(f"{name.replace(':', '.')}: {text}")


def _may_be_field(name: str) -> bool:
    # Do not send what every exception has.
    return name == "__notes__" or not (name.startswith("_") or hasattr(Exception, name))
