"""``documented_only``, which rejects commands that the vendor does not document."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.kv import errors
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.kv.table.registry import COMMANDS
from tests.kv.comparison.wire import Error
from tests.kv.resp.test_port import Client

LACKING = [
    "ROLE", "LCS a b", "SORT a", "SORT_RO a", "OBJECT ENCODING a", "SUBSTR a 0 1", "SWAPDB 0 0",
    "SLOWLOG GET", "MOVE a 0", "MEMORY STATS", "CONFIG REWRITE", "COMMAND DOCS", "LATENCY LATEST",
    "DEBUG OBJECT a", "ACL DRYRUN default GET a", "PFSELFTEST",
]  # fmt: skip


def test_the_official_python_client_sends_documented_commands() -> None:
    spec = find_spec("upstash_redis")
    if spec is None or spec.origin is None:
        pytest.skip("upstash_redis is not installed")
    source = Path(spec.origin).with_name("commands.py").read_text(encoding="utf-8")
    lines = re.findall(r'command: List.*? = \[\s*"([A-Z._ ]+)"(?:,\s*"([A-Z]+)")?', source)
    sent = {
        f"{name} {second}" if COMMANDS[name].subcommands else name
        for name, second in lines
        if name in COMMANDS
    }
    assert len(sent) > 150
    assert {name for name in sent if not COMMANDS[name].documented} == {"SUBSTR"}


@pytest.mark.parametrize("line", LACKING)
def test_undocumented_commands_are_rejected(line: str) -> None:
    with KVServer(Context.alone(), documented_only=True) as server:
        answer = httpx.post(server.url, json=line.split(), headers=server.headers)
        assert answer.status_code == 400
        text = answer.json()["error"]
        words = line.split()
        assert text in {
            errors.not_available(name).decode() for name in (words[0], " ".join(words[:2]))
        }
        client = Client(server)
        try:
            assert client(line) == Error(text.encode())
        finally:
            client.close()


@pytest.mark.parametrize(
    "line",
    [
        "MEMORY USAGE a", "WAIT 0 0", "WAITAOF 1 0 0", "CONFIG GET *", "MSETEX 1 a b",
        "CONFIG SET notify-keyspace-events KEA", "XINFO STREAM s", "CLIENT ID", "CLIENT INFO",
        "CLIENT LIST", "CLIENT GETNAME", "CLIENT SETNAME a",
    ],
)  # fmt: skip
def test_documented_commands_are_offered(line: str) -> None:
    with KVServer(Context.alone(), documented_only=True) as server:
        server.execute("XADD", "s", "*", "f", "v")
        client = Client(server)
        try:
            assert not isinstance(client(line), Error)
        finally:
            client.close()


def test_the_rest_and_the_tester_go_on() -> None:
    with KVServer(Context.alone(), documented_only=True) as server:
        with server._make_client() as redis:
            redis.set("k", "v")
            assert redis.xadd("s", "*", {"a": 1})
            assert redis.xinfo_groups("s") == []
            assert redis.eval("return redis.call('GET', KEYS[1])", keys=["k"]) == "v"
            assert redis.script_load("return 1")
            with pytest.raises(Exception, match="Unknown Redis command called from script"):
                redis.eval("return redis.call('SUBSTR', KEYS[1], 0, 0)", keys=["k"])
            with pytest.raises(Exception, match="is not available: 'SUBSTR'"):
                redis.substr("k", 0, 1)
        assert server.execute("OBJECT", "ENCODING", "k") == "embstr"
        assert server.execute("LCS", "k", "k") == "v"


def test_everything_is_offered_by_default_and_through_a_cloud_by_setting() -> None:
    with Cloud() as cloud:
        for setting, wanted in (({}, 200), ({"documented_only": True}, 400)):
            server = cloud.kv_server(name=f"kv{wanted}", **setting)
            answer = httpx.post(server.url, json=["LCS", "a", "b"], headers=server.headers)
            assert answer.status_code == wanted


def test_a_transaction_with_one_is_discarded() -> None:
    with KVServer(Context.alone(), documented_only=True) as server:
        lines = [["SET", "k", "v"], ["SWAPDB", "0", "0"]]
        answer = httpx.post(f"{server.url}/multi-exec", json=lines, headers=server.headers)
        assert answer.status_code == 400
        assert "is not available: 'SWAPDB'" in answer.json()["error"]
        assert server.keys() == []


def test_documented_only_in_front_of_a_real_server() -> None:
    pytest.importorskip("redis")
    context = Context.alone()
    with (
        KVServer(context) as memory,
        KVServer(context, engine=memory.database_url, documented_only=True) as server,
    ):
        answer = httpx.post(server.url, json=["LCS", "a", "b"], headers=server.headers)
        assert answer.json() == {"error": errors.not_available("LCS").decode()}
        assert server.execute("SET", "k", "v") == "OK"
        answer = httpx.post(server.url, json=["GET", "k"], headers=server.headers)
        assert answer.json() == {"result": "v"}
