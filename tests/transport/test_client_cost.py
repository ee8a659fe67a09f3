"""One TLS context for clients made while fakes are open: only if it is safe, and restored
afterwards.
"""

from __future__ import annotations

import os
import ssl
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from pytest_fakecloud import Cloud


def context_of(client: httpx.Client) -> ssl.SSLContext:
    pool: Any = client._transport._pool  # type: ignore[attr-defined]
    found: ssl.SSLContext = pool._ssl_context
    return found


def made(**options: Any) -> ssl.SSLContext:
    with httpx.Client(**options) as client:
        return context_of(client)


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


def test_asynchronous_clients_share_too() -> None:
    with Cloud():
        client = httpx.AsyncClient()
        pool: Any = client._transport._pool  # type: ignore[attr-defined]
        assert pool._ssl_context is made()


def test_the_official_clients_share() -> None:
    with Cloud() as cloud:
        shared = made()
        client: Any = cloud.kv_server().client()
        assert context_of(client._http._client) is shared


@pytest.mark.skipif(
    sys.platform in ("win32", "darwin"), reason="proxies are settings of the system"
)
def test_clients_find_the_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    find: Any = httpx._client  # type: ignore[attr-defined]
    before = find.get_environment_proxies
    with Cloud():
        assert find.get_environment_proxies is not before
        assert find.get_environment_proxies() == {}
        for name in ("HTTP_PROXY", "https_proxy", "All_Proxy"):
            with monkeypatch.context() as patch:
                patch.setenv(name, "http://127.0.0.1:9")
                found = find.get_environment_proxies()
                assert found == before()
                assert found[f"{name.lower().removesuffix('_proxy')}://"] == "http://127.0.0.1:9"
    assert find.get_environment_proxies is before
    with Cloud(share_tls_context=False):
        assert find.get_environment_proxies is before
