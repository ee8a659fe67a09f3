"""Which modules may import which, determined by their folders.

A folder may use the floors below it, never one above or beside it; ``docs/contributing/map.md`` has
the map. Imports inside functions and imports for type checkers count too. A pure folder may not
import HTTP, pytest, the wall clock or its service's interfaces.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from pytest_fakecloud.cloud.services import SERVICES

from .harness import PACKAGE, check_each, syntax

NAMES = sorted({service.fake.split(".")[1] for service in SERVICES.values()})
INSPECT = tuple(f"{name}.inspect" for name in NAMES)
REPORTS = tuple(f"{name}.report" for name in NAMES)
"""The folders of the services that have floors of their own, above `reporting`."""

FLOORS = (
    ("_typing",),
    ("core", "cloud"),
    ("similarity",),
    ("http",),
    ("faults",),
    ("process",),
    ("cloud.actions",),
    ("cloud.fake", "cloud.files", "cloud.config"),
    tuple(NAMES),
    ("cloud.services",),
    ("cloud.base",),
    ("inspect",),
    ("replay",),
    ("reporting",),
    INSPECT,
    REPORTS,
    ("recordings", "explore", "hints", "last_pass"),
    ("cloud.cloud",),
    ("pytest_run", "standalone", "verify"),
    ("plugin", "cli"),
    ("__main__",),
)
"""From bottom to top. Folders on one floor do not import each other. The services are between the
modules of ``cloud/``, each of which has a floor: a fake is below them, and a cloud of fakes above.
``_typing`` has only stubs for type checkers, which name classes of all floors."""
OF_EXPLORE = (
    "values", "subject", "fakes", "simulation", "world", "judge", "search", "result", "", "guests"
)  # fmt: skip
"""The floors of ``explore/``: ``""`` are the modules beside the folders. ``tests/test_guests.py`` says
which module imports a guest."""

PURE = {"acl", "algorithms", "commands", "config", "engine", "filter", "rdb", "scripting", "search",
        "table", "values", "wire", "workflow", "errors", "model", "reply", "settings",
        "syntax"}  # fmt: skip
"""Folders of a service without HTTP, pytest, the wall clock, or its own interfaces."""
OUTSIDE = {"http", "pytest", "random", "requests", "responses", "socket", "ssl", "time", "urllib3",
           "werkzeug"}  # fmt: skip
STATUSES = {"http", "http.HTTPStatus"}
"""Imports for the names of statuses: the package ``http`` itself sends and receives nothing."""


@cache
def modules() -> Mapping[str, Path]:
    """Return every module of the package by its dotted name; ``""`` is the package itself."""
    by_name = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        by_name[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return by_name


@dataclass(frozen=True)
class Module:
    """The parts of a module's source that are checked, without its syntax tree."""

    imports: frozenset[str]
    """The absolute dotted names of everything it imports."""
    at_import: frozenset[str]
    """Only imports at module level, not those in functions or for type checkers."""
    for_types: frozenset[str]
    """Imported only for type checkers."""
    froms: tuple[ast.ImportFrom, ...]
    """Its ``from`` statements."""
    has_globals: bool
    """Whether it has a ``global`` statement."""


@cache
def module(name: str) -> Module:
    """Parse a module."""
    package = ["pytest_fakecloud", *modules()[name].relative_to(PACKAGE).parts[:-1]]
    imports: set[str] = set()
    at_import: set[str] = set()
    at_run: set[str] = set()
    froms: list[ast.ImportFrom] = []
    has_globals = False
    for node, scope in _statements(syntax(modules()[name]), ""):
        names = list(_imported(node, package))
        imports.update(names)
        if not scope:
            at_import.update(names)
        if scope != "types":
            at_run.update(names)
        if isinstance(node, ast.ImportFrom):
            froms.append(node)
        has_globals = has_globals or isinstance(node, ast.Global)
    for_types = frozenset(imports - at_run)
    return Module(frozenset(imports), frozenset(at_import), for_types, tuple(froms), has_globals)


_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Attributes that contain statements. Expressions contain none, and most of a tree is expressions."""


def _statements(node: ast.AST, scope: str) -> Iterator[tuple[ast.AST, str]]:
    """Yield each statement below a node with its scope: "", "function" or "types"."""
    for block in _BLOCKS:
        for child in getattr(node, block, ()):
            inner = scope or _scope(child)
            yield child, inner
            yield from _statements(child, inner)


def _imported(node: ast.AST, package: list[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else []
        origin = ".".join([*base, *([node.module] if node.module else [])])
        yield origin
        yield from (f"{origin}.{alias.name}" for alias in node.names)


def _scope(node: ast.AST) -> str:
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return "types"
    return "function" if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ""


@cache
def own(name: str, for_types: bool = True) -> frozenset[str]:
    """Return the modules of this package that a module imports, optionally not for types."""
    own_modules = set()
    for imported in module(name).imports - (frozenset() if for_types else module(name).for_types):
        if imported.partition(".")[0] == "pytest_fakecloud":
            below = imported.partition(".")[2]
            # ``from ..http import app`` imports the module; the package is only its parent.
            own_modules.add(below if below in modules() else below.rpartition(".")[0])
    packages = {
        package
        for package in own_modules
        if any(other.startswith(f"{package}.") for other in own_modules)
    }
    return frozenset(own_modules - packages - {name, ""})


def wing(name: str) -> str:
    """Return the folder that determines a module's floor."""
    folder = ".".join(name.split(".")[:2])
    return (
        folder
        if folder in (*INSPECT, *REPORTS) or folder.startswith("cloud.")
        else name.split(".")[0]
    )


