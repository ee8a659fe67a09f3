"""Events of a trial that change a fake for a span of time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ..values.disturbances import HOLD_US, Kind

if TYPE_CHECKING:
    from ...cloud.fake import Fake
    from ...core.clock import Timekeeper
    from ...core.timers import Timer
    from ...vector.fake import VectorIndex

ROTATED_US = 10_000_000
"""Microseconds for which the code keeps using an old token after a ``rotate_token`` disturbance."""
_Key: TypeAlias = tuple[Kind, str]
"""The kind of a disturbance, and the name of the fake."""


def _restoring(fake: Fake) -> Callable[[], None]:
    """Return a function that restores the present tokens of a fake."""
    tokens = {name: getattr(fake, name) for name in fake._token_names}
    return partial(fake._set_credentials, tokens)


class LastingEvents:
    """The events of a trial that change a fake for a span and have not ended yet: ``hold`` and
    ``rotate_token``, at most one of each for each fake. Partitions are in
    ``CallDisturbances``, pauses in strands.

    A disturbance that is repeated lasts for its whole span from then on.
    """

    def __init__(self, clock: Timekeeper, fakes: Iterable[Fake]) -> None:
        self._clock = clock
        self._baseline = [_restoring(fake) for fake in fakes]
        self._active: dict[_Key, tuple[Callable[[], None], Timer]] = {}
        """The function that ends each disturbance, and the timer that calls it."""
        self._rotated: dict[Fake, Callable[[], None]] = {}
        """The functions that restore the tokens that the code still uses, by fake."""

    def hold(self, index: VectorIndex) -> None:
        """Keep changes of a vector index pending for a limited time."""
        from ...vector.fake import hold, release  # imported here: it needs numpy

        key: _Key = "hold", index.name
        if key not in self._active:
            hold(index)
        self._start(key, "pending changes become ready", HOLD_US, lambda: release(index))

    def rotate(self, fake: Fake) -> None:
        """Rotate a fake's token, and restore the old token after a limited time."""
        self._rotated.setdefault(fake, _restoring(fake))
        fake.rotate_token()
        key: _Key = "rotate_token", fake.name
        self._start(key, "the new token is known", ROTATED_US, lambda: self._rotated.pop(fake)())

    @contextlib.contextmanager
    def old_tokens(self) -> Iterator[None]:
        """Make the fakes accept the tokens from before their rotation within the block."""
        restoring_new = [_restoring(fake) for fake in self._rotated]
        for restore in self._rotated.values():
            restore()
        try:
            yield
        finally:
            for restore in restoring_new:
                restore()

    def _start(self, key: _Key, effect: str, span_us: int, undo: Callable[[], None]) -> None:
        if key in self._active:
            _, timer = self._active.pop(key)
            timer.cancel()
        due_us = self._clock.now_us() + span_us
        timer = self._clock.call_at(due_us, lambda _: self._end(key), label=f"{key[1]}: {effect}")
        self._active[key] = undo, timer

    def _end(self, key: _Key) -> None:
        undo, timer = self._active.pop(key)
        timer.cancel()
        undo()

    def end(self) -> None:
        for key in list(self._active):
            self._end(key)

    def reset(self) -> None:
        """End all disturbances, and restore the credentials of the baseline."""
        self.end()
        for restore in self._baseline:
            restore()
