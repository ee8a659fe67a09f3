"""Which messages are meant, and in what the others differ: the words of failed assertions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..core.errors import ContractError
from ..core.journal import Found
from ..core.wording import check_times, differences
from .arguments import ANY
from .asking import (
    Sort,
    agrees,
    agrees_as,
    asked_text,
    check,
    differing,
    header_differences,
)
from .model import KINDS
from .views import PublishedMessage

_SORTS: dict[str, Sort] = {
    "url": "text",
    "method": "text",
    "queue": "text",
    "kind": "text",
    "state": "text",
    "label": "text",
    "body": "bytes",
    "json": "json",
    "headers": "headers",
}


def asked_for(**given: object) -> dict[str, object]:
    """Return what was given, checked: None and `ANY` ask for nothing, but `json=None` for `null`.

    Raises `ContractError` for a value that no message could have.
    """
    asked = {
        name: value
        for name, value in given.items()
        if value is not ANY and (value is not None or name == "json")
    }
    for name, value in asked.items():
        check(name, _SORTS[name], value)
    method, kind = asked.get("method"), asked.get("kind")
    if isinstance(method, str):
        asked["method"] = method.upper()
    if isinstance(kind, str) and not any(agrees(one, kind) for one in KINDS):
        raise ContractError(f"kind={kind!r} is unknown: give one of {', '.join(map(repr, KINDS))}")
    return asked


def mismatches(message: PublishedMessage, asked: Mapping[str, Any]) -> list[str]:
    """Return, in words, in what a message is not the one asked for; [] when it is."""
    return [reason for name, wanted in asked.items() for reason in _mismatch(message, name, wanted)]


def _mismatch(message: PublishedMessage, name: str, wanted: Any) -> Iterator[str]:
    if name == "label":
        if not any(agrees(one, wanted) for one in message.labels):
            yield f"labels are {list(message.labels)}, not {wanted!r}"
    elif name == "json":
        yield from _json_mismatch(message, wanted)
    elif name == "headers" and isinstance(wanted, Mapping):
        pairs = [(key, one) for key, values in message.headers.items() for one in values]
        yield from header_differences(pairs, wanted)
    else:
        found = getattr(message, name)
        if not agrees_as(_SORTS[name], found, wanted):
            yield differing(name, found, wanted)


def _json_mismatch(message: PublishedMessage, wanted: object) -> list[str]:
    try:
        found = message.json
    except AssertionError:
        return [f"its body is no JSON: {message.body[:80]!r}"]
    if agrees_as("json", found, wanted):
        return []
    return [difference(found, wanted) or f"its JSON is {found!r}, not {wanted!r}"]


def difference(found: object, wanted: object, path: str = "json") -> str:
    """Return the first few differences of two JSON values, by path."""
    lines = list(differences(found, wanted, path))
    more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
    return "; ".join(lines[:3]) + more


def assert_matching(
    what: str,
    candidates: Sequence[PublishedMessage],
    asked: Mapping[str, object],
    *,
    times: int | None,
    state: str | None = None,
) -> Found[PublishedMessage]:
    """Return the candidates that are as asked, in a state; fail with the nearest ones otherwise."""
    check_times(times)
    matched: Found[PublishedMessage] = Found()
    missed: list[tuple[int, PublishedMessage, list[str]]] = []
    for candidate in candidates:
        reasons = mismatches(candidate, asked if state is None else {**asked, "state": state})
        if reasons:
            missed.append((len(reasons), candidate, reasons))
        else:
            matched.append(candidate)
    if (times is None and matched) or (times is not None and len(matched) == times):
        return matched
    expected = "at least once" if times is None else "never" if times == 0 else f"{times} time(s)"
    lines = [f"expected {what} {expected}, found {len(matched)}: {asked_text(asked) or 'any'}"]
    for one in matched[:5]:
        lines += ["  this one matches:", _indented(one.timeline)]
    missed.sort(key=lambda item: item[0])
    for _, one, reasons in missed[:3]:
        lines += [f"  not this one, because {'; '.join(reasons)}:", _indented(one.timeline)]
    if len(missed) > 3:
        lines.append(f"  and {len(missed) - 3} more that differ")
    if not matched and not missed:
        lines.append("  there is no message at all")
    raise AssertionError("\n".join(lines))


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())
