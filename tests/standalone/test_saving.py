"""Test that a server's whole state survives in a file."""

from __future__ import annotations

import json
import os
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
import pytest
import redis

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.cloud.files import replace_file
from pytest_fakecloud.inspect.data import state_of
from pytest_fakecloud.standalone.saving import StateKeeper, encoded_state, locked, saved_state
from pytest_fakecloud.standalone.serving import Log
from pytest_fakecloud.standalone.state_file import checked_state, load_state
from tests.harness import wait_until

from .conftest import Command, Serve

NOON = "2026-01-01T12:00:00Z"


@pytest.fixture
def clouds() -> Iterator[tuple[Cloud, Cloud]]:
    """Return a cloud to save and an empty one to load into."""
    with (
        Cloud(seed=1, now=NOON, delivery="driven") as saving,
        Cloud(seed=2, now=NOON, delivery="driven") as loading,
    ):
        for cloud in (saving, loading):
            cloud.kv_server()
            cloud.vector_index(dimension=2)
            cloud.broker()
            cloud.queue()
        yield saving, loading


def through_a_file(saving: Cloud, loading: Cloud) -> dict[str, Any]:
    content = checked_state(json.loads(encoded_state(saved_state(saving))), "state")
    load_state(loading, content, Path("/"))
    return content


def test_every_kind_of_key_survives(clouds: tuple[Cloud, Cloud]) -> None:
    saving, loading = clouds
    kv, other = saving.fakes()[0], loading.fakes()[0]
    for line in (
        ["SET", "plain", "1", "EX", "60"],
        ["SET", "bytes", b"\xff\x00"],
        ["HSET", "hash", "f", "v", "g", "w"],
        ["HPEXPIRE", "hash", "5000", "FIELDS", "1", "f"],
        ["ZADD", "zset", "1.5", "m"],
        ["SADD", "set", "a", "b"],
        ["RPUSH", "list", "a", "b"],
        ["XADD", "stream", "1-1", "k", "v"],
        ["XGROUP", "CREATE", "stream", "g", "0"],
        ["XREADGROUP", "GROUP", "g", "c", "STREAMS", "stream", ">"],
        ["JSON.SET", "json", "$", '{"a": [1, null]}'],
        ["ARSET", "array", "18446744073709551000", "far"],
        ["PFADD", "counter", "a", "b"],
        ["SEARCH.CREATE", "docs", "ON", "HASH", "PREFIX", "1", "doc:", "SCHEMA", "title", "TEXT"],
        ["SEARCH.ALIASADD", "alias", "docs"],
        ["HSET", "doc:1", "title", "hello world"],
        ["VECTOR.CREATE", "near", "DIM", "2", "METRIC", "COSINE"],
        ["VECTOR.ADD", "near", "a", "VALUES", "2", "0.1", "1"],
        ["EXPIRE", "near", "100"],
        ["SCRIPT", "LOAD", "return 1"],
        ["ACL", "SETUSER", "ada", "on", ">secret", "~app:*", "+get"],
        ["CONFIG", "SET", "notify-keyspace-events", "KEA"],
    ):
        kv.execute(*line)
    through_a_file(saving, loading)
    assert state_of(other) == state_of(kv)
    for line in (
        ["ACL", "GETUSER", "ada"],
        ["XPENDING", "stream", "g", "-", "+", "10"],
        ["HPTTL", "hash", "FIELDS", "2", "f", "g"],
        ["SEARCH.COUNT", "alias", '{"title": "hello"}'],
        ["VECTOR.GET", "near", "a"],
        ["TTL", "near"],
        ["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"],
        ["CONFIG", "GET", "notify-keyspace-events"],
    ):
        assert other.execute(*line) == kv.execute(*line), line


