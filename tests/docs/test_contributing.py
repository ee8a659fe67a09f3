"""The recipes for a command and for an endpoint work as the page shows them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from inspect import getsource, ismodule
from pathlib import Path
from textwrap import dedent
from typing import Any, get_args

import pytest

from pytest_fakecloud.cloud.services import SERVICES, services_by_word
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.kv.engine.engine import KVEngine
from pytest_fakecloud.kv.settings import VERSION, KVConfig
from pytest_fakecloud.kv.table import registry
from pytest_fakecloud.kv.table.registry import EVERYTHING, _specs_of, command_table
from pytest_fakecloud.kv.table.rows import read
from pytest_fakecloud.queue.engine.queues import Queues
from pytest_fakecloud.queue.model import OrderedQueue
from pytest_fakecloud.queue.rest import queues
from pytest_fakecloud.queue.rest.app import QueueApp
from pytest_fakecloud.queue.wire import records
from pytest_fakecloud.reporting.model import Kind, RowSource
from tests import notations
from tests.harness import PACKAGE, syntax
from tests.kv import scenarios
from tests.kv.conftest import NOW, Run
from tests.kv.scenarios.observed import ObservedEffects
from tests.notations import ROOT
from tests.queue.scenarios import play
from tests.queue.scenarios import scenarios as endpoints

from .blocks import DOCS

if not DOCS.exists():
    pytest.skip("an installed package has no docs folder", allow_module_level=True)


def recipes() -> str:
    return (DOCS / "contributing/recipes.md").read_text(encoding="utf-8")


def parts(title: str) -> list[tuple[str, str]]:
    """Return the headings in the diff of a recipe, each with the lines that it adds."""
    diff = recipes().partition(f"## {title}\n")[2].partition("```diff\n")[2].partition("```")[0]
    blocks = re.findall(r"^  (\S.*)\n(?:- .*\n)*((?:\+.*\n)+)", diff, re.M)
    return [(heading, dedent(re.sub(r"(?m)^\+ ?", "", lines))) for heading, lines in blocks]


def test_the_files_of_recipes_exist() -> None:
    names = re.findall(r"(?<![\w/.>])\w+/[\w/]+\.(?:txt|py)", recipes())
    missing = {
        name for name in names if not (PACKAGE / name).exists() and not (ROOT / name).exists()
    }
    assert missing == set()


def test_files_contain_the_names_that_messages_and_recipes_mention() -> None:
    """For example, a test that fails says `WITHOUT_LINE of tests/kv/lines.py`."""
    files = [path for path in ROOT.glob("tests/**/*.py") if "node_modules" not in path.parts]
    texts = [recipes(), *(file.read_text(encoding="utf-8") for file in files)]
    mentions = {
        mention
        for text in texts
        for mention in re.findall(
            r"(?:\b(_?[A-Z]{2}\w+)|`(\w+)`) (?:of|in)\s+`?([\w/]+\.py)\b", text
        )
    }
    assert ("WITHOUT_LINE", "", "tests/kv/lines.py") in mentions
    for constant, name, file in mentions:
        source = next(path for path in (PACKAGE / file, ROOT / file) if path.exists())
        definition = rf"(?m)^\s*(?:def |class )?{constant or name}\b"
        assert re.search(definition, source.read_text(encoding="utf-8")), (
            f"{constant or name}: {file}"
        )


def test_tests_that_pages_name_exist() -> None:
    text = "\n".join(file.read_text(encoding="utf-8") for file in DOCS.glob("contributing/*.md"))
    named = {*re.findall(r"`(test_\w+)`", text)}
    files = [path for path in ROOT.glob("tests/**/test_*.py") if "node_modules" not in path.parts]
    sources = "\n".join(file.read_text(encoding="utf-8") for file in files)
    assert named - {*re.findall(r"(?m)^def (test_\w+)", sources)} == set()
    assert "test_command_info_is_that_of_redis" in named


def test_the_recipe_for_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (heading, rows), *others = parts("Add a key-value command")
    vendors = command_table("vendor", VERSION["vendor"], ())
    for group, row in zip(re.findall(r"\[([\w-]+)\]", heading), rows.splitlines(), strict=True):
        for name, spec in _specs_of(read(f"[{group}]\n{row}").values()).items():
            for table in (EVERYTHING, vendors):
                monkeypatch.setitem(table.commands, name, spec)
                monkeypatch.setitem(table._by_word, name.encode(), spec)
    # ACL categories and functions, which contain those of the new commands.
    monkeypatch.setattr(vendors, "_members", {})
    monkeypatch.setattr(registry, "FUNCTIONS", {**registry.FUNCTIONS})
    monkeypatch.setattr(scenarios, "FOLDER", tmp_path)
    played = 0
    for heading, lines in others:
        file = re.split("[,;]", heading)[0]
        if file.endswith(".py"):
            module = import_module(f"pytest_fakecloud.{file.removesuffix('.py').replace('/', '.')}")
            exec(lines, dict(vars(module)))
            continue
        (tmp_path / "recipe.txt").write_text(f"\n{lines}", encoding="utf-8")
        for settings, scenario in scenarios.scenarios("recipe").values():
            engine = KVEngine(Timekeeper(NOW), Ids(7), KVConfig(dialect="vendor", **settings))
            observed = ObservedEffects(engine)
            with pytest.MonkeyPatch.context() as patch:
                observed.watch(patch)
                scenarios.play(Run(engine, engine.session()), scenario)
            assert observed.undeclared | observed.unreported == set()
            played += 1
    assert played == 2


@pytest.mark.parametrize(
    ("removed", "http_method"),
    [("", "PUT"), ("queue.note = note\n", "PUT"), ("queue.updated_us =", "PUT"), ("", "GET")],
)
def test_the_recipe_for_an_endpoint(
    removed: str, http_method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scenario passes. It fails without a line of the engine's method, and if a GET changes data
    without `changes=True`.
    """
    (
        (_, function), (_, of_queue), (_, method), (_, of_record), (_, of_item), (_, not_loaded),
        (_, lines), (_, changed),
    ) = parts("Add an endpoint")  # fmt: skip
    route_line, function = function.split("\n", 1)
    define(queues, function, monkeypatch)
    note_queue = eval(route_line.strip(" ,").replace("PUT", http_method), vars(queues))
    routes = [*QueueApp.routes(), note_queue]
    monkeypatch.setattr(QueueApp, "routes", lambda: routes)
    monkeypatch.setattr(QueueApp, "_table_of_class", None)
    monkeypatch.setattr(OrderedQueue, of_queue.partition(":")[0], "", raising=False)
    define(Queues, method.replace(removed, "pass  # ") if removed else method, monkeypatch)
    *_, last = re.findall(r'"paused": queue.paused,\n', getsource(records.queue_record))
    define(records, getsource(records.queue_record).replace(last, last + of_record), monkeypatch)
    assert eval(f"{{{of_item}}}", {"queue": OrderedQueue("orders", 0, 0)}) == {"note": ""}
    assert not_loaded == '"note",\n'
    file = tmp_path / "recipe.txt"
    file.write_text(f"\n{lines.replace('PUT', http_method)}", encoding="utf-8")
    for settings, scenario in notations.scenarios(file).values():
        is_wrong = removed or http_method == "GET"
        with pytest.raises(AssertionError) if is_wrong else nullcontext():
            play(settings, scenario)
    # The other scenarios of the file, with the changed line.
    settings, scenario = endpoints("endpoints")["upsert_queue"]
    (line,) = (line for line in scenario if line.startswith(changed.partition("=>")[0]))
    assert f"- {line}\n" in recipes()
    play(settings, [changed.strip() if other == line else other for other in scenario])


