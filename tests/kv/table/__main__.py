"""Print what follows from the rows of commands: ``python -m tests.kv.table LPOP "XGROUP CREATE"``."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from pytest_fakecloud.kv.table import kinds
from pytest_fakecloud.kv.table.registry import COMMANDS


def facts_of(name: str) -> Iterator[str]:
    """Yield the facts that the row of a command implies, and the kinds that the command belongs to."""
    spec = COMMANDS[name.upper()]
    facts = (
        "always_timed", "changes_any_key", "changes_keys", "changes_only_ttl", "counts_reads",
        "has_fields", "hidden", "keeps_key", "may_wait", "other_ttl", "rest", "sets_ttl",
        "sets_ttl_of_fields",
    )  # fmt: skip
    yield spec.name
    yield f"  ACL categories: {' '.join(sorted(spec.categories))}"
    yield f"  repetition: {spec.repetition or 'no effect'}"
    yield f"  options: {' '.join(spec.options) or 'none'}"
    yield f"  true: {' '.join(fact for fact in facts if getattr(spec, fact))}"
    yield f"  false: {' '.join(fact for fact in facts if not getattr(spec, fact))}"
    members = {
        kind: names
        for kind, names in vars(kinds).items()
        if isinstance(names, frozenset) and kind[0] != "_"
    }
    of_kinds = [kind for kind, names in sorted(members.items()) if spec.name in names]
    yield f"  kinds: {' '.join(of_kinds) or 'none'}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print("\n".join(facts_of(name)))