def floor(name: str) -> int:
    """Return the number of a module's floor."""
    return next(number for number, rooms in enumerate(FLOORS) if wing(name) in rooms)


EACH = [(name,) for name in modules() if name]


def test_imports_go_down() -> None:
    check_each(goes_down, EACH)


def goes_down(name: str) -> None:
    wrong = [
        imported
        for imported in own(name)
        if wing(imported) != wing(name) and floor(imported) >= floor(name)
    ]
    assert not wrong, f"{name} is on floor {wing(name)!r} and may not import {sorted(wrong)}"


def test_imports_within_explore_go_down() -> None:
    check_each(goes_down_in_explore, [row for row in EACH if row[0].startswith("explore.")])


def goes_down_in_explore(name: str) -> None:
    floors = {
        imported: OF_EXPLORE.index(_folder_in_explore(imported))
        # Classes of two floors may name each other in types.
        for imported in own(name, for_types=False)
        if imported.startswith("explore.") and _folder_in_explore(imported) != "guests"
    }
    own_floor = OF_EXPLORE.index(_folder_in_explore(name))
    wrong = sorted(imported for imported, floor in floors.items() if floor > own_floor)
    assert not wrong, f"{name} is on floor {_folder_in_explore(name)!r} and may not import {wrong}"


def test_what_chooses_and_judges_trials_does_not_see_how_they_run() -> None:
    check_each(sees_only_trials, [row for row in EACH if _is_of_search(row[0])])


def sees_only_trials(name: str) -> None:
    halves = ("explore.simulation.", "explore.world.")
    wrong = {module for module in own(name) if module.startswith(halves)} - {"explore.world.world"}
    assert not wrong, f"{name} gets trials from World.play_unjudged(), and may not import {wrong}"


def _is_of_search(name: str) -> bool:
    return name.startswith(("explore.judge.", "explore.search.", "explore.result."))


def _folder_in_explore(name: str) -> str:
    _, *folders, _ = name.split(".")
    return folders[0] if folders else ""


@pytest.mark.parametrize("folder", ["simulation", "world", "judge"])
def test_the_reading_order_of_a_folder_names_each_module(folder: str) -> None:
    files = sorted((PACKAGE / "explore" / folder).glob("*.py"))
    modules = {file.stem for file in files} - {"__init__"}
    named = re.findall(r"``(\w+)``", ast.get_docstring(syntax(files[0])) or "")
    assert files[0].stem == "__init__"
    assert set(named) == modules
    assert len(named) == len(modules), "each is named once"


def test_what_is_pure_stays_pure() -> None:
    check_each(stays_pure, EACH)


def stays_pure(name: str) -> None:
    rooms = name.split(".")
    if rooms[0] == "core":
        # The names are those of the running Python; "annotationlib" is in the library since 3.14.
        standard = {*sys.stdlib_module_names, "annotationlib"} - {"http", "socket", "ssl"}
        allowed = standard | {"pytest_fakecloud"}
        wrong = [
            imported
            for imported in module(name).imports
            if imported.partition(".")[0] not in allowed
        ]
    elif rooms[0] == "similarity":
        wrong = [
            imported for imported in module(name).imports if imported.partition(".")[0] in OUTSIDE
        ]
    elif rooms[0] in NAMES and rooms[1:] and rooms[1] in PURE:
        wrong = [
            imported
            for imported in module(name).imports - STATUSES
            if imported.partition(".")[0] in OUTSIDE
        ]
        wrong += [
            imported
            for imported in own(name)
            if imported.split(".")[0] not in ("core", "similarity", rooms[0])
            or (imported.split(".")[0] == rooms[0] and imported.split(".")[1] not in PURE)
        ]
    elif wing(name) not in ("plugin", "pytest_run"):
        wrong = [
            imported for imported in module(name).imports if imported.partition(".")[0] == "pytest"
        ]
    else:
        wrong = []
    assert not wrong, f"{name} may not import {sorted(set(wrong))}"


def test_no_modules_import_each_other() -> None:
    # Without annotations, because classes may refer to each other in types.
    graph = {name: own(name, for_types=False) for name in modules()}
    found_circles = [" <-> ".join(sorted(circle)) for circle in circles(graph)]
    assert not found_circles, "\n".join(found_circles)


