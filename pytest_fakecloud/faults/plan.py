"""The faults of a fake: the methods with which tests inject them, and the order in which they apply.

Faults apply between authentication and the endpoint. A request passes through every matching fault,
level by level: faults that delay it or call the test's code, that break the connection before the
engine, that damage the response, and that respond instead of the endpoint. Faults of the same level
apply in the order they were added, so ``respond(503, times=1)`` followed by ``respond(429)`` gives
one 503 and then 429s.

Over the Redis protocol, a request is a command. A fault skips the commands of a client's handshake
(``App.is_handshake()``) unless it names commands.
"""

from __future__ import annotations

import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict, Unpack

from ..core.calls import HeaderPairs
from ..core.clock import Timekeeper
from ..core.errors import ContractError, shown
from ..core.field_types import check_function
from ..core.frames import is_own
from ..core.ids import RandomStream
from ..core.matching import Field
from ..core.settings import SWITCH, choice, number, optional, whole
from ..core.timers import Duration, duration_us
from ..http.messages import AnyResponse, ConnectionEffect, Proceed
from .answers import Step, lost, truncated
from .fault import (
    CUT,
    REPLACE,
    SPOIL,
    WAIT,
    CallFault,
    DownFault,
    Fault,
    RandomFault,
    RateLimitFault,
    Respond,
)
from .injector import Injector

if TYPE_CHECKING:

    class ServiceMatchers(TypedDict, total=False):
        """The keywords that every fault accepts, also one that applies to no requests.

        ``times`` is the number of hits after which the fault ends (a strict test fails if there
        were fewer), ``skip`` the number of matching requests that are let through first, ``when`` a
        predicate on the ``Request`` (its ``call`` has the facts) or on what else a service's fault
        applies to. See ``core.matching``.
        """

        times: int | None
        skip: int
        when: Callable[[Any], object] | None

    class Matchers(ServiceMatchers, total=False):
        """The keywords of faults of requests; the facts of a service are in its stub in ``_typing/``.

        ``route`` is an endpoint's name, path or ``"POST /path"``.
        """

        route: str | re.Pattern[str] | None


