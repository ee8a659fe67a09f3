"""Runs all scenarios on a service and on a fake, compares the replies, and formats the results."""

from __future__ import annotations

import html
import json
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from types import NoneType
from typing import Any

from ..core.assets import asset
from ..core.characters import map_strings
from ..core.errors import brief
from .catalogue.scenarios import Scenario, ScenarioStep, scenarios
from .sides import (
    Bounds,
    Interrupted,
    Reply,
    ServiceUnreachable,
    Side,
    Target,
    facts_of,
    fake_of,
    mask_of,
)

NOT_OFFERED = "the service does not have this command or endpoint"
FOLLOWS = "depends on an earlier difference in the scenario"
OLDER = "the server does not have the option IFEQ yet"
_UNDONE = (NOT_OFFERED, OLDER)
_UNKNOWN = ("unknown command", "unknown subcommand", "not supported", "is not available")


@dataclass(frozen=True)
class Comparison:
    """A step, the replies of both sides, and their difference (None if they agree)."""

    scenario: Scenario
    step: ScenarioStep
    real: Reply
    fake: Reply
    differs: str | None
    reason: str | None
    """The reason of a known difference."""


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
        return [
            comparison
            for comparison in self.comparisons
            if comparison.differs and comparison.reason is None
        ]

    @property
    def explained(self) -> list[Comparison]:
        """The steps whose replies differ for a known reason."""
        return [comparison for comparison in self.comparisons if comparison.reason is not None]


