"""The methods with which tests inject faults; the module ``table`` defines their order."""

from __future__ import annotations

import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from ..core.errors import ContractError, shown
from ..core.field_types import check_function
from ..core.recorder import is_own
from ..core.settings import SWITCH, choice, number, optional, whole
from ..core.timers import Duration, duration_us
from ..http.messages import AnyResponse, Effect, HeaderPairs, Serve
from .answers import Step, lost, truncated
from .table import (
    CUT,
    REPLACE,
    SPOIL,
    WAIT,
    CallFault,
    DownFault,
    Fault,
    FaultTable,
    RandomFault,
    RateLimitFault,
    Respond,
)

if TYPE_CHECKING:

    class Matchers(TypedDict, total=False):
        """The keywords that every fault accepts; the facts of a service are in its ``typed.pyi``.

        ``times`` is the number of hits after which the fault ends (a strict test fails if there
        were fewer), ``skip`` the number of matching requests that are let through first, ``route``
        an endpoint's name, path or ``"POST /path"``, ``when`` a predicate on the ``Request`` (its
        ``call`` has the facts). See ``core.matching``.
        """

        times: int | None
        skip: int
        route: str | re.Pattern[str] | None
        when: Callable[[Any], object] | None


class FaultPlan:
    """The faults of one fake, and the methods that inject them.

    Every method that injects a fault returns it as a ``Fault``. It accepts ``times``, ``skip``,
    ``route``, ``when``, and the fields of the service that calls can be filtered by. A service with
    additional kinds of faults has a subclass with more methods.
    """

    def __init__(self, table: FaultTable) -> None:
        self._table = table

    def respond(
        self,
        status: int,
        body: object = None,
        *,
        headers: HeaderPairs | Mapping[str, str] = (),
        content_type: str | None = None,
        **matchers: Unpack[Matchers],
    ) -> Fault:
        """Respond instead of the endpoint; the engine is not reached.

        Without a body the response has the service's error format. ``bytes`` and ``str`` are sent
        unchanged, anything else as JSON.
        """
        respond = self._table.answers.responder(status, body, headers, content_type)
        return self._inject("respond", f"respond {status}", matchers, respond)

    def drop(self, *, reset: bool = False, **matchers: Unpack[Matchers]) -> Fault:
        """Close the connection before the engine is reached; with ``reset=True``, by a TCP reset."""
        effect = Effect("drop", reset=SWITCH.read("reset", reset))
        return self._inject("drop", "drop", matchers, lambda serve: effect, CUT)

    def lose_response(self, *, reset: bool = False, **matchers: Unpack[Matchers]) -> Fault:
        """Let the engine process the request, then close the connection without a response."""
        SWITCH.read("reset", reset)
        kind = "lose_response"
        return self._inject(kind, kind, matchers, lambda serve: lost(serve(), reset), SPOIL)

    def delay(self, duration: Duration, **matchers: Unpack[Matchers]) -> Fault:
        """Delay the request in real time, before any other fault or the endpoint is applied."""
        real_seconds = duration_us(duration) / 1e6

        def respond(serve: Serve) -> AnyResponse:
            self._table.pause(real_seconds)
            return serve()

        return self._inject("delay", f"delay {real_seconds:g} s", matchers, respond, WAIT)

    def hang(self, **matchers: Unpack[Matchers]) -> Fault:
        """Never respond: keep the connection open until either side closes it, at most a minute."""
        return self._inject("hang", "hang", matchers, lambda serve: Effect("hang"), CUT)

    def truncate(self, keep: int | None = None, **matchers: Unpack[Matchers]) -> Fault:
        """Announce the whole response, send ``keep`` bytes of its body (default: half), and close.

        For a stream, ``keep`` is the number of chunks (default: one).
        """
        optional(whole(0)).read("keep", keep)
        kind = "truncate"
        return self._inject(kind, kind, matchers, lambda serve: truncated(serve(), keep), SPOIL)

    def down(self, status: int | None = None, **matchers: Unpack[Matchers]) -> Fault:
        """Make the service unavailable until ``up()``: refuse connections and close the open ones.

        With ``status``, every request gets a response with that status instead. With matchers, only
        the connections of matching requests are reset.
        """
        if status is None:
            return self._add(DownFault(self._table, matchers))
        respond = self._table.answers.responder(status)
        return self._inject("down", f"down {status}", matchers, respond)

    def up(self) -> None:
        """Remove all faults that ``down()`` injected."""
        for fault in self._table.active:
            if fault.kind == "down":
                self._table.withdraw(fault, sys._getframe(1))

    def rate_limit(
        self,
        requests: int,
        per: Duration = 60,
        *,
        status: int = 429,
        body: object = None,
        headers: HeaderPairs | Mapping[str, str] | None = None,
        **matchers: Unpack[Matchers],
    ) -> Fault:
        """Accept ``requests`` matching requests in each period of the fake's clock; reject others.

        A period starts with the first request after the previous period ended. Without ``headers``
        the rejection has ``Retry-After`` and ``RateLimit-Limit``/``-Remaining``/``-Reset`` in
        seconds.
        """
        limit = whole(0).read("requests", requests)
        per_us = duration_us(per)
        if not per_us:
            raise ContractError(f"per={shown(per)} is not a period: pass a positive duration")
        answers = self._table.answers
        answers.responder(status, body, headers or ())  # only to check the arguments now

        def responder(usual: HeaderPairs) -> Respond:
            return answers.responder(status, body, usual if headers is None else headers)

        return self._add(RateLimitFault(self._table, limit, per_us, responder, matchers))

    def sequence(self, steps: Iterable[Step], **matchers: Unpack[Matchers]) -> Fault:
        """Apply the steps in turn, one to each matching request: ``[503, None, 429, "drop"]``.

        After the last step requests are served normally; a larger ``times=`` repeats the steps.
        """
        if isinstance(steps, str | bytes) or not isinstance(steps, Iterable):
            raise ContractError(
                f"{shown(steps)} are not steps: pass a list such as [503, None, 429]"
            )
        listed = list(steps)
        if not listed:
            raise ContractError("sequence() needs at least one step: pass e.g. [503, None, 429]")
        names = ", ".join("ok" if step is None else str(step) for step in listed)
        taken = itertools.cycle([self._table.answers.step(step) for step in listed])
        if matchers.get("times") is None:
            matchers["times"] = len(listed)
        return self._inject(
            "sequence", f"sequence [{names}]", matchers, lambda serve: next(taken)(serve)
        )

    def random(self, rate: float, step: Step = 503, **matchers: Unpack[Matchers]) -> Fault:
        """Apply the step with probability ``rate``; the test's seed determines which requests.

        Strict mode requires that at least ``times`` requests match, not that the step is applied to
        them.
        """
        rate = number(0, 1).read("rate", rate)
        taken = self._table.answers.step(step)
        description = f"random {step} at {rate:g}"
        return self._add(RandomFault(self._table, rate, description, taken, matchers))

    def call(
        self,
        function: Callable[..., object],
        moment: Literal["before", "after"] = "before",
        **matchers: Unpack[Matchers],
    ) -> Fault:
        """Call the test's function before or after the endpoint, in the request's thread.

        The function may take the request, and return a ``Response`` that replaces the endpoint's.
        """
        check_function(function, "to call()")
        choice("before", "after").read("moment", moment)
        return self._add(CallFault(self._table, function, moment, matchers))

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._table.active)

    def __len__(self) -> int:
        return len(self._table.active)

    @property
    def is_down(self) -> bool:
        """Whether ``down()`` currently refuses all connections."""
        return self._table.refusing

    def unused(self) -> list[Fault]:
        """Return the faults that never fired, or less often than planned."""
        return self._table.unused()

    def clear(self) -> None:
        """Remove all faults."""
        self._table.clear()
        self._table.record_change("clear_faults", sys._getframe(1))

    def _inject(
        self,
        kind: str,
        description: str,
        matchers: Mapping[str, Any],
        respond: Respond,
        order: int = REPLACE,
    ) -> Fault:
        return self._add(Fault(self._table, kind, description, matchers, respond, order))

    def _add(self, fault: Fault) -> Fault:
        self._table.add(fault)
        # The caller is behind the methods of this class and of a service's subclass.
        own = {cls.__module__ for cls in type(self).__mro__}
        caller: FrameType = sys._getframe(1)
        while is_own(caller) and caller.f_globals["__name__"] in own and caller.f_back is not None:
            caller = caller.f_back
        self._table.record_change(
            "add_fault", caller, fault=fault.description, arguments=fault._limits
        )
        return fault


def table_of(plan: FaultPlan) -> FaultTable:
    return plan._table


def fault_words(kind: type[FaultPlan]) -> list[str]:
    """Return the sorted names of the methods that inject a fault."""
    return sorted(
        name
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if method.__annotations__.get("return") == "Fault" and not name.startswith("_")
    )


def fault_kinds(plan: type[FaultPlan]) -> list[str]:
    """Return the methods of a plan that inject a fault, except ``call()``, which takes a function."""
    return [name for name in fault_words(plan) if name != "call"]
