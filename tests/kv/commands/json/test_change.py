"""JSON commands that change values in place."""

from __future__ import annotations

from pytest_fakecloud.kv.engine.engine import Engine
from tests.harness import check_each
from tests.kv.conftest import Run


def test_commands_that_change_nothing_do_not_touch_the_key(run: Run, engine: Engine) -> None:
    run("JSON.SET", "d", "$", '{"null": null, "empty": [], "one": [1]}')
    db = engine.database(0)

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
    deep = "[" * 128 + "]" * 128
    assert max(filter(None, run("JSON.ARRAPPEND", "d", "$..*", deep))) == 1
    assert max(filter(None, run("JSON.ARRINSERT", "d", "$..list", 0, deep))) == 2
