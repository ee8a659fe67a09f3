"""The server's descriptions of itself, field by field: as in Redis 7.0, and as redis-py reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.kv.table import arguments
from pytest_fakecloud.kv.table.arguments import ARGUMENTS
from pytest_fakecloud.kv.table.registry import COMMANDS
from pytest_fakecloud.kv.table.synopsis import Argument
from tests.kv.comparison.servers import RealServer, running
from tests.kv.comparison.wire import Status
from tests.kv.resp.test_port import Client
from tests.kv.table import TABLE_FILE, WITHOUT_SERVER
from tests.notations import complete

SETTING = ["SET k v", "SET e v EX 100", "LPUSH l 1 2", "SELECT 3", "SET other v", "SELECT 0"]
SECTIONS = ["Server", "Clients", "Memory", "Persistence", "Stats", "Replication", "CPU", "Modules",
            "Errorstats", "Cluster", "Keyspace"]  # fmt: skip
OF_THE_PLACE = {b"dir", b"port", b"save", b"unixsocket"}
"""The parameters with which the real server was started."""


@pytest.fixture
def server() -> Iterator[KVServer]:
    with KVServer(Context.alone(), dialect="redis") as server:
        yield server


@pytest.fixture
def fake(server: KVServer) -> Iterator[Client]:
    client = Client(server)
    for line in SETTING:
        client(line)
    yield client
    client.close()


@pytest.fixture(scope="module")
def real() -> Iterator[RealServer]:
    with running(version="7.0") as server:
        for line in SETTING:
            server.call(line.encode().split())
        yield server


def _fields(text: bytes) -> list[str]:
    return [line.partition(":")[0] for line in text.decode().splitlines()]


@pytest.mark.parametrize("section", SECTIONS)
def test_fields_of_info(fake: Client, real: RealServer, section: str) -> None:
    theirs = _fields(real.call([b"INFO", section.lower().encode()]))
    assert _fields(fake("INFO", section.lower())) == theirs
    assert theirs[0] == f"# {section}"


def test_it_announces_one_version_everywhere(fake: Client, real: RealServer) -> None:
    assert f"redis_version:{real.version}\r\n" in fake("INFO server").decode()
    hello = fake("HELLO 2")
    assert dict(zip(hello[::2], hello[1::2], strict=True))[b"version"] == real.version.encode()
    assert fake("EVAL", "return redis.REDIS_VERSION", 0) == real.version.encode()
    number = real.call([b"EVAL", b"return redis.REDIS_VERSION_NUM", b"0"])
    assert fake("EVAL", "return redis.REDIS_VERSION_NUM", 0) == number
    assert fake("LOLWUT").startswith(f"Redis ver. {real.version}".encode())


def test_it_has_the_commands_of_redis(fake: Client, real: RealServer) -> None:
    for line in ("MODULE LIST", "COMMAND COUNT"):
        assert fake(line) == real.call(line.encode().split())
    assert fake("HELLO 2")[-1] == real.call([b"HELLO", b"2"])[-1] == []
    names = set(fake("COMMAND LIST"))
    assert names == set(real.call([b"COMMAND", b"LIST"]))
    assert {spec[0] for spec in fake("COMMAND")} == {name for name in names if b"|" not in name}


def test_a_module_brings_its_commands(fake: Client) -> None:
    with KVServer(Context.alone(), dialect="redis", modules=["ReJSON"]) as server:
        client = Client(server)
        (module,) = client("MODULE LIST")
        name = dict(zip(module[::2], module[1::2], strict=True))[b"name"]
        assert name == b"ReJSON"
        assert b"module:name=ReJSON,ver=20000," in client("INFO modules")
        assert client("HELLO 2")[-1] == [module]
        own = set(client("COMMAND", "LIST", "FILTERBY", "MODULE", name))
        assert {word.partition(b".")[0] for word in own} == {b"json"}
        assert client("COMMAND LIST FILTERBY MODULE nosuch") == []
        assert set(client("COMMAND LIST")) == {*fake("COMMAND LIST"), *own}
        assert b"json" in client("ACL CAT")
        assert client("ACL SETUSER u +@json -json.del") == Status(b"OK")
        client.close()


def test_it_has_the_parameters_of_redis(fake: Client, real: RealServer) -> None:
    def parameters(reply: list[bytes]) -> dict[bytes, bytes]:
        pairs = dict(zip(reply[::2], reply[1::2], strict=True))
        return {name: value for name, value in pairs.items() if name not in OF_THE_PLACE}

    ours = parameters(fake("CONFIG GET *"))
    assert ours == parameters(real.call([b"CONFIG", b"GET", b"*"]))
    assert len(ours) > 150


def test_help_is_that_of_redis(fake: Client, real: RealServer) -> None:
    asked = [name for name in real.call([b"COMMAND", b"LIST"]) if name.endswith(b"|help")]
    assert len(asked) == 15
    for name in asked:
        line = name.upper().split(b"|")
        assert fake(*line) == real.call(line), name


def test_fields_of_client_list(fake: Client, real: RealServer) -> None:
    def names(line: bytes) -> list[bytes]:
        return [word.partition(b"=")[0] for word in line.split()]

    for line in ("CLIENT INFO", "CLIENT LIST"):
        assert names(fake(line)) == names(real.call(line.encode().split()))


def _flat(reply: list[Any]) -> list[Any]:
    return [
        item if index % 2 == 0 or not isinstance(item, list) else _flat(item)
        for index, item in enumerate(reply)
        if index % 2 == 0 or isinstance(item, list)
    ]


def test_fields_of_memory_stats(fake: Client, real: RealServer) -> None:
    ours = fake("MEMORY STATS")
    assert _flat(ours) == _flat(real.call([b"MEMORY", b"STATS"]))
    facts = dict(zip(ours[::2], ours[1::2], strict=True))
    assert facts[b"keys.count"] == 4
    assert facts[b"total.allocated"] == facts[b"overhead.total"] + facts[b"dataset.bytes"]
    assert facts[b"dataset.bytes"] > 0
    info = fake("INFO memory").decode()
    assert f"used_memory:{facts[b'total.allocated']}\r\n" in info


def _comparable(entry: list[Any]) -> dict[str, Any]:
    _, arity, flags, first, last, step, categories, tips, keys, children = entry
    return {
        "arity": arity,
        "flags": sorted(flags),
        "place": (first, last, step),
        "categories": sorted(categories),
        "tips": sorted(tips),
        "keys": keys,
        "children": sorted((child[0], _comparable(child)) for child in children),
    }


@pytest.mark.completeness
def test_command_info_is_that_of_redis(fake: Client, real: RealServer) -> None:
    names = [name.upper() for name in real.call(b"COMMAND LIST FILTERBY PATTERN *".split())]
    theirs = real.call([b"COMMAND", b"INFO", *names])
    complete_rows(fake("COMMAND", "INFO", *names), theirs)


def complete_rows(ours: list[Any], theirs: list[Any]) -> None:
    """Fail with what rows need so that COMMAND INFO returns what a real server returns."""
    lines = []
    for mine, yours in zip(ours, theirs, strict=True):
        left, right = _comparable(mine), _comparable(yours)
        for field, expected in right.items():
            where = "_TIPS of kv/commands/server/introspection.py" if field == "tips" else "its row"
            if left[field] != expected:
                lines.append(f"{yours[0]}: {field} {expected} and not {left[field]}, in {where}")
    complete(TABLE_FILE, lines)


def _docs(reply: list[Any]) -> dict[str, dict[bytes, Any]]:
    entries: dict[str, dict[bytes, Any]] = {}
    for name, entry in zip(reply[::2], reply[1::2], strict=True):
        facts = dict(zip(entry[::2], entry[1::2], strict=True))
        entries[name.decode().upper().replace("|", " ")] = facts
        entries |= _docs(facts.get(b"subcommands", []))
    return entries


def _option_words(facts: dict[bytes, Any]) -> set[str]:
    words: set[str] = set()
    for argument in facts.get(b"arguments", []):
        inner = dict(zip(argument[::2], argument[1::2], strict=True))
        words |= _option_words(inner)
        if inner.get(b"token"):
            words.add(inner[b"token"].decode().upper())
    return words


def test_command_docs_say_since_when_and_what_is_deprecated(fake: Client, real: RealServer) -> None:
    compared = (b"since", b"group", b"doc_flags", b"deprecated_since", b"replaced_by")

    def facts(reply: list[Any]) -> dict[str, dict[bytes, Any]]:
        return {
            name: {key: value for key, value in entry.items() if key in compared}
            for name, entry in _docs(reply).items()
        }

    ours, theirs = facts(fake("COMMAND DOCS")), facts(real.call([b"COMMAND", b"DOCS"]))
    assert {n: ours[n] for n in ours if not n.startswith("JSON.")} == theirs


def complete_types(docs: dict[str, dict[bytes, Any]]) -> None:
    """Fail with the names of arguments that have another type in COMMAND DOCS of a real server. A name
    that has several types there may be a string.
    """
    types: dict[str, set[str]] = {}
    for name, facts in docs.items():
        names = {argument.name for argument in leaves(COMMANDS[name].arguments)}
        for argument, kind in _types(facts):
            if argument in names:
                types.setdefault(argument, set()).add(kind)
    complete(
        Path(arguments.__file__),
        (
            f"{name} with the type {' or '.join(sorted(kinds))}, instead of {ARGUMENTS[name].type}"
            for name, kinds in sorted(types.items())
            if ARGUMENTS[name].type not in (*kinds, "key", "string" if len(kinds) > 1 else "")
        ),
    )


@pytest.mark.completeness
def test_each_key_is_an_argument() -> None:
    """COMMAND DOCS gives arguments the indexes of their keys. MIGRATE has two of the same name."""
    missing = []
    for name, spec in COMMANDS.items():
        keys = [key for key in spec.keys if not (key.unknown or key.is_channel)]
        names = {
            argument.name.rstrip("12")
            for argument in leaves(spec.arguments)
            if ARGUMENTS[argument.name].type == "key"
        }
        if len(names) < len(keys) and name != "MIGRATE":
            missing.append(f"the type key for the name of an argument of {name} that is a key")
    complete(Path(arguments.__file__), missing)


def leaves(arguments: Iterable[Argument]) -> Iterator[Argument]:
    """Yield the arguments that are values and contain no others."""
    for argument in arguments:
        yield from leaves(argument.inner)
        if argument.kind == "string":
            yield argument


def _types(facts: dict[bytes, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and the type of each argument that is a value."""
    for argument in facts.get(b"arguments", []):
        inner = dict(zip(argument[::2], argument[1::2], strict=True))
        yield from _types(inner)
        kind = inner[b"type"].decode()
        if kind not in ("block", "oneof", "pure-token"):
            yield inner[b"name"].decode(), kind


