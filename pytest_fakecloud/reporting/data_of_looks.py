"""The data at which a test looked, with methods of the fakes that only read their data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..core.recorder import Look
from .calls import collected
from .contract import functions_of
from .failed_statement import CodeGroup
from .mask import Mask
from .model import Sought
from .observed import ObservedTest
from .strings import shortened


def looks_from(looks: Sequence[Look], group: CodeGroup, *, repeats: bool) -> list[Look]:
    """Return the looks of a group's lines and functions: those that follow each other without any other
    look between them, the last time. ``repeats``: the statement may look at the same data several times.
    """
    chosen: list[Look] = []
    for look in reversed(looks):
        if not group.has(look.place):
            if chosen:
                break
            continue
        is_again = any(look.place == later.place for later in chosen)
        if is_again and not (repeats or group.codes):
            break  # It is of an earlier round of a loop.
        chosen.insert(0, look)
    return chosen


def sought_by(looks: Iterable[Look], test: ObservedTest) -> list[Sought]:
    """Return the data of the open fakes at which a test looked, in the order of the looks."""
    fakes = {fake.name: fake for fake in test.fakes}
    data: list[Sought] = []
    for look in looks:
        if (fake := fakes.get(look.fake)) is not None:
            sought, mask = functions_of(fake.service).sought, test.lookups.mask
            failed = f"what {look_text(look, mask)} read cannot be shown"
            arguments = fake, look.method, look.arguments
            data += map(mask.sought, collected(failed, test.lookups.errors, sought, *arguments))
    return list(dict.fromkeys(data))


def look_text(look: Look, mask: Mask) -> str:
    positional, named = look.arguments
    texts = [shortened(repr(value), 60) for value in positional]
    texts += [f"{name}={shortened(repr(value), 60)}" for name, value in named.items()]
    return mask.text(f"{look.fake}.{look.method}({', '.join(texts)})")
