"""The allowed direction of imports, read from the source."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "pytest_fakecloud"
SERVICES = ("kv", "vector", "broker", "queue")
PURE_KERNEL = {
    "aio",
    "asserting",
    "auth",
    "clock",
    "dispatch",
    "errors",
    "ids",
    "instants",
    "journal",
    "workers",
}
EDGE_NAMES = {"routes", "handle"}
# Files of a service that stand at its edge: what they may import beyond the engine's rules.
EDGES = {
    ("kv", "resp_port"),
    ("kv", "redis_engine"),
    ("broker", "kafka_engine"),
    ("queue", "sender"),
    ("queue", "capture"),
    ("queue", "destinations"),
    ("queue", "faults"),
    ("queue", "loopback"),
    ("queue", "mocked"),
    ("queue", "payloads"),
    ("queue", "receiver"),
    ("queue", "routes_admin"),
    ("queue", "routes_history"),
    ("queue", "routes_v1"),
    ("queue", "routes_workflow"),
    ("queue", "routes_workflow_history"),
}
FORBIDDEN_IN_ENGINES = {
    "http", "pytest", "random", "requests", "responses", "socket", "time", "urllib3", "werkzeug",
}  # fmt: skip


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def parts_of(path: Path) -> tuple[str, ...]:
    relative = path.relative_to(PACKAGE).with_suffix("")
    return relative.parts[:-1] if relative.name == "__init__" else relative.parts


def imports(path: Path, *, top_level_only: bool = False) -> Iterator[str]:
    """Absolute dotted names of everything a module imports; type-checking imports left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = ["pytest_fakecloud", *path.relative_to(PACKAGE).parts[:-1]]
    yield from _walk(tree, package, top_level_only)


def _walk(node: ast.AST, package: list[str], top_level_only: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = package[: len(package) - child.level + 1] if child.level else []
            origin = ".".join([*base, *([child.module] if child.module else [])])
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and top_level_only:
            continue
        else:
            yield from _walk(child, package, top_level_only)


def top(name: str) -> str:
    return name.partition(".")[0]


def own(name: str) -> tuple[str, ...]:
    """The parts below our package, or () for a name outside of it."""
    parts = name.split(".")
    return tuple(parts[1:]) if parts[0] == "pytest_fakecloud" else ()


@pytest.mark.parametrize("path", modules(), ids=lambda path: "/".join(parts_of(path)) or "top")
def test_imports_go_the_allowed_way(path: Path) -> None:
    parts = parts_of(path)
    names = set(imports(path))
    wrong: list[str] = []
    if parts[:1] == ("kernel",):
        wrong += [n for n in names if own(n) and own(n)[0] != "kernel"]
        wrong += [n for n in names if top(n) == "pytest"]
        if len(parts) == 2 and parts[1] in PURE_KERNEL:
            wrong += [
                n for n in names if top(n) not in (*sys.stdlib_module_names, "pytest_fakecloud")
            ]
            wrong += [n for n in names if top(n) in ("socket", "http", "ssl")]
            wrong += [n for n in names if len(own(n)) > 1 and own(n)[1] not in PURE_KERNEL]
    elif parts[:1] and parts[0] in SERVICES:
        others = {service for service in SERVICES if service != parts[0]}
        allowed = {parts[0], "kernel", "transport"}
        wrong += [n for n in names if own(n) and own(n)[0] not in allowed]
        wrong += [n for n in names if own(n) and own(n)[0] in others]
        wrong += [n for n in names if top(n) == "pytest"]
        at_edge = parts[-1] in EDGE_NAMES or parts[:2] in EDGES
        if not at_edge and len(parts) > 1:
            wrong += [n for n in names if top(n) in FORBIDDEN_IN_ENGINES]
            wrong += [
                n
                for n in names
                if own(n)[:1] == ("kernel",) and len(own(n)) > 1 and own(n)[1] not in PURE_KERNEL
            ]
    elif parts in (("plugin",), ("run",)):
        at_import = set(imports(path, top_level_only=True))
        light = (*sys.stdlib_module_names, "pytest", "__future__")
        wrong += [n for n in at_import if top(n) not in light and own(n)[:1] != ("run",)]
    assert not wrong, f"{'/'.join(parts)} may not import {sorted(set(wrong))}"


def test_importing_the_plugin_loads_no_library() -> None:
    heavy = ["numpy", "werkzeug", "requests", "responses", "httptools", "lupa", "orjson", "jwt"]
    code = (
        "import sys, pytest\n"
        "import pytest_fakecloud.plugin\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_engines_keep_no_global_state() -> None:
    """No module of an engine rebinds a module-level name from inside a function."""
    for path in modules():
        parts = parts_of(path)
        if parts[:1] and parts[0] in SERVICES:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found = [node for node in ast.walk(tree) if isinstance(node, ast.Global)]
            assert not found, f"{'/'.join(parts)} uses the global statement"
