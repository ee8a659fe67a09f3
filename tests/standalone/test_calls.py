"""`/call` calls the methods of a fixture with plain JSON, and nothing that is not on its list."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.services import SERVICES
from pytest_fakecloud.standalone.api import ControlApp
from pytest_fakecloud.standalone.control.fakes import _IN_PROCESS, plain

from ..budget import cases
from .conftest import ask, message


@pytest.fixture(scope="module")
def app() -> Iterator[ControlApp]:
    with Cloud(seed=1, now="2026-01-01T00:00:00Z", delivery="driven") as cloud:
        for fixture in SERVICES:
            getattr(cloud, fixture)(**({"dimension": 2} if fixture == "vector_index" else {}))
        yield ControlApp(cloud, "token")


@pytest.mark.parametrize("fixture", SERVICES)
def test_only_what_a_fixture_declares_is_offered(app: ControlApp, fixture: str) -> None:
    fake = next(fake for fake in app.cloud.fakes() if fake.fixture == fixture)
    names = {
        "__class__", "_engine", "_app", "__init__", "nothing", "", "clock._lanes", "_app.table",
        "journal._recorder", "faults._active", "clock.settle", "clock.__class__", "os.system",
        "clock.now.__self__", "journal.calls.__globals__", *_IN_PROCESS,
    }  # fmt: skip
    for name in names:
        answer = ask(app, "POST", "/call", {"object": fake.name, "name": name})
        assert "is not a " in message(answer), name
    inherited = {"thread_target", "expect_request", "create_matcher", "server_thread"}
    for name in inherited & {*dir(fake)}:
        assert "is not a name of" in message(
            ask(app, "POST", "/call", {"object": fake.name, "name": name})
        )


def test_the_cloud_starts_and_closes_nothing_by_a_call(app: ControlApp) -> None:
    for name in (
        "close",
        "snapshot",
        "restore",
        "explore",
        "every_failure",
        "_context",
        "__exit__",
    ):
        assert "is not a name of Cloud" in message(ask(app, "POST", "/call", {"name": name}))


def test_a_method_of_a_process_says_why_it_cannot_be_called(app: ControlApp) -> None:
    for name in ("explore", "every_failure"):
        text = message(ask(app, "POST", "/call", {"name": name}))
        assert f"{name} is not a name of Cloud that can be called" in text
        assert "needs the process of a Python test" in text


def test_what_cannot_be_represented_is_described() -> None:
    class Odd:
        def __repr__(self) -> str:
            return "an odd thing"

    assert plain([Odd(), b"\xff", b"text", math.inf, {1: dt.timedelta(seconds=1.5)}]) == [
        "an odd thing", {"base64": "/w=="}, "text", "inf", {"1": 1.5},
    ]  # fmt: skip
    assert plain(dt.datetime(2026, 1, 1, tzinfo=dt.UTC)) == "2026-01-01T00:00:00+00:00"


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
VALUES = st.recursive(
    LEAVES,
    lambda children: st.lists(children) | st.dictionaries(st.text() | st.integers(), children),
)


@given(VALUES)
@settings(max_examples=cases(60), deadline=None)
def test_every_value_is_strict_json(value: Any) -> None:
    json.dumps(plain(value), allow_nan=False)


# -- loading and replaying -------------------------------------------------------------------------
