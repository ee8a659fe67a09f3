"""The assembly of a test's report from its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.calls import Call
from ..core.errors import report_failure
from ..handle import closed_fakes_of
from .findings import Look, find
from .findings.unfinished import unfinished
from .masking import Mask
from .model import WEIGHT, Fake, Finding, Report, Row
from .rows import rows
from .scene import Scene, scene_of

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud
    from ..handle import Handle
    from .applications import Served

_EXPLAINED = {
    "lost_update": "message_waits", "check_then_set": "message_waits",
    "scheduled_twice": "schedule_waits",
}  # fmt: skip
"""Maps a finding to the unfinished work that it explains and that is therefore left out."""


def report_of(
    cloud: AnyCloud,
    *,
    test: str = "",
    failure: str = "",
    served: Sequence[Served] = (),
    idle_s: float | None = None,
    raised: BaseException | None = None,
    hints: Sequence[str] = (),
    log: str = "",
) -> Report:
    """Return the report of a test about one cloud, with credentials masked.

    ``failure`` is pytest's description of the failure, ``served`` are the requests to the
    application, ``idle_s`` is the wall-clock time in seconds that the test slept, ``raised`` its
    exception, ``hints`` are sentences about requests that did not reach a fake, ``log`` is the
    captured log. A part that cannot be made is replaced by a line in ``failures``.
    """
    mask = Mask(cloud)
    failures: list[str] = []
    scene = Scene()
    every: list[Row] = []
    found: list[Finding] = []
    left: list[Finding] = []
    with report_failure("the lookups failed", failures.append):
        scene = scene_of(cloud, list(cloud.journal.entries))
    with report_failure("the findings failed", failures.append):
        found = find(Look(cloud, scene, idle_s, raised, served))
    with report_failure("the calls cannot be shown", failures.append):
        every = rows(cloud, served=served, scene=scene)
    with report_failure("what is unfinished cannot be shown", failures.append):
        left = unfinished(cloud, scene)
    numbers = _numbers(every)
    return Report(
        cloud.clock.now_us(),
        cloud.clock.mode,
        cloud.seed,
        test,
        mask.text(failure),
        [
            *(Fake(one.name, one.service, one.url) for one in cloud.handles),
            *(Fake(name, fixture, url, closed=True)
              for name, (fixture, url) in closed_fakes_of(cloud).addresses.items()),
        ],
        every,
        [_masked(_of_rows(one, numbers), mask) for one in found],
        [_masked(one, mask) for one in _relevant(left, found)],
        [_masked(one, mask) for one in problems(cloud) if not _repeats(one, found)],
        list(map(mask.text, failures)),
        list(map(mask.text, hints)),
        mask.text(log),
        scene,
    )  # fmt: skip


def problems(cloud: AnyCloud) -> list[Finding]:
    """Return the strict-mode violations, counted if identical, and the rejected credentials."""
    found: dict[object, list[Finding]] = {}
    for problem in cloud.problems:
        values = {"problem": problem.kind, "text": problem.text, "times": 1}
        one = Finding("problem", str(problem.facts.get("handle") or ""), values=values)
        # Treat violations that differ only in the message ID as identical.
        facts = {name: value for name, value in problem.facts.items() if name != "message_id"}
        alike = repr(facts) if "message_id" in problem.facts else problem.text
        found.setdefault((problem.kind, alike), []).append(one)
    counted = [
        replace(several[0], values={**several[0].values, "times": len(several)})
        for several in found.values()
    ]
    return [*counted, *rejected(cloud)]


def rejected(
    cloud: AnyCloud, *, every_call: bool = False, meant: Callable[[Call], bool] = lambda call: False
) -> Iterator[Finding]:
    """Yield a finding for each fake that answered 401, with the reasons.

    With ``every_call``, only for fakes that answered every call with 401. Calls for which ``meant``
    returns true are ignored.
    """
    for handle in cloud.handles:
        calls = handle.journal.calls()
        wrong = [call for call in calls if call.status == 401 and call.fault is None]
        if not wrong or (every_call and len(wrong) < len(calls)):
            continue
        wrong = [call for call in wrong if not meant(call)]
        reasons: list[dict[str, str]] = []
        for call in wrong:
            reason = _credentials(call, cloud, handle)
            if reason not in reasons:
                reasons.append(reason)
        if wrong:
            values = {"rejected": len(wrong), "calls": len(calls), "reasons": reasons}
            yield Finding("rejected", handle.name, (wrong[-1].number,), (), values)


def _credentials(call: Call, cloud: AnyCloud, rejecting: Handle) -> dict[str, str]:
    given = call.headers.get("Authorization")
    if given is None:
        return {"kind": "query" if "_token=" in call.target else "none"}
    if given == f"Bearer {getattr(rejecting, 'read_only_token', None)}":
        return {"kind": "read_only"}
    for handle in cloud.handles:
        if handle is not rejecting and handle.headers.get("Authorization") == given:
            return {"kind": "other", "other": handle.name}
    return {"kind": "unknown"}


def _relevant(left: Sequence[Finding], found: Sequence[Finding]) -> list[Finding]:
    """Return the unfinished work that no finding explains, the most important first.

    For example, waiting messages are left out if two writers overwrote each other's data.
    """
    left_out = {_EXPLAINED[one.kind] for one in found if one.kind in _EXPLAINED}
    shown = [one for one in left if one.kind not in left_out]
    return sorted(shown, key=lambda one: WEIGHT[one.severity])


def _repeats(problem: Finding, found: Sequence[Finding]) -> bool:
    """Return whether a finding describes the same unused fault in more detail."""
    return problem.values.get("problem") == "unused_fault" and any(
        one.kind == "unused_fault" and one.fake == problem.fake for one in found
    )


def _numbers(every: Sequence[Row]) -> dict[int, int]:
    """Map journal numbers to the rows that show them; a delivery has two numbers."""
    found = {row.number: row.number for row in every}
    for row in every:
        if row.delivery is not None:
            found[row.delivery.number] = row.number
    return found


def _of_rows(finding: Finding, numbers: dict[int, int]) -> Finding:
    shown = tuple(numbers.get(number, number) for number in finding.rows)
    return finding if shown == finding.rows else replace(finding, rows=shown)


def _masked(finding: Finding, mask: Mask) -> Finding:
    values: dict[str, Any] = mask.value(finding.values)
    subjects = tuple(replace(one, name=mask.text(one.name)) for one in finding.subjects)
    return replace(finding, values=values, subjects=subjects)
