"""Errors in functions that make a part of a report, which shows them in place of that part."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from ..core.errors import report_failure, report_hook_failure

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
