"""What checks inspect of a trial: its history, with the calls of observed functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...cloud.base import BaseCloud


@dataclass(slots=True, eq=False)
class Operation:
    """A call of a function marked with ``observed``.

    ``began`` and ``ended`` are positions in the order of all starts and ends. If the client does not
    know whether the call took effect, ``ended`` is None and ``error`` is the exception.
    """

    client: str
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    began: int
    ended: int | None = None
    result: object = None
    error: BaseException | None = None

    def __repr__(self) -> str:
        arguments = [repr(argument) for argument in self.args]
        arguments += [f"{name}={value!r}" for name, value in self.kwargs.items()]
        answer = "?" if self.ended is None else repr(self.result)
        return f"{self.client}: {self.name}({', '.join(arguments)}) -> {answer}"


@dataclass
class History:
    """One trial, for checks to inspect.

    ``cloud`` contains the fakes. ``schedule`` is the schedule as a string. ``operations`` are the calls
    of functions marked with ``observed``, ``clients`` the clients as operations. ``results`` maps
    clients and workers that returned to what they returned, ``errors`` those that gave up to their
    exception. ``crashed`` are the names of clients and workers that a crash ended. The first
    restart of a worker ``relay`` is ``relay/2``. ``inputs`` maps clients to their drawn inputs: to a
    dict of arguments, or to a list of operations and their arguments.
    """

    cloud: BaseCloud
    schedule: str
    operations: list[Operation] = field(default_factory=list)
    clients: list[Operation] = field(default_factory=list)
    results: dict[str, object] = field(default_factory=dict)
    errors: dict[str, BaseException] = field(default_factory=dict)
    crashed: list[str] = field(default_factory=list)
    inputs: Mapping[str, Any] = field(default_factory=dict)


def _noted(name: str) -> Any:
    """Return a property for a list of a trial's history, which notes that a check reads the list."""

    def read(history: TrialHistory) -> object:
        history.order_was_read = True
        return vars(history)[name]

    return property(read, lambda history, value: vars(history).update({name: value}))


class TrialHistory(History):
    """The history of a trial, which notes if a check reads the order of operations or clients."""

    order_was_read = False
    operations = _noted("operations")
    clients = _noted("clients")
