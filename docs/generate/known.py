"""The page of known differences from real servers, out of the tables of the comparison."""

from __future__ import annotations

from tests.kv.comparison.known import KNOWN
from tests.kv.comparison.normalise import RULES

from .markdown import HEAD, table

__all__ = ["page"]


def page() -> str:
    """The whole page in Markdown."""
    return "".join(
        [
            f"{HEAD}\n# Known differences\n\n",
            "What the comparison of the key-value engine with Redis 7.0 and Valkey 9.1 "
            "([Fidelity](index.md)) finds and does not mend.\n\n",
            "## Differences that stay\n\nThey count in the rate all the same.\n\n",
            *(f"- {known.reason[:1].upper()}{known.reason[1:]}.\n" for known in KNOWN),
            "\n## What is not compared\n\nTwo real servers differ from each other here as well.\n\n",
            table(
                ("Commands", "Why"),
                (
                    (" ".join(f"`{name}`" for name in sorted(rule.commands)), rule.reason)
                    for rule in RULES
                ),
            ),
        ]
    )
