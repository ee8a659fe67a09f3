"""While fakes are open, they bypass proxies, and clients share one TLS context if it is safe."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import trio
import trustme

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.process.surroundings import no_proxy

from ..harness import changing_clouds, in_threads

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
    no_proxy.refresh()
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


@pytest.mark.parametrize("is_copy", [True, False])
def test_variables_are_restored_where_they_were_set(
    monkeypatch: pytest.MonkeyPatch, is_copy: bool
) -> None:
    real, other = os.environ, {"NO_PROXY": "mine.test"}
    with Cloud() as cloud:
        if is_copy:
            other = real.copy()
        monkeypatch.setattr(os, "environ", other)
        cloud.kv_server()
        assert "127.0.0.1" in other["NO_PROXY"]
        assert other["no_proxy"] == "127.0.0.1"
    assert not any(name in real for name in NAMES)
    assert {name: other[name] for name in NAMES if name in other} == (
        {} if is_copy else {"NO_PROXY": "mine.test"}
    )


def test_a_cloud_that_cannot_be_made_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trustme", None)
    before = dict(os.environ)
    install = r"needs trustme: pip install 'pytest-fakecloud\[tls\]'"
    with pytest.raises(ContractError, match=install):
        Cloud(tls=True)
    assert dict(os.environ) == before


def test_clouds_in_threads_make_the_changes_once_and_undo_them_once() -> None:
    inside: list[str | None] = []

    def use(share: bool) -> None:
        for _ in range(50):
            with Cloud(share_tls_context=share, delivery="driven"):
                inside.append(os.environ.get("NO_PROXY"))

    before = changing_clouds()
    in_threads(*(partial(use, share) for share in (True, False, True, False)))
    assert inside == ["127.0.0.1"] * 200
    assert changing_clouds() == before
    assert not any(name in os.environ for name in NAMES)


# -- cheaper clients -------------------------------------------------------------------------------


def made(**options: Any) -> ssl.SSLContext:
    with httpx.Client(**options) as client:
        pool: Any = client._transport._pool  # type: ignore[attr-defined]
        context: ssl.SSLContext = pool._ssl_context
        return context


def test_default_clients_share_while_a_fake_is_open_and_no_longer() -> None:
    before = httpx._transports.default.create_ssl_context  # type: ignore[attr-defined]
    assert made() is not made()
    with Cloud():
        shared = made()
        with Cloud():
            assert made() is shared
        assert made() is shared
        assert made(verify=True, cert=None) is shared
    assert httpx._transports.default.create_ssl_context is before  # type: ignore[attr-defined]
    assert made() is not shared
    with Cloud():
        assert made() is shared


def test_anything_but_the_default_is_made_anew() -> None:
    with Cloud():
        shared = made()
        own = ssl.create_default_context()
        assert made(verify=own) is own
        unchecked = made(verify=False)
        assert unchecked is not shared
        assert unchecked.verify_mode is ssl.CERT_NONE
        assert shared.verify_mode is ssl.CERT_REQUIRED
        assert made(trust_env=False) is not shared


def test_it_can_be_switched_off() -> None:
    with Cloud(share_tls_context=False):
        assert made() is not made()


def test_other_authorities_are_seen_even_under_the_same_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "ca.pem"
    with Cloud():
        default = made()
        authorities = [trustme.CA(), trustme.CA()]
        authorities[0].cert_pem.write_to_path(str(path))
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        first = made()
        assert first is not default
        assert made() is first
        path.write_bytes(authorities[1].cert_pem.bytes() + b"\n")
        assert made() is not first
        monkeypatch.undo()
        assert made() is default


@pytest.mark.parametrize(
    "run", [lambda work: asyncio.run(work()), trio.run], ids=["asyncio", "trio"]
)
@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_a_client_created_in_an_event_loop_looks_at_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, run: Callable[..., object]
) -> None:
    path = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(path))
    monkeypatch.setenv(variable, str(tmp_path if variable == "SSL_CERT_DIR" else path))
    stat, looks = os.stat, list[str]()

    def watched_stat(file: Any, **options: Any) -> os.stat_result:
        looks.append(str(file))
        return stat(file, **options)

    async def create() -> None:
        assert made() is not shared
        await kv.aio.client().close()

    with Cloud() as cloud:
        shared, kv = made(), cloud.kv_server()
        with monkeypatch.context() as patched:
            patched.setattr(os, "stat", watched_stat)
            assert made() is shared
            assert os.environ[variable] in looks
            looks.clear()
            run(create)
        assert os.environ[variable] not in looks
