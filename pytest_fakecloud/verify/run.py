"""Runs all scenarios on a service and on a fake, compares the replies and cleans up."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from ..kv.table.registry import COMMANDS
from .catalogue import Scenario, Step, scenarios
from .compare import OLDER, difference, reason_for
from .exchange import Bounds, Interrupted, Reply, Unreachable
from .fakes import facts_of, fake_of
from .sides import Side, Target, mask_of

NOT_OFFERED = "the service does not have this command or endpoint"
FOLLOWS = "depends on an earlier difference in the scenario"
_UNDONE = (NOT_OFFERED, OLDER)
_UNKNOWN = ("unknown command", "unknown subcommand", "not supported", "is not available")


@dataclass(frozen=True)
class Comparison:
    """A step, the replies of both sides, and their difference (None if they agree)."""

    scenario: Scenario
    step: Step
    real: Reply
    fake: Reply
    differs: str | None
    reason: str | None = None
    """The reason of a known difference."""

    @property
    def is_unexplained(self) -> bool:
        return self.differs is not None and self.reason is None


@dataclass
class Result:
    """The result of the comparison with one service."""

    target: Target
    scenarios: int = 0
    requests: int = 0
    """Number of requests to the real service, including the clean-up."""
    comparisons: list[Comparison] = field(default_factory=list)

    @property
    def differing(self) -> list[Comparison]:
        """The steps whose replies differ without a known reason."""
        return [each for each in self.comparisons if each.is_unexplained]

    @property
    def explained(self) -> list[Comparison]:
        """The steps whose replies differ for a known reason."""
        return [each for each in self.comparisons if each.reason is not None]


def plan(target: Target, dimension: int = 2) -> Sequence[Scenario]:
    """Return the scenarios for a service, in the order in which they run."""
    found = scenarios(target.service, dimension=dimension, topic=target.topic or "")
    if not target.is_redis:
        return found
    # A Redis server has no REST API.
    return [
        replace(scenario, steps=tuple(step for step in scenario.steps if step.compare != "rest"))
        for scenario in found
    ]


def verify(
    target: Target,
    on_start: Callable[[str], None] = lambda text: None,
    bounds: Bounds | None = None,
) -> Result:
    """Run every scenario on a service and on a fake with the same settings.

    All names start with a random prefix. Each scenario deletes what it created, even if it is
    interrupted. ``on_start`` receives the title of each scenario when it starts; ``bounds`` limits the
    run and interrupts it. Raises ``Unreachable`` if a service does not answer or does not fit the
    scenarios, and ``Interrupted`` if the run was interrupted and has cleaned up.
    """
    bounds = bounds or Bounds()
    prefix = f"verify_{secrets.token_hex(5)}_"
    with closing(Side(target, prefix, bounds)) as side:
        facts = {} if target.is_redis else facts_of(side)
    result = Result(target)
    with fake_of(target, facts) as (real_target, fake_target):
        mask = mask_of(target, real_target, fake_target)
        real = Side(real_target, prefix, bounds, mask)
        fake = Side(fake_target, prefix, bounds, mask)
        try:
            for scenario in plan(target, facts.get("dimension", 2)):
                on_start(f"{scenario.service}: {scenario.title}")
                result.scenarios += 1
                result.comparisons += _run_scenario(scenario, real, fake)
        finally:
            result.requests = real.requests
            real.close()
            fake.close()
    return result


def _run_scenario(scenario: Scenario, real: Side, fake: Side) -> list[Comparison]:
    real.begin()
    fake.begin()
    found: list[Comparison] = []
    try:
        for step in scenario.steps:
            compared = _compared(scenario, step, real, fake)
            if compared.is_unexplained and any(before.reason in _UNDONE for before in found):
                # Only one of the two sides executed an earlier step, so their states differ.
                compared = replace(compared, reason=FOLLOWS)
            found.append(compared)
    except BaseException as error:
        # Clean up only the real service, because the fake ends with the run.
        try:
            real.clean(scenario)
        except Unreachable as left:
            if isinstance(error, Unreachable | Interrupted):
                raise type(error)(f"{error}. {left}") from None
        raise
    real.clean(scenario)
    fake.clean(scenario)
    return found


def _compared(scenario: Scenario, step: Step, real: Side, fake: Side) -> Comparison:
    theirs, ours = real.send_for_display(step), fake.send_for_display(step)
    found = difference(step, theirs, ours)
    reason = reason_for(step, theirs, ours) if found else None
    if found and reason is None and _is_not_offered(step, theirs):
        reason = NOT_OFFERED
    return Comparison(scenario, step, theirs, ours, found, reason)


def _is_not_offered(step: Step, reply: Reply) -> bool:
    """Return whether the service lacks the command, because of its version or a missing module."""
    if step.subject.split()[0].upper() not in COMMANDS:
        return False
    text = str(reply.body).lower()
    return reply.status == 400 and any(word in text for word in _UNKNOWN)
