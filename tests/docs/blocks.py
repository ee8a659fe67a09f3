"""The blocks of the documentation's pages, and how each is run.

A page is Markdown. Of its blocks

- ``python`` with a test is a test file; without one it is a script, which has to run;
- a ``python`` block that begins with ``# name.py`` is a file of that name, which all blocks of its
  page may import; ``# test_name.py`` is a test file that keeps its name; a ``# conftest.py`` is that
  of its section;
- ``ini`` before a test is its ``pytest.ini``, a line ``Options: `…``` holds its options, and
  ``<!-- plugin: asyncio -->`` names another plugin it is for: all others stay out;
- ``<!-- fails -->`` before a test says that it has to fail, and the ``text`` block after it is what its
  report must show, word by word, but for ports and durations.

A section is what stands below a heading of the second level, and has a folder of its own.
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
"""The packages of plugins whose short names are other ones."""
_NAME = re.compile(r"# ([\w/]+\.py)$", re.M)


@dataclass
class Block:
    """One block of Python: a test file, a script, or a file that others of its page import."""

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
        """How many test functions it defines."""
        return len(re.findall(r"^ *(?:async )?def test_", self.source, re.M))

    @cached_property
    def missing(self) -> list[str]:
        """The modules it imports or asks for that are not installed."""
        missing = missing_modules(self.source, self.beside)
        plugin = _PACKAGES.get(self.plugin, self.plugin)
        return sorted({*missing, plugin} if plugin and find_spec(plugin) is None else missing)

    @property
    def is_of_its_section(self) -> bool:
        """Whether it lies in the folder of its section, not in that of its page."""
        return bool(self.tests) or self.file == "conftest.py"

    beside: frozenset[str] = frozenset()
    """The modules of its page's own files."""


def missing_modules(source: str, beside: Collection[str]) -> set[str]:
    """The modules a source imports that are not installed; ``beside`` are files of its own."""
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
    """One page with its blocks of Python, in order."""

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
            elif part["kind"] == "text" and page.blocks and page.blocks[-1].fails:
                page.blocks[-1].shown = part["text"]
        for block in page.blocks:
            block.beside = frozenset(
                other.name.partition(".")[0].partition("/")[0]
                for other in page.blocks
                if other.name
            )
        return page


def pages() -> list[Page]:
    """The README and every page below ``docs`` that has a block of Python."""
    paths = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    return [page for page in map(Page.read, paths) if page.blocks]


def is_of_recipes(page: Page) -> bool:
    """Whether ``recipes`` runs it, with the bugs it shows."""
    return page.path.parent.name in ("cookbook", "migrating") and page.path.stem != "tools"
