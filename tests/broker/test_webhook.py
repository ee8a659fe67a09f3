"""Test which request headers of a webhook become headers of its record."""

from __future__ import annotations

import pytest

from pytest_fakecloud.broker.routes import message_headers

CLIENTS_ADD = {
    "urllib": ["Accept-Encoding", "Content-Type", "Content-Length", "Host", "User-Agent", "Connection"],
    "curl": ["Host", "Authorization", "User-Agent", "Accept", "Content-Length", "Content-Type"],
    "node": [
        "Host", "Connection", "Content-Type", "Accept", "Accept-Language", "Sec-Fetch-Mode",
        "User-Agent", "Accept-Encoding", "Content-Length",
    ],
    "proxies": ["Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Real-IP", "Via"],
    "browsers": ["Cookie", "Origin", "Referer", "Sec-CH-UA", "Sec-GPC"],
}  # fmt: skip


@pytest.mark.parametrize("client", CLIENTS_ADD)
@pytest.mark.parametrize("spell", [str, str.lower, str.upper])
def test_what_clients_and_proxies_add_is_dropped(client: str, spell: type[str]) -> None:
    assert message_headers([(spell(name), "x") for name in CLIENTS_ADD[client]]) == ()


def test_custom_headers_keep_spelling_order_and_duplicates() -> None:
    custom = [
        ("X-GitHub-Event", "push"), ("event-timestamp", "1"), ("X-Hub-Signature-256", "sha256=0"),
        ("with_underscore", "yes"), ("event-timestamp", "2"), ("Stripe-Signature", "t=1"),
    ]  # fmt: skip
    assert message_headers(custom) == tuple(custom)


def test_values_are_utf_8_where_they_can_be() -> None:
    assert message_headers([("name", "\xc3\xa9"), ("other", "\xe9")]) == (
        ("name", "é"),
        ("other", "é"),
    )
