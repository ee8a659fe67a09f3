"""Which messages are meant, and in what the others differ: the words of failed assertions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..kernel.errors import ContractError
from ..kernel.journal import Found
from .arguments import ANY
from .inspection import PublishedMessage


def agrees(found: object, wanted: object) -> bool:
    """Whether a value is what was asked for: equal, matching a pattern, or liked by a predicate.

    Text with `*` matches any text in its place.
    """
    if hasattr(wanted, "search") and isinstance(found, str):
        return bool(wanted.search(found))
    if callable(wanted):
        return bool(wanted(found))
    if isinstance(wanted, str) and "*" in wanted and isinstance(found, str):
        pieces = wanted.split("*")
        return _glob(found, pieces)
    return found == wanted


def _glob(text: str, pieces: Sequence[str]) -> bool:
    if not text.startswith(pieces[0]) or not text.endswith(pieces[-1]):
        return False
    at = len(pieces[0])
    for piece in pieces[1:-1]:
        found = text.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return len(text) - len(pieces[-1]) >= at


def mismatches(
    message: PublishedMessage,
    *,
    url: object = ANY,
    json: object = ANY,
    body: object = ANY,
    headers: dict[str, object] | None = None,
    label: object = ANY,
    method: object = ANY,
    queue: object = ANY,
    kind: object = ANY,
    state: object = ANY,
) -> list[str]:
    """Return, in words, in what a message is not the one asked for; [] when it is."""
    reasons: list[str] = []
    for name, wanted, read in (
        ("url", url, lambda: message.url),
        ("method", method, lambda: message.method),
        ("queue", queue, lambda: message.queue),
        ("kind", kind, lambda: message.kind),
        ("state", state, lambda: message.state),
        ("body", body, lambda: message.body),
    ):
        if wanted is not ANY and wanted is not None and not agrees(read(), wanted):
            reasons.append(f"{name} is {read()!r}, not {wanted!r}")
    any_label = label is ANY or label is None
    if not any_label and not any(agrees(one, label) for one in message.labels):
        reasons.append(f"labels are {list(message.labels)}, not {label!r}")
    if json is not ANY:
        reasons += _json_mismatch(message, json)
    for name, wanted in (headers or {}).items():
        found = {key.lower(): values for key, values in message.headers.items()}
        values = found.get(name.lower(), [])
        if not any(agrees(value, wanted) for value in values):
            reasons.append(f"header {name} is {values or 'absent'}, not {wanted!r}")
    return reasons


def _json_mismatch(message: PublishedMessage, wanted: object) -> list[str]:
    try:
        found = message.json
    except AssertionError:
        return [f"its body is no JSON: {message.body[:80]!r}"]
    if agrees(found, wanted):
        return []
    return [difference(found, wanted) or f"its JSON is {found!r}, not {wanted!r}"]


def difference(found: object, wanted: object, path: str = "json") -> str:
    """Return the first few differences of two JSON values, by path."""
    lines = list(_differences(found, wanted, path))
    more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
    return "; ".join(lines[:3]) + more


def _differences(found: Any, wanted: Any, path: str) -> Any:
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in dict.fromkeys([*wanted, *found]):
            if key not in found:
                yield f"{path}.{key} is absent, not {wanted[key]!r}"
            elif key not in wanted:
                yield f"{path}.{key} is {found[key]!r}, not asked for"
            else:
                yield from _differences(found[key], wanted[key], f"{path}.{key}")
    elif isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
            yield from _differences(one, other, f"{path}[{index}]")
    elif found != wanted:
        yield f"{path} is {found!r}, not {wanted!r}"


def check_times(times: object) -> None:
    """Refuse a `times=` that no count can equal."""
    if times is not None and (isinstance(times, bool) or not isinstance(times, int) or times < 0):
        raise ContractError(f"times={times!r} is no count: give a whole number, 0 for never")


def assert_matching(
    what: str,
    candidates: Sequence[PublishedMessage],
    why_not: Callable[[PublishedMessage], list[str]],
    *,
    times: int | None,
    asked: str,
) -> Found[PublishedMessage]:
    """Return the candidates without a reason against them; fail with the nearest ones otherwise."""
    check_times(times)
    matched: Found[PublishedMessage] = Found()
    missed: list[tuple[int, PublishedMessage, list[str]]] = []
    for candidate in candidates:
        reasons = why_not(candidate)
        if reasons:
            missed.append((len(reasons), candidate, reasons))
        else:
            matched.append(candidate)
    if (times is None and matched) or (times is not None and len(matched) == times):
        return matched
    expected = "at least once" if times is None else "never" if times == 0 else f"{times} time(s)"
    lines = [f"expected {what} {expected}, found {len(matched)}: {asked or 'any'}"]
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