@pytest.mark.completeness
def test_types_of_arguments_are_those_of_redis(real: RealServer) -> None:
    complete_types(_docs(real.call([b"COMMAND", b"DOCS"])))


@pytest.mark.completeness
def test_option_words_are_those_of_redis(fake: Client, real: RealServer) -> None:
    ours = _docs(fake("COMMAND DOCS"))
    wrong = {
        name: _option_words(facts) ^ _option_words(ours[name])
        for name, facts in _docs(real.call([b"COMMAND", b"DOCS"])).items()
    }
    # Redis 7.0 calls the operation of BITOP a string, and has no token for the empty key of MIGRATE.
    expected = {"BITOP": {"AND", "NOT", "OR", "XOR"}, "MIGRATE": {'""'}}
    assert {name: words for name, words in wrong.items() if words} == expected


@pytest.mark.completeness
def test_later_commands_are_those_of_valkey(fake: Client) -> None:
    with (
        running("valkey") as server,
        KVServer(Context.alone(), dialect="redis", version="9.1.0") as later_fake,
    ):
        docs = _docs(server.call([b"COMMAND", b"DOCS"]))
        earlier = _docs(fake("COMMAND DOCS"))
        later = [name for name in COMMANDS if name not in earlier]
        names = [name for name in later if name in docs]
        lines = [name.lower().replace(" ", "|").encode() for name in names]
        theirs = server.call([b"COMMAND", b"INFO", *lines])
        client = Client(later_fake)
        ours = client("COMMAND", "INFO", *lines)
        client.close()
    assert {"HEXPIRE", "HSETEX", "CLIENT CAPA", "DELIFEQ", "WAITAOF"} <= set(names)
    missing = {*later} - {*names} - WITHOUT_SERVER
    complete(
        TABLE_FILE,
        (
            f"before the version of {name}: `vendor-` if only the vendor has it, or `redis-`"
            for name in sorted(missing)
        ),
    )
    wrong = WITHOUT_SERVER.intersection(names)
    assert not wrong, f"Valkey has {wrong}: remove `vendor-` or `redis-` from their rows"
    complete_rows(ours, theirs)
    complete_types({name: facts for name, facts in docs.items() if name in COMMANDS})
    complete(
        TABLE_FILE,
        (
            f"{name}: the option {word} to its row, or remove it"
            for name in names
            for word in {*COMMANDS[name].options} ^ _option_words(docs[name])
        ),
    )


