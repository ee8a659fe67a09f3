"""The decorator of methods that appear in reports as actions of a test."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..core.recording.recorder import is_own
from ..core.wording import brief

if TYPE_CHECKING:
    from .handle import Handle

Method = TypeVar("Method", bound=Callable[..., Any])


def action(method: Method) -> Method:
    """Decorate a method so that its calls appear in reports, as an action of the test on the fake.

    Calls from inside this package are ignored.
    """

    @functools.wraps(method)
    def recorded(self: Handle, *given: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        caller = sys._getframe(1)
        if is_own(caller):
            return method(self, *given, **named)
        number = self._recorder.reserve()
        result = method(self, *given, **named)
        arguments = [
            *map(_argument, given),
            *(f"{name}={_named_argument(name, value)}" for name, value in named.items()),
        ]
        # Read the private attribute, because reading the public id counts as an inspection by the
        # test.
        message = getattr(result, "_id", None)
        ids = {"message_id": message} if isinstance(message, str) else {}
        call = given, named
        self._recorder.record_action(
            method.__name__, caller, number, call, arguments=arguments, **ids
        )
        return result

    return cast("Method", recorded)


def _named_argument(name: str, value: Any) -> str:
    # Headers may contain secrets, so omit their values.
    return _argument([*value] if name == "headers" and value else value)


def _argument(value: object) -> str:
    """Format an argument in a few characters, without calling repr on large values."""
    if value is None or isinstance(value, str | bytes | int | float):
        return brief(value, 60)
    if isinstance(value, dict | list | tuple | set):
        return brief(value) if len(value) <= 10 else f"{type(value).__name__} of {len(value)}"
    return type(value).__name__
