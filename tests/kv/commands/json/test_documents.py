"""JSON documents: setting, reading and removing the matches of paths."""

from __future__ import annotations

import json

import pytest

from pytest_fakecloud.kv.engine.engine import Engine
from pytest_fakecloud.kv.reply import NIL_ARRAY, OK
from tests.kv.commands.json.conftest import value
from tests.kv.conftest import Run

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


class TestSet:
    @pytest.mark.parametrize("path", ["$", "."])
    @pytest.mark.parametrize(
        "text",
        [
            "1", "-0.0", "1.0", "1e16", "0.1", '"x"', "true", "null", "[]", "{}", "[1,[2,{}]]",
            "18446744073709551615", "-9223372036854775808", '{"b":1,"a":2}', '"é\\u0001\\""',
        ],
    )  # fmt: skip
    def test_values_that_are_set_can_be_read(self, run: Run, path: str, text: str) -> None:
        assert run("JSON.SET", "d", path, text) == OK
        assert run("JSON.GET", "d").decode() == text
        assert run("JSON.GET", "d", "$").decode() == f"[{text}]"

    @pytest.mark.parametrize(
        ("sent", "kept"),
        [
            (" [ 1 , 2 ] ", "[1,2]"),
            ('{"a": 1, "a": 2}', '{"a":2}'),
            ("1e2", "100.0"),
            ("1E400000000", None),
            ("18446744073709551616", "1.8446744073709552e19"),
            ("-9223372036854775809", "-9.223372036854775808e18"),
            ("1e100", "1e100"),
            ("1e-7", "1e-7"),
            ("1.5e-5", "0.000015"),
            ("123456789012345678.0", "1.2345678901234568e17"),
            ('"\\u00e9\\/"', '"é/"'),
            ('"\\ud83d\\ude00"', '"😀"'),
        ],
    )
    def test_numbers_and_texts_are_normalised(self, run: Run, sent: str, kept: str | None) -> None:
        if kept is None:
            assert run.error("JSON.SET", "d", "$", sent).startswith("ERR number out of range")
            return
        run("JSON.SET", "d", "$", sent)
        found = run("JSON.GET", "d").decode()
        assert found == kept or float(found) == float(kept)

    @pytest.mark.parametrize(
        "text",
        [
            "", " ", "{", "[1", "{bad", "{'a':1}", "[1,]", '{"a":1,}', "01", "+1", ".5", "1.",
            "NaN", "Infinity", "-Infinity", "nul", '"x', '"\x01"', '"\\x"', '"\\ud800"', "1 2",
            "[1] x", "tru", '{"a" 1}', "\N{NO-BREAK SPACE}1",
        ],
    )  # fmt: skip
    def test_what_is_not_json(self, run: Run, text: str) -> None:
        assert run.error("JSON.SET", "d", "$", text).startswith("ERR ")
        assert run("EXISTS d") == 0

    def test_what_is_not_utf8(self, run: Run) -> None:
        assert "invalid unicode" in run.error(b"JSON.SET", b"d", b"$", b'"\xff"')

    @pytest.mark.parametrize("text", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 129])
    def test_nesting_has_a_limit(self, run: Run, text: str) -> None:
        assert "recursion limit exceeded" in run.error("JSON.SET", "d", "$", text)

    def test_brackets_inside_texts_do_not_nest(self, run: Run) -> None:
        text = json.dumps(["[" * 1000, '\\"' * 100 + "{" * 500])
        assert run("JSON.SET", "d", "$", text) == OK

    def test_many_pieces_together_do_not_nest_too_deep(self, run: Run) -> None:
        run("JSON.SET", "d", "$", "{}")
        path, value = "$", '{"a":' * 100 + "{}" + "}" * 100
        for _ in range(2):
            assert run("JSON.SET", "d", f"{path}.a", value) == OK
            path += ".a" * 101
        assert run.error("JSON.SET", "d", f"{path}.a", value).startswith("ERR the document would")
        run("JSON.SET", "d", f"{path}.list", "[]")
        assert run.error("JSON.ARRAPPEND", "d", f"{path}.list", value).startswith("ERR the docum")
        assert run("JSON.GET", "d").count(b"a") == 202

    @pytest.mark.parametrize("path", ["$.x.y", "$.a.y", "x.y"])
    def test_a_parent_that_is_not_there(self, doc: Run, path: str) -> None:
        assert doc.error("JSON.SET", "d", path, "1") == f"ERR Path '{path}' does not exist"

    def test_a_new_document_begins_at_its_root(self, run: Run) -> None:
        assert run.error("JSON.SET d $.a 1") == "ERR new objects must be created at the root"


class TestGet:
    @pytest.mark.parametrize("path", ["$[", "$.", "$..", "$x", "$.a[?(", "$[?(@=~'[')]", "$.a ["])
    def test_bad_paths(self, doc: Run, path: str) -> None:
        assert doc.error("JSON.GET", "d", path).startswith("ERR invalid path: ")
        assert doc.error("JSON.SET", "d", path, "1").startswith("ERR invalid path: ")

    @pytest.mark.parametrize(
        "path",
        [
            "$" + "..*" * 20,
            "$..[?(@" + "..*" * 20 + ")]",
            "$" + ".a" * 100_000,
            "$[?" + "(" * 100_000,
            "$[?" + "(" * 1000 + "@" + ")" * 1000 + "]",
        ],
    )
    def test_paths_that_look_at_everything_end(self, run: Run, path: str) -> None:
        run("JSON.SET", "d", "$", '{"a":' * 60 + "1" + "}" * 60)
        told = ("ERR invalid path: ", "ERR the command was stopped: ")
        assert run.error("JSON.GET", "d", path).startswith(told)


