"""Test default ports and credentials: they survive a restart, and no web page can use them."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.cloud.fake import Takeover
from pytest_fakecloud.cloud.services import services_by_word
from pytest_fakecloud.http.ports import Listeners, close_listeners
from pytest_fakecloud.standalone import addresses
from pytest_fakecloud.standalone.addresses import DEVELOPMENT, control_token
from pytest_fakecloud.standalone.serving import Log, Options, with_defaults

from .conftest import Command, Serve, Server, fetch

pytestmark = pytest.mark.slow


def test_every_service_has_a_port_and_credentials() -> None:
    assert DEVELOPMENT.keys() == services_by_word().keys()
    ports = [
        value for values in DEVELOPMENT.values() for name, value in values.items() if "port" in name
    ]
    assert len({*ports, addresses.CONTROL_PORT}) == len(ports) + 1


# -- the same after every start --------------------------------------------------------------------


def free_ports(count: int) -> list[int]:
    """Unused ports."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for sock in sockets:
        sock.close()
    return ports


@pytest.fixture(scope="module")
def development_server(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A server with known credentials, at ports that no other server of this machine has."""
    folder: Path = tmp_path_factory.mktemp("state")
    words = ["--control-port", "--kv-port", "--vector-port", "--broker-port", "--queue-port"]
    *ports, database = free_ports(len(words) + 1)
    options = [f"{word}={port}" for word, port in zip(words, ports, strict=True)]
    options += ["--kv", f"database_port={database}", "--now", "2026-01-01T00:00:00Z"]
    environment = {"PYTEST_FAKECLOUD_RANDOM": "no", "XDG_STATE_HOME": str(folder)}
    if os.name == "nt":
        environment["LOCALAPPDATA"] = str(folder)
    first = serve(*options, **environment)
    first.process.terminate()
    first.process.wait(10)
    again = serve(*options, **environment)
    assert again.summary["env"] == first.summary["env"]
    return again


def test_a_restart_changes_nothing_of_the_environment(development_server: Server) -> None:
    """The fixture compares the complete environment."""
    env = development_server.summary["env"]
    assert env["UPSTASH_REDIS_REST_TOKEN"] == "local-kv-token"
    assert env["REDIS_URL"].startswith("redis://default:local-kv-password@")
    assert env["UPSTASH_VECTOR_REST_TOKEN"] == "local-vector-token"
    assert env["UPSTASH_KAFKA_REST_PASSWORD"] == "local-broker-password"
    assert env["QSTASH_CURRENT_SIGNING_KEY"] == "sig_7kYjw48mhY7kAjqNGcy6cr29RJ6r"
    assert env["QSTASH_DEV_PORT"] == env["QSTASH_URL"].rpartition(":")[2]


MakeOptions = Callable[..., Options]


@pytest.fixture
def kv_options() -> Iterator[MakeOptions]:
    """A function that returns the options of ``serve kv`` with their defaults."""
    listeners: Listeners = {}

    def options_of(**changed: Any) -> Options:
        options = Options({"kv": {}}, control_token="own", listeners=listeners)
        return with_defaults(replace(options, **changed), Log())

    yield options_of
    close_listeners(listeners)


def test_of_two_servers_that_start_at_the_same_moment_one_has_the_default_ports(
    monkeypatch: pytest.MonkeyPatch, kv_options: MakeOptions
) -> None:
    port, database = free_ports(2)
    ports = {**DEVELOPMENT["kv"], "port": port, "database_port": database}
    monkeypatch.setitem(DEVELOPMENT, "kv", ports)  # type: ignore[arg-type]
    first, second = (kv_options(control_port=1) for _ in range(2))
    services = [settings.services["kv"] for settings in (first, second)]
    assert [service["port"] for service in services] == [port, 0]
    assert [service["database_port"] for service in services] == [database, 0]
    with Cloud() as cloud:
        kv = cloud._start("kv_server", services[0], Takeover(first.listeners))
        assert kv.url.endswith(f":{port}")
        assert fetch("GET", f"{kv.url}/ping", headers=kv.headers).status == 200
        with pytest.raises(ContractError, match="cannot listen on port"):
            cloud.vector_index(port=database)


def test_a_port_in_use_is_replaced_and_logged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kv_options: MakeOptions
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        (database,) = free_ports(1)
        monkeypatch.setitem(
            DEVELOPMENT,  # type: ignore[arg-type]
            "kv",
            {**DEVELOPMENT["kv"], "port": port, "database_port": database},
        )
        settings = kv_options(control_port=1)
    kv = settings.services["kv"]
    assert (kv["port"], kv["database_port"]) == (0, database)
    assert f"port {port} of kv is in use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "settings", "left"),
    [
        ("kv", {"token": "own"}, {"port", "database_port", "database_password"}),
        ("kv", {"engine": "redis://127.0.0.1:1"}, {"port", "token"}),
        ("broker", {"password": "own"}, {"port"}),
        ("queue", {"token": "own"}, {"port"}),
    ],
)
def test_given_settings_replace_defaults(
    word: str, settings: dict[str, str], left: set[str]
) -> None:
    assert addresses.defaults(word, settings, public=False).keys() == left


def test_credentials_of_ones_own_are_for_every_host(serve: Serve, kv_options: MakeOptions) -> None:
    queue = kv_options(
        host="0.0.0.0", services={"queue": {"token": "own"}}
    ).services["queue"]  # fmt: skip
    assert "dev_credentials" not in queue
    server = serve("kv", "--host", "0.0.0.0", "--kv-token", "own", "--kv", "database_port=0",
                   "--kv-port", "0", "--control-port", "0", "--control-token", "x",
                   PYTEST_FAKECLOUD_RANDOM="no")  # fmt: skip
    assert server.summary["env"]["UPSTASH_REDIS_REST_TOKEN"] == "own"
    assert "local" not in server.summary["env"]["REDIS_URL"]


def test_the_queue_takes_a_token_beside_the_public_keys(serve: Serve) -> None:
    server = serve("queue", "--queue-token", "own", "--queue", "dev_credentials=true")
    assert server.summary["env"]["QSTASH_TOKEN"] == "own"


# -- the token of the control API ------------------------------------------------------------------


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a folder for state files."""
    monkeypatch.setattr(addresses, "_state_folder", lambda: tmp_path / "local" / "state")
    return tmp_path / "local" / "state"


def test_the_control_token_is_kept_and_private(folder: Path) -> None:
    assert control_token() is None
    token = control_token(make=True)
    assert token == control_token(make=True) == control_token()
    (file,) = folder.iterdir()
    if os.name != "nt":
        assert file.stat().st_mode & 0o777 == 0o600
        file.chmod(0o644)
        # Other users could have read it.
        assert control_token(make=True) not in (None, token)
        assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600]


