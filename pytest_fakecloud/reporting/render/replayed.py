"""What a replay of the journal adds to reports and the console; nothing without that part."""

from __future__ import annotations

from typing import Any

from ...cloud.base import BaseCloud
from ...core.errors import if_installed
from ..report import Report


def states(cloud: BaseCloud, report: Report) -> dict[str, Any]:
    """Return the data of the fakes at each row of a report (see `states()` of the replay)."""
    received = {
        row.source.delivery.event.number: row.number for row in report.rows if row.source.delivery
    }
    first_causes = {row.number: row.first_cause for row in report.rows if row.first_cause}
    with if_installed("replay"):
        from ...replay import journal

        return journal.states(cloud, journal.ReportedRows(received, first_causes))
    return {"steps": [], "note": "The data of the fakes is not shown: replay/ is not installed."}


def rewinder(cloud: BaseCloud) -> Any:
    """Return what knows the data of a running cloud at each entry of its journal (see `Rewinder` of the
    replay); None if it is not installed.
    """
    with if_installed("replay"):
        from ...replay.rewinding import Rewinder

        return Rewinder(cloud)
    return None


def unknown() -> type[Exception]:
    """Return the exception of a `rewinder()` for data that is not known."""
    from ...replay.rewinding import Unknown

    return Unknown
