"""HTTPS with a certificate authority made for the run, and the settings that make clients trust it."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import httpx
import httpx2
import pytest
import requests
import urllib3

from pytest_fakecloud import Cloud, KVServer
from pytest_fakecloud.core.exits import exiting
from pytest_fakecloud.pytest_run.env import set_variables


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, tls=True) as opened:
        yield opened


@pytest.fixture
def kv(cloud: Cloud) -> KVServer:
    server = cloud.kv_server()
    server.load({"k": "v"})
    return server


@pytest.fixture
def trusted(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cloud.authority is not None
    for name, value in cloud.authority.variables.items():
        monkeypatch.setenv(name, value)
    # Since Python 3.12, the shared opener keeps the TLS context of earlier requests.
    monkeypatch.setattr(urllib.request, "_opener", None)


def test_every_fake_speaks_https(cloud: Cloud) -> None:
    fakes = [
        cloud.kv_server(), cloud.vector_index(), cloud.broker(), cloud.queue(),
        cloud.callback_capture(), cloud.destination(),
    ]  # fmt: skip
    assert all(fake.url.startswith("https://127.0.0.1:") for fake in fakes)


@pytest.mark.usefixtures("trusted")
def test_clients_trust_it_through_their_variables(kv: KVServer) -> None:
    url = f"{kv.url}/get/k"
    assert httpx.get(url, headers=kv.headers).json() == {"result": "v"}
    assert httpx2.get(url, headers=kv.headers).json() == {"result": "v"}
    assert requests.get(url, headers=kv.headers, timeout=20).json() == {"result": "v"}
    assert _read(kv) == b'{"result":"v"}'


_openers = [
    urllib.request.build_opener(),
    urllib.request.build_opener(urllib.request.ProxyHandler({"no": "x"})),
]


@pytest.mark.parametrize("before", [None, *_openers], ids=["none", "usual", "proxies"])
def test_urllib_trusts_it_until_the_end_of_the_test(
    before: object, cloud: Cloud, kv: KVServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(urllib.request, "_opener", before)
    with exiting() as exits:
        set_variables(cloud, exits)
        assert urllib.request._opener is not before  # type: ignore[attr-defined]
        assert _read(kv) == b'{"result":"v"}'
    assert urllib.request._opener is before  # type: ignore[attr-defined]


def test_an_installed_opener_stays(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    monkeypatch.setattr(urllib.request, "_opener", opener)
    with exiting() as exits:
        set_variables(cloud, exits)
        assert urllib.request._opener is opener  # type: ignore[attr-defined]


def _read(kv: KVServer) -> bytes:
    request = urllib.request.Request(f"{kv.url}/get/k", headers=kv.headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        content: bytes = answer.read()
        return content


def test_clients_trust_it_through_a_context(cloud: Cloud, kv: KVServer) -> None:
    assert cloud.authority is not None
    context = cloud.authority.client_context()
    url = f"{kv.url}/get/k"
    assert httpx.get(url, headers=kv.headers, verify=context).json() == {"result": "v"}
    with urllib3.PoolManager(ssl_context=context) as pool:
        assert pool.request("GET", url, headers=kv.headers).json() == {"result": "v"}
    assert requests.get(url, headers=kv.headers, verify=cloud.authority.ca_file, timeout=20).ok


@pytest.mark.usefixtures("trusted")
def test_the_official_clients_work(cloud: Cloud) -> None:
    kv, index, queue = cloud.kv_server(), cloud.vector_index(dimension=2), cloud.queue()
    kv.client().set("k", "v")
    index.client().upsert([("1", [1.0, 0.0])])
    queue.client().message.publish_json(url="https://app.test/hook", body={})
    assert kv.value("k") == "v"
    assert len(index.vectors()) == 1
    assert len(queue.messages()) == 1


def test_strangers_do_not_trust_it(kv: KVServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(kv.url)
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(kv.url, timeout=20)
    with pytest.raises(httpx.TransportError):
        httpx.get(kv.url.replace("https", "http"))
    assert kv.journal.calls() == []


def test_deliveries_and_callbacks_trust_it(cloud: Cloud) -> None:
    queue, capture, target = cloud.queue(), cloud.callback_capture(), cloud.destination()
    target.server.expect_request("/hook").respond_with_data("fine")
    queue.publish(f"{target.url}/hook", json={}, callback=capture.callback_url)
    callback = capture.wait_for_callback()
    assert (callback.status, callback.response_body) == (200, b"fine")


def test_the_variables_are_among_the_clouds(cloud: Cloud, kv: KVServer) -> None:
    assert cloud.authority is not None
    assert cloud.env["SSL_CERT_FILE"] == cloud.env["NODE_EXTRA_CA_CERTS"] == cloud.authority.ca_file
    assert cloud.env["UPSTASH_REDIS_REST_URL"] == kv.url


def test_in_process_needs_no_handshake() -> None:
    with Cloud(tls=True, transport="inprocess") as cloud:
        kv = cloud.kv_server()
        assert httpx.get(f"{kv.url}/get/k", headers=kv.headers).is_success
        assert kv.journal.calls().only().client is None


def test_the_authority_ends_with_the_cloud() -> None:
    with Cloud(tls=True) as cloud:
        assert cloud.authority is not None
        ca_file = Path(cloud.authority.ca_file)
        assert ca_file.read_bytes().startswith(b"-----BEGIN CERTIFICATE-----")
        assert isinstance(cloud.authority.client_context(), ssl.SSLContext)
    assert not ca_file.exists()


def test_a_cloud_that_demands_certificates_of_clients_changes_no_other() -> None:
    with Cloud(tls=True) as strict, Cloud(tls=True) as other:
        assert strict.authority is not None
        strict.authority.server_context.verify_mode = ssl.CERT_REQUIRED
        for cloud in (other, Cloud(tls=True)):
            with cloud:
                assert cloud.authority is not None
                kv, context = cloud.kv_server(), cloud.authority.client_context()
                answer = httpx.get(f"{kv.url}/get/k", headers=kv.headers, verify=context)
                assert answer.is_success


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.slow
def test_a_forked_child_leaves_its_parents_authority_alone() -> None:
    """In its own process, because a fork of this one would copy held locks."""
    source = """
import gc, os, sys
from pytest_fakecloud import Cloud

cloud = Cloud(tls=True)
kv = cloud.kv_server()
for end in ("exit", "close", "forget"):
    child = os.fork()
    if not child:
        if end == "close":
            cloud.close()
        if end == "forget":
            del cloud, kv
            gc.collect()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0, end
    assert os.path.exists(cloud.authority.ca_file), f"the child took it along by {end}"
import httpx
assert httpx.get(kv.url, verify=cloud.authority.client_context()).status_code == 401
cloud.close()
assert not os.path.exists(os.path.dirname(cloud.authority.ca_file))
left = Cloud(tls=True).authority.ca_file
print(left)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", source], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    # An unclosed authority ends with its process.
    assert not Path(done.stdout.strip()).parent.exists()
