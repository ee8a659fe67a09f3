"""Promises that compare the results of concurrent operations with a model."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from ...core.errors import ContractError, shown
from ..run import History, Operation
from .checks import Check, StepPromise, expect


def linearizable(
    model: Callable[[], Any], *, final: Callable[[Any], object] | None = None
) -> Check:
    """Check that one order of the operations explains all their results.

    ``model`` returns an object whose methods are the operations, such as the class ``Counter``. The
    operations are the calls of functions marked with ``observed`` or, if there are none, the
    clients themselves, by name. The order must respect time: an operation that began after another
    one ended comes after it. An operation that raised an exception may or may not have taken
    effect. ``final`` is called with the model at the end of an order and returns whether the fakes
    hold the same data. Raises ``ContractError`` for an operation that the model does not have.
    """
    if not callable(model):
        raise ContractError(
            f"model={shown(model)} is not a class: pass one that needs no arguments"
        )

    def check(history: History) -> None:
        __tracebackhide__ = True
        operations = history.operations or history.clients
        _check_names(operations, model)
        if not _explained(operations, model, final):
            listing = "\n".join(f"  {each!r}" for each in operations)
            end = " and the fakes' data" if final is not None else ""
            raise AssertionError(
                f"no order of these operations explains their results{end}:\n{listing}"
            )

    return check


def follows(model: Callable[[], Any]) -> Check:
    """Check each result against a model, at the step at which it is returned.

    ``model`` returns an object whose methods are the operations, such as the class ``Counter``. The
    operations are the calls of functions marked with ``observed``. Concurrent operations may have
    taken effect in either order, as with ``linearizable``. The failure is reported at the first
    result that no order explains. Raises ``ContractError`` for an operation without a method.
    """
    expect(callable(model), "follows", "a class that needs no arguments", model)
    return _Follows(model)


class _Follows(StepPromise):
    """A promise that each result equals a model's result."""

    def __init__(self, model: Callable[[], Any]) -> None:
        self._model = model
        self._history: object = None
        self._seen = 0

    def at_step(self, history: History) -> None:
        __tracebackhide__ = True
        operations = history.operations
        ended = sum(each.ended is not None for each in operations)
        if not ended or (self._history is history and self._seen == ended):
            return
        _check_names(operations, self._model)
        if not _explained(operations, self._model, None):
            latest = max(operations, key=lambda each: each.ended or -1)
            raise AssertionError(
                f"the result differs from the model's: {latest!r}, after "
                f"{', '.join(repr(each) for each in operations if each is not latest) or 'nothing'}"
            )
        self._history, self._seen = history, ended


def _check_names(operations: Sequence[Operation], model: Callable[[], Any]) -> None:
    sample = model()
    for each in operations:
        if not callable(getattr(sample, each.name, None)):
            raise ContractError(
                f"{shown(model)} has no method {each.name}, which a client has called"
            )


def _explained(
    operations: Sequence[Operation], model: Callable[[], Any], final: Callable[[Any], object] | None
) -> bool:
    """Return whether some order explains the results of the operations (Wing and Gong 1993)."""
    must = frozenset(i for i, each in enumerate(operations) if each.ended is not None)
    seen: set[tuple[frozenset[int], object]] = set()
    todo: list[tuple[frozenset[int], Any]] = [(frozenset(), model())]
    while todo:
        done, state = todo.pop()
        if must <= done and (final is None or final(state)):
            return True
        key = done, _frozen(state)
        if key in seen:
            continue
        seen.add(key)
        first_end = min((operations[i].ended or 0 for i in must - done), default=None)
        for index, each in enumerate(operations):
            if index in done or (first_end is not None and each.began > first_end):
                continue
            after = copy.deepcopy(state)
            try:
                result = getattr(after, each.name)(*each.args, **each.kwargs)
            except Exception:
                continue  # the operation is impossible in this state
            if each.ended is None or result == each.result:
                todo.append((done | {index}, after))
    return False


class _Pickler(pickle.Pickler):
    """Pickles classes and functions by identity, because ``deepcopy()`` does not copy them."""

    def persistent_id(self, value: object) -> int | None:
        return id(value) if isinstance(value, type | FunctionType) else None


def _frozen(state: object) -> object:
    """Return a value that only copies of an equal state share, or an object that none share."""
    stream = io.BytesIO()
    try:
        _Pickler(stream).dump(state)
    except Exception:
        return object()
    return stream.getvalue()
