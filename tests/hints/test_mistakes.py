"""Hints about common mistakes: unset variables, misspelt names, libraries that replace the
process's clock.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import httpx
import pytest
import requests
import time_machine
from freezegun import freeze_time
from pydantic import BaseModel
from upstash_redis import Redis

from pytest_fakecloud import Cloud, plugin
from pytest_fakecloud.hints.mistakes import mistakes
from pytest_fakecloud.hints.variables import VARIABLES, at_import

from ..harness import Run, apart

URL = "UPSTASH_REDIS_REST_URL"


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    for name in os.environ:
        if name.startswith(("UPSTASH_", "QSTASH_", "KV_")):
            monkeypatch.delenv(name)
    with Cloud(seed=1) as opened:
        opened.kv_server()
        opened.queue()
        yield opened


class Settings(BaseModel):
    upstash_redis_rest_url: str


def fails() -> None:
    raise AssertionError


def in_a_subprocess(check: bool) -> None:
    command = [sys.executable, "-Ic", f"import os; os.environ[{URL!r}]"]
    done = subprocess.run(command, check=check, capture_output=True, text=check)
    assert done.returncode == 0


def with_freezegun(cloud: Cloud) -> None:
    cloud.clock.freeze()
    with freeze_time("2020-01-01"):
        fails()


def with_a_patch(cloud: Cloud) -> None:
    with mock.patch("time.sleep"):
        fails()


@mock.patch("time.sleep")
def decorated(cloud: Cloud, sleep: object) -> None:
    fails()


def a_call(cloud: Cloud) -> Any:
    fake = cloud.fakes()[0]
    requests.get(f"{fake.url}/get/a", headers=fake.headers, timeout=5)
    return fake.journal.calls().only()


ENVIRONMENT = f"{URL} is not set: use the fixture fakecloud_env"
URLS = f"{URL}, QSTASH_URL are not set: use the fixture fakecloud_env"
MISTAKES: list[tuple[Callable[[Any], object], str]] = [
    (lambda cloud: Redis.from_env(), ENVIRONMENT),
    (lambda cloud: Settings(), ENVIRONMENT),
    (lambda cloud: Redis(str(os.getenv(URL)), "token", rest_retries=0).get("a"), URLS),
    (lambda cloud: requests.get(f"{os.getenv(URL)}/get/a", timeout=1), URLS),
    (lambda cloud: httpx.get(os.getenv(URL)), URLS),  # type: ignore[arg-type]
    (lambda cloud: os.environ["QSTASH_TOKEN"], "QSTASH_TOKEN is not set: use the fixture"),
    (lambda cloud: exec(compile(f"import os; os.environ[{URL!r}]", "a.py", "exec"), {}),
     f"{URL} is not set when a module that reads it is imported."),
    (lambda cloud: in_a_subprocess(True), f"a subprocess had no {URL}: start it with env="),
    (lambda cloud: in_a_subprocess(False), f"a subprocess had no {URL}: start it with env="),
    (lambda cloud: cloud.fakes()[0].get("a"), "KVServer has no get: value(key) reads a key"),
    (lambda cloud: cloud.queue().advance("1h"), "Queue has no advance: clock.advance(duration) moves"),
    (lambda cloud: cloud.destination().expect_request("/x"),
     "Destination has no expect_request: server.expect_request() adds an expectation"),
    (lambda cloud: cloud.fakes()[0].valeu("a"), "KVServer has no valeu; did you mean 'value'?"),
    (lambda cloud: cloud.fakes()[1].destinations.respnd(), "Destinations has no respnd; did you"),
    (lambda cloud: cloud.clock.tick(5), "Clock has no tick: advance(duration) moves the clock"),
    (lambda cloud: cloud.clock.advance(hours=1), "advance() takes one duration"),
    (lambda cloud: cloud.calls(), "Cloud has no calls: journal.calls()"),
    (lambda cloud: cloud.broker().delete_topic("t"), "Broker has no delete_topic: topic(…).delete()"),
    (lambda cloud: cloud.broker().rebalance("g"), "Broker has no rebalance: group(…).rebalance()"),
    (lambda cloud: cloud.queue().cancel("m"), "Queue has no cancel: message(…).cancel()"),
    (
        lambda cloud: cloud.queue().retry_dead_letter("m"),
        "Queue has no retry_dead_letter: dead_letters(…).only().retry()",
    ),
    (lambda cloud: cloud.fakes()[0].drop(), "KVServer has no drop: faults.drop()"),
    (lambda cloud: a_call(cloud).request.json(), "Call has no request; did you mean 'request_json'"),
    (lambda cloud: a_call(cloud).json(), "Call has no json: request_json, response_json"),
    (with_freezegun, "freezegun moves time.time() of this process only"),
    (with_a_patch, "time.sleep() is patched"),
    (decorated, "time.sleep() is patched"),
]  # fmt: skip


def raised(do: Callable[[Any], object], cloud: Cloud) -> BaseException:
    with pytest.raises(Exception) as caught:
        do(cloud)
    return caught.value


@pytest.mark.parametrize(("do", "hint"), MISTAKES)
def test_a_mistake_gets_one_hint(do: Callable[[Any], object], hint: str, cloud: Cloud) -> None:
    first, *rest = mistakes(cloud, raised(do, cloud))
    assert first.startswith(hint)
    assert all(line.startswith("    ") for line in rest)


@pytest.mark.parametrize(
    "do",
    [
        lambda cloud: os.environ["SHOP_URL"],
        lambda cloud: os.environ["UPSTASH_VECTOR_REST_URL"],
        lambda cloud: object().get,  # type: ignore[attr-defined]
        lambda cloud: cloud.fakes()[0].quite_another_thing,
        lambda cloud: int(hours=1),  # type: ignore[call-overload]
        lambda cloud: fails(),
    ],
)
def test_other_errors_get_none(do: Callable[[Any], object], cloud: Cloud) -> None:
    assert mistakes(cloud, raised(do, cloud)) == []


def test_what_a_fixture_does_to_the_clock_is_seen(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = raised(lambda cloud: fails(), cloud)
    with freeze_time("2020-01-01"):
        assert mistakes(cloud, error) == []  # a running clock follows
    cloud.clock.freeze()
    with time_machine.travel("2020-01-01"):
        (hint,) = mistakes(cloud, error)
    assert hint.startswith("time_machine moves")
    with freeze_time("2020-01-01"):
        (hint,) = mistakes(cloud, error)
    assert hint.startswith("freezegun moves")
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    (hint,) = mistakes(cloud, error)
    assert hint.startswith("time.sleep() is patched")


def test_a_sleep_that_moves_the_clock_is_no_mistake(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = raised(lambda cloud: fails(), cloud)
    with Cloud(process_time="autojump") as moved:
        time.sleep(1)
        ours = time.sleep
        assert mistakes(moved, error) == []
    monkeypatch.setattr(time, "sleep", ours)  # as a fixture does that ends later
    assert mistakes(cloud, error) == []


def test_the_variables_are_those_of_the_fakes(cloud: Cloud) -> None:
    cloud.vector_index()
    cloud.broker()
    for fake in cloud.fakes():
        own = {name for name in fake.env if not name.startswith(("QSTASH_DEV", "QSTASH_REGION"))}
        assert own == set(VARIABLES[fake.fixture])
        assert all(name.startswith(plugin.CLIENT_VARIABLES) for name in own)


def test_a_module_that_cannot_be_imported_gets_a_hint(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(URL, raising=False)
    result = run(f"import os\nos.environ[{URL!r}]\n")
    result.assert_outcomes(errors=1)
    head = f"{URL} is not set when a module that reads it is imported. *"
    result.stdout.fnmatch_lines([head, "*[[]pytest[]]", "    fakecloud_early = kv_server"])
    assert at_import(KeyError("SHOP_URL")) == []


def test_a_module_that_fails_for_another_reason_imports_no_report(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(
        """
        import sys

        def pytest_unconfigure(config):
            print("reports:", "pytest_fakecloud.reporting" in sys.modules)
        """
    )
    pytester.makepyfile("import os\nos.environ['SHOP_URL']\n")
    result = apart(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["reports: False"])
