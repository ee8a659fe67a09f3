"""Prepared misbehaviour: faults that fire on matching requests, in order, and are counted.

A plan stands between authentication and the endpoint. A request passes through every fault that
matches it, from the outside in: first those that make it wait or call the test's code, then those
that cut the connection before anything happens, those that spoil whatever answer comes, and last
those that answer in the endpoint's place. Among equals the fault added first is asked first, so
``answer(503, times=1)`` followed by ``answer(429)`` is one 503 and then 429s.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypedDict, Unpack

from .app import Answer, Effect, Headers, Request, Response, Stream
from .errors import ContractError, ServiceError
from .instants import Duration, duration_us

if TYPE_CHECKING:
    from .clock import Clock
    from .ids import RandomStream

__all__ = ["Fault", "FaultPlan", "Matchers", "Step"]

Serve = Callable[[], Response]
Step = int | None | tuple[int, Any] | Answer | Literal["drop", "hang", "lose_answer", "truncate"]
"""One item of a sequence: a status, None for a normal answer, ``(status, body)``, or a fault's name."""

# From the outside in; see the module's docstring.
_WAIT, _CUT, _SPOIL, _REPLACE = range(4)
_COMMON = frozenset({"times", "skip", "route", "when"})
_PACKAGE = str(Path(__file__).resolve().parents[1])


class Matchers(TypedDict, total=False):
    """The keywords every fault takes.

    ``times`` is how often it fires at most, ``skip`` how many matching requests pass first,
    ``route`` an endpoint's name, path or ``"POST /path"``, ``command`` and ``topic`` what the
    service says the request is about, ``when`` a predicate on the ``Request`` (its ``call`` has the
    facts).
    """

    times: int | None
    skip: int
    route: str | None
    command: str | None
    topic: str | None
    when: Callable[[Any], object] | None


class Fault:
    """One prepared misbehaviour.

    ``hits`` counts how often it fired. ``remove()`` takes it back; as a context manager it is taken
    back at the end of the block.
    """

    order: ClassVar[int] = _REPLACE
    must_fire: ClassVar[bool] = True

    def __init__(
        self, plan: FaultPlan, kind: str, description: str, matchers: Mapping[str, Any]
    ) -> None:
        self.plan = plan
        self.kind = kind
        self.description = description
        self.hits = 0
        self.seen = 0
        self.origin = _caller()
        known = _COMMON | set(plan.fact_names)
        if unknown := set(matchers) - known:
            raise ContractError(
                f"a fault has no matcher {', '.join(sorted(unknown))}; "
                f"the matchers here are: {', '.join(sorted(known))}"
            )
        self.times = _count("times", matchers.get("times"), 1)
        self.skip = _count("skip", matchers.get("skip"), 0) or 0
        self.route: str | None = matchers.get("route")
        self.when: Callable[[Any], object] | None = matchers.get("when")
        if self.when is not None and not callable(self.when):
            raise ContractError(
                f"when={self.when!r} is no function: give a predicate on the request"
            )
        self.facts = {
            name: wanted
            for name, wanted in matchers.items()
            if wanted is not None and name not in _COMMON
        }
        self._taken_back = False

    @property
    def active(self) -> bool:
        """Whether it can still fire."""
        return not self._taken_back and (self.times is None or self.hits < self.times)

    def remove(self) -> None:
        """Take the fault back; it fires no more."""
        self._taken_back = True
        self.plan._discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        limits = {"times": self.times, "skip": self.skip or None, "route": self.route, **self.facts}
        if self.when is not None:
            limits["when"] = getattr(self.when, "__name__", repr(self.when))
        given = ", ".join(
            f"{name}={value!r}" for name, value in limits.items() if value is not None
        )
        text = f"{self.description}{f' [{given}]' if given else ''}, {self.hits} hit(s)"
        return f"<{text}, set at {self.origin}>" if self.origin else f"<{text}>"

    # -- for the plan ----------------------------------------------------------------------------

    def matches(self, request: Any) -> bool:
        """Whether the fault is meant for this request."""
        call = request.call
        if self.route is not None and not _is_route(self.route, request):
            return False
        if self.facts:
            facts = call.facts
            if not all(_holds(facts.get(name), wanted) for name, wanted in self.facts.items()):
                return False
        return self.when is None or bool(self.when(request))

    def wants(self, request: Any) -> bool:
        """Whether a matching request is one it fires on; called in turn, with the plan's lock."""
        return True

    def apply(self, request: Request, serve: Serve, hit: int) -> Response:
        """The response to a request the fault fires on, for the ``hit``-th time.

        ``serve()`` is what would happen without it.
        """
        return serve()

    def claim(self, request: Any) -> int:
        """Count the request; the number of the hit when the fault fires on it, else 0."""
        # The predicate is the test's own code and may look at the plan, so it runs without the lock.
        if not self.active or not self.matches(request):
            return 0
        with self.plan._lock:
            if not self.active:
                return 0
            self.seen += 1
            if self.seen <= self.skip or not self.wants(request):
                return 0
            self.hits += 1
            hit = self.hits
            if not self.active:
                self.plan._retire(self)
        call = request.call
        call.fault = self.description if call.fault is None else f"{call.fault}, {self.description}"
        return hit


