"""Prepared misbehaviour: faults that fire on matching requests, in order, and are counted.

A plan stands between authentication and the endpoint. A request passes through every fault that
matches it, from the outside in: first those that make it wait or call the test's code, then those
that cut the connection before anything happens, those that spoil whatever answer comes, and last
those that answer in the endpoint's place. Among equals the fault added first is asked first, so
``answer(503, times=1)`` followed by ``answer(429)`` is one 503 and then 429s.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Unpack

from ..core.errors import ContractError, ServiceError, only_begins, shown
from ..core.matching import Field
from ..core.timeparse import Duration, check_seconds, duration_us
from ..http.messages import JSON_TYPE, Answer, Effect, Headers, Request, Response, Serve
from .answers import checked, checked_body, checked_headers, checked_status, checked_type
from .fault import Fault, Matchers, count
from .kinds import (
    AnswerFault,
    CallFault,
    CutFault,
    DelayFault,
    DownFault,
    LoseAnswerFault,
    RandomFault,
    RateLimitFault,
    SequenceFault,
    TruncateFault,
    lost,
    truncated,
)

if TYPE_CHECKING:
    from ..core.ids import RandomStream
    from ..core.timekeeper import Timekeeper

__all__ = ["Fault", "FaultPlan", "Matchers", "Step"]

Step = int | None | tuple[int, Any] | Answer | Literal["drop", "hang", "lose_answer", "truncate"]
"""One item of a sequence: a status, None for a normal answer, ``(status, body)``, or a fault's name."""


