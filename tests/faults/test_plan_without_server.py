"""A plan without a server: its steps, its gate, and removal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.errors import ServiceError
from pytest_fakecloud.core.field_types import TEXT
from pytest_fakecloud.core.matching import Field
from pytest_fakecloud.core.recorder import Recorder
from pytest_fakecloud.core.violations import Violations
from pytest_fakecloud.faults.answers import Response
from pytest_fakecloud.faults.fault import Fault
from pytest_fakecloud.faults.plan import FaultPlan, fault_words, injector_of
from pytest_fakecloud.http.app import App, Instruments
from pytest_fakecloud.http.messages import Answer, ConnectionEffect, Request

from .conftest import ARGUMENTS, sent


@pytest.mark.parametrize(
    ("step", "response"),
    [
        (None, Answer(b"fine")),
        ("drop", ConnectionEffect("drop")),
        ("hang", ConnectionEffect("hang")),
        ("lose_response", ConnectionEffect("lose", Answer(b"fine"))),
        ("truncate", ConnectionEffect("truncate", Answer(b"fine"), 2)),
        (404, Answer(b"Not Found\n", 404, (), "text/plain")),
        (599, Answer(b"Status 599\n", 599, (), "text/plain")),
        ((429, None), Answer(b"Too Many Requests\n", 429, (), "text/plain")),
        ((429, "slowly"), Answer(b"slowly", 429, (), "text/plain; charset=utf-8")),
        (
            Response(207, b"own", {"X": "1", "content-type": "text/x-odd"}),
            Answer(b"own", 207, (("X", "1"),), "text/x-odd"),
        ),
        (Response(), Answer(b"", 200, (), None)),
        (Response(body=None), Answer(b"", 200, (), None)),
        (Response(503, "busy"), Answer(b"busy", 503, (), "text/plain; charset=utf-8")),
        (Response(body={"a": 1}), Answer(b'{"a": 1}', 200, (), "application/json")),
        (Response.hang(), ConnectionEffect("hang")),
        (Response.refuse(), ConnectionEffect("refuse", reset=True)),
    ],
)
def test_what_a_step_makes_of_a_response(plan: FaultPlan, step: Any, response: object) -> None:
    plan.sequence([step], times=2)
    first, second = sent(plan), sent(plan)
    assert first == second == response
    if isinstance(first, Answer) and step is not None:
        assert first is not second  # the caller may modify the answer it receives


@pytest.mark.parametrize(
    ("headers", "content_type", "kind"),
    [
        ((), None, "text/plain; charset=utf-8"),
        ({"Content-Type": "text/x-odd"}, None, "text/x-odd"),
        ({"CONTENT-TYPE": "text/x-odd"}, "text/html", "text/x-odd"),
        ({"X": "1"}, "text/html", "text/html"),
    ],
)
def test_a_content_type_among_the_headers_is_the_content_type(
    plan: FaultPlan, headers: Any, content_type: str | None, kind: str
) -> None:
    plan.respond(200, "x", headers=headers, content_type=content_type)
    answer = sent(plan)
    assert answer.content_type == kind
    assert [name for name, _ in answer.headers] == [name for name in headers if name == "X"]


@pytest.mark.completeness
def test_the_words_of_a_plan_are_the_methods_that_prepare_a_fault() -> None:
    assert fault_words(FaultPlan) == list(ARGUMENTS)

    class Own(FaultPlan):
        def duplicate(self) -> Fault:
            return self.drop()

    assert fault_words(Own) == sorted([*ARGUMENTS, "duplicate"])


def test_what_prepares_no_fault_or_is_hidden_is_no_word() -> None:
    class Plan:
        amount = 5

        def tamper(self) -> Fault:
            raise NotImplementedError

        def after(self) -> list[Fault]:
            raise NotImplementedError

        def before(self): ...  # type: ignore[no-untyped-def]

        def _add(self) -> Fault:
            raise NotImplementedError

    assert fault_words(Plan) == ["tamper"]  # type: ignore[arg-type]


def test_a_plan_holds_the_faults_that_can_still_fire(plan: FaultPlan) -> None:
    assert (bool(plan), len(plan), list(plan)) == (False, 0, [])
    once, always = plan.respond(503, times=1), plan.respond(429)
    assert (bool(plan), len(plan), list(plan)) == (True, 2, [once, always])
    sent(plan)
    assert (bool(plan), len(plan), list(plan)) == (True, 1, [always])
    assert (once.active, always.active) == (False, True)


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_a_fault_that_fired_less_often_than_planned_is_unused(plan: FaultPlan, kind: str) -> None:
    fault = getattr(plan, kind)(*ARGUMENTS[kind], times=2, skip=1)
    shortfalls = []
    for _ in range(4):
        shortfalls.append([fault._shortfall for fault in plan.unused()])
        assert plan.unused() in ([], [fault])
        sent(plan)
    done = "was drawn" if kind == "random" else "fired"
    none, once = f"{done} 0 of 2 planned times", f"{done} 1 of 2 planned times"
    assert shortfalls == [[none], [none], [once], []]


def test_every_step_of_a_sequence_is_planned(plan: FaultPlan) -> None:
    fault = plan.sequence([503, None, 429])
    sent(plan)
    sent(plan)
    assert [fault._shortfall for fault in plan.unused()] == ["fired 2 of 3 planned times"]
    fault.remove()
    assert plan.unused() == [fault]


def test_chance_may_prevent_the_hits_of_random_but_not_its_draws(plan: FaultPlan) -> None:
    fault = plan.random(0.0, times=2)
    sent(plan)
    assert plan.unused() == [fault]
    sent(plan)
    assert (fault.hits, plan.unused()) == (0, [])


def test_what_is_cleared_fires_no_more_and_is_forgotten(plan: FaultPlan) -> None:
    fault = plan.respond(503)
    assert plan.unused() == [fault]
    plan.clear()
    assert fault.active is False
    assert plan.unused() == []
    assert sent(plan) == Answer(b"fine")


def test_a_fault_that_its_own_predicate_takes_back_does_not_fire(plan: FaultPlan) -> None:
    def taken_back(request: Request) -> bool:
        fault.remove()
        return True

    fault = plan.respond(503, when=taken_back)
    assert sent(plan) == Answer(b"fine")
    assert fault.hits == 0


def test_the_gate_shuts_with_the_first_down_and_opens_after_the_last(plan: FaultPlan) -> None:
    assert plan.is_down is False
    moves: list[bool] = []
    injector_of(plan).gate = moves.append
    fault = plan.down()
    assert (plan.is_down, moves) == (True, [True])
    plan.down()
    plan.drop()
    fault.remove()
    assert (plan.is_down, moves) == (True, [True])
    plan.up()
    assert (plan.is_down, moves) == (False, [True, False])


def test_a_gate_that_fails_is_tried_again(plan: FaultPlan) -> None:
    plan_of_gate = iter([OSError("the port is taken"), None])

    def gate(shut: bool) -> None:
        if (error := next(plan_of_gate)) is not None:
            raise error

    injector_of(plan).gate = gate
    with pytest.raises(OSError, match="the port is taken"):
        plan.down()
    assert plan.is_down is False
    plan.down()
    assert plan.is_down is True


@pytest.mark.parametrize(
    "matchers",
    [{"times": 1}, {"skip": 1}, {"route": "/x"}, {"url": "u"}, {"when": lambda request: True}],
)
def test_the_gate_stays_open_where_only_some_requests_are_down(
    plan: FaultPlan, matchers: dict[str, Any]
) -> None:
    moves: list[bool] = []
    injector_of(plan).gate = moves.append
    plan.down(**matchers)
    plan.down(502)
    assert (plan.is_down, moves) == (False, [])


def test_nobody_waits_for_a_fake_that_is_closed(plan: FaultPlan) -> None:
    injector_of(plan).close()
    plan.delay(60)
    assert sent(plan) == Answer(b"fine")
    injector_of(plan).close()
    assert sent(plan) == Answer(b"fine")


def test_a_plan_takes_names_errors_and_facts_from_its_app(plan: FaultPlan) -> None:
    class Own(App):
        fact_fields: ClassVar[Mapping[str, Field]] = {"command": Field(TEXT)}

        def render_error(self, error: ServiceError) -> Answer:
            return Answer(b"own")

        def dump(self, value: object) -> bytes:
            return b"json"

    clock = Timekeeper()
    app = Own(Instruments(clock, Recorder(clock.now_us), Violations()))
    injector_of(plan).attach(app)
    assert set(injector_of(plan).fact_fields) == {"command"}
    assert set(injector_of(plan).service_fields) == {"url", "message_id"}
    with plan.respond(503):
        assert sent(plan).body == b"own"
    with plan.respond(503, {}):
        assert sent(plan).body == b"json"
