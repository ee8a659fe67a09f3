"""The public names: all of them exist, and no others."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

import pytest

import pytest_fakecloud
from pytest_fakecloud import Cloud
from tests.harness import check_each


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(delivery="driven") as opened:
        yield opened


def test_lists_of_findings_have_only_last_and_where(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"orders": 1})
    queue = cloud.queue()
    vector = cloud.vector_index(dimension=1)
    for results in (
        cloud.fakes(), cloud.violations(), broker.journal.calls(), broker.records("orders"),
        queue.messages(), queue.attempts(), queue.dead_letters(), queue.schedules(),
        queue.run_until_idle(), vector.vectors(), cloud.callback_capture().callbacks(),
    ):  # fmt: skip
        assert isinstance(results, list)
        assert callable(results.only)
        assert callable(results.where)
        with pytest.raises(AssertionError):
            _ = results[len(results) :].last


def test_all_is_what_can_be_imported() -> None:
    for name in pytest_fakecloud.__all__:
        member = getattr(pytest_fakecloud, name)
        assert not isinstance(member, type) or member.__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Nope'"):
        _ = pytest_fakecloud.Nope  # type: ignore[attr-defined]


def test_everything_public_is_documented() -> None:
    def check(name: str) -> None:
        owner = getattr(pytest_fakecloud, name)
        undocumented = [
            member
            for member, value in inspect.getmembers(owner)
            if not member.startswith("_")
            and (inspect.isfunction(value) or isinstance(value, property))
            and getattr(value, "__module__", "pytest_fakecloud").startswith("pytest_fakecloud")
            and not inspect.getdoc(value)
        ]
        assert inspect.getdoc(owner)
        assert undocumented == []

    check_each(check, zip(pytest_fakecloud.__all__))


def test_every_module_says_what_it_is() -> None:
    import pkgutil

    for module in pkgutil.walk_packages(pytest_fakecloud.__path__, "pytest_fakecloud."):
        if not module.name.endswith("__main__"):
            assert importlib.import_module(module.name).__doc__, module.name


def test_json_is_a_method_wherever_there_is_one() -> None:
    methods = {
        f"{name}.{attribute}": getattr(value, attribute)
        for name in pytest_fakecloud.__all__
        if isinstance(value := getattr(pytest_fakecloud, name), type)
        for attribute in dir(value)
        if attribute.endswith("json")
    }
    assert len(methods) > 5
    assert not [name for name, value in methods.items() if not callable(value)]