class FaultPlan:
    """The faults of one fake, and the methods that inject them.

    Every method that injects a fault returns it as a ``Fault``. It accepts ``times``, ``skip``,
    ``route``, ``when``, and the fields of the service that calls can be filtered by. A service with
    additional kinds of faults has a subclass with more methods.
    """

    _service_fields: ClassVar[Mapping[str, Field] | None] = None
    """The facts that the service's own faults can match, if these do not match requests."""

    def __init__(self, stream: RandomStream, clock: Timekeeper) -> None:
        self._injector = Injector(stream, clock, self._service_fields)

    def _is_possible(self, kind: str) -> bool:
        """Return whether the fake's settings allow a kind of fault."""
        return True

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
        respond = self._injector.answers.responder(status, body, headers, content_type)
        return self._inject("respond", f"respond {status}", matchers, respond)

    def drop(self, *, reset: bool = False, **matchers: Unpack[Matchers]) -> Fault:
        """Close the connection before the engine is reached; with ``reset=True``, by a TCP reset."""
        effect = ConnectionEffect("drop", reset=SWITCH.read("reset", reset))
        return self._inject("drop", "drop", matchers, lambda proceed: effect, CUT)

    def lose_response(self, *, reset: bool = False, **matchers: Unpack[Matchers]) -> Fault:
        """Let the engine process the request, then close the connection without a response."""
        SWITCH.read("reset", reset)
        kind = "lose_response"
        return self._inject(kind, kind, matchers, lambda proceed: lost(proceed(), reset), SPOIL)

    def delay(self, duration: Duration, **matchers: Unpack[Matchers]) -> Fault:
        """Delay the request in real time, before any other fault or the endpoint is applied."""
        real_seconds = duration_us(duration) / 1e6

        def respond(proceed: Proceed) -> AnyResponse:
            self._injector.pause(real_seconds)
            return proceed()

        return self._inject("delay", f"delay {real_seconds:g} s", matchers, respond, WAIT)

    def hang(self, **matchers: Unpack[Matchers]) -> Fault:
        """Never respond: keep the connection open until either side closes it, at most a minute."""
        return self._inject("hang", "hang", matchers, lambda proceed: ConnectionEffect("hang"), CUT)

    def truncate(self, keep: int | None = None, **matchers: Unpack[Matchers]) -> Fault:
        """Announce the whole response, send ``keep`` bytes of its body (default: half), and close.

        For a stream, ``keep`` is the number of chunks (default: one).
        """
        optional(whole(0)).read("keep", keep)
        kind = "truncate"
        return self._inject(kind, kind, matchers, lambda proceed: truncated(proceed(), keep), SPOIL)

    def down(self, status: int | None = None, **matchers: Unpack[Matchers]) -> Fault:
        """Make the service unavailable until ``up()``: refuse connections and close the open ones.

        With ``status``, every request gets a response with that status instead. With matchers, only
        the connections of matching requests are reset.
        """
        if status is None:
            return self._add(DownFault(self._injector, matchers))
        respond = self._injector.answers.responder(status)
        return self._inject("down", f"down {status}", matchers, respond)

    def up(self) -> None:
        """Remove all faults that ``down()`` injected."""
        for fault in self._injector.active:
            if fault.kind == "down":
                self._injector.withdraw(fault, sys._getframe(1))
        self._injector.update_refusing()  # in case a signal's handler has interrupted an earlier change

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
        answers = self._injector.answers
        answers.responder(status, body, headers or ())  # only to check the arguments now

        def responder(usual: HeaderPairs) -> Respond:
            return answers.responder(status, body, usual if headers is None else headers)

        return self._add(RateLimitFault(self._injector, limit, per_us, responder, matchers))

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
        taken = itertools.cycle([self._injector.answers.step(step) for step in listed])
        if matchers.get("times") is None:
            matchers["times"] = len(listed)
        return self._inject(
            "sequence", f"sequence [{names}]", matchers, lambda proceed: next(taken)(proceed)
        )

    def random(self, rate: float, step: Step = 503, **matchers: Unpack[Matchers]) -> Fault:
        """Apply the step with probability ``rate``; the test's seed determines which requests.

        Strict mode requires that at least ``times`` requests match, not that the step is applied to
        them.
        """
        rate = number(0, 1).read("rate", rate)
        taken = self._injector.answers.step(step)
        description = f"random {step} at {rate:g}"
        return self._add(RandomFault(self._injector, rate, description, taken, matchers))

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
        return self._add(CallFault(self._injector, function, moment, matchers))

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._injector.active)

    def __len__(self) -> int:
        return len(self._injector.active)

    @property
    def is_down(self) -> bool:
        """Whether ``down()`` currently refuses all connections."""
        return self._injector.is_refusing

    def unused(self) -> list[Fault]:
        """Return the faults that never fired, or less often than planned."""
        return [fault for fault in self._injector.all if fault._used < fault._planned]

    def clear(self) -> None:
        """Remove all faults."""
        self._injector.clear(sys._getframe(1))

    # -- for the methods that inject faults --------------------------------------------------------

    def _inject(
        self,
        kind: str,
        description: str,
        matchers: Mapping[str, Any],
        respond: Respond,
        level: int = REPLACE,
    ) -> Fault:
        return self._add(Fault(self._injector, kind, description, matchers, respond, level))

    def _add(self, fault: Fault) -> Fault:
        # The caller is behind the methods of this class and of a service's subclass.
        own = {cls.__module__ for cls in type(self).__mro__}
        caller: FrameType = sys._getframe(1)
        while is_own(caller) and caller.f_globals["__name__"] in own and caller.f_back is not None:
            caller = caller.f_back
        self._injector.add(fault, caller)
        return fault


def injector_of(plan: FaultPlan) -> Injector:
    """Return what applies the faults of a plan."""
    return plan._injector


def without_effect(plan: FaultPlan) -> FaultPlan:
    """Return a copy of a plan whose methods check their arguments and inject nothing."""
    trial = copy(plan)
    trial._add = lambda fault: fault  # type: ignore[method-assign]
    return trial


def fault_words(kind: type[FaultPlan]) -> list[str]:
    """Return the sorted names of the methods that inject a fault."""
    return sorted(
        name
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if method.__annotations__.get("return") == "Fault" and not name.startswith("_")
    )


def possible_kinds(plan: FaultPlan) -> list[str]:
    """Return the kinds of faults that the settings of a plan's fake allow, except ``call()``."""
    return [kind for kind in fault_kinds(type(plan)) if plan._is_possible(kind)]


def fault_kinds(plan: type[FaultPlan]) -> list[str]:
    """Return the methods of a plan that inject a fault, except ``call()``, which takes a function."""
    return [name for name in fault_words(plan) if name != "call"]
