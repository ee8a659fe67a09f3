"""Responses that a test defines: valid ones, and the errors for invalid ones."""

from __future__ import annotations

import json
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
        _apps.append(type("AnApp", (), {name: staticmethod(one) for name, one in app.items()}))
        made.app = _apps[-1]
    return made


JSON = maker(dump=lambda value: json.dumps(value).encode())


@pytest.mark.parametrize("status", [200, 204, 404, 599])
def test_a_status_is_a_number_from_200_to_599(status: int) -> None:
    assert checked_status(status) == status


@pytest.mark.parametrize("status", [199, 600, 0, -200, True, "200", 200.0, None])
def test_what_is_no_status(status: object) -> None:
    told = f"{status!r} is not a valid status: pass an integer from 200 to 599"
    assert error_of(checked_status, status) == told


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
    ("headers", "told"),
    [
        ("X: 1", "headers='X: 1' is not valid: pass a mapping, or pairs of name and value"),
        (b"X: 1", "headers=b'X: 1' is not valid: pass a mapping, or pairs of name and value"),
        (5, "headers=5 is not valid: pass a mapping, or pairs of name and value"),
        (None, "headers=None is not valid: pass a mapping, or pairs of name and value"),
        ([("a",)], "headers=[('a',)] is not valid: pass a mapping, or pairs of name and value"),
        (["ab"], "headers=['ab'] is not valid: pass a mapping, or pairs of name and value"),
        (
            "x" * 100,
            f"headers='{'x' * 79} is not valid: pass a mapping, or pairs of name and value",
        ),
        ({"X Y": "1"}, "'X Y': '1' is not a header: pass a name without spaces and a string"),
        ({5: "1"}, "5: '1' is not a header: pass a name without spaces and a string"),
        ({"X": None}, "'X': None is not a header: pass a name without spaces and a string"),
        ({"X": True}, "'X': True is not a header: pass a name without spaces and a string"),
        ({"X": b"1"}, "'X': b'1' is not a header: pass a name without spaces and a string"),
        (
            {"X": "a\r\nY: b"},
            "'X': 'a\\r\\nY: b' is not a header: its value contains a line break or another control "
            "character",
        ),
        ({"X": "\ud800"}, "'\\ud800' cannot be sent: surrogates not allowed"),
        *(
            (
                {name: "1"},
                f"headers={{'{name}': ...}} would be ignored: the server sets this header of every "
                "response; leave it out",
            )
            for name in ("Content-Length", "date", "TRANSFER-ENCODING")
        ),
    ],
)
def test_what_are_no_headers(headers: object, told: str) -> None:
    assert error_of(checked_headers, headers) == told


@pytest.mark.parametrize(
    ("body", "sent"),
    [(b"\xff", b"\xff"), ("é", "é".encode()), ({"a": 1}, b'{"a": 1}'), (None, b"null")],
)
def test_bytes_go_as_they_are_text_as_utf_8_and_the_rest_as_json(body: object, sent: bytes) -> None:
    assert JSON.encoded_body(body) == sent


@pytest.mark.parametrize(
    ("check", "told"),
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
def test_what_cannot_be_sent(check: Callable[[], object], told: str) -> None:
    assert error_of(check) == told
