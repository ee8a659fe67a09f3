"""Bodies are shown in one line, decoded and shortened, and stay different from each other."""

from __future__ import annotations

import base64
from typing import Any
from unittest.mock import ANY

import pytest

from pytest_fakecloud.core.bodies import compact, from_base64, parsed, scalar
from pytest_fakecloud.core.characters import printable, shortened
from pytest_fakecloud.reporting.mask import Mask
from pytest_fakecloud.reporting.readable import decoded, readable

ALONE = "\ud800"
"""A lone surrogate: valid in a Python string, but not in UTF-8."""
DEEP = "[" * 100_000


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("x" * 48, 48, "x" * 48),
        ("a" * 30 + "b" * 19, 48, "a" * 27 + "…" + "b" * 13 + " #d081"),
        ("abcdefghijklmnopqrst", 12, "abc…t #6ae5"),
        ("abcdefghijklmnopqrst", 11, "ab…t #6ae5"),
        (ALONE * 50, 12, ALONE * 3 + "…" + ALONE + " #"),
        ('{"name": "ada", "tags": ["new"]}', 20, '{"name": "ad… #'),
    ],
    ids=["whole", "both ends", "few", "fewer", "surrogates", "JSON"],
)
def test_long_text_keeps_both_ends_or_the_beginning_of_json_and_a_check(
    text: str, most: int, expected: str
) -> None:
    assert shortened(text, most).startswith(expected)


def test_surrogates_alone_are_written_as_json_does() -> None:
    assert printable(f"a{ALONE}ö") == r"a\ud800ö"
    assert compact({"a": ALONE, "ö": [1, None]}) == r'{"a":"\ud800","ö":[1,null]}'
    assert compact({"a": {1}}) == '{"a":"{1}"}'


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", "text"), ("", '""'), (" text", '" text"'), ("1", '"1"'), ("null", '"null"'),
        ("None", '"None"'), ("True", '"True"'), ('{"a": 1}', "'{\"a\": 1}'"),
        ('{"a": "it\'s"}', '"{\\"a\\": \\"it\'s\\"}"'), ("[1]", '"[1]"'), (DEEP, DEEP), (1, "1"),
        (None, "null"), ([1, "a"], '[1,"a"]'),
    ],
    ids=lambda value: str(value)[:12],
)  # fmt: skip
def test_a_value_is_quoted_where_it_could_be_another(value: Any, expected: str) -> None:
    assert scalar(value) == expected


def test_what_is_no_json_or_too_deep_is_none() -> None:
    assert parsed(b'{"a": 1}') == {"a": 1}
    assert parsed(b"no") is None
    assert parsed(DEEP) is None


@pytest.mark.parametrize(
    ("body", "kind", "expected"),
    [
        (b'  {"a": [1, 2]}', "", '{"a":[1,2]}'),
        (b'[{"a": 1}]', "", '[{"a":1}]'),
        (b"{ no json", "", "{ no json"),
        (b"a\n\tb   c", "", "a b c"),
        (b"\xff", "", "\ufffd"),
        ("text", "", "text"),
        ("<b>1 &lt; 2</b>", "", "<b>1 &lt; 2</b>"),
        ("<b>1 &lt; 2</b>", "text/html", "1 < 2"),
        ("  <!DOCTYPE html><p>a</p>", "", "a"),
        ("<HTML><p>a<br>b</p>", "", "a b"),
        ("<html><head><title>Not &amp; found</title></head><p>sorry", "", "Not & found: sorry"),
        ("<html><title>500 Oh</title><h1>Oh</h1>It may be overloaded", "", "500 Oh"),
        ("<html><style>b {}\n</style><!-- no\n -->a<script>no()</script >b", "", "a b"),
    ],
)
def test_a_body_is_told_in_one_line(body: bytes | str, kind: str, expected: str) -> None:
    assert readable(body, kind) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"body": b64("a")}, {"body": b64("a")}),
        (
            {"sourceBody": b64('{"a": 1}'), "body": b64("a"), "responseBody": b64("b")},
            {
                "sourceBody": {"Base64": {"a": 1}},
                "body": {"Base64": "a"},
                "responseBody": {"Base64": "b"},
            },
        ),
        ({"sourceBody": None, "body": 1}, {"sourceBody": None, "body": 1}),
        ({"bodyBase64": b64("a")}, {"bodyBase64": "a"}),
        ([{"bodyBase64": b64("a")}, 1], [{"bodyBase64": "a"}, 1]),
        ("text", "text"),
    ],
    ids=["no callback", "callback", "no texts", "dead letter", "list", "text"],
)
def test_fields_in_base64_are_decoded_where_they_are_known(value: Any, expected: Any) -> None:
    assert decoded(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(b64("grün"), "grün"), ("no base64!", "no base64!"), ("/w==", "/w=="), ("YQ", "YQ")],
    ids=["base64", "none", "no text", "cut"],
)
def test_base64_that_is_none_or_no_text_stays(value: str, expected: str) -> None:
    assert from_base64(value) == expected


CLAIMS = "eyJhbGciOiJIUzI1NiJ9." + b64('{"sub":"ada","exp":1772366400}').rstrip("=")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": '{"b": "[1]"}'}, {"a": {"JSON in a string": {"b": {"JSON in a string": [1]}}}}),
        ([b64('{"n": 1}') + " ", b64("a long secret")], [ANY, {"Base64": "a long secret"}]),
        ({"a": b64('{"name": "ada"}')}, {"a": {"Base64": {"name": "ada"}}}),
        (f"{CLAIMS}.***", f"{CLAIMS}.***"),
        ("{not JSON}", "{not JSON}"),
        ("msg_26hZCxZCuWyyTWPmSVBrNC1RADwpgWxP", "msg_26hZCxZCuWyyTWPmSVBrNC1RADwpgWxP"),
        ("aGVsbG8=", "aGVsbG8="),  # too short, because it may be Base64 by chance
    ],
)
def test_what_strings_contain_is_decoded_under_its_name(value: Any, expected: Any) -> None:
    assert decoded(value) == expected


def test_a_value_that_is_too_deep_stays_as_it_is() -> None:
    value: Any = "[1]"
    for _ in range(5000):
        value = [value]
    assert decoded(value) is value


def test_a_web_token_keeps_its_claims_and_loses_its_signature() -> None:
    assert Mask().text(f'{{"token":"{CLAIMS}.abc-_1"}}') == f'{{"token":"{CLAIMS}.***"}}'
