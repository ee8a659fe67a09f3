"""The decorator of methods that appear in reports as actions of a test."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..core.recorder import is_own, place_of
from ..core.wording import brief

if TYPE_CHECKING:
    from .handle import Handle

Method = TypeVar("Method", bound=Callable[..., Any])


def action(method: Method) -> Method:
    """Decorate a method, so that calls of it by a test appear in reports as actions on the fake."""

    @functools.wraps(method)
    def recorded(self: Handle, *given: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        caller = sys._getframe(1)
        if is_own(caller):
            return method(self, *given, **named)
        return perform(self, method, place_of(caller), given, named)

    return cast("Method", recorded)


def perform(
    handle: Handle,
    method: Callable[..., Any],
    place: Mapping[str, object],
    given: Sequence[Any],
    named: Mapping[str, Any],
) -> Any:
    """Call a method as an action that the test takes on the fake, at a place of the test's code."""
    __tracebackhide__ = True
    number = handle._recorder.reserve()
    result = method(handle, *given, **named)
    arguments = [
        *map(_argument, given),
        # Headers may contain secrets, so omit their values.
        *(
            f"{name}={_argument([*value] if name == 'headers' and value else value)}"
            for name, value in named.items()
        ),
    ]
    # Read the private attribute, because reading the public id counts as an inspection by the test.
    message = getattr(result, "_id", None)
    ids = {"message_id": message} if isinstance(message, str) else {}
    handle._recorder.record_action(
        method.__name__, place, number, (given, named), arguments=arguments, **ids
    )
    return result


def _argument(value: object) -> str:
    """Format an argument in a few characters, without calling repr on large values."""
    if value is None or isinstance(value, str | bytes | int | float):
        return brief(value, 60)
    if isinstance(value, dict | list | tuple | set):
        return brief(value) if len(value) <= 10 else f"{type(value).__name__} of {len(value)}"
    return type(value).__name__
