"""Fixtures for faults: one TLS context for the clients of each module, and a plan without a server."""

from typing import Any

import pytest

from pytest_fakecloud.core.calls import Call
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.field_types import TEXT
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.core.matching import Field
from pytest_fakecloud.faults.fault import Fault, ServiceFault
from pytest_fakecloud.faults.plan import FaultPlan, injector_of
from pytest_fakecloud.http.messages import Answer, AnyResponse, Request
from tests.harness import one_tls_context as one_tls_context

ARGUMENTS: dict[str, list[Any]] = {
    "call": [print],
    "delay": [0],
    "down": [],
    "drop": [],
    "hang": [],
    "lose_response": [],
    "random": [1],
    "rate_limit": [0],
    "respond": [503],
    "sequence": [[503]],
    "truncate": [],
}
"""Every method that injects a fault, in alphabetical order, with valid arguments."""


class OwnPlan(FaultPlan):
    _service_fields = {"url": Field(TEXT), "message_id": Field(TEXT)}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__(Ids(1).stream("faults"), Timekeeper())
        self._injector.fact_fields = {"url": Field(TEXT), "label": Field(TEXT)}

    def duplicate(self, **matchers: Any) -> Fault:
        return self._add(ServiceFault(self._injector, "duplicate", "duplicate", matchers))


@pytest.fixture
def plan() -> OwnPlan:
    return OwnPlan()


def sent(plan: FaultPlan, answer: AnyResponse | None = None) -> Any:
    """Return the response to another request."""
    request = Request("GET", "/x")
    request.call = Call(1, 0, "demo", "demo", "GET", "/x")
    return injector_of(plan).intercept(
        request, lambda: Answer(b"fine") if answer is None else answer
    )
