"""Responses that a test defines: valid ones, and the errors for invalid ones."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from pytest_fakecloud.faults.answers import (
    AnswerMaker,
    checked_headers,
    checked_status,
    checked_type,
)

from ..harness import error_of

_apps: list[Any] = []
"""The apps of the tests, because a maker keeps none alive."""


def maker(**app: Any) -> AnswerMaker:
    made = AnswerMaker()
    if app:
        _apps.append(
            type("AnApp", (), {name: staticmethod(function) for name, function in app.items()})
        )
        made.app = weakref.ref(_apps[-1])
    return made


JSON = maker(dump=lambda value: json.dumps(value).encode())


@pytest.mark.parametrize("status", [200, 204, 404, 599])
def test_a_status_is_a_number_from_200_to_599(status: int) -> None:
    assert checked_status(status) == status


@pytest.mark.parametrize(
    ("headers", "listed"),
    [
        ({"X-A": "1"}, (("X-A", "1"),)),
        ([("X-A", "1"), ["x-a", "2"]], (("X-A", "1"), ("x-a", "2"))),
        (iter([("Retry-After", 3), ("X", 0.5)]), (("Retry-After", "3"), ("X", "0.5"))),
        ((), ()),
    ],
)
def test_headers_are_pairs_of_text_in_the_order_given(headers: Any, listed: Any) -> None:
    assert checked_headers(headers) == listed


@pytest.mark.parametrize(
    ("body", "sent"),
    [(b"\xff", b"\xff"), ("é", "é".encode()), ({"a": 1}, b'{"a": 1}'), (None, b"null")],
)
def test_bytes_go_as_they_are_text_as_utf_8_and_the_rest_as_json(body: object, sent: bytes) -> None:
    assert JSON.encoded_body(body) == sent


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (
            lambda: JSON.encoded_body({1}),
            "the body {1} cannot be sent as JSON (Object of type set is not JSON serializable): "
            "pass bytes, a string or a JSON value",
        ),
        (lambda: maker().encoded_body(5), "the faults of this fake can only send bytes, got 5"),
        (lambda: JSON.encoded_body("\ud800"), "'\\ud800' cannot be sent: surrogates not allowed"),
        (
            lambda: checked_type("a\nb"),
            "content_type='a\\nb' is not a content type: pass a string such as 'text/html'",
        ),
        (
            lambda: checked_type(b"text/html"),
            "content_type=b'text/html' is not a content type: pass a string such as 'text/html'",
        ),
    ],
)
def test_what_cannot_be_sent(check: Callable[[], object], message: str) -> None:
    assert error_of(check) == message
