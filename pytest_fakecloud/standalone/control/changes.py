"""The differences between the data of a snapshot and that of another snapshot or of the present."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from ...reporting.data import State, changes_of, short, state_of
from ...services import report_part
from .shapes import Changes, ItemChange

if TYPE_CHECKING:
    from ...cloud import Cloud

States: TypeAlias = Mapping[str, State]
"""The data of each fake, by name."""
MOST_ITEMS = 20_000
"""Maximum number of items of a fake whose data is kept for comparisons."""
_MOST_CHANGES = 500


def states_of(cloud: Cloud) -> States:
    """Return the data of all fakes that have data and at most ``MOST_ITEMS`` items."""
    found = {one.name: state_of(one) for one in cloud.fakes() if report_part(one.fixture, "data")}
    return {
        name: short(state)
        for name, state in found.items()
        if sum(map(len, state.values())) <= MOST_ITEMS
    }


def changes_between(before: States, after: States) -> Changes:
    """Return the items that differ, in the fakes that both have, and the number of all of them."""
    changes: list[ItemChange] = [
        {
            "fake": change.fake,
            "section": change.section,
            "item": change.item,
            "before": before[name].get(change.section, {}).get(change.item),
            "after": change.fields,
        }
        for name in before
        if name in after
        for change in changes_of(name, before[name], after[name])
    ]
    sums: dict[str, dict[str, int]] = {}
    for one in changes:
        kind = "removed" if one["after"] is None else "changed"
        kind = "added" if one["before"] is None else kind
        sums.setdefault(one["fake"], {"added": 0, "changed": 0, "removed": 0})[kind] += 1
    # Most removed items have expired.
    changes.sort(key=lambda one: one["after"] is None)
    return {
        "count": len(changes),
        "sums": sums,
        "changes": changes[:_MOST_CHANGES],
        "not_compared": sorted(before.keys() ^ after.keys()),
    }
