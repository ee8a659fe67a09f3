"""JSON commands that change numbers, strings and arrays."""

from __future__ import annotations

import pytest

from tests.kv.commands.json.conftest import value
from tests.kv.conftest import Run

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
NO_KEY = "ERR could not perform this operation on a key that doesn't exist"


class TestNumbers:
    def test_increments(self, doc: Run) -> None:
        assert doc("JSON.NUMINCRBY d $.a 3") == b"[5]"
        assert doc("JSON.NUMINCRBY d a -1") == b"4"
        assert doc("JSON.NUMINCRBY d $.a 0.5") == b"[4.5]"
        assert doc("JSON.NUMINCRBY d $..a 1") == b"[null,5,6,5.5]"
        assert doc("JSON.NUMINCRBY d $.nope 1") == b"[]"

    def test_products(self, doc: Run) -> None:
        assert doc("JSON.NUMMULTBY d $.a 3") == b"[6]"
        assert doc("JSON.NUMMULTBY d f 2") == b"3.0"
        assert value(doc, "$.f") == [3.0]

    def test_numbers_beyond_64_bits_are_floats(self, run: Run) -> None:
        run("JSON.SET d $ 9223372036854775807")
        assert run("JSON.NUMINCRBY d $ 1") == b"[9.223372036854776e18]"

    @pytest.mark.parametrize("command", ["JSON.NUMINCRBY", "JSON.NUMMULTBY"])
    def test_errors(self, doc: Run, command: str) -> None:
        doc("JSON.SET d $.huge 1e308")
        assert doc.error(f"{command} d $.huge 1.7e308") == "ERR result is not a number"
        assert value(doc, "$.huge") == [1e308]
        assert doc.error(f"{command} d $.a x") == "ERR expected value at line 1 column 1"
        assert doc.error(command, "d", "$.a", '"1"') == "ERR expected a number"
        assert doc.error(f"{command} d nope 1") == "ERR Path 'nope' does not exist"
        assert doc.error(f"{command} missing $ 1") == NO_KEY
        assert doc.error(f"{command} d s 1") == (
            "WRONGTYPE wrong type of path value - expected number but found string"
        )

    def test_toggle(self, doc: Run) -> None:
        assert doc("JSON.TOGGLE d $.t") == [0]
        assert doc("JSON.TOGGLE d t") == b"true"
        assert doc("JSON.TOGGLE d $.*") == [None, None, None, 0, None, None, None]
        assert doc.error("JSON.TOGGLE d a") == (
            "WRONGTYPE wrong type of path value - expected boolean but found integer"
        )
        assert doc.error("JSON.TOGGLE missing $") == NO_KEY


class TestStrings:
    def test_append(self, doc: Run) -> None:
        assert doc("JSON.STRAPPEND", "d", "$.s", '"é"') == [6]
        assert doc("JSON.STRAPPEND", "d", "s", '"!"') == 7
        assert doc("JSON.STRAPPEND", "d", "$..a", '"!"') == [2, None, None, None]
        assert value(doc, "$.s") == ["texté!"]
        run = doc
        run("JSON.SET", "root", "$", '"a"')
        assert run("JSON.STRAPPEND", "root", '"b"') == 2

    def test_errors(self, doc: Run) -> None:
        assert doc.error("JSON.STRAPPEND", "d", "$.s", "1") == (
            "WRONGTYPE wrong type of path value - expected string but found integer"
        )
        assert doc.error("JSON.STRAPPEND", "missing", "$", '"x"') == NO_KEY


