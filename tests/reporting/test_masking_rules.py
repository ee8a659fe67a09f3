"""Which calls hide their words, and which parts of a request are secret by their names."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.calls import Call, shorten
from pytest_fakecloud.reporting.masking import HIDDEN, Mask, hides_words


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, now="2026-03-01T12:00:00Z", delivery="driven") as opened:
        yield opened


def sent(cloud: Cloud, *commands: list[str]) -> Call:
    """The call of a client that sent these commands, in a pipeline if there are several."""
    kv = cloud.kv_server()
    path, body = ("/pipeline", list(commands)) if len(commands) > 1 else ("", commands[0])
    httpx.post(kv.url + path, json=body, headers=kv.headers)
    return kv.journal.calls().only()


@pytest.mark.parametrize(
    ("words", "hidden"),
    [
        ("AUTH", False),
        ("AUTH guess", True),
        ("auth ada guess", True),
        ("HELLO 3", False),
        ("HELLO 3 AUTH ada guess", True),
        ("ACL WHOAMI", False),
        ("ACL SETUSER ada >guess", True),
        ("CONFIG GET requirepass", True),
        ("CONFIG HELP", False),
        ("MIGRATE host 6379 key 0 10 AUTH guess", True),
        ("SET guess 1", False),
        ("ECHO AUTH", False),
    ],
)
def test_commands_that_may_carry_a_password_hide_their_words(
    cloud: Cloud, words: str, hidden: bool
) -> None:
    call = sent(cloud, words.split())
    mask = Mask(cloud)
    assert hides_words(call) is hidden
    assert mask.body(call) == (HIDDEN if hidden else call.body)
    assert json.loads(call.body) == words.split()


def test_one_command_of_a_pipeline_is_enough(cloud: Cloud) -> None:
    assert hides_words(sent(cloud, ["PING"], ["AUTH", "guess"]))


def test_a_pipeline_without_one_is_shown(cloud: Cloud) -> None:
    assert not hides_words(sent(cloud, ["PING"], ["AUTH"]))


def test_a_call_whose_commands_nobody_read_may_be_one(cloud: Cloud) -> None:
    kv, vector = cloud.kv_server(), cloud.vector_index(dimension=2)
    for url, service, hidden in ((kv.url, kv, True), (f"{vector.url}/upsert", vector, False)):
        httpx.post(url, content=b'["AUTH", "guess"')
        call = service.journal.calls().only()
        shorten(call, read_facts=False)
        assert ("facts" in call.cut, hides_words(call)) == (True, hidden)


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("/auth/guess", "/auth/***"),
        ("/auth/ada/guess", "/auth/***"),
        ("/auth", "/auth"),
        ("/get/guess", "/get/guess"),
        ("/acl/setuser/ada/%3Eguess?x=1", "/acl/***"),
        ("/get/a?_token=guess&b=1", "/get/a?_token=***&b=1"),
        ("/get/a?b=1&QSTASH_TOKEN=guess", "/get/a?b=1&QSTASH_TOKEN=***"),
        ("/get/a?pass=x&password=y&token=z", "/get/a?pass=***&password=***&token=***"),
        ("/get/a?passenger=x&tokens=2", "/get/a?passenger=x&tokens=2"),
        ("/get/a?token=a=b&c", "/get/a?token=***&c"),
        ("/get/a?", "/get/a?"),
    ],
)
def test_a_target_hides_what_its_names_say_is_secret(cloud: Cloud, target: str, shown: str) -> None:
    kv = cloud.kv_server()
    httpx.get(kv.url + target, headers=kv.headers)
    call = kv.journal.calls().only()
    assert call.target == target
    assert Mask(cloud).target(call) == shown


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("Authorization", True),
        ("upstash-forward-authorization", True),
        ("Cookie", True),
        ("Set-Cookie", True),
        ("Upstash-Signature", True),
        ("X-Password", True),
        ("Client-Secret", True),
        ("X-Api-Key", True),
        ("apikey", True),
        ("X-Token", True),
        ("Upstash-Sync-Token", False),
        ("Content-Type", False),
    ],
)
def test_a_header_is_secret_by_its_name(cloud: Cloud, name: str, hidden: bool) -> None:
    assert Mask(cloud).header(name, "guess") == (HIDDEN if hidden else "guess")


def test_a_header_that_is_not_secret_still_hides_a_token(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    assert Mask(cloud).header("X-Note", f"it is {kv.token}.") == f"it is {HIDDEN}."


def test_bytes_that_are_no_text_come_through_whole(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    every = bytes(range(256))
    mask = Mask(cloud)
    assert mask.data(every) == every
    assert mask.data(every + kv.token.encode() + every) == every + b"***" + every
