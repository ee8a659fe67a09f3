"""Entries of the journal, and requests to the application, with credentials masked by a `Mask`.

The words of a raw call, for the story of an exploration, are made by the same functions (`summarise()`).
A `Call`, an `Event` or an `Action` may be raw or masked: what is made from it is masked later, or has no
credentials.
"""

from __future__ import annotations

from typing import NewType

from ..core.calls import Action, Call, Event
from ..process.applications import ServedRequest

MaskedCall = NewType("MaskedCall", Call)
MaskedEvent = NewType("MaskedEvent", Event)
MaskedAction = NewType("MaskedAction", Action)
MaskedRequest = NewType("MaskedRequest", ServedRequest)
