"""The base of all faults, which tests use as a ``Fault`` and ``FaultTable`` as a ``Rule``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import cached_property
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from ..core.calls import CallNames, NamesOf, cannot_tell
from ..core.errors import ContractError, brief, counted, shortfall, shown
from ..core.field_types import ABSENT, checked_count
from ..core.matching import Field, Question, agree_together, check_fields
from ..core.recorder import is_own
from ..http.messages import AnyResponse, Request, Serve

if TYPE_CHECKING:
    from .table import FaultTable

# Levels of rules, in the order in which a request passes through them (see the module ``table``).
WAIT, CUT, SPOIL, REPLACE = range(4)
Respond: TypeAlias = Callable[[Serve], AnyResponse]
"""Returns the response to a request on which a rule fires. ``serve()`` is the usual response."""
_COMMON = frozenset({"times", "skip", "route", "when"})


_Condition: TypeAlias = tuple[Question, Field, Callable[[Any], object]]
"""A question, its field, and the function that reads the field's value from a request."""


class Rule:
    """The rule behind a fault, which is applied to requests.

    ``respond`` is its effect and ``order`` its level. ``hits`` is the number of times that it
    fired. A strict test fails if ``used`` is less than ``planned``.
    """

    claimed_by_service: ClassVar[bool] = False
    """Whether the service applies the rule itself, so that requests skip it."""
    must_fire: bool = True
    """Whether the rule must be used as often as planned."""
    deed: ClassVar[str] = "fired"
    """What ``used`` counts, as a verb in the past tense."""
    refuses_all: bool = False
    """Whether the fake stops listening while the rule is active, instead of serving requests."""

    def __init__(
        self,
        table: FaultTable,
        kind: str,
        description: str,
        matchers: Mapping[str, Any],
        respond: Respond = lambda serve: serve(),
        order: int = REPLACE,
    ) -> None:
        self.order = order
        self._respond = respond
        self.table = table
        self.kind = kind
        self.description = description
        self.hits = 0
        self.seen = 0
        self.origin = _caller()
        check_fields(matchers, {*_COMMON, *self.fields}, "fault")
        self.times = checked_count("times", matchers.get("times"), 1)
        self.skip = checked_count("skip", matchers.get("skip"), 0) or 0
        self.route: str | re.Pattern[str] | None = matchers.get("route")
        self.when: Callable[[Any], object] | None = matchers.get("when")
        if self.when is not None and not callable(self.when):
            raise ContractError(
                f"when={shown(self.when)} is not a function: pass a predicate on the request"
            )
        self.facts = {
            name: wanted
            for name, wanted in matchers.items()
            if wanted is not None and name not in _COMMON
        }
        self._conditions = list(self._read_conditions(table))
        self.removed = False

    def _read_conditions(self, table: FaultTable) -> Iterator[_Condition]:
        """Yield the conditions on a request. The test's function is last, because it is slowest."""
        if self.route is not None:
            app = table.answers.app
            names = CallNames(tuple if app is None else app.words)
            field = Field(names, parts=NamesOf.each_command)
            yield Question("route", self.route, names), field, lambda one: NamesOf(one.call)
        for name, wanted in self.facts.items():
            known = self.fields[name]
            yield Question(name, wanted, known.type, known.several), known, _reader_of(name)
        if self.when is not None:
            yield Question("when", self.when), Field(), lambda request: request

    @property
    def fields(self) -> Mapping[str, Field]:
        """The facts that the rule can match."""
        return self.table.fact_fields

    @property
    def active(self) -> bool:
        return not self.removed and (self.times is None or self.hits < self.times)

    @property
    def planned(self) -> int:
        """The number of times that the rule must fire: ``times``, or once if there is no limit."""
        if not self.must_fire:
            return 0
        return 1 if self.times is None else self.times

    @property
    def used(self) -> int:
        """The number that is compared with ``planned``."""
        return self.hits

    @property
    def shortfall(self) -> str:
        """A description of an unused rule: ``never fired``, ``fired 1 of 2 planned times``."""
        return shortfall(self.deed, self.used, self.planned)

    @property
    def applied(self) -> dict[str, str]:
        """The entry that is added to ``faults`` of a call when the rule fires on it."""
        return {"kind": self.kind, "description": self.description}

    @cached_property
    def fault(self) -> Fault:
        """The object that represents this rule in the test."""
        return Fault(self)

    @property
    def limits(self) -> list[str]:
        """The given matchers, as ``name=value``."""
        counts = {"times": self.times, "skip": self.skip or None}
        given = {**counts, "route": self.route, **self.facts, "when": self.when}
        return [f"{name}={brief(value)}" for name, value in given.items() if value is not None]

    def __repr__(self) -> str:
        given = ", ".join(self.limits)
        limits = f" [{given}]" if given else ""
        text = f"{self.description}{limits}, {counted(self.hits, 'hit')}"
        return f"<{text}, set {self.origin}>" if self.origin else f"<{text}>"

    def matches(self, request: Any) -> bool:
        """Return whether the fault matches; raise ``ContractError`` if a predicate raises."""
        matched: list[tuple[Question, Field, Any]] = []
        try:
            for question, field, read in self._conditions:
                value = read(request)
                if not question.agrees(value):
                    return False
                matched.append((question, field, value))
            return agree_together(matched, request.call)
        except ContractError as error:
            raise ContractError(f"a predicate of {shown(self)} failed: {error}") from error

    def decide(self) -> bool:
        """Return whether to fire. Called for each matching request, with the table's lock held."""
        return True

    def apply(self, request: Request, serve: Serve) -> AnyResponse:
        """Return the response to a request on which the fault fires."""
        return self._respond(serve)


