"""Errors in functions that make a part of a report, which shows them in place of that part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import ParamSpec, TypeVar

from ..core.calls import Call
from ..core.errors import report_hook_failure
from .calls import has_full_answer

_Item = TypeVar("_Item")
_Arguments = ParamSpec("_Arguments")
MALFORMED = (ValueError, LookupError, TypeError, AttributeError)
"""What code raises that reads a body of another form than it expects."""


@contextmanager
def contained(failed: str, errors: list[str], *, call: Call | None = None) -> Iterator[None]:
    """Turn an exception of a part of the report into a line of ``errors`` that begins with ``failed``.

    The exceptions of `MALFORMED` are dropped if the part reads a ``call`` that was rejected or that the
    journal cut, because its bodies may have any form.
    """
    malformed = call is not None and (not has_full_answer(call) or bool(call.cut))
    with report_hook_failure(failed, errors.append), suppress(*MALFORMED if malformed else ()):
        yield


def collected(
    failed: str,
    errors: list[str],
    function: Callable[_Arguments, Iterable[_Item]],
    /,
    *arguments: _Arguments.args,
    **named: _Arguments.kwargs,
) -> list[_Item]:
    """Return what a function yields until it ends or raises an exception, which is `contained()`."""
    items: list[_Item] = []
    with contained(failed, errors):
        items.extend(function(*arguments, **named))
    return items
