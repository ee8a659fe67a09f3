"""The public surface of a Python client, and a record of the parts that tests used."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tests.notations import complete


class Scenarios(dict[str, tuple[Any, Callable[..., None]]]):
    """Scenarios of a client by name, each with what it needs. Calling this registers one."""

    def __call__(self, need: Any = "") -> Callable[..., Callable[..., None]]:
        def register(function: Callable[..., None]) -> Callable[..., None]:
            self[function.__name__] = (need, function)
            return function

        return register


@dataclass
class Used:
    """Names that were called, such as ``"redis.set"``, and arguments that were passed, such as
    ``"redis.set(ex)"``.
    """

    calls: set[str] = field(default_factory=set)

    def note(self, group: str, name: str, arguments: Iterable[str]) -> None:
        self.calls.add(f"{group}.{name}")
        self.calls |= {f"{group}.{name}({argument})" for argument in arguments}


class Kept:
    """The uses that scenarios made of a client, stored so that each scenario runs only once.

    ``run`` receives a scenario, a flavour of the client, and an object that records the uses. If
    the scenarios ran in another worker or were not selected, they run when their uses are requested.
    """

    def __init__(self, run: Callable[[Any, Any, Any], object], used: type[Used] = Used) -> None:
        self._run = run
        self._used = used
        self._found: dict[tuple[Any, Any], Used] = {}

    def run(self, scenario: Any, flavour: Any) -> Any:
        """Run a scenario; store and return its uses unless it fails."""
        used = self._used()
        self._run(scenario, flavour, used)
        self._found[scenario, flavour] = used
        return used

    def each(self, scenarios: Iterable[Any], flavour: Any) -> list[Any]:
        """Return the uses of each scenario, and run those that have not run yet."""
        return [
            self._found.get((scenario, flavour)) or self.run(scenario, flavour)
            for scenario in scenarios
        ]

    def calls(self, scenarios: Iterable[Any], flavour: Any) -> set[str]:
        """Return all names that the scenarios called, and arguments that they passed."""
        return set[str]().union(*(used.calls for used in self.each(scenarios, flavour)))


_WITHOUT_PARTS = {"redis"}
"""Clients of which only the main class is walked over: redis-py is not one of the vendor's."""


class Api:
    """A synchronous interface to a synchronous or asynchronous object, which records calls.

    ``groups`` names classes. Objects of these classes, returned by attributes or calls, also in a
    tuple, are wrapped as well. An object of another class of the client that has methods is an
    error: it is a part of the client that no test walks over.
    """

    def __init__(
        self, target: Any, groups: Mapping[type, str], used: Used, loop: asyncio.AbstractEventLoop
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
        if type(value) is tuple:
            return tuple(map(self._wrapped, value))
        package = _package(type(value))
        is_part = package == _package(type(self._target)) and package not in _WITHOUT_PARTS
        if is_part and _has_methods(type(value)):
            raise AssertionError(f"{type(value)} has no group: add it to the groups of this client")
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


def _package(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _has_methods(cls: type) -> bool:
    """Return whether a class is not only a record, such as a named tuple, an enum or a dataclass."""
    if is_dataclass(cls) or issubclass(cls, tuple | Enum | BaseException):
        return False
    return any(not name.startswith("_") for name, _ in inspect.getmembers(cls, inspect.isfunction))


async def _all_of(result: Any) -> list[Any]:
    return [item async for item in result]


async def _awaited(result: Any) -> Any:
    return await result


def surface(
    cls: type,
    group: str,
    *,
    skip: Callable[[str], bool] = lambda name: False,
    special: Collection[str] = (),
) -> set[str]:
    """Return every public method and property of a class, and every parameter of the methods.

    ``special`` are further methods that count if the class itself defines them.
    """
    names = set()
    for name, member in inspect.getmembers(cls):
        if (name.startswith("_") and (name not in special or name not in vars(cls))) or skip(name):
            continue
        names.add(f"{group}.{name}")
        if inspect.isfunction(member) or inspect.ismethod(member):
            for parameter in inspect.signature(member).parameters.values():
                if parameter.name in ("self", "cls") or parameter.kind is parameter.VAR_KEYWORD:
                    continue
                names.add(f"{group}.{name}({parameter.name})")
    return names


def check_complete(file: str, missing: Iterable[str], excuses: str = "EXCUSED") -> None:
    """Fail with the lines to add to a file for public names that it neither uses nor excuses."""
    lines = [f'    "{name}": "<reason>",' for name in sorted(missing)]
    complete(Path(file), [f"# calls of these, or in {excuses}:", *lines] if lines else [])
