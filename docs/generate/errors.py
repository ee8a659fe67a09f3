"""Generate the page of error texts from the modules that define them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain

from .markdown import HEAD, PACKAGE, SEARCHED_ONLY, first_sentence, inline

_SERVICES = {
    "kv_server": ("Key-value", "kv/errors.py"),
    "vector_index": ("Vector", "vector/errors.py"),
    "broker": ("Broker", "broker/errors.py"),
    "queue": ("Queue", "queue/errors.py"),
}
_STATUSES = {"one_line": "", "illegal_argument": "", "bad_request": "400 ", "unprocessable": "422 "}
"""The status that a function returns with the text of its first argument, by name."""
_HEAD = f"""\
{SEARCHED_ONLY}{HEAD}
# Error texts

The error messages of the fakes, by module. `<…>` is a placeholder. They are the same as those of the
service, so your tests can check them.
"""


def page() -> str:
    """Return the page as Markdown."""
    return "".join(chain([_HEAD], *(_service(*names) for names in _SERVICES.values())))


def _service(title: str, place: str) -> Iterator[str]:
    module = ast.parse((PACKAGE / place).read_text(encoding="utf-8"))
    yield f"\n## {title}\n\n{inline(ast.get_docstring(module) or '')}\n\n```text\n"
    for node in module.body:
        if isinstance(node, ast.Assign):
            text = _text(node.value)
            if text and " " in text:
                yield f"{text}\n"
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            texts = list(dict.fromkeys(_returned(node)))
            if texts:
                yield f"\n# {_about(node)}\n" + "".join(f"{text}\n" for text in texts)
    yield "```\n"


def _about(node: ast.FunctionDef) -> str:
    return first_sentence(ast.get_docstring(node)).replace("`", "")


class _Filled(ast.NodeTransformer):
    """Replaces a function's local names by the strings assigned to them."""

    def __init__(self, texts: dict[str, ast.expr]) -> None:
        self._texts = texts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._texts.get(node.id, node)


def _returned(function: ast.FunctionDef) -> Iterator[str]:
    assignments = [node for node in ast.walk(function) if isinstance(node, ast.Assign)]
    named: dict[str, list[ast.expr]] = {}
    for assign in assignments:
        if isinstance(assign.targets[0], ast.Name):
            named.setdefault(assign.targets[0].id, []).append(assign.value)
    texts = {
        name: values[0] for name, values in named.items() if len(values) == 1 and _text(values[0])
    }
    for node in ast.walk(_Filled(texts).visit(function)):
        if isinstance(node, ast.Return) and node.value is not None:
            yield from _shown(node.value)


def _shown(value: ast.expr) -> Iterator[str]:
    """Yield the strings of a returned value, preceded by the status of an exception."""
    if isinstance(value, ast.IfExp):
        yield from _shown(value.body)
        yield from _shown(value.orelse)
        return
    status = ""
    if isinstance(value, ast.Call) and value.args:
        name = value.func.id if isinstance(value.func, ast.Name) else ""
        first = value.args[0]
        if name.endswith("Error") and len(value.args) > 1:
            status = f"{first.value!r} " if isinstance(first, ast.Constant) else ""
            value = value.args[1]
        elif name in _STATUSES:
            status, value = _STATUSES[name], first
    text = _text(value)
    if text and " " in text:
        yield status + text


def _text(value: ast.expr) -> str:
    """Return a string with ``<name>`` for its placeholders; an empty string for other expressions."""
    if isinstance(value, ast.Constant):
        constant = value.value
        if isinstance(constant, bytes):
            return constant.decode("utf-8", "replace").strip("\r\n")
        return constant if isinstance(constant, str) else ""
    if isinstance(value, ast.JoinedStr):
        return "".join(
            str(part.value)
            if isinstance(part, ast.Constant)
            else _text(part.value) or _hole(part.value)
            for part in value.values
            if isinstance(part, ast.Constant | ast.FormattedValue)
        )
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return (_text(value.left) or _hole(value.left)) + (_text(value.right) or _hole(value.right))
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr == "encode":
            return _text(value.func.value) or _hole(value.func.value)
        return ""
    if isinstance(value, ast.Call) and value.args and isinstance(value.func, ast.Name):
        return _text(value.args[0])
    return ""


def _hole(value: ast.expr) -> str:
    if isinstance(value, ast.Name):
        return f"<{value.id}>"
    if isinstance(value, ast.Attribute):
        return f"<{value.attr}>"
    names = [node.id for node in ast.walk(value) if isinstance(node, ast.Name)]
    return f"<{names[-1] if names else '…'}>"
