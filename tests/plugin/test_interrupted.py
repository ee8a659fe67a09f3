"""Interrupted ends of fakes in a run of pytest: no cloud stays open."""

from __future__ import annotations

import os
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.kv.fake import KVServer

from ..harness import QUIET, apart

CONFTEST = """
import atexit
import pytest
from pytest_fakecloud import Cloud

close = Cloud.close
interrupted, closed = [], []

def interrupted_close(cloud):
    # The handler of a signal can raise an exception where a function begins.
    if len(interrupted) < {times}:
        interrupted.append(cloud)
        raise {error}
    if not cloud.closed:
        closed.append([fake.name for fake in cloud.fakes()])
    close(cloud)

def pytest_configure(config):
    Cloud.close = interrupted_close
    # pytest calls clean-ups of a configuration before those that were registered earlier.
    atexit.register(lambda: print("closed:", sorted(closed)))
"""


@pytest.mark.parametrize(
    ("scope", "error", "times"),
    [
        ("function", "KeyboardInterrupt", 1),
        ("function", "pytest.fail.Exception('Timeout')", 2),
        ("module", "KeyboardInterrupt", 2),
        ("session", "KeyboardInterrupt", 1),
    ],
)
def test_a_cloud_whose_end_is_interrupted_is_closed_by_the_end_of_the_run(
    scope: str, error: str, times: int, pytester: pytest.Pytester
) -> None:
    pytester.makeini(f"[pytest]\nfakecloud_scope = {scope}")
    pytester.makeconftest(CONFTEST.format(error=error, times=times))
    pytester.makepyfile(
        """
        def test_it(fakecloud_session, kv_server):
            fakecloud_session.queue()
        """
    )
    closed = {"session": "[['kv_server', 'queue']]"}.get(scope, "[['kv_server'], ['queue']]")
    result = apart(pytester, "-s")
    result.stdout.fnmatch_lines([f"closed: {closed}".replace("[", "[[]")])
    assert result.ret != pytest.ExitCode.OK


@pytest.mark.parametrize(
    ("times", "outcomes"),
    [
        (1, {"passed": 3, "errors": 1}),
        (2, {"passed": 3, "errors": 1}),
        (3, {"passed": 2, "errors": 2}),
    ],
)
def test_fakes_whose_end_is_interrupted_end_before_a_later_test(
    times: int, outcomes: dict[str, int], pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\nfakecloud_scope = module")
    pytester.makepyfile(
        f"""
        import pytest
        from pytest_fakecloud.broker.fake import Broker

        OWN = []

        @pytest.fixture(scope="module", autouse=True)
        def interruptions():
            close, remaining = Broker.close, [TimeoutError] * {times}

            def interrupted_close(broker):
                if remaining:
                    raise remaining.pop()
                close(broker)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Broker, "close", interrupted_close)
                yield

        def test_starts_fakes(fakecloud, fakecloud_session):
            shop = fakecloud_session.kv_server(name="shop")
            OWN.extend([fakecloud.kv_server(), fakecloud.broker(), shop])
            OWN[0].client().ping()
            shop.client().ping()

        def test_next(fakecloud):
            pass

        def test_last(fakecloud):
            assert [fake.closed for fake in OWN] == [True, True, True]
            assert fakecloud.fakes() == []
        """
    )
    result = pytester.runpytest_inprocess(*QUIET)
    result.assert_outcomes(**outcomes)
    # The clouds have started over for the next test, even if it gets an exception.
    for call in ("kv_server PING", "shop PING"):
        assert result.stdout.str().count(call) == 1


def test_early_fakes_close_if_nothing_can_replace_them(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    clouds: list[Cloud] = []
    open_cloud = Cloud._open

    def noted(cloud: Cloud, config: Any) -> None:
        clouds.append(cloud)
        open_cloud(cloud, config)

    def failing(*_: object) -> None:
        raise LookupError("no ports")

    monkeypatch.setattr(Cloud, "_open", noted)
    monkeypatch.setattr(KVServer, "_ports", failing)
    pytester.makeini("[pytest]\nfakecloud_early = kv_server")
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def fakecloud_session_settings():
            return {"seed": 5}

        def test_it(kv_server):
            pass
        """
    )
    pytester.runpytest_inprocess(*QUIET).assert_outcomes(errors=1)
    assert [cloud.closed for cloud in clouds] == [True, True]


def test_variables_of_early_fakes_are_restored_after_those_of_an_interrupted_test(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSTASH_REDIS_REST_TOKEN", "own")
    pytester.makeini("[pytest]\nfakecloud_early = kv_server")
    pytester.makepyfile(
        """
        import os

        def test_interrupted(kv_server, request):
            early = os.environ["UPSTASH_REDIS_REST_TOKEN"]
            kv_server.rotate_token()
            request.getfixturevalue("fakecloud_env")
            assert os.environ["UPSTASH_REDIS_REST_TOKEN"] not in ("own", early)
            raise KeyboardInterrupt
        """
    )
    with pytest.raises(KeyboardInterrupt):
        pytester.runpytest_inprocess(*QUIET)
    assert os.environ["UPSTASH_REDIS_REST_TOKEN"] == "own"
