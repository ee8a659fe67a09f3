"""Generate what a coding assistant reads: ``llms.txt``, an index of the documentation, and a skill.

Both consist of parts of the pages: their titles and first sentences, their tables, and their tests,
which the suite runs.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pytest_fakecloud import Attempt, Call, Callback, DeadLetterView, PublishedMessage, Record

from .markdown import first_sentence, inline
from .options import documented_fixtures

DOCS = Path(__file__).resolve().parents[1]
SKILL = "skills/pytest-fakecloud/SKILL.md"
_RAW = "https://raw.githubusercontent.com/pytest-fakecloud/pytest-fakecloud/main/"
_SITE = "https://pytest-fakecloud.github.io/pytest-fakecloud/"
_OPTIONAL = ("Reference", "Background")
"""Captions of the table of contents that ``llms.txt`` has after all others."""
_SKILL_FIXTURES = (
    "kv_server", "vector_index", "queue", "callback_capture", "broker", "fakecloud", "fakecloud_env",
)  # fmt: skip
_ITEMS = {
    PublishedMessage: "`queue.messages()`",
    Attempt: "`queue.attempts()`",
    DeadLetterView: "`queue.dead_letters()`",
    Callback: "`callback_capture.callbacks()`",
    Record: "`broker.records()`",
    Call: '`kv_server.journal.calls(command="SET")`, and `.journal` of all other fakes',
}
"""The classes of what lists contain, and where they are listed."""
_PATTERNS = (
    ("expiry, in fake time", "guides/time.md", "test_a_code_is_valid_for_ten_minutes"),
    (
        "code that reads time.time(), also upstash-ratelimit, which counts windows in the process",
        "guides/time.md",
        "test_the_application_sees_the_clock",
    ),
    ("a lost answer, and the calls that were made", "README.md", "test_a_lost_answer_is_repeated"),
    ("a delivery after a delay", "guides/queue.md", "test_a_delayed_message"),
    ("a dead letter", "guides/queue.md", "test_a_dead_letter_is_retried"),
    (
        "callbacks; for the others, wait_for_failure()",
        "guides/queue.md",
        "test_the_answer_comes_back",
    ),
    ("a schedule", "guides/queue.md", "test_a_report_every_morning"),
    (
        "a function as destination, which verifies signatures",
        "guides/queue.md",
        "test_a_forgery_is_rejected",
    ),
    ("vectors", "guides/vector.md", "test_the_nearest_product_is_found"),
    (
        "all orders of two clients, with crashes and lost answers: none may break the promise",
        "guides/explore.md",
        "test_every_guest_is_on_the_list",
    ),
)
"""The tests of the skill: what each shows, its page, and its name."""
_MORE = (
    "guides/applications.md", "guides/workflows.md", "guides/clusters.md", "guides/search.md",
    "guides/async.md", "guides/explore.md", "cookbook/libraries.md", "reference/settings.md",
)  # fmt: skip


def llms_txt() -> str:
    """Return the index of the documentation, in the form of https://llmstxt.org."""
    lines = ["# pytest-fakecloud", "", f"> {_summary()}", ""]
    lines += [
        f"Read [the skill]({_RAW}docs/{SKILL}) first: fixtures, patterns and common mistakes of a test, "
        "in one file."
    ]
    contents = _contents()
    for caption in [*(name for name in contents if name not in _OPTIONAL), *_OPTIONAL]:
        lines += ["", f"## {caption}", ""]
        lines += [_entry(place) for place in contents[caption]]
    return "\n".join(lines) + "\n"


def skill() -> str:
    """Return the skill: the template with the tables and tests of the pages."""
    template = Path(__file__).with_name("skill.in").read_text(encoding="utf-8")
    return re.sub(r"^\{\{ (\w+)(?: (.+?))? \}\}$", _filled, template, flags=re.M)


def _filled(match: re.Match[str]) -> str:
    kind, rest = match[1], match[2] or ""
    if kind == "summary":
        return _summary()
    if kind == "fixtures":
        return "\n".join(_fixtures())
    if kind == "more":
        return "\n".join([*map(_entry, _MORE), f"- [All pages]({_SITE}llms.txt)"])
    if kind == "items":
        return "\n".join(_items())
    if kind == "patterns":
        return _patterns()
    assert kind == "table", match[0]
    place, title = rest.split(" ", 1)
    return _table(place, title.strip('"'))


def _fixtures() -> Iterator[str]:
    texts = {name: text for name, _, _, text in documented_fixtures()}
    for name in _SKILL_FIXTURES:
        yield f"- `{name}`: {' '.join(texts[name].split())}"


