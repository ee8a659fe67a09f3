"""Write the page of what ``verify`` asks: ``python -m tests.verify.page FILE``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_fakecloud.verify.known import KNOWN
from pytest_fakecloud.verify.run import Result, plan, verify
from pytest_fakecloud.verify.scenario import COMPARISONS
from pytest_fakecloud.verify.sides import Target
from tests.kv.comparison.servers import RealServer, available

TITLES = {
    "kv": "Key-value: commands and REST",
    "vector": "Vector index",
    "queue": "Queue",
    "broker": "Broker",
}
TARGETS = {
    name: Target(name, "https://x.test", "t", "orders" if name == "broker" else None)
    for name in TITLES
}
_HEAD = """# What is compared

This page is generated: `python -m tests.verify.page docs/reference/scenarios.md`. It lists what
`pytest-fakecloud verify` sends to a real service and to a fake made like it; how to use it is told in
{doc}`../guides/verify`.

## Against servers that run on the machine of the tests

The key-value scenarios, on the fake in the dialect `"redis"`. *Not offered*: the server has no
such command, or a reply follows from that.

| Server | Replies compared | The same | Not offered | Other known differences | Unexplained |
|---|---|---|---|---|---|
"""


def page(results: Mapping[str, Result]) -> str:
    """The whole page; ``results`` by server and version."""
    lines = [_HEAD + "\n".join(_against(name, one) for name, one in results.items())]
    lines += ["", "Known differences, and why they stay:", ""]
    lines += [f"- {one.reason}" for one in KNOWN]
    lines += ["", "## How replies are compared", "", "| Word | Means |", "|---|---|"]
    lines += [f"| {word} | {meaning} |" for word, meaning in COMPARISONS.items()]
    for service, title in TITLES.items():
        lines += ["", f"## {title}", "", "| Asked | Requests | In the scenarios |", "|---|---|---|"]
        lines += list(_rows(service))
    return "\n".join(lines) + "\n"


def _against(name: str, result: Result) -> str:
    reasons = Counter(each.reason for each in result.explained)
    not_offered = sum(count for reason, count in reasons.items() if "offer" in str(reason))
    follows = sum(count for reason, count in reasons.items() if "follows" in str(reason))
    other = len(result.explained) - not_offered - follows
    same = len(result.compared) - len(result.explained) - len(result.differing)
    cells = (name, len(result.compared), same, not_offered + follows, other, len(result.differing))
    return "| " + " | ".join(map(str, cells)) + " |"


def _rows(service: str) -> Iterator[str]:
    asked: dict[str, Counter[str]] = {}
    for scenario in plan(TARGETS[service]):
        for step in scenario.steps:
            subject = step.subject if step.path != "/" else step.subject.split()[0]
            asked.setdefault(subject, Counter())[scenario.title] += 1
    for subject, titles in sorted(asked.items()):
        yield f"| `{subject}` | {titles.total()} | {', '.join(titles)} |"


def against_servers() -> dict[str, Result]:
    """Compare with every real server of this machine."""
    found = {}
    for name, binary in available():
        server = RealServer(name, binary)
        try:
            target = Target("kv", f"unix://{server._folder.name}/s")
            found[f"{name.capitalize()} {server.version}"] = verify(target)
        finally:
            server.close()
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(against_servers()), encoding="utf-8")
