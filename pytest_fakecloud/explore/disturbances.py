"""States of fakes that events change for a limited time: pending changes and rotated tokens."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..core.timekeeper import Timekeeper
    from ..core.timers import Timer
    from ..handle import Handle

HOLD_US = 60_000_000
"""Microseconds for which vectors remain pending after a ``hold_pending`` event."""
ROTATED_US = 10_000_000
"""Microseconds for which the code keeps using an old token after a ``rotate_token`` event."""
_Credentials = Sequence[tuple[object, Mapping[str, str]]]


class Disturbances:
    """The disturbances of a run that have not ended yet."""

    def __init__(self, clock: Timekeeper, handles: Iterable[Handle]) -> None:
        self._clock = clock
        self._baseline = [pair for handle in handles for pair in _credentials(handle)]
        self._undo: list[Callable[[], object]] = []
        self._timers: list[Timer] = []
        self._rotated: dict[str, tuple[Any, _Credentials]] = {}

    def hold(self, handle: Any) -> None:
        """Keep changes of a vector index pending for a limited time."""
        handle.hold_pending()
        self._for_a_while(
            HOLD_US, handle.release_pending, f"{handle.name}: pending changes become ready"
        )

    def rotate(self, handle: Any) -> None:
        """Rotate a fake's token, and restore the old token after a limited time."""
        kept = self._rotated.setdefault(handle.name, (handle, list(_credentials(handle))))[1]
        handle.rotate_token()

        def undo() -> None:
            _put_back(kept)
            self._rotated.pop(handle.name, None)

        self._for_a_while(ROTATED_US, undo, f"{handle.name}: the new token is known")

    @contextlib.contextmanager
    def old_tokens(self) -> Iterator[None]:
        """Make the fakes accept the tokens from before their rotation within the block."""
        new: list[tuple[object, Mapping[str, str]]] = []
        for handle, kept in self._rotated.values():
            new += list(_credentials(handle))
            _put_back(kept)
        try:
            yield
        finally:
            _put_back(new)

    def _for_a_while(self, span_us: int, undo: Callable[[], object], label: str) -> None:
        self._undo.append(undo)

        def end(_: int) -> None:
            if undo in self._undo:
                self._undo.remove(undo)
                undo()

        due_us = self._clock.now_us() + span_us
        self._timers.append(self._clock.call_at(due_us, end, label=label))

    def end(self) -> None:
        """End all disturbances, so that the promise can be checked."""
        while self._undo:
            self._undo.pop(0)()

    def reset(self) -> None:
        """Forget all disturbances and restore the credentials of the baseline."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._undo.clear()
        self._rotated.clear()
        _put_back(self._baseline)


def _put_back(credentials: _Credentials) -> None:
    for owner, values in credentials:
        for name, value in values.items():
            setattr(owner, name, value)


def _credentials(handle: Any) -> Iterator[tuple[object, dict[str, str]]]:
    yield handle, {name: value for name, value in vars(handle).items() if name.endswith("token")}
    pair = getattr(handle, "_credentials", None)
    if pair is not None:
        yield pair, {"standard": pair.standard, "read_only": pair.read_only}
