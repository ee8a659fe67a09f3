"""The kinds of faults that need more than a function."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..core.errors import ContractError, shown
from ..core.field_types import positional_parameters
from ..http.messages import Answer, AnyResponse, HeaderPairs, Request, Serve
from .answers import Response
from .fault import WAIT, Respond, Rule

if TYPE_CHECKING:
    from .table import FaultTable


class RandomRule(Rule):
    """Applies a step to a random share of the requests.

    Decided here: strict mode requires as many draws as hits are planned, because chance may prevent
    hits, and too few requests are a mistake of the test.
    """

    deed = "was drawn"

    def __init__(
        self,
        table: FaultTable,
        rate: float,
        step: Respond,
        description: str,
        matchers: Mapping[str, Any],
    ) -> None:
        super().__init__(table, "random", description, matchers, step)
        self._rate = rate
        self._stream = table.stream
        self._draws = 0

    @property
    def used(self) -> int:
        return self._draws

    def decide(self) -> bool:
        self._draws += 1
        return self._stream.random() < self._rate


class RateLimitRule(Rule):
    """Lets a number of requests pass in each period of the fake's clock."""

    def __init__(
        self,
        table: FaultTable,
        requests: int,
        per_us: int,
        responder: Callable[[HeaderPairs], Respond],
        matchers: Mapping[str, Any],
    ) -> None:
        super().__init__(
            table, "rate_limit", f"rate_limit {requests} per {per_us / 1e6:g} s", matchers
        )
        self._limit = requests
        self._per_us = per_us
        self._responder = responder
        self._end_us = table.clock.now_us()
        self._used = 0

    def decide(self) -> bool:
        now = self.table.clock.now_us()
        if now >= self._end_us:
            self._end_us = now + self._per_us
            self._used = 0
        self._used += 1
        return self._used > self._limit

    def apply(self, request: Request, serve: Serve) -> AnyResponse:
        seconds = str(max(1, math.ceil((self._end_us - self.table.clock.now_us()) / 1_000_000)))
        limit = ("RateLimit-Limit", str(self._limit)), ("RateLimit-Remaining", "0")
        headers = [("Retry-After", seconds), *limit, ("RateLimit-Reset", seconds)]
        return self._responder(headers)(serve)


class CallRule(Rule):
    """Calls the test's function before or after the endpoint."""

    def __init__(
        self,
        table: FaultTable,
        function: Callable[..., object],
        moment: Literal["before", "after"],
        matchers: Mapping[str, Any],
    ) -> None:
        self._name = getattr(function, "__name__", type(function).__name__)
        super().__init__(table, "call", f"call {self._name} {moment}", matchers, order=WAIT)
        self._function = function
        self._moment = moment
        self._takes_request = bool(positional_parameters(function))

    @property
    def applied(self) -> dict[str, str]:
        return {**super().applied, "function": self._name, "moment": self._moment}

    def apply(self, request: Request, serve: Serve) -> AnyResponse:
        if self._moment == "before":
            given = self._run(request)
            return serve() if given is None else given
        response = serve()
        if isinstance(response, Answer):
            request.call.status = response.status
        given = self._run(request)
        return response if given is None else given

    def _run(self, request: Request) -> AnyResponse | None:
        """Call the function; return the response with which it replaces the endpoint's, or None."""
        try:
            result = self._function(request) if self._takes_request else self._function()
        except Exception as error:
            raise ContractError(f"the function of {shown(self)} failed: {shown(error)}") from error
        if inspect.iscoroutine(result):
            result.close()
            raise ContractError(
                f"the function of {shown(self)} must be awaited: pass a plain function"
            )
        if not isinstance(result, Response):
            return None
        try:
            return self.table.answers.prepared(result)
        except ContractError as error:
            raise ContractError(f"the response of {shown(self)}: {error}") from error
