"""Parts of an object that are created when they are first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

Owner = TypeVar("Owner")
T = TypeVar("T")


class on_first_use(Generic[Owner, T]):
    """Decorate a method that creates a part, which every later access returns again.

    Like ``functools.cached_property``, but threads that arrive together get the same part. Assigning
    to the attribute replaces the part.
    """

    def __init__(self, create: Callable[[Owner], T]) -> None:
        self._create = create
        self.__doc__ = create.__doc__

    def __set_name__(self, owner: Any, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: Any = None) -> on_first_use[Owner, T]: ...
    @overload
    def __get__(self, instance: Owner, owner: Any = None) -> T: ...
    def __get__(self, instance: Owner | None, owner: Any = None) -> on_first_use[Owner, T] | T:
        if instance is None:
            return self
        part: T = vars(instance).setdefault(self._name, self._create(instance))
        return part
