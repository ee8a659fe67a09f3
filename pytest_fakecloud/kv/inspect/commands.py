"""The commands of a key-value server with their syntax, as the server itself describes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...inspect.data import PageQuery, View, page_of
from ..fake import KVServer


def commands(fake: KVServer, page_query: PageQuery) -> View:
    """Return a page of commands and subcommands, each with its ``summary`` and ``usage``.

    ``has_keys`` says whether an argument is the name of a key.
    """
    docs: Any = fake.execute("COMMAND", "DOCS")
    items = [view for name, doc in _pairs(docs) for view in _views(name, dict(_pairs(doc)))]
    return page_of(
        items,
        page_query,
        sort_key=lambda command: (command["name"],),
        show=lambda command: command,
        text=lambda command: f"{command['name']}\n{command['summary']}",
    )


def _pairs(flat: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return the names and values of a reply in which they alternate."""
    return list(zip(flat[::2], flat[1::2], strict=True))


def _views(name: str, doc: dict[str, Any]) -> Iterator[View]:
    arguments = [dict(_pairs(argument)) for argument in doc.get("arguments", ())]
    subcommands = _pairs(doc.get("subcommands", ()))
    yield {
        "name": name.upper().replace("|", " "),
        "summary": doc.get("summary", ""),
        "usage": "subcommand ..." if subcommands else " ".join(map(_usage, arguments)),
        "has_keys": any(map(_names_key, arguments)),
    }
    for subcommand, its_doc in subcommands:
        yield from _views(subcommand, dict(_pairs(its_doc)))


def _inner(argument: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(_pairs(inner)) for inner in argument.get("arguments", ())]


def _names_key(argument: dict[str, Any]) -> bool:
    return argument["type"] == "key" or any(map(_names_key, _inner(argument)))


def _usage(argument: dict[str, Any]) -> str:
    """Return an argument as in a synopsis: optional ones in brackets, choices with bars."""
    kind, flags, inner = argument["type"], argument.get("flags", ()), _inner(argument)
    is_optional, is_multiple = "optional" in flags, "multiple" in flags
    text = str(argument["name"])
    if kind == "oneof":
        choice = "|".join(map(_usage, inner))
        text = f"({choice})" if is_multiple or not is_optional else choice
    elif kind == "block":
        text = " ".join(map(_usage, inner))
    elif kind == "pure-token":
        text = ""
    usage = " ".join(part for part in (argument.get("token", ""), text) if part)
    usage += " ..." if is_multiple else ""
    return f"[{usage}]" if is_optional else usage