class _Answer(Fault):
    def __init__(
        self,
        plan: FaultPlan,
        answer: Callable[[], Answer],
        description: str,
        matchers: Mapping[str, Any],
        kind: str = "answer",
    ) -> None:
        super().__init__(plan, kind, description, matchers)
        self._answer = answer

    def apply(self, request: Request, serve: Serve, hit: int) -> Response:
        return self._answer()


class _Cut(Fault):
    order = _CUT

    def __init__(
        self,
        plan: FaultPlan,
        kind: str,
        effect: Effect,
        description: str,
        matchers: Mapping[str, Any],
    ) -> None:
        super().__init__(plan, kind, description, matchers)
        self._effect = effect

    def apply(self, request: Request, serve: Serve, hit: int) -> Response:
        return self._effect


class _Down(_Cut):
    # A client that is refused a connection leaves no trace, so nobody can say it never fired.
    must_fire = False

    def remove(self) -> None:
        super().remove()
        self.plan._look_at_gate()


class _LoseAnswer(Fault):
    order = _SPOIL

    def __init__(self, plan: FaultPlan, reset: bool, matchers: Mapping[str, Any]) -> None:
        super().__init__(plan, "lose_answer", "lose_answer", matchers)
        self._reset = reset

    def apply(self, request: Request, serve: Serve, hit: int) -> Response:
        return _lost(serve(), self._reset)


class _Truncate(Fault):
    order = _SPOIL

    def __init__(self, plan: FaultPlan, keep: int | None, matchers: Mapping[str, Any]) -> None:
        super().__init__(plan, "truncate", "truncate", matchers)
        self._keep = _count("keep", keep, 0)

    def apply(self, request: Request, serve: Serve, hit: int) -> Response:
        return _truncated(serve(), self._keep)


class _Delay(Fault):
    order = _WAIT

    def __init__(self, plan: FaultPlan, seconds: float, matchers: Mapping[str, Any]) -> None:
        super().__init__(plan, "delay", f"delay {seconds:g} s", matchers)
        self._seconds = seconds

    def apply(self, request: Request, serve: Serve, hit: int) -> Response:
        self.plan.pause(self._seconds)
        return serve()


class _Sequence(Fault):
    def __init__(self, plan: FaultPlan, steps: Iterable[Step], matchers: Mapping[str, Any]) -> None:
        self._steps = list(steps)
        if not self._steps:
            raise ContractError("sequence() got no steps: give for example [503, None, 429]")
        shown = ", ".join("ok" if step is None else str(step) for step in self._steps)
        super().__init__(plan, "sequence", f"sequence [{shown}]", matchers)
        self._faults = [plan._step(step) for step in self._steps]
        if self.times is None:
            self.times = len(self._steps)

    def apply(self, request: Request, serve: Serve, hit: int) -> Response:
        step = self._faults[(hit - 1) % len(self._faults)]
        return serve() if step is None else step(serve)


class _Random(Fault):
    @property
    def must_fire(self) -> bool:  # type: ignore[override]
        """A draw that never came up is luck and no mistake; one that was never made is."""
        return self.seen <= self.skip

    def __init__(
        self,
        plan: FaultPlan,
        rate: float,
        step: Step,
        stream: RandomStream,
        matchers: Mapping[str, Any],
    ) -> None:
        super().__init__(plan, "random", f"random {step} at {rate:g}", matchers)
        self._rate = rate
        self._step = plan._step(step)
        self._stream = stream

    def wants(self, request: Any) -> bool:
        return self._stream.random() < self._rate

    def apply(self, request: Request, serve: Serve, hit: int) -> Response:
        return serve() if self._step is None else self._step(serve)


