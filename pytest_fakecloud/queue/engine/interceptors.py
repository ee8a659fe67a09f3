"""The interceptors of deliveries, which are around them in a chain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from ..model import Deliver, DeliveryInterceptor, Exchange, Outcome, Perform


class Interceptors:
    """The interceptors of an engine. ``all`` are outermost first, ``faults`` those of them that inject
    faults. ``perform`` makes the request of a delivery.
    """

    def __init__(self, perform: Perform) -> None:
        self._perform = perform
        self.replace(())

    def replace(self, interceptors: Sequence[DeliveryInterceptor]) -> None:
        self.all = interceptors
        self.faults = [
            interceptor
            for interceptor in interceptors
            if type(interceptor).active is not DeliveryInterceptor.active
        ]

    def around(self, deliver: Callable[..., Awaitable[Outcome]]) -> Deliver:
        """Return the whole chain, with a function of the engine between the interceptors."""
        around = [
            interceptor
            for interceptor in self.all
            if type(interceptor).deliver is not DeliveryInterceptor.deliver
        ]
        outer = [interceptor.deliver for interceptor in around if interceptor.encloses_engine]
        inner = [interceptor.deliver for interceptor in around if not interceptor.encloses_engine]
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