def test_a_file_without_a_token_is_an_error(folder: Path) -> None:
    control_token(make=True)
    (file,) = folder.iterdir()
    file.write_bytes(b"\xff")
    with pytest.raises(ContractError, match="does not contain a token: delete the file"):
        control_token()


def test_a_folder_that_cannot_be_written_is_a_warning(
    folder: Path, capsys: pytest.CaptureFixture[str], kv_options: MakeOptions
) -> None:
    folder.parent.write_text("a file")
    assert kv_options(control_token=None).control_token is None
    assert "the control token could not be stored" in capsys.readouterr().err


# -- what a web page can send ----------------------------------------------------------------------

PAGE: dict[str, dict[str, str]] = {
    "rebound name": {"Host": "evil.example:7401"},
    "link, image or form": {"Sec-Fetch-Site": "cross-site"},
    "page of another port": {"Sec-Fetch-Site": "same-site"},
    "form of an old browser": {"Origin": "https://evil.example"},
    "sandboxed frame": {"Origin": "null"},
    "redirect of an opened page": {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
    "page in a frame": {"Sec-Fetch-Dest": "iframe"},
    "page of an old browser": {"Accept": "text/html,*/*;q=0.8", "Upgrade-Insecure-Requests": "1"},
}
ACTS = {
    "UPSTASH_REDIS_REST_URL": ("GET", "/set/k/v?_token=local-kv-token"),
    "REDIS_URL": ("POST", "/set/k/v?_token=local-kv-token"),
    "UPSTASH_VECTOR_REST_URL": ("POST", "/reset"),
    "UPSTASH_KAFKA_REST_URL": ("GET", "/produce/topic/message"),
    "QSTASH_URL": ("POST", "/v2/publish/https://app.test?qstash_token=x"),
}


@pytest.mark.parametrize("name", ACTS)
def test_no_page_can_use_public_credentials(development_server: Server, name: str) -> None:
    """With the credentials and without: in a query, in a URL, or in the headers after a rebind."""
    method, target = ACTS[name]
    place = development_server.summary["env"][name]
    url = f"http://{place.rpartition('@')[2].rpartition('//')[2]}{target}"
    (headers,) = (
        fake["headers"]
        for fake in development_server.summary["fakes"]
        if fake["url"] == place or (name == "REDIS_URL" and fake["name"] == "kv_server")
    )
    for page, sent in PAGE.items():
        answer = fetch(method, url, headers={**headers, **sent})
        assert answer.status == (421 if "Host" in sent else 403), (page, answer.data)
        assert not [header for header in answer.headers if header.startswith("access-control")]
    # Before a request with its own headers, a browser sends OPTIONS.
    asked = fetch("OPTIONS", url, headers={"Origin": "https://evil.example",
                  "Access-Control-Request-Headers": "authorization"})  # fmt: skip
    assert asked.status >= 400
    assert not [header for header in asked.headers if header.lower().startswith("access-control")]
    kv = development_server.summary["fakes"][0]
    assert fetch("GET", f"{kv['url']}/dbsize", headers=kv["headers"]).data == b'{"result":0}'


def test_applications_are_let_in(development_server: Server) -> None:
    kv = development_server.summary["fakes"][0]
    port = kv["url"].rpartition(":")[2]
    for sent in ({"Sec-Fetch-Mode": "cors"}, {"Host": f"localhost:{port}"},
                 {"Accept": "text/html"}, {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
                 {"Origin": kv["url"], "Sec-Fetch-Site": "same-origin"}):  # fmt: skip
        assert fetch("GET", f"{kv['url']}/ping", headers={**kv["headers"], **sent}).status == 200


def test_the_console_is_opened(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    """SIGTERM, instead of a browser, follows."""
    opened = []

    def open_page(url: str) -> None:
        opened.append(url)
        os.kill(os.getpid(), 15)

    monkeypatch.setattr("webbrowser.open", open_page)
    assert command("serve", "kv", "--random", "--open").returncode == 0
    assert opened[0].startswith("http://127.0.0.1:")
