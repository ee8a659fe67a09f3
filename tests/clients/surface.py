"""The public surface of a Python client, and the record of what tests used of it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

Found = TypeVar("Found")


class Kept(Generic[Found]):
    """What the runs of scenarios found, so that none runs twice to be counted.

    A worker of its own may count them, or nobody may have asked for a scenario: those run then.
    """

    def __init__(self, run: Callable[..., Found]) -> None:
        self._run = run
        self._found: dict[tuple[Any, ...], Found] = {}

    def run(self, *which: Any) -> Found:
        """Run a scenario, and keep what it found where it does not fail."""
        found = self._found[which] = self._run(*which)
        return found

    def found(self, *which: Any) -> Found:
        """What the scenario found in a run before this, or in one that it makes."""
        return self._found[which] if which in self._found else self.run(*which)


@dataclass
class Used:
    """What was called, as ``"redis.set"``, and with what, as ``"redis.set(ex)"``."""

    calls: set[str] = field(default_factory=set)

    def note(self, group: str, name: str, arguments: Iterable[str]) -> None:
        self.calls.add(f"{group}.{name}")
        self.calls |= {f"{group}.{name}({argument})" for argument in arguments}


class Api:
    """A synchronous or asynchronous object with one synchronous face that notes what is called.

    ``groups`` names classes; objects of these classes that come out of attributes or calls are
    wrapped in the same way.
    """

    def __init__(
        self,
        target: Any,
        groups: Mapping[type, str],
        used: Used,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._target = target
        self._groups = groups
        self._used = used
        self._loop = loop
        self._group = groups[type(target)]

    def _wrapped(self, value: Any) -> Any:
        if type(value) in self._groups:
            if value is self._target:
                return self
            return Api(value, self._groups, self._used, self._loop)
        return value

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._target, name)
        if not callable(member):
            self._used.note(self._group, name, ())
            return self._wrapped(member)

        def call(*args: Any, **kwargs: Any) -> Any:
            bound = inspect.signature(member).bind(*args, **kwargs)
            named = dict(bound.arguments)
            extra = [
                p.name
                for p in inspect.signature(member).parameters.values()
                if p.kind is p.VAR_KEYWORD
            ]
            for keyword in extra:
                named.update(named.pop(keyword, {}))
            self._used.note(self._group, name, named)
            result = member(*args, **kwargs)
            if inspect.isgenerator(result):
                result = list(result)
            elif inspect.isasyncgen(result):
                result = self._loop.run_until_complete(_all_of(result))
            elif inspect.isawaitable(result):
                result = self._loop.run_until_complete(_awaited(result))
            return self._wrapped(result)

        return call


async def _all_of(result: Any) -> list[Any]:
    return [item async for item in result]


async def _awaited(result: Any) -> Any:
    return await result


def surface(cls: type, group: str, *, skip: Callable[[str], bool] = lambda name: False) -> set[str]:
    """Every public method and property of a class, and every parameter of the methods."""
    found = set()
    for name, member in inspect.getmembers(cls):
        if name.startswith("_") or skip(name):
            continue
        found.add(f"{group}.{name}")
        if inspect.isfunction(member) or inspect.ismethod(member):
            for parameter in inspect.signature(member).parameters.values():
                if parameter.name in ("self", "cls") or parameter.kind is parameter.VAR_KEYWORD:
                    continue
                found.add(f"{group}.{name}({parameter.name})")
    return found
