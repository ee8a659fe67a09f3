"""Errors in functions that make a part of a report. None prevents the other parts.

An exception of a service's function ends in the first of these places:

=======================================  ==========================================================
raised by                                ends as
=======================================  ==========================================================
`MALFORMED` about a rejected or cut      the value that the function declares (`reads_call()`), or
call                                     the end of its items (`iterates_over_call()`)
``command``, ``address``, ``hides_body`` a row that says why its entry cannot be shown
words, requests and responses of a row   a remark or a line of the row (`contained()`)
a sentence                               the kind and values of its finding, and the reason
all others                               a line of ``Report.errors`` (`contained()`, `collected()`)
=======================================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, ParamSpec, TypeVar

from ..core.calls import Call
from ..core.errors import report_failure, report_hook_failure
from .calls import has_full_answer
from .model import ReportRow

_Item = TypeVar("_Item")
_Arguments = ParamSpec("_Arguments")
MALFORMED = (ValueError, LookupError, TypeError, AttributeError)
"""What code raises that reads a body of another form than it expects."""


def contained(failed: str, errors: list[str]) -> report_failure:
    """Turn an exception in a part of a report into a line of ``errors`` that begins with ``failed``."""
    return report_hook_failure(failed, errors.append)


def collected(
    failed: str,
    errors: list[str],
    function: Callable[_Arguments, Iterable[_Item]],
    /,
    *arguments: _Arguments.args,
    **by_name: _Arguments.kwargs,
) -> list[_Item]:
    """Return what a function yields until it ends or raises an exception, which is `contained()`."""
    items: list[_Item] = []
    with contained(failed, errors):
        items.extend(function(*arguments, **by_name))
    return items


def nothing(*arguments: object) -> tuple[()]:
    return ()


def reads_call(*, if_malformed: object, absent: Callable[..., Any] | None = None) -> Any:
    """Declare a function that reads a call. If the call was rejected or cut, it returns ``if_malformed``
    in place of an exception of `MALFORMED`. A service without it has the function ``absent``, or else
    one that always returns ``if_malformed``.
    """
    default = absent or (lambda *arguments: if_malformed)
    return field(default=default, metadata={"tolerant": partial(_returning, if_malformed)})


def iterates_over_call(*, absent: Callable[..., Any] | None = nothing) -> Any:
    """Declare a generator function that reads a call. Its items end in place of such an exception."""
    return field(default=absent, metadata={"tolerant": _ending})


@dataclass(frozen=True, slots=True)
class FunctionGroup:
    """Functions of a service, some of which can be groups of further ones."""


_Group = TypeVar("_Group", bound=FunctionGroup)


def tolerant(functions: _Group) -> _Group:
    """Return functions, and groups of them, which raise no exception that their declaration replaces."""
    changed: dict[str, Any] = {}
    for declared in fields(functions):
        function = getattr(functions, declared.name)
        if isinstance(function, FunctionGroup):
            changed[declared.name] = tolerant(function)
        elif "tolerant" in declared.metadata and function is not None:
            changed[declared.name] = declared.metadata["tolerant"](function)
    return replace(functions, **changed)


def _returning(if_malformed: object, function: Callable[..., Any]) -> Callable[..., Any]:
    def value(*arguments: object) -> Any:
        with suppress(*_replaced_exceptions(arguments)):
            return function(*arguments)
        return if_malformed

    return value


def _ending(function: Callable[..., Iterable[Any]]) -> Callable[..., Iterator[Any]]:
    def items(*arguments: object) -> Iterator[Any]:
        with suppress(*_replaced_exceptions(arguments)):
            yield from function(*arguments)

    return items


def _replaced_exceptions(arguments: Iterable[object]) -> tuple[type[Exception], ...]:
    """Return `MALFORMED` if the call among the arguments, or in a row, was rejected or cut, because its
    bodies may have any form; nothing otherwise.
    """
    calls = [own.source.call if isinstance(own, ReportRow) else own for own in arguments]
    may_be_malformed = any(
        isinstance(call, Call) and (call.cut or not has_full_answer(call)) for call in calls
    )
    return MALFORMED if may_be_malformed else ()
