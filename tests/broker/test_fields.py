"""Test the typed readers of request bodies, and how errors quote the input."""

from __future__ import annotations

import json
import sys

import pytest

from pytest_fakecloud.broker.routes import Fields, shown

from .conftest import Rest


@pytest.mark.parametrize(
    "text", ["null", "true", "1.5", '"a\\u00e9"', "[]", "{}", '[1, [2, {"a": null}], {"b": "c"}]']
)
def test_a_value_is_quoted_as_json(text: str) -> None:
    assert shown(json.loads(text)) == text


def test_every_number_of_64_bits_is_one() -> None:
    for number in (-(2**63), 2**63 - 1):
        assert Fields({"n": number}).long("n") == number


def test_what_is_long_is_cut() -> None:
    assert shown("x" * 100) == '"' + "x" * 59 + "..."
    assert shown(list(range(1000))) == json.dumps(list(range(1000)))[:60] + "..."


def test_what_is_nested_deeply_is_cut_too() -> None:
    nested: list[object] = []
    for _ in range(sys.getrecursionlimit() * 2):
        nested = [nested]
    assert shown(nested) == "[" * 60 + "..."


def test_no_depth_of_a_body_is_too_much(rest: Rest) -> None:
    limit = sys.getrecursionlimit()
    for depth in [*range(limit - 60, limit + 5), limit * 50]:
        nested = b"[" * depth + b"]" * depth
        rest("POST", "/produce/orders", nested, status=400)
        rest("POST", "/fetch", b'{"topic":' + nested + b"}", status=400)