class FaultPlan:
    """The faults of one handle.

    Every method prepares a ``Fault`` and returns it; all take the keywords of ``Matchers``. A
    service with more kinds of its own subclasses this, adds them with ``add()`` and asks for them
    with ``claim()``; ``fact_fields`` are the facts its faults can match on, by default the app's.
    """

    fact_fields: Mapping[str, Field] = MappingProxyType({})
    call_words: Callable[[], Iterable[str]] = tuple
    """The names of routes and commands there are; none, where nobody knows."""

    def __init__(self, stream: Callable[[], RandomStream], clock: Timekeeper) -> None:
        self.clock = clock
        self.gate: Callable[[bool], None] | None = None
        """Stops (True) and starts (False) listening, where the handle has a server of its own."""
        self.render: Callable[[ServiceError], Answer] = _plain_error
        """The service's error envelope, for faults that give a status without a body."""
        self.dump: Callable[[object], bytes] | None = None
        """The service's JSON, for bodies given as objects."""
        self._new_stream = stream
        self._lock = threading.Lock()
        self.active: tuple[Fault, ...] = ()
        """The faults that can still fire, from the outside in."""
        self._all: list[Fault] = []
        self._shut = False
        self._closed = False
        self._closing: threading.Event | None = None

    @cached_property
    def _stream(self) -> RandomStream:
        # Most plans are never asked for anything random; of two threads that ask first, both get one.
        made: RandomStream = vars(self).setdefault("_stream", self._new_stream())
        return made

    # -- preparing -------------------------------------------------------------------------------

    def answer(
        self,
        status: int,
        body: object = None,
        *,
        headers: Headers | Mapping[str, str] = (),
        content_type: str | None = None,
        **matchers: Unpack[Matchers],
    ) -> Fault:
        """Answer in the endpoint's place; the engine is not reached.

        Without a body the service's own error envelope is sent; ``bytes`` and ``str`` go out as they
        are, anything else as JSON.
        """
        make = self._answer_maker(status, body, headers, content_type)
        return self.add(AnswerFault(self, make, f"answer {status}", matchers))

    def drop(self, *, reset: bool = False, **matchers: Unpack[Matchers]) -> Fault:
        """Close the connection before the engine is reached; ``reset=True`` with a TCP reset."""
        effect = Effect("drop", reset=_switch("reset", reset))
        return self.add(CutFault(self, "drop", effect, "drop", matchers))

    def lose_answer(self, *, reset: bool = False, **matchers: Unpack[Matchers]) -> Fault:
        """Let the engine do it, then close the connection without the answer."""
        return self.add(LoseAnswerFault(self, _switch("reset", reset), matchers))

    def delay(self, seconds: Duration, **matchers: Unpack[Matchers]) -> Fault:
        """Make the request wait for so many real seconds before anything else happens to it."""
        return self.add(DelayFault(self, duration_us(seconds) / 1e6, matchers))

    def hang(self, **matchers: Unpack[Matchers]) -> Fault:
        """Never answer: silent until the client gives up or the fake closes (a minute at most)."""
        return self.add(CutFault(self, "hang", Effect("hang"), "hang", matchers))

    def truncate(self, keep: int | None = None, **matchers: Unpack[Matchers]) -> Fault:
        """Announce the whole answer, send ``keep`` bytes of its body (half of it), and close.

        Of a stream, ``keep`` is the number of chunks (one).
        """
        return self.add(TruncateFault(self, count("keep", keep, 0), matchers))

    def down(self, status: int | None = None, **matchers: Unpack[Matchers]) -> Fault:
        """The service is down until ``up()``: connections are refused and the open ones end.

        With a ``status`` a gateway answers it instead; with matchers, only what matches is reset.
        """
        if status is not None:
            make = self._answer_maker(status, None, (), None)
            fault: Fault = AnswerFault(self, make, f"down {status}", matchers, kind="down")
        else:
            fault = DownFault(self, "down", Effect("refuse", reset=True), "down", matchers)
        self.add(fault)
        self._look_at_gate()
        return fault

    def up(self) -> None:
        """End every ``down()``."""
        for fault in list(self.active):
            if fault.kind == "down":
                fault.remove()

    def rate_limit(
        self,
        requests: int = 0,
        per: Duration = 60,
        *,
        status: int = 429,
        body: object = None,
        headers: Headers | Mapping[str, str] | None = None,
        **matchers: Unpack[Matchers],
    ) -> Fault:
        """Let that many matching requests pass in each span of the fake's clock, refuse the others.

        A span starts with the first request after the last one's end. Without ``headers`` the
        refusal carries ``Retry-After`` and ``RateLimit-Limit``/``-Remaining``/``-Reset`` in seconds.
        """
        limit = count("requests", requests, 0) or 0
        per_us = duration_us(per)
        if not per_us:
            raise ContractError(f"per={shown(per)} is not a span: give one that lasts")
        self._answer_maker(status, body, headers or (), None)

        def make(usual: Headers) -> Answer:
            return self._answer_maker(status, body, usual if headers is None else headers, None)()

        return self.add(RateLimitFault(self, limit, per_us, make, matchers))

    def sequence(self, steps: Iterable[Step], **matchers: Unpack[Matchers]) -> Fault:
        """Take the steps one by one, a matching request each: ``[503, None, 429, "drop"]``.

        After the last step requests are served normally; ``times=`` above the number of steps goes
        round again.
        """
        if isinstance(steps, str | bytes) or not isinstance(steps, Iterable):
            raise ContractError(
                f"{shown(steps)} are not steps: give a list such as [503, None, 429]"
            )
        listed = list(steps)
        if not listed:
            raise ContractError("sequence() got no steps: give for example [503, None, 429]")
        told = ", ".join("ok" if step is None else str(step) for step in listed)
        taken = [self._step(step) for step in listed]
        return self.add(SequenceFault(self, taken, f"sequence [{told}]", matchers))

    def random(self, rate: float, step: Step = 503, **matchers: Unpack[Matchers]) -> Fault:
        """Do the step to this share of the matching requests, drawn from the test's seed."""
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise ContractError(f"rate={shown(rate)} is not a share: give a number from 0 to 1")
        taken = self._step(step)
        told = f"random {step} at {rate:g}"
        return self.add(RandomFault(self, rate, taken, self._stream, told, matchers))

    def call(
        self,
        function: Callable[..., object],
        moment: Literal["before", "after"] = "before",
        **matchers: Unpack[Matchers],
    ) -> Fault:
        """Call the test's function before or after the endpoint, in the request's thread.

        It is given the ``Request`` if it takes an argument; an ``Answer`` it returns replaces the
        endpoint's.
        """
        if not callable(function):
            raise ContractError(f"call() needs a function, got {shown(function)}")
        if only_begins(function):
            raise ContractError(
                f"{shown(function)} has to be awaited or iterated, and a fault does neither: "
                "give call() a plain function"
            )
        if moment not in ("before", "after"):
            raise ContractError(f"call() runs a function 'before' or 'after', not {shown(moment)}")
        return self.add(CallFault(self, function, moment, self._dumped, matchers))

    # -- looking ---------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self.active)

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.active)

    def __len__(self) -> int:
        return len(self.active)

    @property
    def is_down(self) -> bool:
        """Whether ``down()`` keeps everybody out at present."""
        return self._shut

    def unused(self) -> list[Fault]:
        """The faults that never fired, and should have."""
        return [fault for fault in self._all if fault.must_fire and not fault.hits]

    def clear(self) -> None:
        """Take all faults back and forget them."""
        with self._lock:
            gone, self.active = self.active, ()
            self._all.clear()
        for fault in gone:
            fault.taken_back = True
        self._look_at_gate()

    def pause(self, seconds: float) -> None:
        """Wait so many real seconds, or until the handle closes; ``ContractError`` for no number."""
        check_seconds("pause", seconds)
        with self._lock:
            if self._closing is None:
                # An event's wait is not moved by tools that freeze the process's time.
                self._closing = threading.Event()
            if self._closed:
                self._closing.set()
        self._closing.wait(seconds)

    def close(self) -> None:
        """End the delays that are under way."""
        with self._lock:
            self._closed = True
            if self._closing is not None:
                self._closing.set()

    # -- for the pipeline and for services -------------------------------------------------------

    @classmethod
    def words(cls) -> list[str]:
        """The names of the methods that prepare a fault."""
        return sorted(
            name
            for name, method in inspect.getmembers(cls, inspect.isfunction)
            if method.__annotations__.get("return") == "Fault"
            and name != "add"
            and not name.startswith("_")
        )

    def attach(
        self,
        *,
        fact_fields: Mapping[str, Field],
        words: Callable[[], Iterable[str]],
        render: Callable[[ServiceError], Answer],
        dump: Callable[[object], bytes],
    ) -> None:
        """Take in what faults need of their app; a service's own ``fact_fields`` stay."""
        if not self.fact_fields:
            self.fact_fields = fact_fields
        self.call_words = words
        self.render = render
        self.dump = dump

    def add(self, fault: Fault) -> Fault:
        """Put a prepared fault into the plan."""
        _check_fault(fault)
        with self._lock:
            self.active = tuple(sorted((*self.active, fault), key=lambda each: each.order))
            self._all.append(fault)
        return fault

    def remove(self, fault: Fault) -> None:
        """Take a fault back; it fires no more."""
        _check_fault(fault)
        with self._lock:
            fault.taken_back = True
            self._retire(fault)
        self._look_at_gate()

    def claim(self, kind: str, subject: Any) -> Fault | None:
        """The first fault of a service's own kind that fires on the subject, counted as a hit.

        The subject is a ``Request``, or anything whose ``call`` has ``facts``, ``route``, ``method``,
        ``path`` and ``fault``.
        """
        for fault in self.active:
            if fault.kind == kind and self._claim(fault, subject):
                return fault
        return None

    def run(self, request: Request, serve: Serve) -> Response:
        """The response to a request: what the matching faults make of ``serve()``."""
        return self._pass_through(self.active, request, serve)

    def _pass_through(self, faults: tuple[Fault, ...], request: Request, serve: Serve) -> Response:
        for index, fault in enumerate(faults):
            # A plain Fault is of a service's own kind, which asks for it itself.
            if type(fault) is not Fault and (hit := self._claim(fault, request)):
                inner = partial(self._pass_through, faults[index + 1 :], request, serve)
                return fault.apply(request, inner, hit)
        return serve()

    # -- inside ----------------------------------------------------------------------------------

    def _answer_maker(
        self,
        status: int,
        body: object,
        headers: Headers | Mapping[str, str],
        content_type: str | None,
    ) -> Callable[[], Answer]:
        checked_status(status)
        listed = checked_headers(headers)
        for name, value in listed:
            if name.lower() == "content-type":
                content_type = value
        listed = tuple(pair for pair in listed if pair[0].lower() != "content-type")
        kind = checked_type(content_type)
        raw = None if body is None else checked_body(body, self.dump)
        usual = "text/plain; charset=utf-8" if isinstance(body, bytes | str) else JSON_TYPE

        def make() -> Answer:
            if raw is not None:
                return Answer(raw, status, listed, kind or usual)
            answer = self.render(ServiceError(status, _phrase(status), headers=listed))
            if kind is not None:
                answer.content_type = kind
            return self._dumped(answer)

        return make

    def _dumped(self, answer: Answer) -> Answer:
        return checked(answer, self.dump)

    def _step(self, step: Step) -> Callable[[Serve], Response]:
        if step is None:
            return lambda serve: serve()
        if step in ("drop", "hang"):
            effect = Effect(step)
            return lambda serve: effect
        if step == "lose_answer":
            return lambda serve: lost(serve())
        if step == "truncate":
            return lambda serve: truncated(serve())
        if isinstance(step, Answer):
            ready = self._dumped(step)
            return lambda serve: Answer(ready.body, ready.status, ready.headers, ready.content_type)
        if isinstance(step, tuple) and len(step) == 2:
            make = self._answer_maker(step[0], step[1], (), None)
        elif isinstance(step, int):
            make = self._answer_maker(step, None, (), None)
        else:
            raise ContractError(
                f"{shown(step)} is not a step: give a status, None, (status, body), an Answer, "
                "or one of 'drop', 'hang', 'lose_answer', 'truncate'"
            )
        return lambda serve: make()

    def _claim(self, fault: Fault, request: Any) -> int:
        """Count the request; the number of the hit when the fault fires on it, else 0."""
        # The predicate is the test's own code and may look at the plan, so it runs without the lock.
        if not fault.active or not fault.matches(request):
            return 0
        with self._lock:
            if not fault.active:
                return 0
            fault.seen += 1
            if fault.seen <= fault.skip or not fault.wants(request):
                return 0
            fault.hits += 1
            hit = fault.hits
            if not fault.active:
                self._retire(fault)
        call, told = request.call, fault.description
        call.fault = told if call.fault is None else f"{call.fault}, {told}"
        return hit

    def _retire(self, fault: Fault) -> None:
        self.active = tuple(each for each in self.active if each is not fault)

    def _look_at_gate(self) -> None:
        down = any(isinstance(fault, DownFault) and fault.whole for fault in self.active)
        if self.gate is not None and down is not self._shut:
            self._shut = down
            self.gate(down)


def _switch(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ContractError(f"{name}={shown(value)} is not a switch: give True or False")
    return value


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"status {status}"


def _plain_error(error: ServiceError) -> Answer:
    return Answer(f"{error.message}\n".encode(), error.status, error.headers, "text/plain")


def _check_fault(fault: object) -> None:
    if not isinstance(fault, Fault):
        raise ContractError(f"{shown(fault)} is not a fault: give what a method of faults returned")