def test_redis_py_reads_it_all(server: KVServer, fake: Client) -> None:
    redis = pytest.importorskip("redis")
    for protocol in (2, 3):
        with redis.Redis.from_url(server.database_url, protocol=protocol) as client:
            info = client.info("everything")
            assert info["used_memory_human"].endswith("K")
            assert info["maxmemory_human"] == "0B"
            assert (info["db0"]["keys"], info["db0"]["expires"]) == (3, 1)
            assert info["db3"]["keys"] == 1
            assert info["os"] == "Linux x86_64"
            stats = client.memory_stats()["db.0"]  # redis-py 5 leaves the names of RESP3 as bytes
            name = "overhead.hashtable.expires"
            assert stats[name if name in stats else name.encode()] > 0
            assert client.client_info()["tot-mem"] == 0
            command = client.command()["mget"]
            assert command["tips"] == [b"request_policy:multi_shard"]


def test_states_are_flags_of_the_list(server: KVServer, fake: Client) -> None:
    def flags(client: Client) -> str:
        lines = fake("CLIENT LIST").decode().splitlines()
        own = client.socket.getsockname()
        line = next(line for line in lines if f" addr={own[0]}:{own[1]} " in line)
        fields = dict(word.split("=", 1) for word in line.split())
        return f"{fields['flags']} {fields['redir']}"

    other = Client(server)
    try:
        assert flags(other) == "N -1"
        assert other("CLIENT NO-EVICT ON") == Status(b"OK")
        other("WATCH", "k")
        other("MULTI")
        fake("SET", "k", "changed")
        assert flags(other) == "xde -1"
        other("DISCARD")
        other("HELLO", 3)
        other("CLIENT TRACKING ON BCAST")
        assert flags(other) == "tBe 0"
        other("RESET")
        other("AUTH", other.password)
        other.send("BLPOP", "nothing", 0)
        engine = server._engine
        while not engine.waiters:
            pass
        assert flags(other) == "b -1"
    finally:
        other.close()
