"""What others ask of a cloud, wherever it runs: reports, recordings, reruns, the control API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .core.clock import Clock
    from .core.found import Found
    from .core.journal import Journal
    from .core.problems import Problem
    from .handle import Gone, Handle
    from .transport.tls import Authority

__all__ = ["Fakes", "gone_of"]


class Fakes(Protocol):
    """Fakes under one clock and one seed, with what happened to them."""

    @property
    def seed(self) -> int | str:
        """What all randomness comes from."""

    @property
    def clock(self) -> Clock:
        """The clock of all fakes."""

    @property
    def journal(self) -> Journal:
        """What happened on all fakes."""

    @property
    def authority(self) -> Authority | None:
        """The authority of HTTPS, None without it."""

    @property
    def handles(self) -> Found[Handle]:
        """The open handles."""

    @property
    def _gone(self) -> Gone: ...

    @property
    def problems(self) -> Found[Problem]:
        """What a strict test would fail for."""

    def reseed(self, seed: int | str) -> None:
        """Start all randomness over from another seed."""

    def fixture_handle(self, fixture: str) -> Any:
        """The one handle of a fixture."""

    def snapshot(self) -> Any:
        """The present data of all handles."""

    def restore(self, snapshot: Any) -> None:
        """Put the data of a snapshot back."""


def gone_of(cloud: Fakes) -> Gone:
    """What is kept of handles that are closed: for reports, not for tests."""
    return cloud._gone
