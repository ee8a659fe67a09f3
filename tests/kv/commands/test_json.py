"""JSON documents: setting, reading and removing the matches of paths."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.reply import OK
from tests.harness import check_each
from tests.kv.conftest import Run


@pytest.mark.parametrize("path", ["$", "."])
@pytest.mark.parametrize(
    "text",
    [
        "1", "-0.0", "1.0", "1e16", "0.1", '"x"', "true", "null", "[]", "{}", "[1,[2,{}]]",
        "18446744073709551615", "-9223372036854775808", '{"b":1,"a":2}', '"é\\u0001\\""',
    ],
)  # fmt: skip
def test_values_that_are_set_can_be_read(run: Run, path: str, text: str) -> None:
    assert run("JSON.SET", "d", path, text) == OK
    assert run("JSON.GET", "d").decode() == text
    assert run("JSON.GET", "d", "$").decode() == f"[{text}]"


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "{", "[1", "{bad", "{'a':1}", "[1,]", '{"a":1,}', "01", "+1", ".5", "1.",
        "NaN", "Infinity", "-Infinity", "nul", '"x', '"\x01"', '"\\x"', '"\\ud800"', "1 2",
        "[1] x", "tru", '{"a" 1}', "\N{NO-BREAK SPACE}1", "[" * 100_000 + "]" * 100_000,
    ],
)  # fmt: skip
def test_what_is_not_json(run: Run, text: str) -> None:
    assert run.error("JSON.SET", "d", "$", text).startswith("ERR ")
    assert run("EXISTS d") == 0


TOO_DEEP = "ERR the document would be nested too deeply"


LIST, OBJECT = "[{}]", '{{"a":{}}}'


def nested(kinds: tuple[str, ...], levels: int) -> str:
    """Return a value with this many levels, which are of these kinds in turn."""
    text = "1"
    for level in range(levels):
        text = kinds[level % len(kinds)].format(text)
    return text


@pytest.mark.parametrize("dialect", [
    pytest.param("vendor"),
    pytest.param("redis", marks=pytest.mark.dialect("redis", modules=["ReJSON"])),
])  # fmt: skip
def test_a_value_has_at_most_127_levels(run: Run, dialect: str) -> None:
    def check(*kinds: str) -> None:
        deep, deeper = (nested(kinds, levels) for levels in (127, 128))
        assert run("JSON.SET", "d", "$", deep) == OK
        assert run("JSON.SET", "d", "$", '{"list": []}') == OK
        assert run("JSON.SET", "d", "$.part", deep) == OK
        assert run("JSON.MERGE", "d", "$.merged", deep) == OK
        assert run("JSON.MSET", "d", "$.other", deep) == OK
        assert run("JSON.ARRAPPEND", "d", "$.list", deep) == [1]
        before = run("JSON.GET d")
        for line in (
            ("JSON.SET", "d", "$"), ("JSON.SET", "d", "$.part"), ("JSON.MERGE", "d", "$.merged"),
            ("JSON.MSET", "d", "$.other"), ("JSON.ARRAPPEND", "d", "$.list"),
            ("JSON.ARRINDEX", "d", "$.list"),
        ):  # fmt: skip
            assert run.error(*line, deeper).startswith("ERR recursion limit exceeded at line 1 ")
        assert run("JSON.GET d") == before

    check_each(check, [(LIST,), (OBJECT,), (LIST, OBJECT), (OBJECT, LIST)])


def test_a_document_has_at_most_254_levels(run: Run) -> None:
    run("JSON.SET", "d", "$", '{"a":' * 126 + "{}" + "}" * 126)
    path = "$" + ".a" * 126 + ".list"
    run("JSON.SET", "d", path, "[]")
    deep, deeper = ("[" * levels + "]" * levels for levels in (126, 127))
    for name, *index in (("JSON.ARRAPPEND",), ("JSON.ARRINSERT", 0)):
        run(name, "d", path, *index, deep)
        assert run.error(name, "d", path, *index, deeper) == TOO_DEEP
    assert run("JSON.SET", "d", f"{path}[0]", deep) == OK
    assert run.error("JSON.SET", "d", f"{path}[0]", deeper) == TOO_DEEP
    assert run("JSON.ARRLEN", "d", path) == [2]


@pytest.mark.parametrize(
    "path",
    [
        "$" + "..*" * 20, "$..[?(@" + "..*" * 20 + ")]", "$" + ".a" * 100_000,
        "$[?" + "(" * 100_000, "$[?" + "(" * 1000 + "@" + ")" * 1000 + "]",
    ],
)  # fmt: skip
def test_paths_that_look_at_everything_end(run: Run, path: str) -> None:
    run("JSON.SET", "d", "$", '{"a":' * 60 + "1" + "}" * 60)
    prefixes = ("ERR invalid path: ", "ERR the command was stopped: ")
    assert run.error("JSON.GET", "d", path).startswith(prefixes)


def test_snapshots_hold_documents(run: Run, engine: KVEngine) -> None:
    run("JSON.SET", "d", "$", '{"o":{"a":4}}')
    saved = engine.snapshot()
    run("JSON.SET d $.o.a 0")
    engine.restore(saved)
    assert run("JSON.GET d") == b'{"o":{"a":4}}'


# -- changes in place -------------------------------------------------------------------------------


def test_commands_that_change_nothing_do_not_touch_the_key(run: Run, engine: KVEngine) -> None:
    run("JSON.SET", "d", "$", '{"null": null, "empty": [], "one": [1]}')
    db = engine.databases[0]

    def check(*words: str) -> None:
        before = db.changes
        run(*words)
        assert db.changes == before

    check_each(check, [
        (name, "d", path, *arguments)
        for name, *arguments in (
            ("JSON.NUMINCRBY", "1"), ("JSON.STRAPPEND", '"x"'), ("JSON.TOGGLE",),
            ("JSON.ARRAPPEND", "1"), ("JSON.ARRINSERT", "0", "1"), ("JSON.ARRPOP",),
            ("JSON.ARRTRIM", "0", "0"), ("JSON.CLEAR",),
        )
        for path in ("$.missing", "$.null")
    ])  # fmt: skip
    check_each(check, [
        ("JSON.DEL", "d", "$.missing"), ("JSON.MERGE", "d", "$.missing", "null"),
        ("JSON.ARRPOP", "d", "$.empty"), ("JSON.ARRTRIM", "d", "$.*", "0", "9"),
    ])  # fmt: skip
    before = db.changes
    assert run("JSON.ARRPOP d $.*") == [None, None, b"1"]
    assert db.changes == before + 1


def test_only_arrays_that_grow_have_a_maximum_depth(run: Run) -> None:
    run("JSON.SET", "d", "$", '{"a":' * 100 + "{}" + "}" * 100)
    run("JSON.SET", "d", "$" + ".a" * 101, '{"a":' * 100 + "{}" + "}" * 100)
    run("JSON.SET", "d", "$.list", "[]")
    deep = "[" * 127 + "]" * 127
    assert max(filter(None, run("JSON.ARRAPPEND", "d", "$..*", deep))) == 1
    assert max(filter(None, run("JSON.ARRINSERT", "d", "$..list", 0, deep))) == 2
