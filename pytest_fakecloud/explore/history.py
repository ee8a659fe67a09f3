"""The operations of the clients in one run, for checks to inspect."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud


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
        given = [repr(each) for each in self.args]
        given += [f"{name}={value!r}" for name, value in self.kwargs.items()]
        answer = "?" if self.ended is None else repr(self.result)
        return f"{self.client}: {self.name}({', '.join(given)}) -> {answer}"


@dataclass
class History:
    """One run, for checks to inspect.

    ``cloud`` contains the fakes. ``schedule`` is the schedule as a string. ``operations`` are the calls
    of functions marked with ``observed``, ``clients`` the clients as operations. ``results`` maps
    clients and workers that returned to what they returned, ``errors`` those that gave up to their
    exception. ``crashed`` are the names of clients and workers that a crash ended. The first
    restart of a worker ``relay`` is ``relay/2``.
    """

    cloud: AnyCloud
    schedule: str
    operations: list[Operation] = field(default_factory=list)
    clients: list[Operation] = field(default_factory=list)
    results: dict[str, object] = field(default_factory=dict)
    errors: dict[str, BaseException] = field(default_factory=dict)
    crashed: list[str] = field(default_factory=list)
    _places: itertools.count[int] = field(default_factory=itertools.count, repr=False)


def begin(
    history: History, client: str, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Operation:
    """Record the start of an operation."""
    operation = Operation(client, name, args, kwargs, next(history._places))
    history.operations.append(operation)
    return operation


def begin_client(history: History, client: str) -> Operation:
    """Record the start of a client."""
    operation = Operation(client, client, (), {}, next(history._places))
    history.clients.append(operation)
    return operation


def end(history: History, operation: Operation, result: object) -> None:
    """Record the end of an operation."""
    operation.ended, operation.result = next(history._places), result
