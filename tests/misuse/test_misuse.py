"""Call public methods with every kind of value, and compare the errors of wrong calls."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from pytest_fakecloud.broker.fake import Broker
from pytest_fakecloud.broker.faults import BrokerFaults
from pytest_fakecloud.broker.views import GroupView, TopicView
from pytest_fakecloud.cloud.fake import Fake
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.settings import FakeConfig, settings_of
from pytest_fakecloud.vector.fake import VectorIndex
from pytest_fakecloud.vector.settings import VectorConfig

from ..harness import check_each
from ..harness import explore_searches_fewer_modules as explore_searches_fewer_modules
from ..notations import complete
from . import (
    CALLS_FILE,
    KINDS,
    UNSHOWABLE,
    bound,
    errors,
    methods,
    names,
    opened,
    outcome,
    parameters,
)

METHODS = methods()
CASES = [
    pytest.param(call, name, id=f"{method.name}-{name}")
    for call, method in METHODS.items()
    for name in method.accepted
]
COMPLETE: dict[str, type] = {
    "broker.": Broker,
    "broker.faults.": BrokerFaults,
    "topic.": TopicView,
    "group.": GroupView,
    "index.": VectorIndex,
}
"""Classes that have each of their methods in the table, but ``client()``, which passes all on."""
ERRORS = list(errors())


@pytest.mark.completeness
@pytest.mark.parametrize("prefix", COMPLETE)
def test_the_table_has_every_method_and_parameter(prefix: str) -> None:
    kind = COMPLETE[prefix]
    is_fake = issubclass(kind, Fake)
    own: dict[str, Callable[..., Any]] = {
        name: method
        for owner in (kind, *(kind.__bases__ if is_fake else ()))
        if owner is not Fake
        for name, method in vars(owner).items()
        if not name.startswith("_") and inspect.isfunction(method)
        if len(inspect.signature(method).parameters) > 1 and name != "client"
    }
    if is_fake:
        own["restore"] = Fake.restore
    listed = {
        method.name.removeprefix(prefix): method.accepted.keys()
        for method in METHODS.values()
        if re.fullmatch(rf"{re.escape(prefix)}\w+", method.name)
    }
    missing = [f"== {prefix}{name}(<valid arguments>)" for name in own.keys() - listed.keys()]
    if is_fake:
        missing += [
            f"{name} => <kinds>  # below == {prefix}{method}(...)"
            for method, accepted in listed.items()
            for name in parameters(own[method]) - accepted
        ]
    complete(CALLS_FILE, missing)
    assert own.keys() == listed.keys()


@pytest.mark.completeness
def test_the_table_has_every_setting_of_an_index() -> None:
    (settings,) = (method.accepted for method in METHODS.values() if method.name == "VectorIndex")
    own = settings_of(VectorConfig).keys() - settings_of(FakeConfig).keys()
    complete(CALLS_FILE, (f"{name} => <kinds>" for name in own - settings.keys()))
    assert settings.keys() == own


@pytest.mark.parametrize(("call", "name"), CASES)
def test_a_wrong_kind_of_value_is_refused_and_changes_nothing(call: str, name: str) -> None:
    method = METHODS[call]
    with opened() as world:
        function, arguments = bound(call, world)
        before = world.state(call)
        for kind in method.passed - method.accepted[name]:
            refusal = outcome(function, {**arguments, name: KINDS[kind]})
            assert refusal.startswith("refused: "), kind
            assert names(refusal, method.name, name, KINDS[kind]), f"{kind}: {refusal}"
            assert kind != "unshowable" or UNSHOWABLE in refusal, refusal
            assert world.state(call) == before, kind


@pytest.mark.parametrize(("call", "name"), CASES)
def test_a_right_kind_of_value_is_taken(call: str, name: str) -> None:
    """Otherwise the errors for wrong kinds might have another reason."""
    for kind in METHODS[call].accepted[name]:
        with opened() as world:
            function, arguments = bound(call, world)
            assert outcome(function, {**arguments, name: KINDS[kind]}) == "taken", kind


@pytest.mark.parametrize(("calls", "rows"), ERRORS, ids=[calls[0] for calls, _ in ERRORS])
def test_a_wrong_call_raises_its_error_and_changes_nothing(
    calls: list[str], rows: list[tuple[str, str]]
) -> None:
    with opened() as world:

        def check(arguments: str, pattern: str) -> None:
            for call in calls:
                expression = call.replace("?", arguments, 1)
                before = world.state(expression)
                with pytest.raises(ContractError, match=pattern):
                    eval(expression, world)
                assert world.state(expression) == before, expression

        check_each(check, rows)
