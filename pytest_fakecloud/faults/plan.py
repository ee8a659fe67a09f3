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
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypedDict, Unpack

from ..core.calls import set_faults_end
from ..core.clock import Timekeeper
from ..core.errors import ContractError, shown
from ..core.field_types import check_function
from ..core.frames import code_place, is_own
from ..core.ids import RandomStream
from ..core.matching import Field
from ..core.recorder import Recorder
from ..core.settings import SWITCH, choice, number, optional, whole
from ..core.signals import Signal
from ..core.timers import Duration, duration_us, monotonic
from ..http.app import FAULTS, App
from ..http.messages import AnyResponse, ConnectionEffect, HeaderPairs, Proceed, Request
from .answers import AnswerMaker, Step, lost, no_app, truncated
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


_closing = Signal()
"""Wakes the delays of all fakes when one of them closes."""


class FaultPlan:
    """The faults of one fake, and the methods that inject them.

    Every method that injects a fault returns it as a ``Fault``. It accepts ``times``, ``skip``,
    ``route``, ``when``, and the fields of the service that calls can be filtered by. A service with
    additional kinds of faults has a subclass with more methods.
    """

    _fact_fields: Mapping[str, Field] = MappingProxyType({})
    """The facts of requests that faults can match."""
    _service_fields: ClassVar[Mapping[str, Field] | None] = None
    """The facts that the service's own faults can match, if these do not match requests."""
    _refusing = False
    """Whether the fake refuses connections, since the last change that was completed."""
    _is_changing = False
    """Whether a change of this has begun, and is not completed: its gate may have raised an exception,
    or a signal's handler may have interrupted it.
    """
    _closed = False

    def __init__(self, stream: RandomStream, clock: Timekeeper) -> None:
        self._stream = stream
        """The random stream from which faults draw."""
        self._clock = clock
        self._gate: Callable[[bool], None] | None = None
        """Makes the fake stop (True) or start (False) listening; None if it has no server."""
        self._app: Callable[[], App | None] = no_app
        """Returns the app to whose requests the faults apply. It has the plan: do not keep it alive."""
        self._answers = AnswerMaker()
        self._lock = threading.Lock()
        self._gate_lock = threading.Lock()
        self._active: tuple[Fault, ...] = ()
        """The faults that can still fire, in the order in which a request passes through them."""
        self._all: list[Fault] = []

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
        respond = self._answers.responder(status, body, headers, content_type)
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
            self._pause(real_seconds)
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
            return self._add(DownFault(self, matchers))
        respond = self._answers.responder(status)
        return self._inject("down", f"down {status}", matchers, respond)

    def up(self) -> None:
        """Remove all faults that ``down()`` injected."""
        for fault in self._active:
            if fault.kind == "down":
                self._withdraw(fault, sys._getframe(1))
        self._update_refusing()  # in case a signal's handler has interrupted an earlier change

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
        answers = self._answers
        answers.responder(status, body, headers or ())  # only to check the arguments now

        def responder(usual: HeaderPairs) -> Respond:
            return answers.responder(status, body, usual if headers is None else headers)

        return self._add(RateLimitFault(self, limit, per_us, responder, matchers))

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
        taken = itertools.cycle([self._answers.step(step) for step in listed])
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
        taken = self._answers.step(step)
        description = f"random {step} at {rate:g}"
        return self._add(RandomFault(self, rate, description, taken, matchers))

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
        return self._add(CallFault(self, function, moment, matchers))

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._active)

    def __len__(self) -> int:
        return len(self._active)

    @property
    def is_down(self) -> bool:
        """Whether ``down()`` currently refuses all connections."""
        return self._refusing

    def unused(self) -> list[Fault]:
        """Return the faults that never fired, or less often than planned."""
        return [fault for fault in self._all if fault._used < fault._planned]

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            removed = self._active
            self._activate(())
            self._all.clear()
        for fault in removed:
            fault._end()
        self._update_refusing()
        self._record_change("clear_faults", sys._getframe(1))

    # -- for this package ------------------------------------------------------------------------

    def _attach(self, app: App, gate: Callable[[bool], None] | None = None) -> None:
        """Apply the faults to the requests of an app, whose names, error format and facts they use."""
        self._fact_fields = app.fact_fields
        self._gate = gate
        with self._lock:
            active = self._active
            if active:
                self._activate(())  # Leave the chain of the former app.
            self._app = self._answers.app = weakref.ref(app)
            if active:
                self._activate(active)

    def _close(self) -> None:
        """End all delays that are in progress, and all later ones."""
        self._gate = None
        self._closed = True
        _closing.notify()

    def _without_effect(self) -> Self:
        """Return a copy whose methods check their arguments and inject nothing."""
        trial = copy(self)
        trial._add = lambda fault: fault  # type: ignore[method-assign]
        return trial

    def _kept(self) -> list[Fault]:
        """Return the faults that were not removed, also those that cannot fire any more."""
        return [fault for fault in self._all if not fault._removed]

    def _inject(
        self,
        kind: str,
        description: str,
        matchers: Mapping[str, Any],
        respond: Respond,
        level: int = REPLACE,
    ) -> Fault:
        return self._add(Fault(self, kind, description, matchers, respond, level))

    def _add(self, fault: Fault) -> Fault:
        app = self._app()
        if app is not None:
            app.catch_up()  # Requests that have arrived before are not affected.
        with self._lock:
            self._activate(sorted((*self._active, fault), key=lambda fault: fault._level))
            self._all.append(fault)
        self._update_refusing()
        # The caller is behind the methods of this class and of a service's subclass.
        own = {cls.__module__ for cls in type(self).__mro__}
        caller: FrameType = sys._getframe(1)
        while is_own(caller) and caller.f_globals["__name__"] in own and caller.f_back is not None:
            caller = caller.f_back
        self._record_change("add_fault", caller, fault=fault.description, arguments=fault._limits)
        return fault

    def _withdraw(self, fault: Fault, caller: FrameType) -> None:
        """Remove a fault, and record this if the test did."""
        with self._lock:
            fault._end()
            self._retire(fault)
        self._update_refusing()
        self._record_change("remove_fault", caller, fault=fault.description)

    def _record_change(self, kind: str, caller: FrameType, **data: object) -> None:
        """Record for reports that the test, not this package, changed a fault."""
        recorder = self._recorder()
        if recorder is not None and not is_own(caller):
            recorder.record_action(kind, code_place(caller), recorder.reserve(), None, data)

    def _recorder(self) -> Recorder | None:
        return getattr(self._app(), "recorder", None)

    def _step_aside(self) -> None:
        """Let other requests overtake that of this thread."""
        app = self._app()
        if app is not None:
            app.step_aside()

    def _pause(self, seconds: float) -> None:
        """Wait for the given real seconds, or until the fake closes."""
        self._step_aside()
        deadline = monotonic() + seconds
        while (remaining := deadline - monotonic()) > 0:
            seen = _closing.version
            if self._closed:
                return
            _closing.sleep(seen, remaining)

    def _claim(
        self, kind: str, subject: Any, fits: Callable[[Any], bool] = lambda fault: True
    ) -> Fault | None:
        """Count a hit of the first fault of a service's kind that fires on a subject; return it.

        ``fits`` returns whether a fault applies to the subject, apart from its matchers. The
        subject's ``call`` has ``facts``, ``route``, ``method``, ``path`` and ``fault``.
        """
        for fault in self._active:
            if fault.kind == kind and fits(fault) and self._fires(fault, subject):
                return fault
        return None

    def _intercept(self, request: Request, proceed: Proceed) -> AnyResponse:
        """Return the response to a request from the active faults or ``proceed()``: the interceptor of
        the app's chain.
        """
        try:
            return self._pass(self._active, request, proceed)
        finally:
            recorder = self._recorder()
            if recorder is not None:
                set_faults_end(request.call, recorder.reserve())

    def _pass(self, faults: Sequence[Fault], request: Request, proceed: Proceed) -> AnyResponse:
        """Return the response of the first of these faults that fires, around that of the later ones."""
        for index, fault in enumerate(faults):
            if fault._is_of_service or not fault._applies_to(request):
                continue
            if self._fires(fault, request):
                later = partial(self._pass, faults[index + 1 :], request, proceed)
                return fault._respond_to(request, later)
        return proceed()

    def _fires(self, fault: Fault, request: Any) -> bool:
        """Fire a fault on a matching request if it is its turn, and record this in the request's call;
        return whether it has fired. The caller then applies its effect.
        """
        # Call the predicate without the lock, because it is the test's code and may read the plan.
        if not fault.active or not fault._matches(request):
            return False
        with self._lock:
            if not fault._count():
                return False
            if not fault.active:
                self._retire(fault)
        fault._note_on(request.call)
        return True

    def _retire(self, fault: Fault) -> None:
        self._activate(active for active in self._active if active is not fault)

    def _activate(self, faults: Iterable[Fault]) -> None:
        """Set the faults that can fire. The app's chain contains the plan only while there are any."""
        self._active = tuple(faults)
        app = self._app()
        if app is None:
            return
        if not self._active:
            app.chain.remove(self._intercept)
        elif self._intercept not in app.chain:
            app.chain.add(FAULTS, self._intercept)

    def _update_refusing(self) -> None:
        if not self._is_unsettled():
            return
        # Call the gate with a lock and check again afterwards: two threads may change the faults.
        with self._gate_lock:
            while self._gate is not None and self._is_unsettled():
                self._is_changing, down = True, self._must_refuse()
                self._gate(down)
                self._refusing, self._is_changing = down, False

    def _is_unsettled(self) -> bool:
        return self._is_changing or self._must_refuse() is not self._refusing

    def _must_refuse(self) -> bool:
        return any(fault._refuses_all for fault in self._active)


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
