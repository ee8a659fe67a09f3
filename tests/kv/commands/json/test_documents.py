"""JSON documents: setting, reading and removing the matches of paths."""

from __future__ import annotations

import json

import pytest

from pytest_fakecloud.kv.engine.engine import Engine
from pytest_fakecloud.kv.reply import NIL_ARRAY, OK, Status
from tests.kv.commands.json.conftest import value
from tests.kv.conftest import Run

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
NO_KEY = "ERR could not perform this operation on a key that doesn't exist"


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

    def test_conditions(self, doc: Run) -> None:
        assert doc("JSON.SET d $ 1 NX") is None
        assert doc("JSON.SET new $ 1 XX") is None
        assert doc("JSON.SET new $ 1 NX") == OK
        assert doc("JSON.SET d $.a 3 NX") is None
        assert doc("JSON.SET d $.a 3 xx") == OK
        assert doc("JSON.SET d $.z 3 XX") is None
        assert doc("JSON.SET d $.z 3 nx") == OK
        assert value(doc, "$.a") == [3]
        assert value(doc, "$.z") == [3]

    @pytest.mark.parametrize("words", ["BAD", "NX XX", "NX NX"])
    def test_bad_conditions(self, doc: Run, words: str) -> None:
        assert doc.error(f"JSON.SET d $ 1 {words}") == "ERR syntax error"

    def test_a_last_member_is_created(self, doc: Run) -> None:
        doc("JSON.SET d $.o.new 1")
        doc("JSON.SET d $..deep.new 2")
        doc("JSON.SET d o.legacy 3")
        assert value(doc, "$.o") == [{"a": 4, "deep": {"a": "x", "new": 2}, "new": 1, "legacy": 3}]

    @pytest.mark.parametrize("path", ["$.x.y", "$.a.y", "x.y"])
    def test_a_parent_that_is_not_there(self, doc: Run, path: str) -> None:
        assert doc.error("JSON.SET", "d", path, "1") == f"ERR Path '{path}' does not exist"

    @pytest.mark.parametrize("path", ["$.list[9]", "$.x[*]", "$..[?(@.nope)]"])
    def test_what_cannot_be_created(self, doc: Run, path: str) -> None:
        assert doc.error("JSON.SET", "d", path, "1") == "ERR Err wrong static path"

    def test_a_new_document_begins_at_its_root(self, run: Run) -> None:
        assert run.error("JSON.SET d $.a 1") == "ERR new objects must be created at the root"

    def test_every_match_is_set(self, doc: Run) -> None:
        doc("JSON.SET d $..a 0")
        assert value(doc, "$..a") == [0, 0, 0, 0]

    def test_a_match_inside_another_goes_with_it(self, run: Run) -> None:
        run("JSON.SET", "d", "$", '{"a":{"a":{"a":1}}}')
        run("JSON.SET", "d", "$..a", "[7]")
        assert value(run) == [{"a": [7]}]
        run("JSON.SET", "d", "$..*", "{}")
        assert value(run) == [{"a": {}}]

    def test_matches_do_not_share_what_they_got(self, doc: Run) -> None:
        doc("JSON.SET", "d", "$..a", "[]")
        doc("JSON.ARRAPPEND", "d", "$.a", "1")
        assert value(doc, "$..a") == [[], [], [], [1]]

    def test_the_expiry_stays_with_a_changed_document(self, doc: Run) -> None:
        doc("EXPIRE d 100")
        doc("JSON.SET d $.a 1")
        doc("JSON.SET d $ {}")
        assert doc("TTL d") == 100


class TestGet:
    def test_shapes(self, doc: Run) -> None:
        assert doc("JSON.GET d $.a") == b"[2]"
        assert doc("JSON.GET d .a") == b"2"
        assert doc("JSON.GET d a") == b"2"
        assert doc("JSON.GET d $.nope") == b"[]"
        assert doc("JSON.GET d $.a $.nope") == b'{"$.a":[2],"$.nope":[]}'
        assert doc("JSON.GET d a s") == b'{"a":2,"s":"text"}'
        assert doc("JSON.GET d a $.s") == b'{"a":[2],"$.s":["text"]}'
        assert doc("JSON.GET missing $") is None
        assert doc.error("JSON.GET d nope") == "ERR Path 'nope' does not exist"
        assert doc.error("JSON.GET d a nope") == "ERR Path 'nope' does not exist"

    def test_layout(self, run: Run) -> None:
        run("JSON.SET", "d", "$", '{"a":[1,{}],"b":{"c":[]}}')
        text = run(b"JSON.GET", b"d", b"INDENT", b"\t", b"NEWLINE", b"\n", b"SPACE", b" ")
        expected = json.dumps({"a": [1, {}], "b": {"c": []}}, indent="\t")
        assert text.decode() == expected
        assert run(b"JSON.GET", b"d", b"space", b" ", b"$.b") == b'[{"c": []}]'
        assert run("JSON.GET d NOESCAPE $.b") == b'[{"c":[]}]'

    def test_mget(self, doc: Run) -> None:
        doc("JSON.SET e $ 1")
        doc("SET string x")
        assert doc("JSON.MGET d e missing string $.a") == [b"[2]", b"[]", None, None]
        assert doc("JSON.MGET d e missing string a") == [b"2", None, None, None]

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

    def test_expressions_of_filters_are_linear(self, run: Run) -> None:
        run("JSON.SET", "d", "$", json.dumps(["a" * 1000, "ab"]))
        assert run("JSON.GET", "d", '$[?(@ =~ "^(a|a)*b$")]') == b'["ab"]'


