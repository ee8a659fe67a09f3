"""Credentials in headers."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core.auth import (
    basic_credentials,
    bearer_token,
    new_token,
    same,
)


def test_tokens_are_random_and_of_the_asked_length() -> None:
    for length in (1, 7, 48, 64):
        assert len(new_token(length)) == length
    assert new_token() != new_token()
    assert len(new_token()) == 48
    int(new_token(), 16)


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (None, None),
        ("", None),
        ("Bearer abc", "abc"),
        ("bearer abc", "abc"),
        ("BEARER   abc ", "abc"),
        ("Bearer", None),
        ("Bearer ", None),
        ("Basic abc", None),
        ("Bearerabc", None),
        ("Bearer a b", "a b"),
    ],
)
def test_bearer_tokens(header: str | None, token: str | None) -> None:
    assert bearer_token(header) == token


@given(st.binary(max_size=20).filter(lambda user: b":" not in user), st.binary(max_size=20))
def test_basic_credentials_come_back(user: bytes, password: bytes) -> None:
    encoded = base64.b64encode(user + b":" + password).decode()
    assert basic_credentials(f"Basic {encoded}") == (user, password)
    assert basic_credentials(f"basic  {encoded} ") == (user, password)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Basic",
        "Basic !!!",
        "Basic YQ",
        "Basic YQ==",
        "Bearer YTpi",
        "Basic \xe9",
        "Basic YTpi YTpi",
    ],
)
def test_what_is_no_basic_credential(header: str | None) -> None:
    assert basic_credentials(header) is None


def test_comparing() -> None:
    assert same("secret", "secret")
    assert same(b"secret", "secret")
    assert not same("Secret", "secret")
    assert not same("", "secret")
    assert not same(None, "secret")
    assert same("é".encode(), "é")
    assert same("é".encode("latin-1"), "é")
    assert not same("☃".encode(), "x")
    assert not same("x", "☃")
    assert not same(b"\x03", "☃")
    assert same("☃", "☃")
    assert not same("\udcff", "x")
    assert not same("\ud800", "x")
