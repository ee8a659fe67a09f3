"""What must hold of a search that has found no failure: it has tried what the caller wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ...cloud.base import BaseCloud
from ...core.errors import ContractError, brief, counted, shown
from ...queue.delivery.routes import parts_of
from ..values.disturbances import KINDS, SWITCHES
from .tally import SearchBudget, Tally


def check_budget(tally: Tally, budget: SearchBudget) -> None:
    """Raise ``ContractError`` if a time budget ended before the search tried any disturbance."""
    # The first interleaving of a search is that of the undisturbed trial.
    tried_something = tally.tried > bool(tally.counts["orders"])
    nothing_is_left = not tally.all_singles or tally.interleavings.is_exhaustive
    if budget.began is None or tried_something or nothing_is_left:
        return
    raise ContractError(
        f"budget={shown(budget.argument)} allowed only {counted(tally.tried, 'schedule')}, and none of "
        f"the {tally.all_singles:,} with one disturbance: pass a larger budget=, fewer kinds=, or "
        "less code"
    )


def check_covered(tally: Tally, cloud: BaseCloud, named_kinds: Sequence[str]) -> None:
    """Raise ``ContractError`` if the promise held only because too little was explored.

    That is if a kind that was asked for by name could happen nowhere, or if no call of a destination
    handler succeeded.
    """
    kinds = tally.coverage.possible
    if not tally.tried:
        raise ContractError(
            "no schedule was possible: the code has no point for "
            f"{', '.join(named_kinds) or 'any disturbance'}. "
            "Pass more clients (for switches), other kinds=, or other services="
        )
    has_orders = tally.counts["orders"] or kinds & SWITCHES
    possible = kinds | SWITCHES if has_orders else kinds
    missing = [kind for kind in named_kinds if kind not in possible]
    if missing:
        raise ContractError(
            f"{', '.join(missing)} cannot happen in this code: leave it out of kinds=; "
            f"the possible kinds are: {', '.join(kind for kind in KINDS if kind in kinds)}"
        )
    handlers = [
        route
        for fake in cloud.fakes()
        if fake.fixture == "queue"
        for route in cast("Any", fake).destinations.routes()
        if parts_of(route).where == "call"
    ]
    if handlers and not tally.coverage.succeeded and not named_kinds:
        raise ContractError(
            f"no handler was ever called: nothing was delivered to {handlers[0].prefix}. Publish "
            "to its URL within run=, or remove the handler"
        )
    for (where, url), has_succeeded in tally.coverage.succeeded.items():
        if not has_succeeded:
            raise ContractError(
                f"each call of the handler given to destinations.{where}({brief(url)}) raised an "
                "exception, also in the undisturbed trial, so the promise was never tested with it. "
                "Correct the handler; if it is meant to fail, return 500"
            )
