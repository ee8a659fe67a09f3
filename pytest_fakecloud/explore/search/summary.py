"""The summary of a search in words."""

from __future__ import annotations

from ...core.wording import counted
from .tally import MOST_EVENTS, Tally


def summary(tally: Tally) -> str:
    """Return a phrase that says how many schedules of which kind a search tried."""
    if tally.given is not None:
        return "the given schedule"
    interleavings = counted(tally.orders, "distinct interleaving")
    if tally.is_exhaustive and not tally.singles:
        which = "the only possible interleaving" if tally.orders == 1 else f"all {interleavings}"
        return f"{which} (exhaustive) in {tally.seconds:.1f} s"
    parts = []
    if tally.orders > 1:
        of = "all " if tally.has_all_orders and not tally.unfinished_order_searches else ""
        parts.append(f"{of}{interleavings}{' (exhaustive)' if tally.is_exhaustive else ''}")
    if tally.all_singles:
        parts.append(_of(tally.singles, tally.all_singles, "of one event"))
    if tally.pairs:
        parts.append(_of(tally.pairs, tally.all_pairs, "of two"))
    if tally.drawn:
        parts.append(f"{tally.drawn:,} drawn, of up to {MOST_EVENTS}")
    many = f"{counted(tally.tried, 'schedule')} in {tally.seconds:.1f} s"
    return f"{many} ({', '.join(parts)}; seed {tally.seed!r}){_certainty(tally)}"


def _certainty(tally: Tally) -> str:
    """Return the greatest bug depth that was probably found, or the smallest one, in words."""
    likely = tally.priority_runs.likely
    if tally.is_exhaustive or not likely:
        return ""
    depth = max((d for d, least in likely.items() if least >= 0.05), default=min(likely))
    return (
        f"; a bug that needs {depth} ordered switches is found with a probability of at "
        f"least {likely[depth]:.0%}"
    )


def _of(done: int, existing: int | None, what: str) -> str:
    if done == existing:
        return f"all {done:,} {what}"
    return f"{done:,} {what}" if existing is None else f"{done:,} of {existing:,} {what}"
