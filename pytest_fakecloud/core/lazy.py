"""What is made when it is first used: methods of dataclasses, regular expressions, modules.

The first fake of a run pays for everything that its modules make at their import, and a test uses
little of it. What comes later here is the standard library's own, and is used as always::

    from ..core.lazy import dataclass, regex, traceback

Each class of the standard decorator compiles up to six methods, which takes 0.1 to 0.9 ms; the
services have some 160 of them. An expression takes 0.1 ms, a module 0.5 to 3 ms.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, make_dataclass
from dataclasses import dataclass as at_once
from types import ModuleType
from typing import TYPE_CHECKING, Any, AnyStr, TypeVar

__all__ = [
    "MODULES",
    "dataclass",
    "decimal",
    "difflib",
    "email_utils",
    "fractions",
    "logging",
    "regex",
    "sysconfig",
    "traceback",
]

T = TypeVar("T")


# -- modules ---------------------------------------------------------------------------------------


class _Module(ModuleType):
    """Stands for a module of the standard library, and imports it for the first of its names."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


if TYPE_CHECKING:
    import decimal
    import difflib
    import email.utils as email_utils
    import fractions
    import logging
    import sysconfig
    import traceback
else:
    decimal = _Module("decimal")
    difflib = _Module("difflib")
    email_utils = _Module("email.utils")
    fractions = _Module("fractions")
    sysconfig = _Module("sysconfig")
    logging = _Module("logging")
    traceback = _Module("traceback")

MODULES = tuple(each.__name__ for each in [*globals().values()] if type(each) is _Module)
"""The full names of those modules, for who wants to import them before they are used."""


# -- regular expressions ---------------------------------------------------------------------------


class _Regex:
    """Stands for a regular expression, and compiles it for the first of its methods."""

    def __init__(self, expression: str | bytes, flags: int) -> None:
        self._given: Any = (expression, flags)

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(*self._given), name)
        setattr(self, name, found)
        return found


def regex(expression: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """The expression as ``re.compile`` gives it, compiled when it is first used.

    For what the first answer of a fake does without.
    """
    made: Any = _Regex(expression, flags)
    return made  # type: ignore[no-any-return]


# -- dataclasses -----------------------------------------------------------------------------------


class _Later:
    """Stands in a class for one of its methods until somebody reaches for it.

    ``how`` are the arguments of ``dataclass`` that make this method and no other.
    """

    def __init__(self, cls: type, name: str, **how: bool) -> None:
        self._cls = cls
        self._name = name
        self._how: Any = {"init": False, "repr": False, "eq": False, **how}

    def __get__(self, instance: object, owner: type) -> Any:
        cls = self._cls
        copied = ("__doc__", "__module__", "__qualname__", "__post_init__")
        twin = make_dataclass(
            cls.__name__,
            [(each.name, each.type, each) for each in fields(cls)],
            namespace={each: getattr(cls, each) for each in copied if hasattr(cls, each)},
            **self._how,
        )
        method = vars(twin)[self._name]
        setattr(cls, self._name, method)
        return method.__get__(instance, owner)


# A frozen class would have two methods compiled by itself, and with slots it needs two more.


def _refuse_assignment(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


def _dataclass(
    given: type[T] | None = None,
    /,
    *,
    eq: bool = True,
    order: bool = False,
    frozen: bool = False,
    slots: bool = False,
) -> type[T] | Callable[[type[T]], type[T]]:
    def decorated(cls: type[T]) -> type[T]:
        # Without one, the signature is worked out for it.
        cls.__doc__ = cls.__doc__ or cls.__name__
        made = at_once(init=False, repr=False, eq=False, slots=slots)(cls)
        later = {"__init__": {"init": True, "frozen": frozen}, "__repr__": {"repr": True}}
        methods: dict[str, Any] = {}
        if eq:
            later["__eq__"] = {"eq": True}
            methods["__hash__"] = None
        if eq and frozen:
            later["__hash__"] = {"unsafe_hash": True}
        if order:
            for name in ("__lt__", "__le__", "__gt__", "__ge__"):
                later[name] = {"eq": True, "order": True}
        if frozen:
            methods |= {"__setattr__": _refuse_assignment, "__delattr__": _refuse_deletion}
        if frozen and slots:
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
        methods |= {name: _Later(made, name, **how) for name, how in later.items()}
        for name, method in methods.items():
            if name not in vars(made):
                setattr(made, name, method)
        return made

    return decorated if given is None else decorated(given)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass
