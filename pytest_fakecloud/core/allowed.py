"""The kinds of strict-mode violations, their facts, and the violations that a test allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from .errors import ContractError
from .field_types import MAPPING, MESSAGE_ID, METHOD, PATH, TEXT, URL, one_of
from .found import Found, found_of
from .matching import Field, Query
from .wording import unknown_name

if TYPE_CHECKING:
    from .problems import Problem


class ProblemFields(TypedDict, total=False):
    """Facts of a violation that ``allow()`` can match. Each kind of violation has some of them."""

    handle: object
    method: object
    path: object
    url: object
    message_id: object
    run_id: object


PROBLEM_KINDS: Mapping[str, Mapping[str, Field]] = {
    "unrouted": {"path": Field(PATH), "method": Field(METHOD), "handle": Field(TEXT)},
    "unstubbed": {"url": Field(URL), "message_id": Field(MESSAGE_ID), "handle": Field(TEXT)},
    "bug": {"path": Field(PATH), "handle": Field(TEXT)},
    "unused_fault": {"handle": Field(TEXT)},
    "unmet": {"handle": Field(TEXT)},
    "rejected_step": {"run_id": Field(TEXT), "url": Field(URL), "handle": Field(TEXT)},
    "assertion": {"handle": Field(TEXT)},
}
"""The kinds of strict-mode violations, each with the facts that ``allow()`` can match."""
NAMED_KINDS: Mapping[str, Mapping[str, Field]] = {"undelivered": {"handle": Field(TEXT)}}
"""Kinds that only cause a warning, unless a test names them in ``strict=``; they then fail the
test.
"""
ALLOWABLE: Mapping[str, Mapping[str, Field]] = {
    **PROBLEM_KINDS,
    **NAMED_KINDS,
    "refused": {"path": Field(PATH), "method": Field(METHOD), "handle": Field(TEXT)},
}
"""The kinds that ``allow()`` accepts: the kinds above and ``refused``, the warning about a client
that received only 401 responses.
"""
PROBLEM_FIELDS: Mapping[str, Field] = {
    "kind": Field(one_of("kind of problem", [*PROBLEM_KINDS, *NAMED_KINDS])),
    "text": Field(TEXT),
    "facts": Field(MAPPING),
    "exception": Field(),
}


class Allowances:
    """The violations that ``allow()`` covers."""

    def __init__(self) -> None:
        self._queries: list[tuple[str, Query]] = []

    def add(self, kind: str, where: Mapping[str, object]) -> None:
        """Allow a kind of violation, or only those whose facts match.

        Raises ``ContractError`` for an unknown kind or fact, suggesting the nearest.
        """
        if not isinstance(kind, str) or kind not in ALLOWABLE:
            raise ContractError(unknown_name("kind of problem", kind, ALLOWABLE))
        query = Query(where, ALLOWABLE[kind], f"problem of kind {kind!r}")
        self._queries.append((kind, query))

    def covers(self, kind: str, facts: Mapping[str, Any]) -> bool:
        """Return whether a violation is allowed."""
        return any(kind == allowed and query(facts) for allowed, query in self._queries)

    def clear(self) -> None:
        """Remove all allowances."""
        self._queries.clear()


def found_problems(problems: Iterable[Problem]) -> Found[Problem]:
    """Return a list of violations that can be filtered by field."""
    return found_of(problems, PROBLEM_FIELDS, "problem")
