"""Hints about functions that do not execute the pipelines that they create."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import upstash_redis

from pytest_fakecloud import Cloud
from pytest_fakecloud.hints.mistakes import mistakes
from pytest_fakecloud.process.stacks import Stacks

DROP = """
def drop(client):
    pipe = client.pipeline()
    pipe.set("a", 1)
"""
Load = Callable[[str, str], ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Return a function that makes a module of a source, in the working directory."""
    monkeypatch.chdir(tmp_path)

    def load(name: str, source: str) -> ModuleType:
        file = tmp_path / f"{name}.py"
        file.write_text(source)
        module = ModuleType(name)
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(source, file, "exec"), vars(module))
        return module

    return load


def hints(*functions: object, error: BaseException | None = None) -> list[str]:
    assert upstash_redis  # Only the pipelines of imported clients are known.
    with Cloud(seed=1) as cloud:
        return mistakes(cloud, error or AssertionError(), functions)


REACHED = {
    "the test itself": "def test_it(client):\n    pipe = client.multi()\n    pipe.set('a', 1)\n",
    "a function": DROP + "def test_it(client):\n    drop(client)\n",
    "a function of another function": DROP
    + "def sell(client):\n    drop(client)\ndef test_it(client):\n    sell(client)\n",
    "an argument": DROP + "def test_it(client):\n    start(drop)\n",
    "an inner function": "def test_it(client):\n    def drop():\n        pipe = client.pipeline()\n"
    "        pipe.set('a', 1)\n    drop()\n",
    "a decorated function": "import functools\n@functools.cache" + DROP
    + "def test_it(client):\n    drop(client)\n",
    "a method": "class Shop:\n    def drop(self, client):\n        pipe = client.pipeline()\n"
    "        pipe.set('a', 1)\ndef test_it(client):\n    Shop().drop(client)\n",
    "a method of an object": "class Shop:\n    @staticmethod\n    def drop(client):\n"
    "        pipe = client.pipeline()\n        pipe.set('a', 1)\nshop = Shop()\n"
    "def test_it(client):\n    shop.drop(client)\n",
    "another module's": "import shop\ndef test_it(client):\n    shop.drop(client)\n",
    "another module's, imported late": "def test_it(client):\n    from shop import drop\n"
    "    drop(client)\n",
}  # fmt: skip


@pytest.mark.parametrize("name", REACHED)
def test_functions_that_a_test_reaches_are_named(name: str, load: Load) -> None:
    if name.startswith("another module"):
        load("shop", DROP)
    (hint,) = hints(load("test_a", REACHED[name]).test_it)
    assert hint.endswith("() does not execute the pipeline that it creates")


UNREACHED = {
    "a function": DROP + "def test_it(client):\n    client.get('a')\n",
    "another test": "def test_other(client):\n    pipe = client.pipeline()\n    pipe.set('a', 1)\n"
    "def test_it(client):\n    client.get('a')\n",
    "a method": "class Shop:\n    def drop(self, client):\n        pipe = client.pipeline()\n"
    "        pipe.set('a', 1)\ndef test_it(client):\n    Shop().keep()\n",
    "another module's": "import shop\ndef test_it(client):\n    shop.keep()\n",
}


@pytest.mark.parametrize("name", UNREACHED)
def test_functions_that_a_test_does_not_reach_are_not_named(name: str, load: Load) -> None:
    load("shop", DROP)
    assert hints(load("test_a", UNREACHED[name]).test_it) == []


NOT_DROPPED = {
    "returns a command's value": "pipe = client.pipeline()\n    return pipe.set('a', 1)",
    "assigns a command's value": "pipe = client.pipeline()\n    same = pipe.set('a', 1)",
    "passes a command's value on": "pipe = client.pipeline()\n    run(pipe.set('a', 1))",
    "enters it": "pipe = client.pipeline()\n    with pipe:\n        pipe.set('a', 1)",
    "keeps it globally": "global pipe\n    pipe = client.pipeline()\n    pipe.set('a', 1)",
    "keeps it in an object": "pipe = client.kept = client.pipeline()\n    pipe.set('a', 1)",
    "adds no command": "pipe = client.pipeline()",
    "opens a pipeline of steps": "pipe = client.pipeline()\n    pipe.add_pipe('tagger')",
    "also adds steps": "pipe = client.pipeline()\n    pipe.set('a', 1)\n    pipe.fit([1])",
    "calls the pipeline": "pipe = client.pipeline()\n    pipe.set('a', 1)\n    pipe('some text')",
}


@pytest.mark.parametrize("name", NOT_DROPPED)
def test_other_pipelines_are_not_named(name: str, load: Load) -> None:
    module = load("test_a", f"def test_it(client):\n    {NOT_DROPPED[name]}\n")
    assert hints(module.test_it) == []


SHOP = """
class Shop:
    def sell(self, client):
        client.incr("sold")
        self.drop(client)

    def fail(self, client):
        self.drop(client)
        raise ValueError

    def drop(self, client):
        pipe = client.pipeline()
        pipe.set("a", 1)
"""


def test_functions_on_the_stacks_of_errors_and_calls_are_named(load: Load) -> None:
    shop = load("shop", SHOP).Shop()
    hint = "shop.py:12: drop() does not execute the pipeline that it creates"
    with Cloud(seed=1, transport="inprocess") as cloud:
        cloud.journal._recorder.shared.note_caller = Stacks().note
        client = cloud.kv_server().client()
        with pytest.raises(ValueError) as caught:
            shop.fail(client)
        assert mistakes(cloud, AssertionError()) == []
        assert mistakes(cloud, caught.value) == [hint]
        shop.sell(client)
        assert mistakes(cloud, AssertionError()) == [hint]


def test_functions_of_a_module_whose_import_fails_are_not_named(load: Load) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        load("shop", f"{DROP}1 / 0\n")
    assert hints(error=caught.value) == []
