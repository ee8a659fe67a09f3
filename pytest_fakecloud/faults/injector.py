"""The injector of a fake: it has the faults that a test injects, and applies them to requests."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, Any

from ..core.calls import set_faults_end
from ..core.clock import Timekeeper
from ..core.frames import code_place, is_own
from ..core.ids import RandomStream
from ..core.matching import Field
from ..core.recorder import Recorder
from ..core.signals import Signal
from ..core.threads import step_aside
from ..core.timers import monotonic
from ..http.app import FAULTS, App
from ..http.messages import AnyResponse, Proceed, Request
from .answers import AnswerMaker, no_app

if TYPE_CHECKING:
    from .fault import Fault

_closing = Signal()
"""Wakes the delays of all fakes when one of them closes."""


class Injector:
    """The faults of one fake, as the fake and its service use them. Tests use the ``FaultPlan`` that
    holds it.
    """

    fact_fields: Mapping[str, Field] = MappingProxyType({})
    """The facts of requests that faults can match."""
    is_refusing = False
    """Whether the fake refuses connections, since the last change that was completed."""
    _is_changing = False
    """Whether a change of this has begun, and is not completed: its gate may have raised an exception,
    or a signal's handler may have interrupted it.
    """
    _closed = False

    def __init__(
        self,
        stream: RandomStream,
        clock: Timekeeper,
        service_fields: Mapping[str, Field] | None = None,
    ) -> None:
        self.stream = stream
        """The random stream from which faults draw."""
        self.clock = clock
        self.service_fields = service_fields
        """The facts that the service's own faults can match, if these do not match requests."""
        self.gate: Callable[[bool], None] | None = None
        """Makes the fake stop (True) or start (False) listening; None if it has no server."""
        self.app: Callable[[], App | None] = no_app
        """Returns the app to whose requests the faults apply. It has the injector: do not keep it
        alive.
        """
        self.answers = AnswerMaker()
        self._lock = threading.Lock()
        self._gate_lock = threading.Lock()
        self.active: tuple[Fault, ...] = ()
        """The faults that can still fire, in the order in which a request passes through them."""
        self.all: list[Fault] = []
        """All faults since the last ``clear()``."""

    def attach(self, app: App, gate: Callable[[bool], None] | None = None) -> None:
        """Apply the faults to the requests of an app, whose names, error format and facts they use."""
        self.fact_fields = app.fact_fields
        self.gate = gate
        with self._lock:
            active = self.active
            if active:
                self._activate(())  # Leave the chain of the former app.
            self.app = self.answers.app = weakref.ref(app)
            if active:
                self._activate(active)

    def close(self) -> None:
        """End all delays that are in progress, and all later ones."""
        self.gate = None
        self._closed = True
        _closing.notify()

    # -- changes ---------------------------------------------------------------------------------

    def add(self, fault: Fault, caller: FrameType) -> None:
        """Inject a fault for a caller."""
        app = self.app()
        if app is not None:
            app.catch_up()  # Requests that have arrived before are not affected.
        with self._lock:
            self._activate(sorted((*self.active, fault), key=lambda fault: fault._level))
            self.all.append(fault)
        self.update_refusing()
        self._record_change("add_fault", caller, fault=fault.description, arguments=fault._limits)

    def withdraw(self, fault: Fault, caller: FrameType) -> None:
        """Remove a fault, and record this if the test did."""
        with self._lock:
            fault._end()
            self._retire(fault)
        self.update_refusing()
        self._record_change("remove_fault", caller, fault=fault.description)

    def clear(self, caller: FrameType) -> None:
        """Remove all faults."""
        with self._lock:
            removed = self.active
            self._activate(())
            self.all.clear()
        for fault in removed:
            fault._end()
        self.update_refusing()
        self._record_change("clear_faults", caller)

    def kept(self) -> list[Fault]:
        """Return the faults that were not removed, also those that cannot fire any more."""
        return [fault for fault in self.all if not fault._removed]

    def _record_change(self, kind: str, caller: FrameType, **data: object) -> None:
        """Record for reports that the test, not this package, changed a fault."""
        recorder = self._recorder()
        if recorder is not None and not is_own(caller):
            recorder.record_action(kind, code_place(caller), recorder.reserve(), None, data)

    def _recorder(self) -> Recorder | None:
        return getattr(self.app(), "recorder", None)

    def _retire(self, fault: Fault) -> None:
        self._activate(active for active in self.active if active is not fault)

    def _activate(self, faults: Iterable[Fault]) -> None:
        """Set the faults that can fire. The app's chain contains the injector only while there are
        any.
        """
        self.active = tuple(faults)
        app = self.app()
        if app is None:
            return
        if not self.active:
            app.chain.remove(self.intercept)
        elif self.intercept not in app.chain:
            app.chain.add(FAULTS, self.intercept)

    def update_refusing(self) -> None:
        """Let the fake refuse connections or accept them, as the active faults require."""
        if not self._is_unsettled():
            return
        # Call the gate with a lock and check again afterwards: two threads may change the faults.
        with self._gate_lock:
            while self.gate is not None and self._is_unsettled():
                self._is_changing, down = True, self._must_refuse()
                self.gate(down)
                self.is_refusing, self._is_changing = down, False

    def _is_unsettled(self) -> bool:
        return self._is_changing or self._must_refuse() is not self.is_refusing

    def _must_refuse(self) -> bool:
        return any(fault._refuses_all for fault in self.active)

    # -- requests --------------------------------------------------------------------------------

    def pause(self, seconds: float) -> None:
        """Wait for the given real seconds, or until the fake closes."""
        step_aside()
        deadline = monotonic() + seconds
        while (remaining := deadline - monotonic()) > 0:
            seen = _closing.version
            if self._closed:
                return
            _closing.sleep(seen, remaining)

    def claim(
        self, kind: str, subject: Any, fits: Callable[[Any], bool] = lambda fault: True
    ) -> Fault | None:
        """Count a hit of the first fault of a service's kind that fires on a subject; return it.

        ``fits`` returns whether a fault applies to the subject, apart from its matchers. The
        subject's ``call`` has ``facts``, ``cut`` and ``faults``, as that of a request.
        """
        for fault in self.active:
            if fault.kind == kind and fits(fault) and self._fires(fault, subject):
                return fault
        return None

    def intercept(self, request: Request, proceed: Proceed) -> AnyResponse:
        """Return the response to a request from the active faults or ``proceed()``: the interceptor of
        the app's chain.
        """
        try:
            return self._pass(self.active, request, proceed)
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
