"""The values that writes replaced, as far as earlier rows have written them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ...core.bodies import compact, parsed
from ...core.characters import shortened
from ...core.errors import listed
from ..accesses import DELETED, DataAccess
from ..model import CONSOLE, OrderedAccess, ReplacedValue, ReportRow


def replaced_values(
    rows: Iterable[ReportRow], accesses: Iterable[OrderedAccess]
) -> dict[int, list[ReplacedValue]]:
    """Return the writes that replaced another value, by the numbers of their rows."""
    # Nothing says what the console left in the data that it changed.
    changed = max(
        (row.number for row in rows if row.actor == CONSOLE and row.kind == "event"), default=0
    )
    last_writes: defaultdict[object, dict[str, DataAccess]] = defaultdict(dict)
    replaced: defaultdict[int, list[ReplacedValue]] = defaultdict(list)
    for row, access in accesses:
        if not access.is_effective_write or access.order < changed:
            continue
        parts, value = last_writes[access.subject], access.value if access.succeeded else None
        before = parts.get(access.part)
        if (
            before is not None
            and value not in (None, DELETED, before.value)
            and before.value != {}
            and (before.expires_us is None or row.at_us < before.expires_us)
        ):
            replaced[row.number].append((access, before.value))
        if access.subject.is_all:
            last_writes.clear()
        for part in [access.part, ""] if access.part else [*parts]:
            parts.pop(part, None)
        if value is not None:
            parts[access.part] = access
    return replaced


def replaced_text(replaced: Sequence[ReplacedValue]) -> str:
    """Return what a row replaced in words, such as ``price was 3, dropped name``."""
    texts = []
    for access, before in replaced:
        name = access.part or (access.subject.name if len(replaced) > 1 else "")
        old, new = _members(before), _members(access.value)
        if not (old and new):
            was = "deleted" if before is DELETED else _short(before)
            texts.append(f"{shortened(name)} was {was}".strip())
            continue
        changes = [f"{member} was {_short(old[member])}" for member in old
                   if old[member] != new.get(member, old[member])]  # fmt: skip
        dropped = listed([member for member in old if member not in new], 6)
        changes += [f"dropped {dropped}"] if dropped else []
        texts += [f"{name}: {change}" if len(replaced) > 1 else change for change in changes]
    return listed(texts, 4)


def _members(value: object) -> dict[str, object]:
    """Return the members of an object of JSON, or of a string with one; nothing of another value."""
    value = parsed(value) if isinstance(value, str) else value
    return value if isinstance(value, dict) else {}


def _short(value: object) -> str:
    return (
        compact(shortened(value, 40)) if isinstance(value, str) else shortened(compact(value), 40)
    )