def plan(target: Target, dimension: int = 2) -> Sequence[Scenario]:
    """Return the scenarios for a service, in the order in which they run."""
    planned = scenarios(target.service, dimension=dimension, topic=target.topic or "")
    if not target.is_redis:
        return planned
    # A Redis server has no REST API.
    return [
        replace(scenario, steps=tuple(step for step in scenario.steps if step.compare != "rest"))
        for scenario in planned
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
        with (
            closing(Side(real_target, prefix, bounds, mask)) as real,
            closing(Side(fake_target, prefix, bounds, mask)) as fake,
        ):
            for scenario in plan(target, facts.get("dimension", 2)):
                on_start(f"{scenario.service}: {scenario.title}")
                result.scenarios += 1
                result.comparisons += _run_scenario(scenario, real, fake)
            result.requests = real.requests
    return result


def _run_scenario(scenario: Scenario, real: Side, fake: Side) -> list[Comparison]:
    comparisons: list[Comparison] = []
    try:
        for step in scenario.steps:
            theirs, ours = real.send_for_display(step), fake.send_for_display(step)
            differs = difference(step, theirs, ours)
            reason = reason_for(step, theirs, ours) if differs else None
            if (
                differs
                and reason is None
                and any(before.reason in _UNDONE for before in comparisons)
            ):
                # Only one of the two sides executed an earlier step, so their states differ.
                reason = FOLLOWS
            comparisons.append(Comparison(scenario, step, theirs, ours, differs, reason))
    except BaseException as error:
        # Clean up only the real service, because the fake ends with the run.
        try:
            real.clean(scenario)
        except ServiceUnreachable as left:
            if isinstance(error, ServiceUnreachable | Interrupted):
                raise type(error)(f"{error}. {left}") from None
        raise
    real.clean(scenario)
    fake.clean(scenario)
    return comparisons


MINUTE = 60
FLOAT_TOLERANCE = 1e-4
"""Maximum difference of two numbers, one of them a float: processors round scores differently."""

_ID = re.compile(r"\b(msg|scd|dlq|sig|flr)_[A-Za-z0-9]+|\b\d{13}-\d+\b")


def difference(step: ScenarioStep, real: Reply, fake: Reply) -> str | None:
    """Return a short description of the first difference between two replies, or None."""
    if real.status != fake.status:
        return f"status {real.status}, the fake {fake.status}"
    if real.kind != fake.kind and "json" in real.kind + fake.kind:
        return f"content type {real.kind or 'none'}, the fake {fake.kind or 'none'}"
    rule = _RULES.get(step.compare)
    left, right = real.body, fake.body
    if rule is not None and _has_result(left) and _has_result(right):
        left, right = ({**body, "result": rule(body["result"])} for body in (left, right))
    return next(_differences(_without_ids(left), _without_ids(right), step, ""), None)


def _has_result(body: Any) -> bool:
    return isinstance(body, dict) and "result" in body


def _differences(real: Any, fake: Any, step: ScenarioStep, path: str) -> Iterator[str]:
    """Yield the path of each difference with both values."""
    where = path or "the body"
    are_lists = isinstance(real, list) and isinstance(fake, list)
    if isinstance(real, dict) and isinstance(fake, dict):
        for name in dict.fromkeys([*real, *fake]):
            below = f"{path}.{name}" if path else name
            if name not in fake:
                yield f"{below} is missing in the fake"
            elif name not in real:
                yield f"{below} is in the fake only"
            elif name in step.loose:
                yield from _other_type(real[name], fake[name], below)
            else:
                yield from _differences(real[name], fake[name], step, below)
    elif are_lists and step.compare == "shape":
        if bool(real) != bool(fake):
            yield f"{where}: one is empty"
    elif are_lists and len(real) != len(fake):
        yield f"{where} has {len(real)} members, the fake's {len(fake)}"
    elif are_lists:
        for number, (left, right) in enumerate(zip(real, fake, strict=True)):
            yield from _differences(left, right, step, f"{path}[{number}]")
    elif step.compare == "shape":
        yield from _other_type(real, fake, where)
    elif not _agree(real, fake, step):
        yield f"{where}: {brief(real)}, the fake {brief(fake)}"


def _agree(real: Any, fake: Any, step: ScenarioStep) -> bool:
    tolerance: float | None = None
    if _is_number(real) and _is_number(fake):
        if step.compare == "near":
            # No scenario sets a TTL of more than 10,000 seconds, so a larger number is milliseconds.
            tolerance = MINUTE * 1000 if max(real, fake) > 10_000 else MINUTE
        elif float in (type(real), type(fake)):
            tolerance = FLOAT_TOLERANCE
    if tolerance is None:
        return bool(real == fake) and type(real) is type(fake)
    try:
        return bool(abs(real - fake) <= tolerance)
    except OverflowError:  # an integer that does not fit into a float
        return False


def _other_type(real: Any, fake: Any, where: str) -> Iterator[str]:
    if type(real) is not type(fake) and not (_is_number(real) and _is_number(fake)):
        yield f"{where} is {_KINDS[type(real)]}, the fake's {_KINDS[type(fake)]}"


_KINDS: Mapping[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    NoneType: "null",
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _without_ids(value: Any) -> Any:
    shown = partial(_ID.sub, lambda match: f"<{match[1] or 'entry'} id>")
    return map_strings(value, shown, names=False)


def _sorted(value: Any, width: int = 1) -> Any:
    if not isinstance(value, list) or len(value) % width:
        return value
    return sorted((value[at : at + width] for at in range(0, len(value), width)), key=repr)


def _page(value: Any, width: int = 1) -> Any:
    is_page = isinstance(value, list) and len(value) == 2
    return [value[0], _sorted(value[1], width)] if is_page else value


def _idle(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [
        [*entry[:2], "<idle>", entry[3]] if isinstance(entry, list) and len(entry) == 4 else entry
        for entry in value
    ]


# The other ways of ``COMPARISONS`` compare values differently and do not rearrange them.
_RULES: Mapping[str, Callable[[Any], Any]] = {
    "sorted": _sorted,
    "pairs": partial(_sorted, width=2),
    "scan": _page,
    "scan-pairs": partial(_page, width=2),
    "idle": _idle,
}


# -- known differences -----------------------------------------------------------------------------

SCRIPT_HINT = "newer servers omit the script's hash and the advice to use EVAL from error texts"
KNOWN = (SCRIPT_HINT, OLDER)
"""The reasons of known differences between versions of servers."""
_SCRIPT_HINT = re.compile(r"[0-9a-f]{40}, | Please use EVAL\.")


def reason_for(step: ScenarioStep, real: Reply, fake: Reply) -> str | None:
    """Return the reason for a known difference, or None for any other difference."""
    left, right = (_SCRIPT_HINT.sub("", str(reply)) for reply in (real, fake))
    if step.subject.startswith("EVAL") and left == right:
        return SCRIPT_HINT
    if "IFEQ" in str(step).upper().split() and "syntax error" in str(real):
        return OLDER
    text = str(real.body).lower()
    if step.is_command and real.status == 400 and any(word in text for word in _UNKNOWN):
        return NOT_OFFERED
    return None


WIDTH = 400
"""Maximum number of characters of a response to show."""


def as_text(results: Sequence[Result]) -> str:
    """Return one line per service, then each differing pair of replies."""
    lines = [*map(_head, results)]
    for result in results:
        for comparison in result.differing:
            lines += [
                "",
                f"[{comparison.scenario.service}: {comparison.scenario.title}] {comparison.step}",
                f"    {comparison.differs}",
                f"    real  {_cut(str(comparison.real))}",
                f"    fake  {_cut(str(comparison.fake))}",
            ]
    for result in results:
        for reason, count in Counter(comparison.reason for comparison in result.explained).items():
            lines.append(f"{result.target.service}: {count} known to differ: {reason}")
    return "\n".join(lines) + "\n"


def as_json(results: Sequence[Result]) -> str:
    """Return all comparisons as JSON; a step that differs has ``differs``, and maybe a ``reason``."""
    return json.dumps({"services": [*map(_record, results)]}, indent=2, ensure_ascii=False)


def as_html(results: Sequence[Result]) -> str:
    """Return a self-contained HTML page that lists differences first, then all comparisons."""
    return asset(__file__, "page.html").replace("BODY", "\n".join(map(_section, results)))


def _head(result: Result) -> str:
    count, explained = len(result.differing), len(result.explained)
    same = len(result.comparisons) - count - explained
    verdict = f"{count} DIFFER" if count else "the same"
    return (
        f"{result.target.service}: {same} of {len(result.comparisons)} replies agree, {verdict}"
        + (f", {explained} known to differ" if explained else "")
        + f" ({result.scenarios} scenarios, {result.requests} requests)"
    )


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def _record(result: Result) -> dict[str, Any]:
    return {
        "service": result.target.service,
        "scenarios": result.scenarios,
        "requests": result.requests,
        "compared": len(result.comparisons),
        "differing": len(result.differing),
        "steps": [
            {
                "scenario": comparison.scenario.title,
                "request": str(comparison.step),
                "compare": comparison.step.compare,
                "real": {"status": comparison.real.status, "body": comparison.real.body},
                "fake": {"status": comparison.fake.status, "body": comparison.fake.body},
                "differs": comparison.differs,
                "reason": comparison.reason,
            }
            for comparison in result.comparisons
        ],
    }


def _section(result: Result) -> str:
    same = [comparison for comparison in result.comparisons if not comparison.differs]
    parts = [f"<h2>{html.escape(_head(result))}</h2>"]
    if result.differing:
        parts.append(_table("Differs", result.differing, " open"))
    if result.explained:
        parts.append(_table("Known to differ", result.explained))
    return "\n".join([*parts, _table("The same", same)])


def _table(title: str, comparisons: Sequence[Comparison], is_open: str = "") -> str:
    rows = "".join(map(_row, comparisons))
    return (
        f"<details{is_open}><summary>{title}</summary><div class=wide><table>"
        "<tr><th>scenario<th>request<th>real<th>fake<th>what differs</tr>"
        f"{rows}</table></div></details>"
    )


def _row(comparison: Comparison) -> str:
    why = " — ".join(filter(None, (comparison.differs, comparison.reason)))
    cells = (
        comparison.scenario.title,
        str(comparison.step),
        str(comparison.real),
        str(comparison.fake),
        why,
    )
    inside = "".join(f"<td>{html.escape(_cut(cell))}" for cell in cells)
    return f"<tr>{inside}</tr>"