class TestSeveral:
    def test_merge_creates_documents(self, run: Run) -> None:
        assert run("JSON.MERGE", "d", "$", '{"a":1,"b":null}') == OK
        assert run("JSON.GET d") == b'{"a":1}'
        assert run.error("JSON.MERGE e $.a 1") == "ERR new objects must be created at the root"


class TestRemove:
    @pytest.mark.parametrize("command", ["JSON.DEL", "JSON.FORGET"])
    def test_matches(self, doc: Run, command: str) -> None:
        assert doc(f"{command} d $..a") == 4
        assert value(doc, "$.o") == [{"deep": {}}]
        assert doc(f"{command} d $.list[0,2]") == 2
        assert value(doc, "$.list") == [["two", [4], {}]]
        assert doc(f"{command} d s") == 1
        assert doc(f"{command} d $.nope") == 0
        assert doc(f"{command} missing $") == 0

    @pytest.mark.parametrize("path", ["", "$", "."])
    def test_the_root(self, doc: Run, path: str) -> None:
        assert doc(f"JSON.DEL d {path}") == 1
        assert doc("EXISTS d") == 0


class TestAsAKey:
    def test_snapshots_hold_documents(self, doc: Run, engine: Engine) -> None:
        saved = engine.snapshot()
        doc("JSON.SET d $.o.a 0")
        engine.restore(saved)
        assert value(doc, "$.o.a") == [4]

    @pytest.mark.parametrize(
        "command", ["JSON.NUMINCRBY d $.a 1", "JSON.ARRAPPEND d $.list 1", "JSON.DEL d $.a"]
    )
    def test_changes_are_seen_by_watchers(self, doc: Run, command: str) -> None:
        watcher = doc.other(transport="port")
        watcher("WATCH d")
        doc(command)
        watcher("MULTI")
        watcher("PING")
        assert watcher("EXEC") is NIL_ARRAY


NESTED = {
    "number": {"a": 2, "b": 3, "nested": {"a": 4, "b": None}},
    "text": {"a": "own", "nested": {"a": "be"}, "other": [{"a": 1}]},
    "flag": {"a": True, "nested": {"a": False}, "other": {"a": 0}},
    "array": {"a": [1, 2], "nested": {"a": [3]}, "other": {"a": None}},
    "object": {"a": {"x": 1, "y": 2}, "nested": {"a": {"z": 3}}},
}


class TestBelowBeforeOwn:
    """``..`` lists matches below a node before the node's own member, in every command."""

    @pytest.fixture
    def nested(self, run: Run) -> Run:
        for key, document in NESTED.items():
            run("JSON.SET", key, "$", json.dumps(document))
        return run

    @pytest.mark.parametrize(
        ("line", "reply"),
        [
            (("JSON.GET", "number", "$..a"), b"[4,2]"),
            (("JSON.GET", "number", "$..b"), b"[null,3]"),
            (("JSON.GET", "number", "$..b", "$..a"), b'{"$..b":[null,3],"$..a":[4,2]}'),
            (("JSON.GET", "number", "..a"), b"4"),
            (("JSON.MGET", "number", "text", "$..a"), [b"[4,2]", b'["be",1,"own"]']),
            (("JSON.TYPE", "text", "$..a"), [b"string", b"integer", b"string"]),
            (("JSON.RESP", "number", "$..a"), [4, 2]),
            (("JSON.DEBUG", "MEMORY", "text", "$..a"), [12, 9, 13]),
            (("JSON.STRLEN", "text", "$..a"), [2, None, 3]),
            (("JSON.STRAPPEND", "text", "$..a", '"!"'), [3, None, 4]),
            (("JSON.NUMINCRBY", "number", "$..a", "1"), b"[5,3]"),
            (("JSON.NUMMULTBY", "number", "$..b", "2"), b"[null,6]"),
            (("JSON.TOGGLE", "flag", "$..a"), [1, None, 0]),
            (("JSON.ARRLEN", "array", "$..a"), [1, None, 2]),
            (("JSON.ARRINDEX", "array", "$..a", "2"), [-1, None, 1]),
            (("JSON.ARRAPPEND", "array", "$..a", "9"), [2, None, 3]),
            (("JSON.ARRINSERT", "array", "$..a", "0", "9"), [2, None, 3]),
            (("JSON.ARRTRIM", "array", "$..a", "0", "0"), [1, None, 1]),
            (("JSON.ARRPOP", "array", "$..a"), [b"3", None, b"2"]),
            (("JSON.OBJLEN", "object", "$..a"), [1, 2]),
            (("JSON.OBJKEYS", "object", "$..a"), [[b"z"], [b"x", b"y"]]),
        ],
    )
    def test_in_replies(self, nested: Run, line: tuple[str, ...], reply: object) -> None:
        assert nested(*line) == reply

    @pytest.mark.parametrize(
        ("line", "reply", "left"),
        [
            ("JSON.DEL object $..a", 2, {"nested": {}}),
            ("JSON.FORGET text $..a", 3, {"nested": {}, "other": [{}]}),
            ("JSON.CLEAR object $..a", 2, {"a": {}, "nested": {"a": {}}}),
            ("JSON.SET object $..a 0", OK, {"a": 0, "nested": {"a": 0}}),
            ("JSON.MERGE object $..a 0", OK, {"a": 0, "nested": {"a": 0}}),
        ],
    )
    def test_every_match_is_changed(
        self, nested: Run, line: str, reply: object, left: object
    ) -> None:
        assert nested(line) == reply
        assert value(nested, key=line.split()[1]) == [left]
