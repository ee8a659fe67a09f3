"""The journal of a cloud as text: the section a failing test gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .kernel.journal import Call, Entry

if TYPE_CHECKING:
    from .cloud import Cloud

__all__ = ["section"]

WIDTH = 80
NEWEST = 60


def section(cloud: Cloud) -> str:
    """What happened on all fakes of the cloud, merged on its clock, newest last."""
    entries = cloud.journal.entries
    lines = [f"seed {cloud.seed!r}, clock {cloud.clock.mode} at {cloud.clock.now().isoformat()}"]
    lines += [f"{handle.name} {handle.url}" for handle in cloud.handles]
    if len(entries) > NEWEST:
        lines.append(f"... {len(entries) - NEWEST} earlier entries left out")
    lines += [_line(entry) for entry in entries[-NEWEST:]]
    if not entries:
        lines.append("no client has called")
    lines += [f"[{problem.kind}] {problem.text}" for problem in cloud.problems]
    return "\n".join(lines)


def _line(entry: Entry) -> str:
    at = entry.at.strftime("%H:%M:%S.%f")[:-3]
    if isinstance(entry, Call):
        answer = entry.status if entry.status is not None else entry.outcome
        fault = f" [{entry.fault}]" if entry.fault else ""
        text = f"{at} {entry.handle} {entry.method} {entry.target} -> {answer}{fault}"
        if entry.note and entry.problem != "bug":
            text += f" ({entry.note})"
    else:
        text = f"{at} {entry.handle} {entry.kind}: {entry.text}"
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."
