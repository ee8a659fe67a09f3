"""Entries of the journal, and requests to the application, with credentials masked by a `Mask`."""

from __future__ import annotations

from typing import NewType

from ..core.calls import Action, Call, Event
from ..process.applications import ServedRequest

MaskedCall = NewType("MaskedCall", Call)
MaskedEvent = NewType("MaskedEvent", Event)
MaskedAction = NewType("MaskedAction", Action)
MaskedRequest = NewType("MaskedRequest", ServedRequest)
