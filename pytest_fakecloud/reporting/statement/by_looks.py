"""The looks of a test, calls of methods of the fakes that only read, and the data that they read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, takewhile

from ...core.characters import shortened
from ...core.frames import CodePlace
from ...core.recorder import Look
from ..accesses import Sought
from ..contract import functions_of
from ..errors import collected
from ..mask import Mask
from ..observed import ObservedTest
from .failed import CodeGroup


def looks_from(looks: Sequence[Look], group: CodeGroup, *, repeats: bool) -> list[Look]:
    """Return the last looks of a group's lines and functions without any other look between them: of
    looks ``a b x a b y``, of which ``x`` and ``y`` are not the group's, the second ``a b``. Unless the
    statement ``repeats``, these are of one round of a loop: of ``a b a b``, the last two.
    """
    newest = dropwhile(lambda look: not group.has(look.place), reversed(looks))
    run = takewhile(lambda look: group.has(look.place), newest)
    return [*(run if repeats or group.codes else _last_round(run))][::-1]


def _last_round(looks: Iterable[Look]) -> Iterator[Look]:
    """Yield the looks, given the newest first, until one is from the same place as a newer one."""
    places: set[CodePlace] = set()
    for look in looks:
        if look.place in places:
            return
        places.add(look.place)
        yield look


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
    positional, by_name = look.arguments
    texts = [shortened(repr(value), 60) for value in positional]
    texts += [f"{name}={shortened(repr(value), 60)}" for name, value in by_name.items()]
    return mask.text(f"{look.fake}.{look.method}({', '.join(texts)})")
