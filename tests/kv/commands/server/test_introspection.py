"""COMMAND: descriptions of commands, and the keys of a command line."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.reply import Status
from pytest_fakecloud.kv.table.registry import COMMANDS
from tests.kv.comparison.servers import running
from tests.kv.conftest import Run


class TestLists:
    @pytest.mark.dialect("redis")
    def test_stock_shows_all(self, run: Run) -> None:
        commands = run("COMMAND")
        assert len(commands) == run("COMMAND COUNT")
        names = run("COMMAND LIST")
        assert {name for name in names if b"|" not in name} == {one[0] for one in commands}
        assert {b"acl|cat", b"xinfo|stream", b"object|encoding"} < set(names)
        assert len(commands) == 240

    def test_info(self, run: Run) -> None:
        (info,) = run("COMMAND INFO get")
        assert info[:6] == [b"get", 2, [Status(b"fast"), Status(b"readonly")], 1, 1, 1]
        assert info[6] == [Status(b"@fast"), Status(b"@read"), Status(b"@string")]
        assert info[8] == [
            [
                *(b"flags", [Status(b"RO"), Status(b"access")]),
                *(b"begin_search", [b"type", b"index", b"spec", [b"index", 1]]),
                *(
                    b"find_keys",
                    [b"type", b"range", b"spec", [b"lastkey", 0, b"keystep", 1, b"limit", 0]],
                ),
            ]
        ]
        assert run("COMMAND INFO nope") == [None]
        (xgroup,) = run("COMMAND INFO xgroup")
        assert b"xgroup|create" in [child[0] for child in xgroup[9]]
        (child,) = run("COMMAND INFO xgroup|create")
        assert child[0] == b"xgroup|create"
        (mset,) = run("COMMAND INFO mset")
        assert mset[3:6] == [1, -1, 2]
        (xread,) = run("COMMAND INFO xread")
        assert Status(b"movablekeys") in xread[2]

    def test_docs(self, run: Run) -> None:
        name, facts = run("COMMAND DOCS get")
        assert (name, facts[1], facts[5]) == (
            b"get",
            b"Return the string value of a key.",
            b"string",
        )
        assert run("COMMAND DOCS nope") == []
        assert b"subcommands" in run("COMMAND DOCS config")[1]

    def test_filters(self, run: Run) -> None:
        assert sorted(run("COMMAND LIST FILTERBY PATTERN xr*")) == [
            b"xrange",
            b"xread",
            b"xreadgroup",
            b"xrevrange",
        ]
        assert b"geoadd" in run("COMMAND LIST FILTERBY ACLCAT geo")
        assert run("COMMAND LIST FILTERBY MODULE json") == []
        assert run.error("COMMAND LIST FOO") == "ERR syntax error"
        assert run.error("COMMAND LIST FILTERBY FOO x") == "ERR syntax error"
        assert Status(b"COUNT") in run("COMMAND HELP")


class TestDocs:
    def test_the_row_of_a_command(self, run: Run) -> None:
        name, docs = run("COMMAND DOCS zunionstore")
        found = dict(zip(docs[::2], docs[1::2], strict=True))
        assert name == b"zunionstore"
        assert (found[b"since"], found[b"group"]) == (b"2.0.0", b"sorted-set")
        assert (found[b"complexity"], found[b"history"]) == (b"", [])
        arguments = [dict(zip(each[::2], each[1::2], strict=True)) for each in found[b"arguments"]]
        assert [each[b"name"] for each in arguments][:3] == [b"key", b"numkeys", b"key"]
        assert arguments[0][b"key_spec_index"] == 0
        assert arguments[2][b"flags"] == [Status(b"multiple")]
        words = [each for each in arguments if each[b"type"] == b"pure-token"]
        assert {each[b"token"] for each in words} >= {b"WEIGHTS", b"AGGREGATE"}
        assert all(each[b"flags"] == [Status(b"optional")] for each in words)

    def test_a_key_behind_a_word(self, run: Run) -> None:
        (_, docs) = run("COMMAND DOCS GEORADIUS")
        arguments = docs[docs.index(b"arguments") + 1]
        stores = [each for each in arguments if b"STORE" in each]
        assert stores == [
            [
                *(b"name", b"key", b"type", b"key", b"key_spec_index", 1),
                *(b"token", b"STORE", b"flags", [Status(b"optional")]),
            ]
        ]

    def test_subcommands_have_docs_of_their_own(self, run: Run) -> None:
        (_, docs) = run("COMMAND DOCS xgroup")
        children = docs[docs.index(b"subcommands") + 1]
        assert b"xgroup|create" in children
        assert b"arguments" in children[children.index(b"xgroup|create") + 1]


CONTAINERS = [name for name in COMMANDS if f"{name} HELP" in COMMANDS and name != "CLUSTER"]
"""All containers except the one that is rejected as a whole, including HELP."""


def told(run: Run, container: str) -> list[str]:
    port = run.other(transport="port")
    return [line.text.decode() for line in port(f"{container} HELP")]


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_subcommand_is_described(run: Run, container: str) -> None:
    lines = told(run, container)
    assert lines[0] == f"{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    assert lines[-2:] == ["HELP", "    Prints this help."]
    words = {line.split()[0] for line in lines[1:] if line[0].isupper()}
    assert words == {word.decode() for word in COMMANDS[container].subcommands or ()}


@pytest.mark.dialect("redis")
def test_the_stock_dialect_has_the_texts_of_the_real_server(run: Run) -> None:
    with running(version="7.0.") as server:
        for container in CONTAINERS:
            if container != "JSON.DEBUG":
                reply = server.call([container.encode(), b"HELP"])
                assert told(run, container) == [line.text.decode() for line in reply]