class TestSeveral:
    def test_mset(self, doc: Run) -> None:
        assert doc("JSON.MSET", "d", "$.a", "7", "e", "$", "{}", "e", "$.x", "1") == OK
        assert doc("JSON.GET e") == b'{"x":1}'
        assert value(doc, "$.a") == [7]

    @pytest.mark.parametrize(
        ("words", "text"),
        [
            ("e $.x 1", "ERR new objects must be created at the root"),
            ("e $ {", "ERR EOF while parsing"),
            ("d $.x.y 1", "ERR Path '$.x.y' does not exist"),
            ("string $ 1", WRONGTYPE),
        ],
    )
    def test_mset_is_all_or_nothing(self, doc: Run, words: str, text: str) -> None:
        doc("SET string x")
        assert doc.error(f"JSON.MSET d $.a 100 {words}").startswith(text)
        assert value(doc, "$.a") == [2]

    def test_mset_takes_threes(self, run: Run) -> None:
        text = "ERR wrong number of arguments for 'json.mset' command"
        assert run.error("JSON.MSET d $ 1 e") == text

    def test_merge(self, doc: Run) -> None:
        assert doc("JSON.MERGE", "d", "$", '{"a":null,"o":{"deep":null,"b":1},"n":[2]}') == OK
        assert value(doc, "$.a") == []
        assert value(doc, "$.o") == [{"a": 4, "b": 1}]
        assert value(doc, "$.n") == [[2]]
        doc("JSON.MERGE", "d", "$.new", '{"x":{"y":null,"z":1}}')
        assert value(doc, "$.new") == [{"x": {"z": 1}}]
        doc("JSON.MERGE", "d", "$.o", "null")
        assert value(doc, "$.o") == []
        doc("JSON.MERGE", "d", "$..s", "5")
        assert value(doc, "$.s") == [5]

    def test_merge_creates_documents(self, run: Run) -> None:
        assert run("JSON.MERGE", "d", "$", '{"a":1,"b":null}') == OK
        assert run("JSON.GET d") == b'{"a":1}'
        assert run.error("JSON.MERGE e $.a 1") == "ERR new objects must be created at the root"

    def test_merging_null_at_the_root_deletes(self, doc: Run) -> None:
        assert doc("JSON.MERGE d $ null") == OK
        assert doc("EXISTS d") == 0


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

    def test_values_below_a_removed_one_are_not_counted(self, doc: Run) -> None:
        assert doc("JSON.DEL d $..*") == 7
        assert doc("JSON.GET d") == b"{}"

    def test_clear(self, doc: Run) -> None:
        assert doc("JSON.CLEAR d $.*") == 4
        assert doc("JSON.GET d") == (b'{"a":0,"f":0,"s":"text","t":true,"n":null,"o":{},"list":[]}')
        assert doc("JSON.CLEAR d $.*") == 0
        assert doc("JSON.CLEAR d") == 1
        assert doc("JSON.GET d") == b"{}"
        assert doc.error("JSON.CLEAR missing") == NO_KEY


class TestAsAKey:
    def test_dump_and_restore(self, doc: Run) -> None:
        payload = doc("DUMP d")
        before = doc("JSON.GET d")
        assert doc(b"RESTORE", b"e", b"0", payload) == OK
        assert doc("JSON.GET e") == before

    def test_a_copy_is_another_document(self, doc: Run) -> None:
        doc("COPY d e")
        doc("JSON.SET e $.o.a 0")
        assert value(doc, "$.o.a") == [4]

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

    def test_reads_are_not(self, doc: Run) -> None:
        watcher = doc.other(transport="port")
        watcher("WATCH d")
        doc("JSON.GET d $..a")
        watcher("MULTI")
        watcher("PING")
        assert watcher("EXEC") == [Status(b"PONG")]


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

    def test_a_match_inside_another_is_cleared_and_counted_too(self, run: Run) -> None:
        run("JSON.SET", "d", "$", '{"a":{"a":{"a":[1]}}}')
        assert run("JSON.CLEAR d $..a") == 3

    def test_elements_go_together_with_the_arrays_around_them(self, run: Run) -> None:
        run("JSON.SET", "d", "$", "[[1,[2,3]],[4],5]")
        assert run("JSON.DEL d $..[0]") == 2
        assert value(run) == [[[], 5]]