class ServiceRule(Rule):
    """A rule of a service's own kind, which the service applies with ``FaultTable.claim()``."""

    claimed_by_service = True

    @property
    def fields(self) -> Mapping[str, Field]:
        """The facts of requests, or of the service's own subjects, that the rule can match."""
        table = self.table
        return table.fact_fields if table.service_fields is None else table.service_fields


class Fault:
    """One injected fault.

    A strict test fails if its fault never fired, or less often than its ``times`` (of ``sequence()``
    the number of steps, of ``crash_after_response()`` 1 unless given). As a context manager, it is
    removed at the end.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    @property
    def kind(self) -> str:
        """The name of the method of ``faults`` that injected the fault."""
        return self._rule.kind

    @property
    def description(self) -> str:
        """A description of the fault's effect."""
        return self._rule.description

    @property
    def hits(self) -> int:
        """The number of times that the fault has fired."""
        return self._rule.hits

    @property
    def active(self) -> bool:
        """Whether the fault can still fire."""
        return self._rule.active

    def remove(self) -> None:
        """Remove the fault, so that it never fires again."""
        self._remove(sys._getframe(1))

    def _remove(self, caller: FrameType) -> None:
        self._rule.table.remove(self._rule)
        self._rule.table.record_change("remove_fault", caller, fault=self.description)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._remove(sys._getframe(1))

    def __repr__(self) -> str:
        return repr(self._rule)


def rule_of(fault: Fault) -> Rule:
    """Return the ``Rule`` behind a fault. For the fakes, not for tests."""
    return fault._rule


setting_over: ContextVar[str] = ContextVar("setting_over", default="")
"""The interface through which a fault is being set; empty if it is the test's code."""


def _caller() -> str:
    if way := setting_over.get():
        return f"over {way}"
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_own(frame):
        frame = frame.f_back
    return f"at {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else ""


def _reader_of(fact: str) -> Callable[[Any], object]:
    def read(request: Any) -> object:
        call = request.call
        if fact in getattr(call, "cut", ()):  # a delivery has no journal entry
            raise cannot_tell(f"the {fact} ({call.cut[fact]:,} bytes) of {call!r}")
        return call.facts.get(fact, ABSENT)

    return read
