"""The promises that ``explore()`` checks, as methods of every cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest_fakecloud

if TYPE_CHECKING:
    from ..core.timeparse import Duration
    from .promises import Check


class CloudPromises:
    """Methods of a cloud that return a promise for ``explore()``.

    The package imports its public names, such as these promises, on first use.
    """

    @staticmethod
    def linearizable(
        model: Callable[[], Any], *, final: Callable[[Any], object] | None = None
    ) -> Check:
        """Return the promise that clients are linearizable; see ``promises.linearizable``."""
        return pytest_fakecloud.linearizable(model, final=final)

    @staticmethod
    def once(key: str) -> Check:
        """Return the promise that a key counts exactly one effect; see ``promises.once``."""
        return pytest_fakecloud.once(key)

    @staticmethod
    def nothing_lost(
        sent: str | Callable[[], Iterable[object]], handled: Callable[[], Iterable[object]]
    ) -> Check:
        """Return the promise that everything sent is handled; see ``promises.nothing_lost``."""
        return pytest_fakecloud.nothing_lost(sent, handled)

    @staticmethod
    def monotonic_reads(name: str) -> Check:
        """Return the promise that no value decreases; see ``promises.monotonic_reads``."""
        return pytest_fakecloud.monotonic_reads(name)

    @staticmethod
    def always(predicate: Callable[..., object]) -> Check:
        """Return the promise that a predicate holds after every step; see ``promises.always``."""
        return pytest_fakecloud.always(predicate)

    @staticmethod
    def never(predicate: Callable[..., object]) -> Check:
        """Return the promise that a predicate never holds; see ``promises.never``."""
        return pytest_fakecloud.never(predicate)

    @staticmethod
    def at_most_one(found: Callable[..., object]) -> Check:
        """Return the promise that there is at most one item; see ``promises.at_most_one``."""
        return pytest_fakecloud.at_most_one(found)

    @staticmethod
    def sometimes(predicate: Callable[..., object]) -> Check:
        """Return the promise that a predicate holds in some schedule; see ``promises.sometimes``."""
        return pytest_fakecloud.sometimes(predicate)

    @staticmethod
    def follows(model: Callable[[], Any]) -> Check:
        """Return the promise that every response agrees with a model; see ``promises.follows``."""
        return pytest_fakecloud.follows(model)

    @staticmethod
    def eventually(predicate: Callable[..., object], *, within: Duration) -> Check:
        """Return the promise that a predicate holds in time; see ``promises.eventually``."""
        return pytest_fakecloud.eventually(predicate, within=within)
