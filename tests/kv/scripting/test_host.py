"""The Lua runtime: created on demand, freed with its engine, replaced when it is lost."""

from __future__ import annotations

import gc
import locale
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from weakref import ref

import pytest

from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.reply import Bool, Status
from pytest_fakecloud.kv.scripting.errors import HostLost
from pytest_fakecloud.kv.scripting.host import LuaHost, keep_frames
from pytest_fakecloud.kv.settings import KVConfig
from tests.harness import in_threads
from tests.kv.conftest import Run


def test_it_is_built_when_a_script_first_runs(run: Run, engine: KVEngine) -> None:
    run("SET k v")
    engine.restore(engine.snapshot())
    assert "host" not in vars(engine.scripting)
    run("EVAL", "return 1", 0)
    host = vars(engine.scripting)["host"]
    run("EVAL", "return 2", 0)
    assert engine.scripting.host is host


def test_it_is_freed_with_its_engine() -> None:
    engine = KVEngine(Timekeeper(), Ids(1), KVConfig())
    engine.execute(engine.session(), [b"EVAL", b"return redis.call('PING')", b"0"])
    host, owner = ref(engine.scripting.host), ref(engine)
    del engine
    gc.collect()
    assert (host(), owner()) == (None, None)


def test_a_lost_host_is_replaced(
    run: Run, engine: KVEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 1 end)")
    sha = run("SCRIPT", "LOAD", "return 'kept'").decode()
    lost = engine.scripting.host

    def lose(*_: object) -> None:
        raise HostLost("not enough memory")

    monkeypatch.setattr(lost, "evaluate", lose)
    assert run.error("EVAL", "return 1", 0) == "ERR not enough memory for the script"
    assert engine.scripting.host is not lost
    assert run("EVALSHA", sha, 0) == b"kept"
    assert run("FCALL f 0") == 1


def test_libraries_that_break_the_new_runtime_are_removed(
    run: Run, engine: KVEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        code = f"redis.register_function('{name}_f', function() return 1 end)"
        run("FUNCTION", "LOAD", f"#!lua name={name}\n{code}")
    load = LuaHost.load_library

    def load_or_break(host: LuaHost, body: bytes) -> object:
        if b"b_f" in body:
            raise HostLost("not enough memory")
        return load(host, body)

    monkeypatch.setattr(LuaHost, "load_library", load_or_break)
    code = "redis.register_function('b_f2', function() return 1 end)"
    assert "not enough memory" in run.error("FUNCTION", "LOAD", f"#!lua name=d\n{code}")
    assert [library[1] for library in run("FUNCTION LIST")] == [b"a", b"c"]
    assert (run("FCALL a_f 0"), run("FCALL c_f 0")) == (1, 1)


def test_engines_do_not_share_anything() -> None:
    first, second = (KVEngine(Timekeeper(), Ids(1), KVConfig()) for _ in range(2))
    script = b"math.randomseed(9) redis.call('SET', 'k', 1)"
    first.execute(first.session(), [b"EVAL", script, b"0"])
    draw = [b"EVAL", b"return {math.random(1000), redis.call('EXISTS', 'k')}", b"0"]
    assert second.execute(second.session(), draw) == [397, 0]


@pytest.mark.dialect("redis")
@pytest.mark.parametrize("resp", [2, 3])
def test_booleans_are_not_mixed_up_with_other_replies(engine: KVEngine, resp: int) -> None:
    session = engine.session()
    session.resp = resp
    scripts = {
        "redis.setresp(3) return true": Bool(True),
        "redis.setresp(3) return {false, true}": [Bool(False), Bool(True)],
        "return {ok='fine'}": Status(b"fine"),
        "return {1, 'x', {'two'}}": [1, b"x", [b"two"]],
        "return redis.call('SET', 'b', '1')": Status(b"OK"),
    }
    for _ in range(400):
        for script, expected in scripts.items():
            assert engine.execute(session, [b"EVAL", script.encode(), b"0"]) == expected


@pytest.fixture
def decimal_comma(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set a locale in which C functions write numbers with a comma."""
    localedef = shutil.which("localedef")
    command = [localedef or "", "-i", "de_DE", "-f", "UTF-8", tmp_path / "de_DE.UTF-8"]
    if not localedef or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs localedef and the sources of locales")
    before = locale.setlocale(locale.LC_ALL)
    monkeypatch.setenv("LOCPATH", str(tmp_path))
    locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
    yield
    locale.setlocale(locale.LC_ALL, before)


@pytest.mark.usefixtures("decimal_comma")
def test_numbers_have_a_decimal_point_in_every_locale(run: Run) -> None:
    for expression in (
        "tostring(1.5)", "tostring(tonumber('1.5'))", "1.5 .. ''", "tostring('0.5' + 1)",
        "string.format('%.1f', 1.5)", "string.format('%s', 1.5)", "cjson.encode(1.5)",
        "tostring(cjson.decode('1.5'))", "redis.call('ECHO', 1.5)",
        "tostring(loadstring('return 1.5')())",
        "redis.sha1hex(1.5) == redis.sha1hex('1.5') and '1.5'",
    ):  # fmt: skip
        assert run("EVAL", f"return {expression}", 0) == b"1.5", expression
    assert locale.localeconv()["decimal_point"] == ","


def test_threads_take_turns() -> None:
    engine = KVEngine(Timekeeper(), Ids(1), KVConfig())
    script = b"local n = redis.call('GET', 'n') or 0 redis.call('SET', 'n', n + 1)"

    def work() -> None:
        session = engine.session()
        for _ in range(200):
            engine.execute(session, [b"EVAL", script, b"0"])

    in_threads(*[work] * 4)
    assert engine.execute(engine.session(), [b"GET", b"n"]) == b"800"


def test_bytecode_of_another_lua_is_left_alone() -> None:
    assert keep_frames(b"\x1bLJ something else") == b"\x1bLJ something else"


def test_listeners_get_the_numbers_that_are_cut(run: Run, engine: KVEngine) -> None:
    cuts: list[tuple[float, int]] = []
    engine.scripting.cut_listeners.add(lambda _, number, integer: cuts.append((number, integer)))
    assert run("EVAL", "return {1.5, {-0.5}, 3, tostring(0.5)}", 0) == [1, [0], 3, b"0.5"]
    run("FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 2.5 end)")
    assert run("FCALL f 0") == 2
    assert cuts == [(1.5, 1), (-0.5, 0), (2.5, 2)]
