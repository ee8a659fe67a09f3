"""The decorator of methods that appear in reports as actions of a test."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..core.recorder import CodePlace, code_place, is_own
from ..core.wording import brief

if TYPE_CHECKING:
    from .handle import Handle

Method = TypeVar("Method", bound=Callable[..., Any])
_IMMUTABLE = frozenset((str, bytes, int, float, bool, type(None)))
"""The types of most arguments. They are formatted only when a report is made."""


def action(method: Method) -> Method:
    """Decorate a method, so that calls of it by a test appear in reports as actions on the fake."""

    @functools.wraps(method)
    def recorded(self: Handle, *given: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        caller = sys._getframe(1)
        if is_own(caller):
            return method(self, *given, **named)
        return perform(self, method, code_place(caller), given, named)

    return cast("Method", recorded)


def perform(
    handle: Handle,
    method: Callable[..., Any],
    place: CodePlace,
    given: Sequence[Any],
    named: Mapping[str, Any],
) -> Any:
    """Call a method as an action that the test takes on the fake, at a place of the test's code."""
    __tracebackhide__ = True
    recorder = handle._recorder
    number = recorder.reserve()
    result = method(handle, *given, **named)
    shown = None
    for value in (*given, *named.values()) if named else given:
        if type(value) not in _IMMUTABLE:
            shown = _arguments(given, named)
            break
    # Read the private attribute, because reading the public id counts as an inspection by the test.
    message = getattr(result, "_id", None)
    call = given, named
    recorder.record_action(method.__name__, place, number, call, _details, call, shown, message)
    return result


def _details(
    call: tuple[Sequence[Any], Mapping[str, Any]], shown: list[str] | None, message: object
) -> dict[str, object]:
    """Return the data of an action. ``shown`` are its arguments if some could have changed since."""
    ids = {"message_id": message} if isinstance(message, str) else {}
    return {"arguments": _arguments(*call) if shown is None else shown, **ids}


def _arguments(given: Sequence[Any], named: Mapping[str, Any]) -> list[str]:
    return [
        *map(_argument, given),
        # Headers may contain secrets, so omit their values.
        *(
            f"{name}={_argument([*value] if name == 'headers' and value else value)}"
            for name, value in named.items()
        ),
    ]


def _argument(value: object) -> str:
    """Format an argument in a few characters, without calling repr on large values."""
    if value is None or isinstance(value, str | bytes | int | float):
        return brief(value, 60)
    if isinstance(value, dict | list | tuple | set):
        return brief(value) if len(value) <= 10 else f"{type(value).__name__} of {len(value)}"
    return type(value).__name__
