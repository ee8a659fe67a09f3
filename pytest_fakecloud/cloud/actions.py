"""What a test does with a fake, recorded for reports: actions, and looks at its data."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from ..core.arguments import arguments_shown
from ..core.frames import ELSEWHERE, CodePlace, code_place, is_own
from ..core.recorder import Recorder


class RecordsActions(Protocol):
    """A fake, of which actions and looks only need the recorder."""

    _recorder: Recorder


_FROM_ELSEWHERE = "_from_elsewhere"
"""The attribute of a decorated method with the function that `from_elsewhere()` returns."""
Method = TypeVar("Method", bound=Callable[..., Any])
_IMMUTABLE = frozenset((str, bytes, int, float, bool, type(None)))
"""The types of most arguments. They are formatted only when a report is made."""


def action(method: Method) -> Method:
    """Decorate a method, so that calls of it by a test appear in reports as actions on the fake."""

    @functools.wraps(method)
    def recorded(self: RecordsActions, *positional: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        caller = sys._getframe(1)
        if is_own(caller):
            return method(self, *positional, **named)
        return perform(self, method, code_place(caller), positional, named)

    def performed(self: RecordsActions, *positional: Any, **named: Any) -> Any:
        return perform(self, method, ELSEWHERE, positional, named)

    setattr(recorded, _FROM_ELSEWHERE, performed)
    return cast("Method", recorded)


def look(method: Method) -> Method:
    """Decorate a method that inspects a fake's data, so that reports can tell what a test looked at."""

    @functools.wraps(method)
    def noted(self: RecordsActions, *positional: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        caller = sys._getframe(1)
        if not is_own(caller):
            self._recorder.catch_up()
            self._recorder.note_look(method.__name__, code_place(caller), (positional, named))
        return method(self, *positional, **named)

    def looked(self: RecordsActions, *positional: Any, **named: Any) -> Any:
        self._recorder.catch_up()
        self._recorder.note_look(method.__name__, ELSEWHERE, (positional, named))
        return method(self, *positional, **named)

    setattr(noted, _FROM_ELSEWHERE, looked)
    return cast("Method", noted)


def action_as(kind: str) -> Callable[[Method], Method]:
    """Like ``action``, for a method of a part of a fake, or of a thing that a fake contains.

    ``kind`` is how a test reaches the method: ``faults.crash`` for ``fake.faults.crash()``, and
    ``topic.delete`` for ``fake.topic(name).delete()``. The object's ``_owner()`` returns the fake,
    and the arguments with which the test looks the object up.
    """

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def recorded(self: Any, *positional: Any, **named: Any) -> Any:
            __tracebackhide__ = True
            caller = sys._getframe(1)
            if is_own(caller):
                return method(self, *positional, **named)
            return performed(self, code_place(caller), positional, named)

        def performed(
            self: Any, place: CodePlace, positional: Sequence[Any], named: Mapping[str, Any]
        ) -> Any:
            __tracebackhide__ = True
            fake, lookup = self._owner()

            def act(_: RecordsActions, *arguments: Any, **named: Any) -> Any:
                __tracebackhide__ = True
                return method(self, *arguments[len(lookup) :], **named)

            return perform(fake, act, place, (*lookup, *positional), named, kind)

        def performed_elsewhere(self: Any, *positional: Any, **named: Any) -> Any:
            return performed(self, ELSEWHERE, positional, named)

        setattr(recorded, _FROM_ELSEWHERE, performed_elsewhere)
        return cast("Method", recorded)

    return decorate


def from_elsewhere(member: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a fake, its part or its thing as a test in another process calls it: an action
    or a look is recorded, although code of this package makes the call.
    """
    recorded = getattr(member, _FROM_ELSEWHERE, None)
    return member if recorded is None else partial(recorded, member.__self__)  # type: ignore[attr-defined]


def action_method(fake: RecordsActions, kind: str, positional: Sequence[Any]) -> Callable[..., Any]:
    """Return a function that repeats an action (see ``action_as()``) on another fake, given the
    action's positional arguments.
    """
    owner, _, name = kind.rpartition(".")
    if not owner:
        return cast("Callable[..., Any]", getattr(fake, name))
    # A thing that a test finds only in a list has a private look-up.
    part = getattr(fake, f"_{owner}", None) or getattr(fake, owner)
    if not callable(part):
        return cast("Callable[..., Any]", getattr(part, name))
    method = getattr(part(positional[0]), name)
    return lambda _, *arguments, **named: method(*arguments, **named)


def perform(
    fake: RecordsActions,
    method: Callable[..., Any],
    place: CodePlace,
    positional: Sequence[Any],
    named: Mapping[str, Any],
    kind: str = "",
) -> Any:
    """Call a method as an action that the test takes on the fake, at a place of the test's code,
    with the method's name as its ``kind`` unless another is given.
    """
    __tracebackhide__ = True
    recorder = fake._recorder
    recorder.catch_up()
    number = recorder.reserve()
    result = method(fake, *positional, **named)
    shown = None
    for value in (*positional, *named.values()) if named else positional:
        if type(value) not in _IMMUTABLE:
            shown = arguments_shown(positional, named)
            break
    # Read the private attribute, because reading the public id counts as an inspection by the test.
    message = getattr(result, "_id", None)
    call = positional, named
    kind = kind or method.__name__
    recorder.record_action(kind, place, number, call, shown, message)
    return result
