"""Disturbances of fakes that last for some time: rotated tokens and pending changes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from .schedule import Kind

if TYPE_CHECKING:
    from ..core.timekeeper import Timekeeper
    from ..core.timers import Timer
    from ..handle import Handle
    from ..vector.handle import VectorIndex

HOLD_US = 60_000_000
"""Microseconds for which vectors remain pending after a ``hold`` event."""
ROTATED_US = 10_000_000
"""Microseconds for which the code keeps using an old token after a ``rotate_token`` event."""
_Key: TypeAlias = tuple[Kind, str]
"""The kind of event that began a disturbance, and the name of the fake."""


class _Disturbance(NamedTuple):
    undo: Callable[[], None]
    timer: Timer


class _Tokens(NamedTuple):
    handle: Handle
    tokens: tuple[str, ...]

    def restore(self) -> None:
        self.handle._set_tokens(*self.tokens)


class Disturbances:
    """The disturbances of a run that have not ended yet.

    A fake has at most one disturbance of each kind. If an event repeats it, the disturbance lasts
    for its whole span from then on.
    """

    def __init__(self, clock: Timekeeper, handles: Iterable[Handle]) -> None:
        self._clock = clock
        self._baseline = [_Tokens(handle, handle._tokens()) for handle in handles]
        self._active: dict[_Key, _Disturbance] = {}
        self._rotated: dict[str, _Tokens] = {}
        """The tokens that the code still uses, by the names of the fakes that rotated them."""

    def hold(self, index: VectorIndex) -> None:
        """Keep changes of a vector index pending for a limited time."""
        from ..vector.handle import hold, release  # imported here: it needs numpy

        key: _Key = "hold", index.name
        if key not in self._active:
            hold(index)
        self._start(key, "pending changes become ready", HOLD_US, lambda: release(index))

    def rotate(self, handle: Handle) -> None:
        """Rotate a fake's token, and restore the old token after a limited time."""
        old = self._rotated.setdefault(handle.name, _Tokens(handle, handle._tokens()))
        handle.rotate_token()

        def undo() -> None:
            del self._rotated[handle.name]
            old.restore()

        key: _Key = "rotate_token", handle.name
        self._start(key, "the new token is known", ROTATED_US, undo)

    def is_rotated(self, handle: Handle) -> bool:
        return handle.name in self._rotated

    @contextlib.contextmanager
    def old_tokens(self) -> Iterator[None]:
        """Make the fakes accept the tokens from before their rotation within the block."""
        new = [_Tokens(old.handle, old.handle._tokens()) for old in self._rotated.values()]
        for old in self._rotated.values():
            old.restore()
        try:
            yield
        finally:
            for tokens in new:
                tokens.restore()

    def _start(self, key: _Key, effect: str, span_us: int, undo: Callable[[], None]) -> None:
        if key in self._active:
            self._active.pop(key).timer.cancel()
        due_us = self._clock.now_us() + span_us
        timer = self._clock.call_at(due_us, lambda _: self._end(key), label=f"{key[1]}: {effect}")
        self._active[key] = _Disturbance(undo, timer)

    def _end(self, key: _Key) -> None:
        disturbance = self._active.pop(key)
        disturbance.timer.cancel()
        disturbance.undo()

    def end(self) -> None:
        """End all disturbances, so that the promise can be checked."""
        for key in list(self._active):
            self._end(key)

    def reset(self) -> None:
        """End all disturbances, and restore the credentials of the baseline."""
        self.end()
        for tokens in self._baseline:
            tokens.restore()
