"""The decorator of methods that appear in reports as actions of a test."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..core.errors import brief
from ..core.recorder import CodePlace, code_place, is_own

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


def action_as(kind: str) -> Callable[[Method], Method]:
    """Like ``action``, for a method of a part of a fake, or of a thing that a fake contains.

    ``kind`` is how a test reaches the method: ``faults.crash`` for ``fake.faults.crash()``, and
    ``topic.delete`` for ``fake.topic(name).delete()``. The object's ``_owner()`` returns the fake,
    and the arguments with which the test looks the object up.
    """

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def recorded(self: Any, *given: Any, **named: Any) -> Any:
            __tracebackhide__ = True
            caller = sys._getframe(1)
            if is_own(caller):
                return method(self, *given, **named)
            handle, lookup = self._owner()

            def act(fake: Handle, *arguments: Any, **named: Any) -> Any:
                __tracebackhide__ = True
                return method(self, *arguments[len(lookup) :], **named)

            return perform(handle, act, code_place(caller), (*lookup, *given), named, kind)

        return cast("Method", recorded)

    return decorate


def action_method(handle: Handle, kind: str, given: Sequence[Any]) -> Callable[..., Any]:
    """Return a function that repeats an action on another fake, given the action's arguments.

    ``given`` are its positional arguments. See ``action_as()`` for the form of ``kind``.
    """
    owner, _, name = kind.rpartition(".")
    if not owner:
        return cast("Callable[..., Any]", getattr(handle, name))
    # A thing that a test finds only in a list has a private look-up.
    part = getattr(handle, f"_{owner}", None) or getattr(handle, owner)
    if not callable(part):
        return cast("Callable[..., Any]", getattr(part, name))
    method = getattr(part(given[0]), name)
    return lambda _, *rest, **named: method(*rest, **named)


def perform(
    handle: Handle,
    method: Callable[..., Any],
    place: CodePlace,
    given: Sequence[Any],
    named: Mapping[str, Any],
    kind: str = "",
) -> Any:
    """Call a method as an action that the test takes on the fake, at a place of the test's code.

    ``kind`` is the name of the action in reports, by default the method's name.
    """
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
    kind = kind or method.__name__
    recorder.record_action(kind, place, number, call, _details, call, shown, message)
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
