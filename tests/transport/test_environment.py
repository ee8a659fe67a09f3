"""Fakes bypass proxies while they are open, and the environment is restored."""

from __future__ import annotations

import os
import sys

import httpx
import pytest
import requests

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.transport import environment

NAMES = ("NO_PROXY", "no_proxy")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("late", [False, True])
def test_a_proxy_is_passed_by(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    if not late:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with Cloud() as cloud:
        kv = cloud.kv_server()
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        assert requests.get(f"{kv.url}/get/k", headers=kv.headers, timeout=20).ok
        assert httpx.get(f"{kv.url}/get/k", headers=kv.headers).is_success
        assert kv.client().get("k") is None
    assert not any(name in os.environ for name in NAMES)


def test_where_nothing_is_open_nothing_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cloud():
        assert os.environ["NO_PROXY"] == "127.0.0.1"
    monkeypatch.setenv("no_proxy", "mine.test")
    environment.refresh()
    assert os.environ["no_proxy"] == "mine.test"
    assert "NO_PROXY" not in os.environ


def test_hosts_that_are_there_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "internal.test, 10.0.0.1")
    with Cloud():
        assert os.environ["NO_PROXY"] == "internal.test,10.0.0.1,127.0.0.1"
        with Cloud():
            pass
        assert os.environ["NO_PROXY"] == "internal.test,10.0.0.1,127.0.0.1"
    assert os.environ["NO_PROXY"] == "internal.test, 10.0.0.1"
    assert "no_proxy" not in os.environ


@pytest.mark.parametrize("value", ["*", "127.0.0.1", "a.test,127.0.0.1"])
def test_what_covers_loopback_already_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("no_proxy", value)
    with Cloud():
        assert os.environ["no_proxy"] == value


def test_what_somebody_sets_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with Cloud():
        monkeypatch.setenv("NO_PROXY", "mine.test")
    assert os.environ["NO_PROXY"] == "mine.test"


def test_a_cloud_that_cannot_be_made_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trustme", None)
    before = dict(os.environ)
    with pytest.raises(ContractError, match="needs trustme"):
        Cloud(tls=True)
    assert dict(os.environ) == before
