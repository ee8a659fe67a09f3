"""JSON commands that report the type, the size and the keys of values."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.reply import Status
from tests.kv.conftest import Run

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
NO_KEY = "ERR could not perform this operation on a key that doesn't exist"


class TestAbout:
    def test_type(self, doc: Run) -> None:
        words = [b"integer", b"number", b"string", b"boolean", b"null", b"object", b"array"]
        assert doc("JSON.TYPE d $.*") == words
        assert doc("JSON.TYPE d") == b"object"
        assert doc("JSON.TYPE d a") == b"integer"
        assert doc("JSON.TYPE d nope") is None
        assert doc("JSON.TYPE d $.nope") == []
        assert doc("JSON.TYPE missing $") is None

    def test_lengths(self, doc: Run) -> None:
        assert doc("JSON.STRLEN d $.*") == [None, None, 4, None, None, None, None]
        assert doc("JSON.ARRLEN d $.*") == [None, None, None, None, None, None, 5]
        assert doc("JSON.OBJLEN d $.*") == [None, None, None, None, None, 2, None]
        assert (doc("JSON.STRLEN d s"), doc("JSON.ARRLEN d list"), doc("JSON.OBJLEN d")) == (
            4,
            5,
            7,
        )
        assert doc("JSON.OBJKEYS d o") == [b"a", b"deep"]
        assert doc("JSON.OBJKEYS d $.*") == [None] * 5 + [[b"a", b"deep"], None]

    def test_lengths_are_bytes(self, run: Run) -> None:
        run("JSON.SET", "d", "$", '"é"')
        assert run("JSON.STRLEN d") == 2

    @pytest.mark.parametrize(
        ("command", "expected"),
        [("STRLEN", "string"), ("ARRLEN", "array"), ("OBJLEN", "object"), ("OBJKEYS", "object")],
    )
    def test_errors(self, doc: Run, command: str, expected: str) -> None:
        text = f"WRONGTYPE wrong type of path value - expected {expected} but found integer"
        assert doc.error(f"JSON.{command} d a") == text
        assert doc.error(f"JSON.{command} d nope") == "ERR Path 'nope' does not exist"
        assert doc.error(f"JSON.{command} missing $") == NO_KEY
        assert doc(f"JSON.{command} missing") is None
        name = f"json.{command.lower()}"
        assert doc.error(f"JSON.{command} d a b") == (
            f"ERR wrong number of arguments for '{name}' command"
        )

    def test_resp(self, doc: Run) -> None:
        assert doc("JSON.RESP d o") == [
            Status(b"{"), b"a", 4, b"deep", [Status(b"{"), b"a", b"x"],
        ]  # fmt: skip
        assert doc("JSON.RESP d $.list") == [
            [Status(b"["), 1, b"two", b"3.0", [Status(b"["), 4], [Status(b"{"), b"a", 5]]
        ]
        assert doc("JSON.RESP d $.t") == [Status(b"true")]
        assert doc("JSON.RESP d n") is None
        assert doc("JSON.RESP missing") is None
        assert doc.error("JSON.RESP d nope") == "ERR Path 'nope' does not exist"

    def test_debug(self, doc: Run) -> None:
        assert doc("JSON.DEBUG MEMORY d") > doc("JSON.DEBUG MEMORY d o") > 0
        assert len(doc("JSON.DEBUG MEMORY d $..a")) == 4
        assert doc("JSON.DEBUG MEMORY missing") == 0
        assert doc("JSON.DEBUG MEMORY missing $") == []
        assert doc.error("JSON.DEBUG MEMORY d nope") == "ERR Path 'nope' does not exist"
        assert doc("JSON.DEBUG HELP")[0].text.startswith(b"JSON.DEBUG <subcommand>")

    @pytest.mark.parametrize(
        "command", ["JSON.GET k", "JSON.TYPE k", "JSON.SET k $ 1", "JSON.DEL k", "JSON.RESP k"]
    )
    def test_other_types(self, run: Run, command: str) -> None:
        run("SET k v")
        assert run.error(command) == WRONGTYPE

    def test_documents_are_a_type_of_their_own(self, doc: Run) -> None:
        assert doc("TYPE d") == Status(b"ReJSON-RL")
        assert doc.error("GET d") == WRONGTYPE
        assert doc.error("LPUSH d 1") == WRONGTYPE
        assert doc("SCAN 0 TYPE ReJSON-RL")[1] == [b"d"]
