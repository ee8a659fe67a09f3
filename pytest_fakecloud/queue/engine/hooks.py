"""Hooks that an engine calls during deliveries, for reports and for injected faults."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..model import Attempt, Delivery, Kind, Message, Outcome, RejectedStep


class AttemptHooks:
    """Hooks that report attempts and errors that no caller receives. These defaults report nothing."""

    def delivering(self, delivery: Delivery) -> AbstractContextManager[None]:
        """Return a context manager for a delivery and, if a fault demands one, its duplicate."""
        return nullcontext()

    def before_outcome(self, delivery: Delivery, outcome: Outcome) -> None:
        """Report an outcome before it is applied, so before a test can observe the new state."""

    def after_attempt(
        self, message: Message, attempt: Attempt, delivery: Delivery, outcome: Outcome
    ) -> None:
        """Report a finished attempt. An exception is raised by the call that delivers."""

    def endless_loop(self, text: str) -> None:
        """Report messages that publish each other endlessly in the background."""

    def rejected_step(self, step: RejectedStep) -> None:
        """Report a step of a workflow run that was rejected without an error response."""

    def no_workflow(self, run_id: str, url: str, status: int) -> None:
        """Report that a workflow run was triggered at a URL that does not serve a workflow."""


class DeliveryHooks:
    """Hooks that injected faults use to change deliveries. These defaults change nothing.

    The engine does not call the hooks while ``active`` is empty.
    """

    active: tuple[Any, ...] = ()

    def before(self, message: Message, delivery: Delivery) -> tuple[str, ...]:
        """Return the names of the faults that apply to a delivery."""
        return ()

    def callback(self, message: Message, kind: Kind, url: str) -> bool:
        """Return whether a fault drops a callback before it is published."""
        return False

    def overtaken(self, message: Message) -> bool:
        """Return whether a fault lets other messages overtake this one."""
        return False
