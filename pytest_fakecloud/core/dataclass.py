"""Dataclasses whose methods are compiled when they are first called.

The decorator of the standard library writes and compiles up to six methods of a class at its
import, which takes 0.1 to 0.9 ms. The package has some 160 of them: the first fake of a run would
pay 20 ms for methods of which a test calls few. What is compiled later is the standard library's own
code, and ``dataclasses`` knows the classes as any others. They do not inherit from one another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, make_dataclass
from dataclasses import dataclass as at_once
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["dataclass"]

T = TypeVar("T")


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
        namespace = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
        if hasattr(cls, "__post_init__"):
            namespace["__post_init__"] = cls.__post_init__
        twin = make_dataclass(
            cls.__name__,
            [(each.name, each.type, each) for each in fields(cls)],
            namespace=namespace,
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
