"""The interceptors of deliveries, which are around them in a chain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from ...core.registry import Registry
from ..model import Deliver, DeliveryInterceptor, Exchange, FaultDecisions, Outcome, Perform


class Interceptors:
    """The interceptors of an engine. ``all`` are outermost first, ``faults`` decide about faults.
    ``perform`` makes the request of a delivery.
    """

    def __init__(self, perform: Perform) -> None:
        self._perform = perform
        self.all: Sequence[DeliveryInterceptor] = ()
        self.faults: Registry[FaultDecisions] = Registry()

    def clear(self) -> None:
        self.all = self.faults.items = ()

    def around(self, deliver: Callable[..., Awaitable[Outcome]]) -> Deliver:
        """Return the whole chain, with a function of the engine between the interceptors."""
        outer = [interceptor.deliver for interceptor in self.all if interceptor.encloses_engine]
        inner = [interceptor.deliver for interceptor in self.all if not interceptor.encloses_engine]
        chain: Deliver = self.send
        parts: list[Any] = [*outer, deliver, *inner]
        for part in reversed(parts):
            chain = partial(part, proceed=chain)
        return chain

    async def send(self, exchange: Exchange) -> Outcome:
        """Send the request: the innermost part of the chain. It waits only in ``run_async()``."""
        if exchange.error is not None:
            raise exchange.error
        return await self._perform(exchange.delivery, exchange.in_loop)
