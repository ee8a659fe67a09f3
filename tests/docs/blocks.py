"""Find the code blocks of the documentation's pages, and how to run each.

- A ``python`` block with a test is a test file; without one it is a script.
- A ``python`` block that begins with ``# name.py`` is a file of that name, which all blocks of the
  page can import. ``# test_name.py`` is a test file with that name, ``# conftest.py`` the conftest of
  its section.
- An ``ini`` block before a test is its ``pytest.ini``. A line ``Options: `…``` contains pytest options.
  ``<!-- plugin: asyncio -->`` names a plugin to load; no other plugins are loaded.
- ``<!-- fails -->`` before a test means that it must fail. Its report must contain the following
  ``text`` block of its section literally, except for ports and durations.

A section begins at a heading of the second level and has its own folder.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_PARTS = re.compile(
    r"^(?P<heading>## [^\n]+)$"
    r"|^Options: `(?P<options>[^`\n]+)`$"
    r"|^(?P<fails><!-- fails -->)$"
    r"|^<!-- plugin: (?P<plugin>\w+) -->$"
    r"|^(?P<fence>```+|:::+)(?P<kind>[^\n]*)\n(?P<text>.*?)^(?P=fence)$",
    re.M | re.S,
)
_PACKAGES = {
    "asyncio": "pytest_asyncio", "randomly": "pytest_randomly", "socket": "pytest_socket",
    "timeout": "pytest_timeout", "django": "pytest_django",
}  # fmt: skip
"""The packages of plugins whose package has a different name."""
_NAME = re.compile(r"# ([\w/]+\.py)$", re.M)


@dataclass
class Block:
    """A Python block: a test file, a script, or a file that other blocks of its page import."""

    page: str
    line: int
    section: int
    source: str
    name: str = ""
    options: tuple[str, ...] = ()
    plugin: str = ""
    ini: str = ""
    fails: bool = False
    shown: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str:
        return self.name or (f"test_line_{self.line}.py" if self.tests else f"line_{self.line}.py")

    @cached_property
    def tests(self) -> int:
        """The number of test functions in the block."""
        return len(re.findall(r"^ *(?:async )?def test_", self.source, re.M))

    @cached_property
    def missing(self) -> list[str]:
        """The modules that the block imports or requires and that are not installed."""
        missing = missing_modules(self.source, self.beside)
        plugin = _PACKAGES.get(self.plugin, self.plugin)
        return sorted({*missing, plugin} if plugin and find_spec(plugin) is None else missing)

    @property
    def is_of_its_section(self) -> bool:
        """Whether the block's file belongs to the folder of its section instead of its page."""
        return bool(self.tests) or self.file == "conftest.py"

    beside: frozenset[str] = frozenset()
    """The modules that the page's own files define."""


def missing_modules(source: str, beside: Collection[str]) -> set[str]:
    """Return the imported modules that are not installed; ``beside`` are files of the page."""
    names = {alias.name for node in ast.walk(ast.parse(source)) for alias in _imported(node)}
    roots = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
    return {root for root in roots.difference(beside) if find_spec(root) is None}


def _imported(node: ast.AST) -> list[ast.alias]:
    if isinstance(node, ast.Import):
        return node.names
    if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        return [ast.alias(node.module)]
    return []


@dataclass
class Page:
    """A page with its Python blocks, in order."""

    path: Path
    blocks: list[Block] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @classmethod
    def read(cls, path: Path) -> Page:
        page = cls(path)
        text = path.read_text(encoding="utf-8")
        section, options, plugin, ini, fails = 0, "", "", "", False
        for match in _PARTS.finditer(text):
            part = match.groupdict()
            line = text.count("\n", 0, match.start()) + 1
            if part["heading"]:
                section, options, plugin, ini, fails = line, "", "", "", False
            elif part["options"]:
                options = part["options"]
            elif part["plugin"]:
                plugin = part["plugin"]
            elif part["fails"]:
                fails = True
            elif part["kind"] == "ini":
                ini = part["text"]
            elif part["kind"] == "python":
                source = part["text"]
                name = _NAME.match(source)
                block = Block(page.name, line, section, source, name[1] if name else "")
                if block.tests:
                    block.options, block.plugin = tuple(options.split()), plugin
                    block.ini, block.fails = ini, fails
                    fails = False
                page.blocks.append(block)
            elif (
                part["kind"] == "text"
                and page.blocks
                and page.blocks[-1].fails
                and page.blocks[-1].section == section
            ):
                page.blocks[-1].shown = part["text"]
        for block in page.blocks:
            block.beside = frozenset(
                other.name.partition(".")[0].partition("/")[0]
                for other in page.blocks
                if other.name
            )
        return page


def pages() -> list[Page]:
    """Return the README and every page below ``docs`` with a Python block."""
    paths = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [page for page in map(Page.read, paths) if page.blocks]


def is_of_recipes(page: Page) -> bool:
    """Whether ``recipes`` runs the page, with the bugs that it shows."""
    return page.path.parent.name in ("cookbook", "migrating") and page.path.stem != "tools"
