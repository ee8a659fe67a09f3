"""Generate the section about behavior decided here, because no source documents the service's.

It collects the paragraphs of the package's docstrings that contain the words "decided here".
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

from .markdown import first_sentence, inline, modules

_PARTS = {
    "core/": "Everywhere", "http/": "Everywhere", "similarity/": "Everywhere",
    "kv/": "Key-value", "vector/": "Vector", "broker/": "Broker", "queue/": "Queue",
}  # fmt: skip
_HEAD = """
## Decided here

Some behavior is documented neither by the vendor nor by its open-source clients, and no real server
shows it. This project had to decide, and tests check each decision. The list is collected from the
docstrings of the modules concerned. If you know how the service behaves, please open an issue.
"""


def section() -> Iterator[str]:
    """Yield the section as Markdown, with a list for each service."""
    yield _HEAD
    decisions: dict[str, list[str]] = {title: [] for title in dict.fromkeys(_PARTS.values())}
    for path, module in modules():
        for title in (title for start, title in _PARTS.items() if path.startswith(start)):
            decisions[title] += _of_module(path, module)
    for title, texts in decisions.items():
        if texts:
            yield f"\n### {title}\n\n"
            yield from texts


def _of_module(path: str, module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = getattr(node, "name", "")
            docstring = ast.get_docstring(node, clean=False) or ""
            if not re.search(r"decided\s+here", docstring, re.I):
                continue
            about = first_sentence(inspect.cleandoc(docstring))
            where = path.removesuffix(".py").removesuffix("/__init__") + (
                f", `{name}`" if name else ""
            )
            for text, items in _paragraphs(docstring):
                lead = "" if text.startswith(about) else f"*{about}* "
                yield f"- {lead}{text} ({where})\n" + "".join(f"  - {item}\n" for item in items)


def _paragraphs(docstring: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each paragraph that contains a decision, with the list that follows it."""
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    for paragraph, after in zip(paragraphs, [*paragraphs[1:], ""], strict=True):
        text = inline(paragraph).removeprefix("- ")
        if not re.search(r"decided here", text, re.I):
            continue
        if text.endswith(":") and after.startswith("- "):
            yield text, [inline(item) for item in re.split(r"^- ", after, flags=re.M)[1:]]
        else:
            yield _from_the_decision(text), []


def _from_the_decision(text: str) -> str:
    """Return the text after "Decided here:", or the whole text if the words are inside a sentence."""
    match = re.search(r"\*?Decided here\*?(?:, [^:]{0,60})?: (.*)", text)
    if match is None:
        return text
    return match[1][:1].upper() + match[1][1:]
