"""Recordings by other tools, edited and broken ones, and fakes that do not answer."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud, ContractError, Difference, KVServer, Results
from pytest_fakecloud.recordings.archives import VOLATILE, _changes, archive

ENTRY: dict[str, Any] = {
    "startedDateTime": "2026-01-01T00:00:00.000Z",
    "request": {
        "method": "POST",
        "url": "https://kv.example/",
        "headers": [{"name": ":authority", "value": "kv.example"}],
        "postData": {"mimeType": "application/json", "text": '["PING"]'},
    },
    "response": {"status": 200, "content": {"size": 17, "text": '{"result":"PONG"}'}},
}


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed=1, now="2026-01-01T00:00:00Z", delivery="driven") as opened:
        yield opened


@pytest.fixture
def kv(cloud: Cloud) -> KVServer:
    return cloud.kv_server()


def har(path: Path, *entries: Any) -> Path:
    path.write_text(json.dumps({"log": {"entries": entries}}), encoding="utf-8")
    return path


Replay = Callable[..., Results[Difference]]


@pytest.fixture
def replay(cloud: Cloud, tmp_path: Path) -> Replay:
    """Replay entries of an archive."""
    return lambda *entries, **options: cloud.replay(har(tmp_path / "x.har", *entries), **options)


def edited(where: str, value: Any) -> dict[str, Any]:
    """Return the entry with another value at a place."""
    entry = copy.deepcopy(ENTRY)
    *parents, last = where.split(".")
    place = entry
    for name in parents:
        place = place[name]
    place[last] = value
    return entry


def test_the_entry_itself_is_right(kv: KVServer, replay: Replay) -> None:
    assert replay(ENTRY, into=kv) == []
    assert replay(ENTRY, into={"https://kv.example/": kv}) == []
    kv.assert_called("PING", times=2)


@pytest.mark.parametrize(
    ("where", "value", "text"),
    [
        ("startedDateTime", 5, "startedDateTime is 5; pass a string"),
        ("startedDateTime", "2026-01-01T00:00:00", "has no time zone"),
        ("startedDateTime", "soon", "is not a time"),
        ("request", [], "request is []; pass an object"),
        ("request.url", None, "request.url is None; pass a string"),
        ("request.url", "/relative", "request.url is '/relative', not an absolute URL"),
        ("request.url", "http://[::1", "Invalid IPv6 URL"),
        ("request.method", 5, "request.method is 5; pass a string"),
        ("request.method", "", "request.method is empty"),
        ("request.headers", "x", "request.headers is 'x'; pass an array"),
        ("request.headers", [5], "request.headers[0] is 5; pass an object"),
        ("request.headers", [{"name": "a"}], "request.headers[0] has no field 'value'"),
        ("request.postData", "x", "request.postData is 'x'; pass an object"),
        ("request.postData.text", 5, "request.postData.text is 5; pass a string"),
        ("response", None, "response is None; pass an object"),
        ("response.status", "200", "response.status is '200'; pass an integer"),
        ("response.status", True, "response.status is True; pass an integer"),
        ("response.content", [], "response.content is []; pass an object"),
        (
            "response.content",
            {"text": "a", "encoding": "base64"},
            "response.content.text cannot be read",
        ),
        ("_fixture", 5, "_fixture is 5; pass a string"),
    ],
)
def test_an_entry_that_is_none_is_said(
    kv: KVServer, replay: Replay, where: str, value: Any, text: str
) -> None:
    with pytest.raises(ContractError) as caught:
        replay(ENTRY, edited(where, value), into=kv)
    assert "is not an HTTP archive (HAR): entry 2: " in str(caught.value)
    assert text in str(caught.value)
    kv.assert_not_called("PING")


@pytest.mark.parametrize(
    ("where", "value"),
    [("request.method", "GET\r\nX: y"), ("request.headers", [{"name": "X", "value": "a\r\nY: b"}])],
)
def test_a_request_that_cannot_be_sent_is_said(
    kv: KVServer, replay: Replay, where: str, value: Any
) -> None:
    with pytest.raises(ContractError, match=r"request 1 of .*x\.har cannot be sent"):
        replay(edited(where, value), into=kv)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000, b'{"log":{"entries":{}}}', b'{"log":{"entries":null}}', b"\xff", b"",
        b"no json", b"{}", b'{"log": {"entries": [{}]}}', b'{"log": {"entries": 3}}', b"[]",
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_said(cloud: Cloud, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.har"
    file.write_bytes(content)
    with pytest.raises(ContractError, match="is not an HTTP archive"):
        cloud.replay(file)


def test_a_byte_order_mark_is_read_over(cloud: Cloud, tmp_path: Path) -> None:
    file = tmp_path / "x.har"
    file.write_bytes(b"\xef\xbb\xbf" + har(tmp_path / "y.har", ENTRY).read_bytes())
    assert cloud.replay(file, into=cloud.kv_server()) == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"into": "kv_server"}, "pass a fake, or a dict from origins to fakes"),
        ({"into": {"https://kv.example": "kv"}}, "pass a fake, or a dict from origins to fakes"),
        ({"into": {5: None}}, "pass a fake, or a dict from origins to fakes"),
        ({"ignore": "result"}, "ignore='result' is not valid: pass a list of field names"),
        ({"ignore": 5}, "ignore=5 is not valid: pass a list of field names"),
        ({"ignore": [5]}, "pass a list of field names"),
    ],
)
def test_an_option_of_no_meaning_is_said(
    replay: Replay, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ContractError) as caught:
        replay(ENTRY, **options)
    assert text in str(caught.value)


def test_what_got_no_answer_and_streams_are_left_out(kv: KVServer, replay: Replay) -> None:
    stream = edited("response.content", {"size": 0, "mimeType": "text/event-stream"})
    stream["request"]["url"] = "https://kv.example/subscribe/news"
    skipped = [edited("response.status", 0), stream, edited("request.method", "RESP")]
    with pytest.raises(ContractError, match=r"none of the requests in .* can be sent again"):
        replay(*skipped, into=kv)
    assert kv.journal.calls() == []
    assert replay(*skipped, edited("response.content", None), into=kv) == []
    assert len(kv.journal.calls()) == 1


@pytest.mark.parametrize("content", [{"size": 17}, {}, None])
def test_a_body_that_the_file_lacks_may_be_anything(
    kv: KVServer, replay: Replay, content: Any
) -> None:
    assert replay(edited("response.content", content), into=kv) == []
    empty = edited("response.content", {"size": 0})
    assert [difference.where for difference in replay(empty, into=kv)] == ["body"]


@pytest.mark.parametrize(
    "break_it",
    [
        lambda kv: kv.faults.drop(),
        lambda kv: kv.faults.truncate(),
        lambda kv: kv.faults.down(),
        lambda kv: kv.close(),
    ],
)
def test_a_fake_that_gives_no_answer_differs(
    kv: KVServer, replay: Replay, break_it: Callable[[Any], object]
) -> None:
    break_it(kv)
    difference = replay(ENTRY, into=kv).only()
    assert (difference.where, difference.recorded) == ("status", 200)
    assert "no answer" in difference.answered


@pytest.mark.parametrize(
    ("recorded", "value"), [({"result": "absent"}, "absent"), ({"result": 1}, 1), ({}, 1)]
)
def test_values_of_other_types_and_missing_members_differ(
    kv: KVServer, replay: Replay, recorded: Any, value: Any
) -> None:
    kv.faults.respond(200, body=json.dumps({} if value == "absent" else {"result": True}))
    differences = replay(edited("response.content", {"text": json.dumps(recorded)}), into=kv)
    assert [difference.where for difference in differences] == ["body.result"]


def test_values_of_volatile_fields_are_translated_unless_they_are_short() -> None:
    translation: dict[str, str] = {}
    recorded, answered = {"uuid": "abcdef", "cursor": "abcde"}, {"uuid": "x", "cursor": "y"}
    assert list(_changes(recorded, answered, VOLATILE, translation, "body")) == []
    assert translation == {"abcdef": "x"}


def test_a_head_has_no_body_in_the_archive(cloud: Cloud, tmp_path: Path) -> None:
    kv = cloud.kv_server()
    httpx.head(f"{kv.url}/ping", headers=kv.headers)
    made = archive(cloud)
    assert made["log"]["entries"][0]["response"]["content"]["size"] == 0
    file = tmp_path / "x.har"
    file.write_text(json.dumps(made), encoding="utf-8")
    assert cloud.replay(file) == []


def test_a_session_is_replayed_over_tls(tmp_path: Path) -> None:
    pytest.importorskip("trustme")
    with Cloud(seed=1, tls=True) as cloud:
        assert cloud.replay(har(tmp_path / "x.har", ENTRY), into=cloud.kv_server()) == []


def test_an_answer_with_many_hidden_parts_takes_no_longer(kv: KVServer, replay: Replay) -> None:
    """A regular expression with forty stars would backtrack for years."""
    recorded = json.dumps({"result": "***a" * 40 + "b"})
    entry = edited("response.content", {"size": 9, "text": recorded})
    kv.faults.respond(200, {"result": "a" * 4000 + "b"}, times=1)
    kv.faults.respond(200, {"result": "a" * 4000 + "c"}, times=1)
    assert replay(entry, into=kv) == []
    assert [difference.where for difference in replay(entry, into=kv)] == ["body.result"]
