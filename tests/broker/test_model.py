"""Test consumer configuration from headers, the values of records, and plans."""

from __future__ import annotations

import pytest

from pytest_fakecloud.broker.errors import BrokerError
from pytest_fakecloud.broker.model import ConsumerConfig, Header, Record, consumer_config


def test_defaults_are_the_vendors() -> None:
    assert consumer_config({}, session_timeout_ms=120_000) == ConsumerConfig(
        True, 5000, "latest", 120_000
    )


def test_headers_are_read() -> None:
    headers = {
        "enable-auto-commit": "False",
        "auto-commit-interval": " 250 ",
        "auto-offset-reset": "Earliest",
        "session-timeout-ms": "9999999999",
    }
    assert consumer_config(headers, session_timeout_ms=1) == ConsumerConfig(
        False, 250, "earliest", 9_999_999_999
    )


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("enable-auto-commit", "maybe", "Enable-Auto-Commit"),
        ("session-timeout-ms", "0", "Session-Timeout-Ms"),
        ("auto-commit-interval", "-5", "Auto-Commit-Interval"),
        ("auto-commit-interval", "1.5", "Auto-Commit-Interval"),
        ("auto-commit-interval", "99999999999", "Auto-Commit-Interval"),
        ("auto-offset-reset", "oldest", "Auto-Offset-Reset"),
        ("session-timeout-ms", "soon", "Session-Timeout-Ms"),
        ("session-timeout-ms", "\u0663", "Session-Timeout-Ms"),
    ],
)
def test_bad_headers_are_named(name: str, value: str, named: str) -> None:
    with pytest.raises(BrokerError, match=named) as caught:
        consumer_config({name: value}, session_timeout_ms=1)
    assert caught.value.status == 400


def test_a_record_reads_its_value_and_headers() -> None:
    record = Record("t", 0, 0, 0, None, '{"a": 1}', (Header("h", "1"), Header("h", "2")))
    assert record.json() == {"a": 1}
    assert record.header("h") == "2"
    assert record.header("H") is None