def define(owner: Any, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a function to a module or to a class, as if it stood in the module of the class."""
    defined: dict[str, Any] = {}
    module = owner if ismodule(owner) else import_module(owner.__module__)
    exec(source, vars(module), defined)
    for name, method in defined.items():
        monkeypatch.setattr(owner, name, method, raising=False)


# -- a service -------------------------------------------------------------------------------------


def lists_of_services() -> Iterator[tuple[str, str]]:
    """Yield the constants that contain the names of at least three services, each with its file."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if sum(name in text for name in {*SERVICES, *services_by_word()}) < 3:
            continue
        for statement in syntax(path).body:
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                nodes = ast.walk(statement.value)
                texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
                target = getattr(statement, "target", None) or statement.targets[0]  # type: ignore[union-attr]
                if any(
                    len(texts.intersection(names)) > 2 for names in (SERVICES, services_by_word())
                ):
                    yield ast.unparse(target), path.relative_to(PACKAGE).as_posix()
    for path in sorted(PACKAGE.rglob("*.js")):
        script = path.read_text(encoding="utf-8")
        for name, value in re.findall(r"(?ms)^(?:export )?const (\w+) = (.*?);$", script):
            if len({*SERVICES}.intersection(re.findall(r"\w+", value))) > 2:
                yield name, path.name


def test_the_recipe_for_a_service_names_all_lists_of_services() -> None:
    section = recipes().partition("\n## Add a service\n")[2].partition("\n## ")[0]
    listed = {*lists_of_services()}
    assert ("MATCHERS", "faults.js") in listed
    assert {
        (name, file)
        for name, file in listed
        if f"`{name}`" not in section or f"`{file}`" not in section
    } == set()


# -- a kind of row ---------------------------------------------------------------------------------


MADE = ("reporting/model.py", "reporting/rows/sources.py")
"""The modules in which a kind is defined."""


def readers_of_sources() -> dict[str, set[str]]:
    """Return the functions outside these modules that read each member of the source of a row."""
    readers: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if name in MADE or not re.search(r"source\.\w", path.read_text(encoding="utf-8")):
            continue
        for function in ast.walk(syntax(path)):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if not isinstance(node, ast.Attribute) or node.attr not in RowSource.__slots__:
                    continue
                if re.search(r"\bsource$", ast.unparse(node.value)):
                    readers.setdefault(node.attr, set()).add(f"{function.name} {name}")
    return readers


def test_the_recipe_for_a_kind_of_row_names_all_that_reads_a_source() -> None:
    section = (
        recipes().partition("\n**A kind of row**")[2].partition("\n\n`reporting/rows/rows.py`")[0]
    )
    readers: dict[str, set[str]] = {}
    for member, places in re.findall(r"^\| `(\w+)` \| (.*?) \|$", section, re.M):
        for functions, path in re.findall(r"((?:`\w+\(\)`,? )+)of `([\w/]+\.py)`", places):
            found = {f"{name} {path}" for name in re.findall(r"`(\w+)\(\)`", functions)}
            readers.setdefault(member, set()).update(found)
    assert readers == readers_of_sources()


def test_no_script_compares_the_kind_of_a_row() -> None:
    """Pages read its rules."""
    kinds = "|".join(get_args(Kind))
    # Of any variable: a script can have the kind in one of another name.
    comparison = re.compile(rf'[!=]== "({kinds})"|\[[^]]*"({kinds})"[^]]*\]\.includes')
    scripts = PACKAGE.rglob("*.js")
    compared = {path.name for path in scripts if comparison.search(path.read_text("utf-8"))}
    assert compared == set()
    assert comparison.search('rows.filter(({kind: what}) => what !== "event")')
    assert comparison.search('["call", "delivery"].includes(row.kind)')
