"""Values across the wire of the control API: what is data goes by value, the rest by reference.

Text JSON with tags. Nothing is pickled: a class is named, and only dataclasses and exceptions of
this package are ever made again from their name.
"""

from __future__ import annotations

import base64
import builtins
import contextlib
import dataclasses
import datetime as dt
import importlib
import itertools
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..kernel.errors import ContractError
from ..kernel.journal import Call, Found

__all__ = ["Objects", "class_named", "decode", "decode_error", "encode", "encode_error", "name_of"]

TAG = "$"
_PACKAGE = "pytest_fakecloud"


class Objects:
    """What the server keeps for its remote clients: objects by number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._objects: dict[int, Any] = {}
        self._known: dict[int, int] = {}

    def keep(self, value: object) -> int:
        """The number of an object; the same one again for the same object."""
        with self._lock:
            number = self._known.get(id(value))
            if number is None:
                number = next(self._numbers)
                self._objects[number] = value
                self._known[id(value)] = number
            return number

    def get(self, number: int) -> Any:
        """The object of a number; ``ContractError`` when there is none (any more)."""
        try:
            return self._objects[number]
        except KeyError:
            raise ContractError(
                f"the server has no object {number}: it was reset or restarted since"
            ) from None

    def forget(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._objects.clear()
            self._known.clear()


class _ByReference(Exception):
    """The value cannot be copied."""


def encode(value: Any, objects: Objects | None = None, where: str = "the value") -> Any:
    """A value as JSON data.

    With ``objects`` (the server's side) what is not data becomes a reference; without (the
    client's side) it is a ``ContractError`` that names ``where`` it came.
    """
    try:
        return _copy(value)
    except RecursionError:
        raise ContractError(
            f"{where} cannot cross to another process: it holds itself, or is nested too deeply"
        ) from None
    except _ByReference as error:
        if objects is None:
            raise ContractError(
                f"{where} cannot cross to another process: {error}. "
                "Use fakes in the test's own process for it"
            ) from None
    if type(value) in (Found, list):
        return {
            TAG: "found" if isinstance(value, Found) else "list",
            "v": [encode(item, objects) for item in value],
        }
    if isinstance(value, Mapping):
        return {
            TAG: "dict",
            "v": [[encode(k, objects), encode(v, objects)] for k, v in value.items()],
        }
    return {
        TAG: "object",
        "id": objects.keep(value),
        "c": name_of(type(value)),
        "repr": _shown(value)[:500],
    }


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__} that cannot be shown: {error}>"


def _copy(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float) or type(value) is str:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return {TAG: "bytes", "v": base64.b64encode(bytes(value)).decode("ascii")}
    if isinstance(value, Found):
        fields = {key: _copy(item) for key, item in vars(value).items()}
        kind = name_of(type(value))
        return {TAG: "found", "v": [_copy(item) for item in value], "c": kind, "f": fields}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {TAG: "named", "c": name_of(type(value)), "v": [_copy(item) for item in value]}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    if isinstance(value, tuple):
        return {TAG: "tuple", "v": [_copy(item) for item in value]}
    if isinstance(value, set | frozenset):
        return {TAG: "set", "v": [_copy(item) for item in value]}
    if isinstance(value, Mapping):
        if all(type(key) is str and key != TAG for key in value):
            return {key: _copy(item) for key, item in value.items()}
        return {TAG: "dict", "v": [[_copy(k), _copy(v)] for k, v in value.items()]}
    if isinstance(value, dt.datetime):
        return {TAG: "datetime", "v": value.isoformat()}
    if isinstance(value, dt.timedelta):
        return {TAG: "timedelta", "v": value.total_seconds()}
    if isinstance(value, Path):
        return {TAG: "path", "v": str(value.absolute())}
    if isinstance(value, BaseException):
        return {TAG: "error", "v": encode_error(value)}
    if isinstance(value, Call):
        return _data(value, {**vars(value), "read_facts": None, "_facts": value.facts})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _data(value, {f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
    if hasattr(value, "tolist") and hasattr(value, "dtype"):
        return _copy(value.tolist())
    what = "a function" if callable(value) else f"a {type(value).__name__}"
    raise _ByReference(f"{_shown(value)} is {what}")


def _data(value: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    name = name_of(type(value))
    if not name.startswith(f"{_PACKAGE}."):
        raise _ByReference(f"{_shown(value)} is a {type(value).__name__}")
    return {TAG: "data", "c": name, "v": {key: _copy(item) for key, item in fields.items()}}


def decode(value: Any, refer: Callable[[int, str, str], Any]) -> Any:
    """The value of JSON data; ``refer`` makes what stands for an object left on the other side."""
    if isinstance(value, list):
        return [decode(item, refer) for item in value]
    if not isinstance(value, dict):
        return value
    tag = value.get(TAG)
    if tag is None:
        return {key: decode(item, refer) for key, item in value.items()}
    if tag == "object":
        return refer(value["id"], value["c"], value["repr"])
    content = value["v"]
    if tag == "bytes":
        return base64.b64decode(content)
    if tag == "datetime":
        return dt.datetime.fromisoformat(content)
    if tag == "path":
        return Path(content)
    if tag == "timedelta":
        return dt.timedelta(seconds=content)
    if tag == "error":
        return decode_error(content)
    if tag == "dict":
        return {decode(k, refer): decode(v, refer) for k, v in content}
    if tag == "data":
        return _make(value["c"], {key: decode(item, refer) for key, item in content.items()})
    items = [decode(item, refer) for item in content]
    if tag == "found" and "c" in value:
        found = class_named(value["c"]).__new__(class_named(value["c"]))
        found.extend(items)
        vars(found).update({key: decode(item, refer) for key, item in value["f"].items()})
        return found
    if tag == "named":
        return class_named(value["c"])(*items)
    kinds: dict[str, Callable[[list[Any]], Any]] = {
        "found": Found, "list": list, "tuple": tuple, "set": set,
    }  # fmt: skip
    return kinds[tag](items)


def _make(name: str, fields: Mapping[str, Any]) -> Any:
    made_class: Any = class_named(name)
    data = made_class is Call or dataclasses.is_dataclass(made_class)
    if not data:
        raise ContractError(f"{name} is no data: this server and client are of different versions")
    made = made_class.__new__(made_class)
    for key, item in fields.items():
        object.__setattr__(made, key, item)
    return made


def name_of(kind: type) -> str:
    """A class as ``module:qualified.name``."""
    return f"{kind.__module__}:{kind.__qualname__}"


def class_named(name: str) -> Any:
    """The class of a name; only classes of this package."""
    module, _, path = name.partition(":")
    if module != _PACKAGE and not module.startswith(f"{_PACKAGE}."):
        raise ContractError(f"{name} is not of this package")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def encode_error(error: BaseException) -> dict[str, Any]:
    """An exception as JSON data: its class, its arguments and its fields as far as they are data."""
    fields = {}
    for key, item in vars(error).items():
        try:
            fields[key] = _copy(item)
        except _ByReference:
            continue
    return {"c": name_of(type(error)), "text": str(error), "fields": fields}


def decode_error(data: Mapping[str, Any]) -> BaseException:
    """The exception again: of this package or built in, or a ``RuntimeError`` that names it."""
    name, text = data["c"], data["text"]
    module, _, path = name.partition(":")
    kind: Any = None
    with contextlib.suppress(AttributeError, ImportError):
        if module == "builtins":
            kind = getattr(builtins, path, None)
        elif module.startswith(f"{_PACKAGE}."):
            kind = class_named(name)
    if isinstance(kind, type) and issubclass(kind, Exception):
        # Not every class can be made of a text alone: groups, and errors of Unicode, for two.
        with contextlib.suppress(TypeError):
            error = kind.__new__(kind, text)
            error.args = (text,)
            for key, item in data["fields"].items():
                setattr(error, key, decode(item, lambda *_: None))
            if str(error) == text or issubclass(kind, KeyError):
                return error
    return RuntimeError(f"{name.replace(':', '.')}: {text}")