def circles(graph: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found_circles: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in graph[node]:
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found_circles.append(stack[at:])
            del stack[at:]

    for node in graph:
        if node not in number:
            visit(node)
    return found_circles


@pytest.mark.parametrize("service", NAMES)
def test_every_service_has_the_same_rooms(service: str) -> None:
    rooms = {name.split(".")[1] for name in modules() if name.startswith(f"{service}.")}
    assert rooms >= {"fake", "settings", "model", "errors", "engine"}
    assert rooms & {"routes", "rest"}
    parts = ("functions", "accesses", "findings", "wording")
    assert {f"{service}.report.{part}" for part in parts} <= modules().keys()
    assert {f"{service}.inspect.data", f"replay.{service}"} <= modules().keys()
    assert f"{service}.engine.engine" in modules()


def test_packages_have_no_functions_or_classes() -> None:
    definitions = [
        f"{name}: {node.name}"
        for name, path in modules().items()
        if name and path.name == "__init__.py"
        for node in syntax(path).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    assert not definitions


@pytest.mark.parametrize(
    "name",
    [
        "plugin",
        "pytest_run.ini",
        "pytest_run.run",
        "pytest_run.warning",
        "pytest_run.wide_fixtures",
    ],
)
def test_the_plugin_imports_next_to_nothing(name: str) -> None:
    light = {*sys.stdlib_module_names, "pytest", "pytest_fakecloud"}
    assert not [
        imported for imported in module(name).at_import if imported.partition(".")[0] not in light
    ]


def test_importing_the_plugin_loads_no_library() -> None:
    heavy = ["numpy", "werkzeug", "requests", "responses", "httptools", "lupa", "orjson", "jwt",
             "Stemmer"]  # fmt: skip
    code = (
        "import sys, pytest\n"
        "import pytest_fakecloud.plugin\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


_VENDORS = ("redis", "kafka", "qstash", "upstash", "workflow")
_NAMES_OF_SERVICES = re.compile(rf"(?i){'|'.join([*NAMES, *_VENDORS])}")


def test_shared_modules_of_reports_name_no_service() -> None:
    shared = [name for name in modules() if name.startswith("reporting.")]
    named = {f"{name}: {text}" for name in shared for text in strings_of(syntax(modules()[name]))
             if _NAMES_OF_SERVICES.search(text)}  # fmt: skip
    assert not named, "move these to <service>/report/, see reporting/contract.py"


def strings_of(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of a module that are no documentation."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in documentation:
            yield str(node.value)


def test_services_keep_no_global_state() -> None:
    check_each(keeps_no_global_state, [row for row in EACH if row[0].split(".")[0] in NAMES])


def keeps_no_global_state(name: str) -> None:
    assert not module(name).has_globals, f"{name} uses the global statement"


def test_imports_of_our_own_are_relative() -> None:
    check_each(imports_its_own_relatively, EACH)


def imports_its_own_relatively(name: str) -> None:
    wrong = [
        ast.unparse(node)
        for node in module(name).froms
        if not node.level and (node.module or "").startswith("pytest_fakecloud")
    ]
    assert not wrong


def test_private_attributes_are_assigned_where_their_class_is() -> None:
    owners: dict[str, set[str]] = {}
    assigned: list[tuple[str, ast.Attribute]] = []
    for name, path in modules().items():
        for node in ast.walk(syntax(path)):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                owners.setdefault(node.target.id, set()).add(name)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                if ast.unparse(node.value) in ("self", "cls"):
                    owners.setdefault(node.attr, set()).add(name)
                elif re.match("_[^_]", node.attr):
                    assigned.append((name, node))
    assignments = [
        f"{name}:{node.lineno} {ast.unparse(node)}"
        for name, node in assigned
        if node.attr in owners
        and name not in owners[node.attr]
        # an executor of the standard library
        and (name, ast.unparse(node)) != ("explore.world.threads", "pool._threads")
    ]
    assert assignments == []
    assert assigned


def test_nothing_is_described_twice() -> None:
    check_each(is_described_once, EACH)


def is_described_once(name: str) -> None:
    # Strings below fields are invisible to linters, so check for repetitions.
    again = re.search(r'^( *""".*""")\n\1$', modules()[name].read_text(encoding="utf-8"), re.M)
    assert again is None, f"{name} says twice in a row: {again and again[1].strip()}"


def test_tests_that_print_missing_lines_are_marked() -> None:
    """`-m completeness` selects each of them, except those of other projects' clients."""
    tests = Path(__file__).parent
    unmarked = [
        f"{path.relative_to(tests)}: {node.name}"
        for path in sorted(tests.rglob("test_*.py"))
        if not path.is_relative_to(tests / "clients")
        if "complete" in path.read_text(encoding="utf-8")
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if any(
            isinstance(call, ast.Call) and ast.unparse(call.func).startswith("complete")
            for call in ast.walk(node)
        )
        if "pytest.mark.completeness" not in "".join(map(ast.unparse, node.decorator_list))
        if "\npytestmark = pytest.mark.completeness\n" not in path.read_text(encoding="utf-8")
    ]
    assert not unmarked, "add @pytest.mark.completeness"