class _RateLimit(Fault):
    def __init__(
        self,
        plan: FaultPlan,
        requests: int,
        per_us: int,
        answer: Callable[[Headers], Answer],
        matchers: Mapping[str, Any],
    ) -> None:
        super().__init__(
            plan, "rate_limit", f"rate_limit {requests} per {per_us / 1e6:g} s", matchers
        )
        self._limit = requests
        self._per_us = per_us
        self._answer = answer
        self._window_us = 0
        self._used = 0

    def wants(self, request: Any) -> bool:
        now = self.plan.clock.now_us()
        if now >= self._window_us + self._per_us or self._window_us == 0:
            self._window_us = now
            self._used = 0
        self._used += 1
        return self._used > self._limit

    def apply(self, request: Request, serve: Serve, hit: int) -> Response:
        end_us = self._window_us + self._per_us
        left = max(1, -(-(end_us - self.plan.clock.now_us()) // 1_000_000))
        return self._answer(
            [
                ("Retry-After", str(left)),
                ("RateLimit-Limit", str(self._limit)),
                ("RateLimit-Remaining", "0"),
                ("RateLimit-Reset", str(left)),
            ]
        )


class _Call(Fault):
    order = _WAIT

    def __init__(
        self,
        plan: FaultPlan,
        function: Callable[..., object],
        moment: Literal["before", "after"],
        matchers: Mapping[str, Any],
    ) -> None:
        name = getattr(function, "__name__", type(function).__name__)
        super().__init__(plan, "call", f"call {name} {moment}", matchers)
        self._function = function
        self._moment = moment
        self._takes_request = _takes_argument(function)

    def apply(self, request: Request, serve: Serve, hit: int) -> Response:
        if self._moment == "before":
            result = self._run(request)
            return result if isinstance(result, Answer) else serve()
        response = serve()
        if isinstance(response, Answer):
            request.call.status = response.status
        result = self._run(request)
        return result if isinstance(result, Answer) else response

    def _run(self, request: Request) -> object:
        try:
            result = self._function(request) if self._takes_request else self._function()
        except BaseException as error:  # what pytest.fail() raises is no Exception
            raise ContractError(f"the function of {self!r} failed: {error!r}") from error
        if isinstance(result, Answer):
            self.plan._dumped(result)
        return result


class FaultPlan:
    """The faults of one handle.

    Every method prepares a ``Fault`` and returns it; all take the keywords of ``Matchers``. A
    service with more kinds of its own subclasses this, adds them with ``add()`` and asks for them
    with ``claim()``; ``fact_names`` are the facts its faults can match on.
    """

    fact_names: ClassVar[Sequence[str]] = ("command", "topic")

    def __init__(self, stream: Callable[[], RandomStream], clock: Clock) -> None:
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
        return self.add(_Answer(self, make, f"answer {status}", matchers))

    def drop(self, *, reset: bool = False, **matchers: Unpack[Matchers]) -> Fault:
        """Close the connection before the engine is reached; ``reset=True`` with a TCP reset."""
        return self.add(_Cut(self, "drop", Effect("drop", reset=reset), "drop", matchers))

    def lose_answer(self, *, reset: bool = False, **matchers: Unpack[Matchers]) -> Fault:
        """Let the engine do it, then close the connection without the answer."""
        return self.add(_LoseAnswer(self, reset, matchers))

    def delay(self, seconds: Duration, **matchers: Unpack[Matchers]) -> Fault:
        """Make the request wait for so many real seconds before anything else happens to it."""
        return self.add(_Delay(self, duration_us(seconds) / 1e6, matchers))

    def hang(self, **matchers: Unpack[Matchers]) -> Fault:
        """Never answer: silent until the client gives up or the fake closes (a minute at most)."""
        return self.add(_Cut(self, "hang", Effect("hang"), "hang", matchers))

    def truncate(self, keep: int | None = None, **matchers: Unpack[Matchers]) -> Fault:
        """Announce the whole answer, send ``keep`` bytes of its body (half of it), and close.

        Of a stream, ``keep`` is the number of chunks (one).
        """
        return self.add(_Truncate(self, keep, matchers))

    def down(self, status: int | None = None, **matchers: Unpack[Matchers]) -> Fault:
        """The service is down until ``up()``: connections are refused and the open ones end.

        With a ``status`` a gateway answers it instead; with matchers, only what matches is reset.
        """
        if status is not None:
            make = self._answer_maker(status, None, (), None)
            fault: Fault = _Answer(self, make, f"down {status}", matchers, kind="down")
        else:
            fault = _Down(self, "down", Effect("refuse", reset=True), "down", matchers)
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
        limit = _count("requests", requests, 0) or 0
        per_us = duration_us(per)

        def make(usual: Headers) -> Answer:
            return self._answer_maker(status, body, usual if headers is None else headers, None)()

        return self.add(_RateLimit(self, limit, per_us, make, matchers))

    def sequence(self, steps: Iterable[Step], **matchers: Unpack[Matchers]) -> Fault:
        """Take the steps one by one, a matching request each: ``[503, None, 429, "drop"]``.

        After the last step requests are served normally; ``times=`` above the number of steps goes
        round again.
        """
        return self.add(_Sequence(self, steps, matchers))

    def random(self, rate: float, step: Step = 503, **matchers: Unpack[Matchers]) -> Fault:
        """Do the step to this share of the matching requests, drawn from the test's seed."""
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise ContractError(f"rate={rate!r} is no share: give a number from 0 to 1")
        return self.add(_Random(self, rate, step, self._stream, matchers))

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
            raise ContractError(f"call() needs a function, got {function!r}")
        if moment not in ("before", "after"):
            raise ContractError(f"call() runs a function 'before' or 'after', not {moment!r}")
        return self.add(_Call(self, function, moment, matchers))

    # -- looking ---------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self.active)

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.active)

    def __len__(self) -> int:
        return len(self.active)

    def unused(self) -> list[Fault]:
        """The faults that never fired, and should have."""
        return [
            fault
            for fault in self._all
            if fault.must_fire and not fault.hits and not self._drew(fault)
        ]

    @staticmethod
    def _drew(fault: Fault) -> bool:
        # A draw that never came up is luck, not a mistake; one that was never made is.
        return isinstance(fault, _Random) and fault.seen > fault.skip

    def clear(self) -> None:
        """Take all faults back and forget them."""
        with self._lock:
            gone, self.active = self.active, ()
            self._all.clear()
        for fault in gone:
            fault._taken_back = True
        self._look_at_gate()

    def pause(self, seconds: float) -> None:
        """Wait so many real seconds, or until the handle closes."""
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

    def add(self, fault: Fault) -> Fault:
        """Put a prepared fault into the plan."""
        with self._lock:
            self.active = tuple(sorted((*self.active, fault), key=lambda each: each.order))
            self._all.append(fault)
        return fault

    def claim(self, kind: str, subject: Any) -> Fault | None:
        """The first fault of a service's own kind that fires on the subject, counted as a hit.

        The subject is a ``Request``, or anything whose ``call`` has ``facts``, ``route``, ``method``,
        ``path`` and ``fault``.
        """
        for fault in self.active:
            if fault.kind == kind and fault.claim(subject):
                return fault
        return None

    def run(self, request: Request, serve: Serve) -> Response:
        """The response to a request: what the matching faults make of ``serve()``."""
        return self._pass_through(self.active, request, serve)

    def _pass_through(self, faults: tuple[Fault, ...], request: Request, serve: Serve) -> Response:
        for index, fault in enumerate(faults):
            # A plain Fault is of a service's own kind, which asks for it itself.
            if type(fault) is not Fault and (hit := fault.claim(request)):
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
        if isinstance(status, bool) or not isinstance(status, int) or not 200 <= status <= 599:
            raise ContractError(
                f"{status!r} is no status of an answer: give a number from 200 to 599"
            )
        listed = tuple(headers.items() if isinstance(headers, Mapping) else headers)
        for name, value in listed:
            if name.lower() == "content-type":
                content_type = value
        listed = tuple(pair for pair in listed if pair[0].lower() != "content-type")

        def make() -> Answer:
            if body is None:
                answer = self.render(ServiceError(status, _phrase(status), headers=listed))
                if content_type is not None:
                    answer.content_type = content_type
            elif isinstance(body, bytes | str):
                raw = body.encode() if isinstance(body, str) else body
                answer = Answer(raw, status, listed, content_type or "text/plain; charset=utf-8")
            else:
                answer = Answer(body, status, listed, content_type or "application/json")
            return self._dumped(answer)

        return make

    def _dumped(self, answer: Answer) -> Answer:
        if not isinstance(answer.body, bytes):
            if self.dump is None:
                raise ContractError(f"this plan sends bytes only, not {answer.body!r}")
            answer.body = self.dump(answer.body)
        return answer

    def _step(self, step: Step) -> Callable[[Serve], Response] | None:
        if step is None:
            return None
        if step == "drop":
            return lambda serve: Effect("drop")
        if step == "hang":
            return lambda serve: Effect("hang")
        if step == "lose_answer":
            return lambda serve: _lost(serve(), False)
        if step == "truncate":
            return lambda serve: _truncated(serve(), None)
        if isinstance(step, Answer):
            ready = step
            return lambda serve: self._dumped(
                Answer(ready.body, ready.status, ready.headers, ready.content_type)
            )
        if isinstance(step, tuple) and len(step) == 2:
            make = self._answer_maker(step[0], step[1], (), None)
        elif isinstance(step, int):
            make = self._answer_maker(step, None, (), None)
        else:
            raise ContractError(
                f"{step!r} is no step: give a status, None, (status, body), an Answer, "
                "or one of 'drop', 'hang', 'lose_answer', 'truncate'"
            )
        return lambda serve: make()

    def _retire(self, fault: Fault) -> None:
        self.active = tuple(each for each in self.active if each is not fault)

    def _discard(self, fault: Fault) -> None:
        with self._lock:
            self._retire(fault)

    @property
    def is_down(self) -> bool:
        """Whether ``down()`` keeps everybody out at present."""
        return self._shut

    def _look_at_gate(self) -> None:
        down = any(
            isinstance(fault, _Down)
            and fault.times is None
            and not (fault.skip or fault.route or fault.facts or fault.when)
            for fault in self.active
        )
        if self.gate is not None and down is not self._shut:
            self._shut = down
            self.gate(down)


def _lost(response: Response, reset: bool) -> Response:
    if isinstance(response, Stream):
        _close_stream(response)
        return Effect("lose", reset=reset)
    if isinstance(response, Effect):
        return response
    return Effect("lose", response, reset=reset)


def _truncated(response: Response, keep: int | None) -> Response:
    if isinstance(response, Effect):
        return response
    if isinstance(response, Stream):
        response.chunks = _first(response.chunks, 1 if keep is None else keep)
        return response
    size = len(response.body) if isinstance(response.body, bytes) else 0
    return Effect("truncate", response, min(size // 2 if keep is None else keep, max(0, size - 1)))


def _first(chunks: Iterator[bytes], count: int) -> Iterator[bytes]:
    try:
        for _ in range(count):
            yield next(chunks)
        raise ConnectionAbortedError("the answer was truncated")
    except StopIteration:
        return
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()


def _close_stream(stream: Stream) -> None:
    close = getattr(stream.chunks, "close", None)
    if close is not None:
        close()
    if stream.on_close is not None:
        stream.on_close()


def _is_route(wanted: str, request: Any) -> bool:
    path = request.call.path
    return wanted in (request.call.route, path, f"{request.call.method} {path}")


def _holds(value: Any, wanted: Any) -> bool:
    values = value if isinstance(value, list | tuple | set | frozenset) else [value]
    if callable(wanted):
        return any(bool(wanted(each)) for each in values if each is not None)
    if isinstance(wanted, str):
        # Commands are written in any case.
        return any(isinstance(each, str) and each.lower() == wanted.lower() for each in values)
    return wanted in values


def _count(name: str, value: object, least: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ContractError(f"{name}={value!r} is no count: give a whole number from {least} up")
    return value


def _takes_argument(function: Callable[..., object]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) for p in parameters
    )


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"status {status}"


def _plain_error(error: ServiceError) -> Answer:
    return Answer(f"{error.message}\n".encode(), error.status, error.headers, "text/plain")


def _caller() -> str:
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