def test_a_state_replaces_what_the_server_has(clouds: tuple[Cloud, Cloud]) -> None:
    saving, loading = clouds
    kv, other = saving.fakes()[0], loading.fakes()[0]
    kv.execute("SET", "saved", "1")
    for line in (
        ["SET", "later", "2"],
        ["SEARCH.CREATE", "docs", "ON", "HASH", "PREFIX", "1", "doc:", "SCHEMA", "title", "TEXT"],
        ["SCRIPT", "LOAD", "return 1"],
        ["ACL", "SETUSER", "ada", "on", ">secret", "~app:*", "+get"],
        ["CONFIG", "SET", "notify-keyspace-events", "KEA"],
    ):
        other.execute(*line)
    through_a_file(saving, loading)
    assert state_of(other) == state_of(kv)
    for line in (
        ["KEYS", "*"], ["ACL", "USERS"], ["CONFIG", "GET", "notify-keyspace-events"],
        ["SCRIPT", "EXISTS", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"],
    ):  # fmt: skip
        assert other.execute(*line) == kv.execute(*line), line


@pytest.mark.parametrize("dialect", ["vendor", "redis"])
def test_a_server_keeps_its_own_credentials(dialect: Literal["vendor", "redis"]) -> None:
    with Cloud(seed=1) as saving, Cloud(seed=2) as loading:
        saving.kv_server(dialect=dialect).execute("SET", "saved", "1")
        kv = loading.kv_server(dialect=dialect)
        through_a_file(saving, loading)
        answer = httpx.get(f"{kv.url}/get/saved", headers=kv.headers)
        assert answer.json() == {"result": "1"}
        with redis.Redis.from_url(kv.database_url) as client:
            assert client.get("saved") == b"1"
        without_password = kv.database_url.replace(urlsplit(kv.database_url).password or "-", "no")
        with (
            redis.Redis.from_url(without_password) as client,
            pytest.raises(redis.AuthenticationError),
        ):
            client.get("saved")


def test_vectors_records_and_groups_survive(clouds: tuple[Cloud, Cloud]) -> None:
    saving, loading = clouds
    _, index, broker, _ = saving.fakes()
    index.load([{"id": "a", "vector": [0.1, 2], "metadata": {"n": 1}, "data": "text"}])
    index.load([{"id": "b", "vector": [1, 2]}], namespace="other")
    broker.create_topic("orders", partitions=2, retention="1h")
    for number in range(3):
        broker.produce("orders", str(number), key="k", headers={"h": "v"}, partition=1)
    broker.topic("orders").delete_records(partition=1, before=2)
    broker.produce("orders", "after", partition=1)
    broker.commit("g", "orders", 1, 3)
    through_a_file(saving, loading)
    for before, after in zip(saving.fakes()[1:3], loading.fakes()[1:3], strict=True):
        assert state_of(after) == state_of(before)
    assert loading.fakes()[2].group("g").lag == broker.group("g").lag


def test_destinations_and_faults_survive_with_what_is_left_of_them(
    clouds: tuple[Cloud, Cloud],
) -> None:
    saving, loading = clouds
    url = "https://app.example.com/"
    state = {
        "destinations": {url: [503, {"status": 200, "body": {"ok": 1}}],
                         "https://far.example.com": {"forward": "http://127.0.0.1:9"},
                         "https://gone.example.com": "refuse"},
        "faults": {"kv": [{"kind": "respond", "args": [503], "times": 2}]},
    }  # fmt: skip
    load_state(saving, checked_state(state, "state"), Path("/"))
    queue = saving.fakes()[3]
    queue.publish(url, retries=0)
    queue.run_until_idle()
    content = through_a_file(saving, loading)
    assert content["destinations"][url] == [{"status": 200, "body": {"ok": 1}}]
    assert content["faults"] == {"kv": [{"kind": "respond", "args": [503], "times": 2}]}
    assert saved_state(loading)["destinations"] == content["destinations"]


def test_a_file_is_replaced_whole_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    replace_file(file, b"old")
    with pytest.raises(TypeError):
        replace_file(file, "not bytes")  # type: ignore[arg-type]
    assert file.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]
    if os.name == "posix":
        assert file.stat().st_mode & 0o777 == 0o600


def test_two_servers_cannot_keep_their_state_in_one_file(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    again = locked(file)
    with locked(file), pytest.raises(ContractError, match="another server keeps its state in"):
        again.__enter__()
    with locked(tmp_path / "new folder" / "state.json"):
        pass


def test_a_keeper_saves_only_after_something_has_happened(
    clouds: tuple[Cloud, Cloud], tmp_path: Path
) -> None:
    cloud, _ = clouds
    file = tmp_path / "state.json"
    keeper = StateKeeper(cloud, file, 3600, Log())
    keeper.save()
    first = keeper.saved_at
    keeper.save()
    assert keeper.saved_at is first
    cloud.fakes()[0].execute("SET", "k", "v")
    keeper.save()
    assert keeper.saved_at is not first
    cloud.clock.advance("1h")
    keeper.start()
    keeper.close()
    assert json.loads(file.read_bytes())["clock"]["at"] == "2026-01-01T13:00:00+00:00"


def test_a_killed_server_continues_with_its_last_save_and_an_ended_one_with_everything(
    serve: Serve, tmp_path: Path
) -> None:
    file = tmp_path / "state.json"
    options = ("kv", "queue", "--random", "--state", str(file), "--save-every", "1s")
    first = serve(*options)
    first.call("kv_server", "execute", "SET", "saved", "1")

    def is_saved() -> bool:
        if not file.exists():
            return False
        return b"saved" in b64decode(json.loads(file.read_bytes())["saved"]["kv"]["rdb"]["base64"])

    wait_until(is_saved)
    first.process.kill()
    first.process.wait(10)
    second = serve(*options)
    assert second.call("kv_server", "value", "saved") == "1"
    second.call("kv_server", "execute", "SET", "late", "2")
    second.process.terminate()
    assert second.process.wait(10) == 0
    third = serve(*options)
    assert third.call("kv_server", "contents") == {"saved": "1", "late": "2"}


@pytest.mark.skipif(os.name == "nt", reason="Windows deletes no file that is open")
def test_a_server_that_cannot_save_its_state_ends_with_an_exit_code(
    serve: Serve, tmp_path: Path
) -> None:
    file = tmp_path / "folder" / "state.json"
    server = serve("kv", "--random", "--state", str(file))
    (file.parent / "state.json.lock").unlink()
    file.parent.rmdir()
    file.parent.touch()
    server.process.terminate()
    assert server.process.wait(10) == 1


def test_a_damaged_state_ends_the_start_and_stays_as_it_is(
    command: Command, tmp_path: Path
) -> None:
    file = tmp_path / "state.json"
    file.write_text('{"saved": {"queue": {"data": 5}}}')
    done = command("serve", "queue", "--random", "--state", str(file))
    assert done.returncode == 2
    assert "state.json: saved: queue.data is 5; pass an object" in done.stderr
    assert file.read_text() == '{"saved": {"queue": {"data": 5}}}'


def test_the_command_saves_what_load_loads(serve: Serve, command: Command, tmp_path: Path) -> None:
    server = serve("kv", "--random")
    server.call("kv_server", "execute", "SET", "k", "v")
    file, where = tmp_path / "state.json", ("--url", server.url, "--token", server.token)
    assert command("save", str(file), *where).stdout.endswith(f"bytes in {file}\n")
    server.call("kv_server", "execute", "FLUSHALL")
    assert command("load", str(file), *where).returncode == 0
    assert server.call("kv_server", "contents") == {"k": "v"}