class TestArrays:
    def test_append(self, doc: Run) -> None:
        assert doc("JSON.ARRAPPEND", "d", "$.list", '"x"', "{}") == [7]
        assert doc("JSON.ARRAPPEND", "d", "list", "1") == 8
        lengths = doc("JSON.ARRAPPEND", "d", "$..*", "1")
        assert lengths == [None] * 8 + [2] + [None] * 10 + [9]
        assert value(doc, "$.list[3]") == [[4, 1]]

    def test_insert(self, doc: Run) -> None:
        assert doc("JSON.ARRINSERT d $.list 0 10 11") == [7]
        assert doc("JSON.ARRINSERT d list -1 12") == 8
        assert doc("JSON.ARRINSERT d $.list 8 13") == [9]
        assert value(doc, "$.list") == [[10, 11, 1, "two", 3.0, [4], 12, {"a": 5}, 13]]
        assert doc.error("JSON.ARRINSERT d $.list 10 1") == "ERR index out of bounds"
        assert doc.error("JSON.ARRINSERT d $.list -10 1") == "ERR index out of bounds"
        assert doc.error("JSON.ARRINSERT d $.list x 1").startswith("ERR value is not an integer")

    @pytest.mark.parametrize(
        ("words", "index"),
        [
            ("1", 0), ("3.0", 2), ("3", -1), ("true", -1), ("[4]", 3), ('{"a":5}', 4), ("9", -1),
            ("1 1", -1), ("3.0 1 3", 2), ("3.0 1 2", -1), ("3.0 -3", 2), ("3.0 0 -2", 2),
            ("3.0 0 0", 2), ("1 -99", 0), ('{"a":5} 99', 4), ("1 3 1", -1),
        ],
    )  # fmt: skip
    def test_index(self, doc: Run, words: str, index: int) -> None:
        assert doc("JSON.ARRINDEX", "d", "$.list", *words.split()) == [index]
        assert doc("JSON.ARRINDEX", "d", "list", *words.split()) == index

    def test_index_of_others(self, doc: Run) -> None:
        assert doc("JSON.ARRINDEX d $.* 4") == [None] * 6 + [-1]

    def test_pop(self, doc: Run) -> None:
        assert doc("JSON.ARRPOP d $.list") == [b'{"a":5}']
        assert doc("JSON.ARRPOP d list 0") == b"1"
        assert doc("JSON.ARRPOP d $.list -99") == [b'"two"']
        assert doc("JSON.ARRPOP d $.list 99") == [b"[4]"]
        assert doc("JSON.ARRPOP d $.*") == [None] * 6 + [b"3.0"]
        assert doc("JSON.ARRPOP d list") is None
        assert doc("JSON.ARRPOP d $.list") == [None]
        doc("JSON.SET root $ [1]")
        assert doc("JSON.ARRPOP root") == b"1"

    @pytest.mark.parametrize(
        ("start", "stop", "left"),
        [
            (1, 2, ["two", 3.0]), (0, -1, [1, "two", 3.0, [4], {"a": 5}]), (-2, -1, [[4], {"a": 5}]),
            (3, 1, []), (9, 99, []), (-99, 0, [1]), (0, -99, []),
        ],
    )  # fmt: skip
    def test_trim(self, doc: Run, start: int, stop: int, left: list[object]) -> None:
        assert doc("JSON.ARRTRIM", "d", "$.list", start, stop) == [len(left)]
        assert value(doc, "$.list") == [left]

    @pytest.mark.parametrize(
        "command",
        ["ARRAPPEND {} {} 1", "ARRINSERT {} {} 0 1", "ARRPOP {} {}", "ARRTRIM {} {} 0 1",
         "ARRINDEX {} {} 1"],
    )  # fmt: skip
    def test_errors(self, doc: Run, command: str) -> None:
        assert doc.error("JSON." + command.format("d", "a")) == (
            "WRONGTYPE wrong type of path value - expected array but found integer"
        )
        assert doc.error("JSON." + command.format("d", "nope")) == "ERR Path 'nope' does not exist"
        assert doc.error("JSON." + command.format("missing", "$")) == NO_KEY

    @pytest.mark.parametrize("command", ["ARRINDEX d $.list 1 0 0 0", "ARRPOP d $.list 1 1"])
    def test_words_too_many(self, doc: Run, command: str) -> None:
        name = f"json.{command.split()[0].lower()}"
        text = f"ERR wrong number of arguments for '{name}' command"
        assert doc.error(f"JSON.{command}") == text
