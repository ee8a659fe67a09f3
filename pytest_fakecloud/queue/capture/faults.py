"""Injected faults for one of the two URLs of a callback capture: that of callbacks or that of
failure callbacks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...core.errors import ContractError
from ...core.wording import unknown_name
from ...faults.fault import rule_of
from ...faults.plan import fault_words

if TYPE_CHECKING:
    from ...faults.fault import Fault
    from ..delivery.destination_server import Destination


class ScopedFaults:
    """The fault plan for one of a capture's two URLs, with the methods of ``FaultPlan``.

    Methods that list or end faults apply to the faults of this URL and to those of the whole
    capture, but not to the faults of the other URL.
    """

    def __init__(self, capture: Destination, route: str) -> None:
        self._capture = capture
        self._route = route

    def __getattr__(self, word: str) -> Callable[..., Fault]:
        if word not in (words := fault_words(type(self._capture.faults))):
            raise AttributeError(unknown_name("fault", word, words))
        return functools.partial(self._prepare, getattr(self._capture.faults, word))

    def _prepare(self, method: Callable[..., Fault], *args: Any, **kwargs: Any) -> Fault:
        if kwargs.get("route", self._route) != self._route:
            raise ContractError(
                f"these faults are for /{self._route} only: remove route={kwargs['route']!r}, or"
                f" use the faults of {self._capture.name}"
            )
        return method(*args, **{**kwargs, "route": self._route})

    def _applies(self, fault: Fault) -> bool:
        return rule_of(fault).route in (None, self._route)

    @property
    def _active(self) -> tuple[Fault, ...]:
        return tuple(fault for fault in self._capture.faults if self._applies(fault))

    @property
    def is_down(self) -> bool:
        """Whether a ``down()`` fault makes this URL unreachable."""
        return any(fault.kind == "down" for fault in self._active)

    def unused(self) -> list[Fault]:
        """Return the faults that have not been applied to any request."""
        return [fault for fault in self._capture.faults.unused() if self._applies(fault)]

    def up(self) -> None:
        """End every ``down()`` fault that applies to this URL."""
        for fault in self._active:
            if fault.kind == "down":
                fault.remove()

    def clear(self) -> None:
        """Remove the faults and forget which of them were not used."""
        for fault in {*self._active, *self.unused()}:
            rule_of(fault).must_fire = False
            fault.remove()

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._active)

    def __len__(self) -> int:
        return len(self._active)

    def __bool__(self) -> bool:
        return bool(self._active)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *fault_words(type(self._capture.faults))})

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self._active)) or "none"
        return f"<faults of /{self._route}: {shown}>"
