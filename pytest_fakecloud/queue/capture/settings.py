"""What can be set about the receivers of the queue's deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict


class DestinationSettings(TypedDict, total=False):
    """What ``Cloud.destination()`` takes; ``Destination`` says what it means."""

    name: str | None
    """What reports and the control API call it; the fixture's name unless given."""


class CallbackCaptureSettings(DestinationSettings, total=False):
    """What ``Cloud.callback_capture()`` takes; ``CallbackCapture`` says what each means."""

    keys: Mapping[str, str] | None
    """Signing keys, by name, of a queue outside of this cloud; None: those of its own queues."""
