"""Generate the page about the requests that ``verify`` sends: ``python -m tests.verify.page FILE``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_fakecloud.verify.known import KNOWN
from pytest_fakecloud.verify.run import FOLLOWS, NOT_OFFERED, Result, plan, verify
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

The requests that [`pytest-fakecloud verify`](../guides/verify.md) sends to a real service and to a
fake with the same settings. `python -m tests.verify.page docs/reference/scenarios.md` generates this page.

## Results with Redis and Valkey

The key-value scenarios, compared with a fake in the dialect `"redis"`. *Not offered* counts replies
to commands that the server does not have, and replies that depend on such a command.

| Server | Replies compared | Equal | Not offered | Other known differences | Unknown differences |
|---|---|---|---|---|---|
"""


def page(results: Mapping[str, Result]) -> str:
    """Return the page; the keys of ``results`` are servers with their versions."""
    lines = [_HEAD + "\n".join(_against(name, one) for name, one in results.items())]
    lines += ["", "Known differences that are not fixed:", ""]
    lines += [f"- {one.reason}" for one in KNOWN]
    lines += ["", "## How replies are compared", "", "| Name | Comparison |", "|---|---|"]
    lines += [f"| {word} | {meaning} |" for word, meaning in COMPARISONS.items()]
    for service, title in TITLES.items():
        lines += ["", f"## {title}", "", "| Request | Number | Scenarios |", "|---|---|---|"]
        lines += list(_rows(service))
    return "\n".join(lines) + "\n"


def _against(name: str, result: Result) -> str:
    not_offered = sum(each.reason in (NOT_OFFERED, FOLLOWS) for each in result.explained)
    other = len(result.explained) - not_offered
    same = len(result.compared) - len(result.explained) - len(result.differing)
    cells = (name, len(result.compared), same, not_offered, other, len(result.differing))
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
    """Compare the fake with every real server that is installed."""
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