def _items() -> Iterator[str]:
    for kind, where in _ITEMS.items():
        # The fields in their order, then what the class defines besides.
        names = dict.fromkeys(
            name
            for name in (*kind.__annotations__, *vars(kind))
            if not name.startswith("_") and not name.endswith("_us")
        )
        methods = {name for name in names if inspect.isfunction(getattr(kind, name, None))}
        listed = (f"`{name}()`" if name in methods else f"`{name}`" for name in names)
        yield f"- {where}: {', '.join(listed)}"


def _summary() -> str:
    """Return the paragraph of the README that says what the package is."""
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    paragraph = next(part for part in readme.split("\n\n") if part.startswith("pytest fixtures"))
    return " ".join(paragraph.split())


@cache
def _page(place: str) -> str:
    return (DOCS.parent if place == "README.md" else DOCS).joinpath(place).read_text("utf-8")


def _contents() -> dict[str, list[str]]:
    """Return the pages of the site by the captions of its sidebar, with those of its sub-pages."""
    contents: dict[str, list[str]] = {}
    for toctree in re.findall(r"```\{toctree\}\n(.*?)```", _page("index.md"), re.S):
        caption = re.search(r"^:caption: (.+)$", toctree, re.M)
        contents[caption[1] if caption else "Start"] = list(_places(toctree, ""))
    return contents


def _places(toctree: str, folder: str) -> Iterator[str]:
    for line in re.sub(r"^:.*$", "", toctree, flags=re.M).split("\n"):
        if not line.strip():
            continue
        named = re.search(r"<(.+)>", line)
        place = f"{folder}{named[1] if named else line.strip()}.md"
        yield place
        if place.endswith("/index.md"):
            for inner in re.findall(r"```\{toctree\}\n(.*?)```", _page(place), re.S):
                yield from _places(inner, place.removesuffix("index.md"))


def _entry(place: str) -> str:
    """Return a link to a page, with its first sentences and, of recipes, their titles."""
    text = re.sub(r"\A---\n.*?\n---\n|<!--.*?-->\n?", "", _page(place), flags=re.S).strip()
    title, _, rest = text.removeprefix("# ").partition("\n")
    about = _about(rest)
    if place.startswith("cookbook/") and not place.endswith("index.md"):
        about += f" Recipes: {'; '.join(re.findall(r'^## (.+)$', text, re.M))}."
    # The pages of the API consist of directives, so only the site has their text.
    if place == "reference/api.md":
        return f"- [{title}]({_SITE}reference/api.html): {about}"
    return f"- [{title}]({_RAW}docs/{place}): {about}"


def _about(text: str) -> str:
    """Return the first sentence of a page, and the second if the first is short, as plain text."""
    paragraphs = (part.strip() for part in text.split("\n\n"))
    first = next(
        part for part in paragraphs if part and not part.startswith(("```", "#", "|", ":", "("))
    )
    plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", first)
    about = first_sentence(plain)
    if len(about) < 60:
        about = f"{about} {first_sentence(inline(plain).removeprefix(about).strip())}".strip()
    return re.sub(r":$", ".", about)


def _table(place: str, title: str) -> str:
    """Return the first table below a heading, with its links as plain text."""
    section = re.split(rf"^#+ {re.escape(title)}\n", _page(place), flags=re.M)[1]
    table = re.search(r"(?:^\|.*\n)+", section, re.M)
    assert table is not None, title
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", table[0]).strip()


def excerpt(page: str, name: str) -> tuple[list[str], str]:
    """Return the imports of a test of a page, and the test with the helpers that it uses."""
    block = next(
        text
        for text in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
        if re.search(rf"^(?:async )?def {name}\(", text, re.M)
    )
    used = {name}
    imports: list[str] = []
    parts: list[str] = []
    for node in reversed(ast.parse(block).body):
        if used & _bound(node):
            used |= {word.id for word in ast.walk(node) if isinstance(word, ast.Name)}
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports.append(ast.unparse(node))
            else:
                parts.insert(0, _source(block, node))
    return imports, "\n\n\n".join(parts)


def _bound(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    return {word.id for word in ast.walk(node) if isinstance(word, ast.Name)}


def _source(block: str, node: ast.stmt) -> str:
    decorators = getattr(node, "decorator_list", [])
    start = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return "\n".join(block.splitlines()[start - 1 : node.end_lineno])


def _patterns() -> str:
    """Return the tests of the patterns as one file."""
    modules: set[str] = set()
    tests = []
    for title, place, name in _PATTERNS:
        imports, test = excerpt(_page(place), name)
        modules.update(imports)
        tests.append(f"# {title}\n{test}")
    # Modules of the standard library, then those of packages, as in any file.
    groups = [
        sorted(line for line in modules if (line.split()[1] in sys.stdlib_module_names) is standard)
        for standard in (True, False)
    ]
    head = "\n\n".join("\n".join(group) for group in groups)
    return "```python\n" + "\n\n\n".join([head, *tests]) + "\n```"
