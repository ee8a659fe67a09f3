"""Whatever a test hands the handle in a wrong type is named at once: nothing else is raised for it.

The table gives each public method arguments that it takes, and of ``VALUES`` those that each of them
may be. All others are ``ContractError``, never a bare error, and never taken in silence: an
assertion that nothing could satisfy would pass with ``times=0``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.handle import Context, Handle
from pytest_fakecloud.vector.handle import VectorIndex


class Matcher:
    """As other libraries have them: equal to whatever it likes."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


VALUES: Mapping[str, Any] = {
    "None": None,
    "whole": 1,
    "negative": -1,
    "fraction": 1.5,
    "nan": float("nan"),
    "boolean": True,
    "text": "n",
    "bytes": b"n",
    "empty list": [],
    "numbers": [1, 2],
    "array": np.array([1, 2]),
    "table": np.array([[1, 2]]),
    "texts": ["n"],
    "empty mapping": {},
    "mapping": {"n": 1},
    "mapping by numbers": {1: 1},
    "set": {1, 2},
    "function": lambda value: True,
    "object": object(),
    "matcher": Matcher(),
}
NONE = {"None"}
TEXT = {"text"}
WHOLE = {"whole"}
FREE = {"None", "function", "matcher"}
UPSERTED = {
    "id": FREE | TEXT | {"whole", "negative"},
    "metadata": FREE | {"empty mapping", "mapping"},
    "data": FREE | TEXT,
    "vector": FREE | {"numbers", "array", "empty list"},
    "namespace": FREE | TEXT,
}
QUERIED = {
    "top_k": FREE | WHOLE,
    "filter": FREE | TEXT,
    "data": FREE | TEXT,
    "vector": FREE | {"numbers", "array", "empty list"},
    "namespace": FREE | TEXT,
}
METHODS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, set[str]]]] = {
    "load": (
        {"data": {"b": [1, 2]}},
        {"data": {"empty list", "empty mapping"}, "namespace": TEXT},
    ),
    "vectors": ({}, {"namespace": TEXT, "limit": NONE | WHOLE}),
    "matches": (
        {"filter": "n = 1", "metadata": {"n": 1}},
        {"filter": set(), "metadata": NONE | {"empty mapping", "mapping"}},
    ),
    "assert_upserted": (
        {"times": 0},
        {
            **UPSERTED,
            "times": NONE | WHOLE,
        },
    ),
    "assert_not_upserted": ({}, UPSERTED),
    "assert_queried": (
        {"times": 0},
        {
            **QUERIED,
            "times": NONE | WHOLE,
        },
    ),
    "assert_not_queried": ({}, QUERIED),
    "restore": ({}, {"snapshot": set()}),
}
NOTHING_TO_GIVE = {
    "namespaces",
    "pending",
    "hold_pending",
    "release_pending",
    "rotate_token",
    "close",
}
OTHERS = {"client", "async_client"}
"""They hand everything on to the client, which says itself what it takes."""
PARAMETERS = [
    pytest.param(method, name, id=f"{method}-{name}")
    for method, (_, parameters) in METHODS.items()
    for name in parameters
]


@pytest.fixture
def index() -> Iterator[VectorIndex]:
    with VectorIndex(Context.alone(now="2026-01-01T00:00:00Z"), dimension=2) as made:
        made.load({"a": [1, 2]})
        yield made


def outcome(index: VectorIndex, method: str, arguments: Mapping[str, Any]) -> str:
    try:
        getattr(index, method)(**arguments)
    except ContractError as error:
        return f"refused: {error}"
    except AssertionError:
        pass  # of the right type, and not so
    return "taken"


def test_the_table_has_every_method_and_parameter() -> None:
    own = {
        name: method
        for name, method in vars(VectorIndex).items()
        if not name.startswith("_") and inspect.isfunction(method)
    }
    own["restore"] = Handle.restore
    assert set(own) == set(METHODS) | NOTHING_TO_GIVE | OTHERS
    for name, (_, parameters) in METHODS.items():
        assert set(inspect.signature(own[name]).parameters) - {"self"} == set(parameters), name


@pytest.mark.parametrize(("method", "name"), PARAMETERS)
def test_a_wrong_type_is_refused_and_changes_nothing(
    index: VectorIndex, method: str, name: str
) -> None:
    before = index.namespaces(), index.vectors()
    good, parameters = METHODS[method]
    for kind in VALUES.keys() - parameters[name]:
        refusal = outcome(index, method, {**good, name: VALUES[kind]})
        assert refusal.startswith("refused: "), kind
        assert len(refusal) > len("refused: 1234567890"), kind
        assert (index.namespaces(), index.vectors()) == before, kind


@pytest.mark.parametrize(("method", "name"), PARAMETERS)
def test_a_right_type_is_taken(index: VectorIndex, method: str, name: str) -> None:
    """Otherwise the refusals above might have another reason."""
    good, parameters = METHODS[method]
    for kind in parameters[name]:
        assert outcome(index, method, {**good, name: VALUES[kind]}) == "taken", kind


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("name", NONE | TEXT),
        ("dimension", NONE | WHOLE),
        ("similarity", set()),
        ("kind", set()),
        ("range_limit", WHOLE),
        ("ready_after", NONE | {"whole", "fraction"}),
        ("ready_after_reads", NONE | WHOLE),
        ("recall", WHOLE),
        ("lose_first", {"boolean"}),
        ("filter_budget", NONE | WHOLE),
        ("shuffle_ties", {"boolean"}),
        ("limits", NONE | {"empty mapping"}),
        ("namespaces", {"empty list", "texts", "empty mapping"}),
    ],
)
def test_settings_of_a_wrong_type_are_refused(name: str, right: set[str]) -> None:
    for kind, value in VALUES.items():
        settings: dict[str, Any] = {name: value}
        try:
            VectorIndex(Context.alone(), **settings).close()
            taken = True
        except ContractError:
            taken = False
        assert taken == (kind in right), kind
