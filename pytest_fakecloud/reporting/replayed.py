"""What a replay of the journal adds to reports; nothing if that part is not installed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import ModuleType
from typing import Any

from ..cloud.base import BaseCloud
from ..cloud.fake import Fake
from ..core.calls import ReplayedScript
from ..core.errors import if_installed
from ..inspect.data import State, StateChange
from .model import Report


def states(cloud: BaseCloud, report: Report) -> dict[str, Any]:
    """Return the data of the fakes at each row of a report (see `states()` of the replay)."""
    if (journal := _replay()) is None:
        return {
            "steps": [],
            "note": "The data of the fakes is not shown: replay/ is not installed.",
        }
    received = {row.delivery.number: row.number for row in report.rows if row.delivery}
    follows = {row.number: row.follows for row in report.rows if row.follows}
    data: dict[str, Any] = journal.states(cloud, journal.ReportedRows(received, follows))
    return data


def baseline_of(cloud: BaseCloud, fake: Fake) -> State | None:
    """Return the data of a fake's baseline; None if it is not known."""
    return None if (journal := _replay()) is None else journal.baseline_of(cloud, fake)


def changes_at(
    cloud: BaseCloud, numbers: Collection[int], reads: Collection[int]
) -> Mapping[int, Sequence[StateChange]]:
    """Return what the entries with these numbers changed, as far as it is known; ``reads`` only read."""
    return {} if (journal := _replay()) is None else journal.changes_at(cloud, numbers, reads)


def scripts_of(cloud: BaseCloud, fake: Fake) -> Mapping[int, Sequence[ReplayedScript]]:
    """Return the scripts that each entry of a fake ran, by the entry's number, as far as it is known."""
    copy = None if (journal := _replay()) is None else journal.replayed(cloud, fake)
    return {} if copy is None else copy.script_runs


def _replay() -> ModuleType | None:
    """Return the module that replays a journal; None if it is not installed."""
    with if_installed("replay"):
        from ..replay import journal

        return journal
    return None
