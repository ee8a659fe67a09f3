"""Attacks on the sandbox: no script may reach Python, files, the system or another script."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.engine.engine import KVEngine
from tests.kv.conftest import Run
from tests.kv.scripting.conftest import Lua

READ_ONLY = "Attempt to modify a readonly table"
ABSENT = "Script attempted to access nonexistent global variable"

WALK = """
local seen, found = {}, {}
local function walk(value, path)
  if type(value) == 'userdata' and value ~= cjson.null then found[#found + 1] = path end
  if type(value) ~= 'table' or seen[value] then return end
  seen[value] = true
  for key, item in pairs(value) do walk(item, path .. '.' .. tostring(key)) end
  walk(getmetatable(value), path .. '@')
end
walk(_G, 'G')
walk(getmetatable(''), 'S')
walk(getmetatable(cjson.null), 'N')
return found
"""


class TestNothingOfPython:
    def test_no_object_of_python_can_be_reached(self, lua: Lua) -> None:
        assert lua(WALK) == []

    @pytest.mark.parametrize("name", ["call", "pcall", "sha1hex", "setresp", "acl_check_cmd"])
    def test_functions_are_plain_functions(self, lua: Lua, name: str) -> None:
        assert lua(f"return type(redis.{name})") == "function"

    @pytest.mark.parametrize("attribute", ["__class__", "__globals__", "__init__", "x"])
    def test_null_has_no_attributes(self, lua: Lua, attribute: str) -> None:
        assert "attempt to index" in lua.error(f"return cjson.null.{attribute}")
        assert "attempt to index" in lua.error(f"cjson.null.{attribute} = 1")
        assert lua("return tostring(getmetatable(cjson.null))") == "nil"

    @pytest.mark.parametrize(
        "argument",
        [
            "setmetatable({}, {__index=function() error('x') end})",
            "coroutine.create(function() end)", "redis.call", "cjson.null", "true", "nil", "{}",
        ],
    )  # fmt: skip
    def test_errors_of_calls_are_texts(self, lua: Lua, argument: str) -> None:
        kinds = lua(f"local ok, e = pcall(redis.call, {argument}) return {{type(ok), type(e)}}")
        assert kinds == ["boolean", "string"]

    def test_a_fault_of_the_engine_is_raised_and_not_handed_to_the_script(
        self, run: Run, lua: Lua, engine: KVEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object, **__: object) -> None:
            raise ZeroDivisionError("a fault of the engine")

        lua("return 1")
        monkeypatch.setattr(engine, "run", broken)
        scripting = engine.scripting
        sha = scripting.load(b"local ok, e = pcall(redis.call, 'GET', 'k') return type(e)")
        with pytest.raises(ZeroDivisionError, match="a fault of the engine"):
            scripting.evaluate(run.session, sha, [], [], False)
        monkeypatch.undo()
        assert lua("return 1") == 1


class TestNothingOfTheSystem:
    @pytest.mark.parametrize(
        "name",
        [
            "io", "require", "package", "module", "debug", "dofile", "loadfile", "print",
            "getfenv", "setfenv", "newproxy", "python", "arg",
        ],
    )  # fmt: skip
    def test_dangerous_globals_are_absent(self, lua: Lua, name: str) -> None:
        assert ABSENT in lua.error(f"return {name}")
        assert lua(f"return rawget(_G, '{name}')") is None

    @pytest.mark.dialect("redis", version="7.2.0")
    @pytest.mark.parametrize("name", ["execute", "getenv", "exit", "remove", "rename", "tmpname"])
    def test_of_os_there_is_only_a_clock(self, lua: Lua, name: str) -> None:
        assert lua(f"return tostring(os.{name})") == "nil"

    @pytest.mark.dialect("redis", version="7.2.0")
    def test_the_clock_is_the_engines(self, run: Run, lua: Lua, engine: KVEngine) -> None:
        assert lua("return os.clock()") == 0
        engine.clock.advance(90)
        assert lua("return os.clock()") == 90


class TestNoBytecode:
    def test_only_that_of_scripts_is_dumped(self, lua: Lua) -> None:
        """Try every function that a script can reach and did not define itself."""
        script = """
            local seen, told, count = {}, {}, 0
            local function walk(value, name)
              if seen[value] then return end
              if type(value) == 'table' then
                seen[value] = true
                for key, inner in pairs(value) do walk(inner, name .. '.' .. tostring(key)) end
                walk(getmetatable(value), name .. '()')
              elseif type(value) == 'function' then
                count = count + 1
                if pcall(string.dump, value) then told[#told + 1] = name end
              end
            end
            walk(_G, '_G')
            walk(getmetatable(''), 'text')
            return {count, told}
        """
        count, dumped = lua(script)
        assert count > 100
        assert dumped == []

    @pytest.mark.parametrize(
        "script",
        [
            r"return {loadstring('\27LuaQ')}",
            r"return {load(function() return '\27Lua' end and (function() local d "
            r"return function() if d then return nil end d = true return '\27LuaQ' end end)())}",
            r"local n = 0 return {load(function() n = n + 1 return ({'\27', 'LuaQ'})[n] end)}",
        ],
    )
    def test_nothing_loads_it(self, lua: Lua, script: str) -> None:
        assert lua(script) == []

    def test_a_script_cannot_be_bytecode(self, run: Run) -> None:
        text = run.error(b"EVAL", b"\x1bLuaQ\x00\x01\x04\x08\x04\x08\x00", b"0")
        assert text.endswith("user_script:1: unexpected symbol near 'char(27)'")


class TestNothingOfOtherScripts:
    @pytest.mark.parametrize(
        "script",
        [
            "x = 1", "function f() end", "_G.x = 1", "rawset(_G, 'x', 1)", "setmetatable(_G, {})",
            "KEYS = {}", "string.rep = 1", "rawset(string, 'rep', 1)", "setmetatable(string, {})",
            "table.insert(string, 1)", "table.insert(redis, 1, 'x')", "redis.call = nil",
            "math.pi = 3", "cjson.encode = 1", "bit.band = 1", "coroutine.create = 1",
            "getmetatable('').__index = {}", "getmetatable('').__index.upper = 1",
            "rawset(getmetatable(''), '__index', 1)",
            "rawset(getmetatable('').__index, 'upper', 1)", "loadstring('x = 1')()",
            "loadstring('_G.string.rep = 1')()",
        ],
    )  # fmt: skip
    def test_shared_tables_cannot_be_written(self, lua: Lua, script: str) -> None:
        assert READ_ONLY in lua.error(script)
        assert lua("return ('ab'):rep(2):upper()") == "ABAB"

    @pytest.mark.parametrize(
        "script",
        [
            "local _, copy = pairs(string) copy.rep = 1",
            "for name in pairs(_G) do local _ = name end", "table.foreach(string, function() end)",
            "local name, value = next(string) name, value = nil, nil", "redis.setresp(3)",
            "collectgarbage('stop')", "collectgarbage('setpause', 1)",
        ],
    )  # fmt: skip
    def test_settings_of_a_script_end_with_it(self, lua: Lua, script: str) -> None:
        lua(script)
        assert lua("return ('ab'):rep(2)") == "abab"
        assert lua.encode("{{1 / 3}, {a = {}}}") == '[[0.33333333333333],{"a":{}}]'
        assert lua("return true") == 1

    def test_tables_show_their_content_all_the_same(self, lua: Lua) -> None:
        assert lua("local n = 0 for _ in pairs(math) do n = n + 1 end return n") == 31
        types = lua("return {type(next(bit)), type(rawget(string, 'rep'))}")
        assert types == ["string", "function"]
        assert lua("return #_G + #string") == 0
        assert lua("return _G._G == _G and loadstring('return _G')() == _G") == 1

    def test_locals_do_not_outlive_a_script(self, lua: Lua) -> None:
        script = "local n = (n or 0) + 1 return n"
        assert ABSENT in lua.error(script)
        assert lua("local t = {} t[1] = #t return t") == [0]
        assert lua("local t = {} t[1] = #t return t") == [0]

    def test_a_missing_key_is_an_error(self, lua: Lua) -> None:
        assert lua.error("return x") == f"user_script:1: {ABSENT} 'x'"
        assert lua.error("return _G[1]") == f"user_script:1: {ABSENT} '1'"
        assert lua("return rawget(_G, 'x')") is None
