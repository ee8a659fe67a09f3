"""The data at which a test looked, with methods of the fakes that only read their data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import dropwhile, takewhile

from ..core.recorder import Look
from .contract import functions_of
from .errors import collected
from .failed_statement import CodeGroup
from .mask import Mask
from .model import Sought
from .observed import ObservedTest
from .strings import shortened


def looks_from(looks: Sequence[Look], group: CodeGroup, *, repeats: bool) -> list[Look]:
    """Return the looks of a group's lines and functions: those that follow each other without any other
    look between them, the last time. Of looks ``a b x a b y``, of which ``x`` and ``y`` are not the
    group's, these are the second ``a b``; of ``a b a b``, too, unless the statement ``repeats``: it may
    look at the same data several times.
    """
    chosen: list[Look] = []
    newest = dropwhile(lambda look: not group.has(look.place), reversed(looks))
    for look in takewhile(lambda look: group.has(look.place), newest):
        is_again = look.place in [later.place for later in chosen]
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
            data += map(mask.sought, collected(failed, test.errors, sought, *arguments))
    return list(dict.fromkeys(data))


def look_text(look: Look, mask: Mask) -> str:
    positional, named = look.arguments
    texts = [shortened(repr(value), 60) for value in positional]
    texts += [f"{name}={shortened(repr(value), 60)}" for name, value in named.items()]
    return mask.text(f"{look.fake}.{look.method}({', '.join(texts)})")
