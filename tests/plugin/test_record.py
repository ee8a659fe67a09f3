"""Recording a test's calls as HAR, and replaying a recorded session."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
import requests

from pytest_fakecloud import Cloud, ContractError, Results
from pytest_fakecloud.cloud.base import fixture_fake, use_in_fixtures
from pytest_fakecloud.recordings.archives import archive, write

from ..harness import Run, quiet_but

NOON = "2026-01-01T12:00:00Z"
SETTINGS = {"vector_index": {"dimension": 2}, "broker": {"topics": {"orders": 1}}}


def session(cloud: Cloud, httpx: Any = httpx) -> None:
    """Call all four services; one call uses an ID from an earlier answer."""
    kv, index = cloud.kv_server(), cloud.vector_index(dimension=2)
    broker, queue = cloud.broker(topics={"orders": 1}), cloud.queue()
    client = kv.client()
    client.set("k", "v", ex=60)
    client.get("k")
    cloud.clock.advance("90s")
    client.get("k")
    httpx.get(f"{kv.url}/set/two%20words/%2F?EX=100&_token={kv.token}")
    httpx.post(kv.url + "/set/bin", content=b"\xff\x00", headers=kv.headers)
    httpx.get(f"{kv.url}/get/k", headers={"Authorization": "Bearer wrong"})
    with kv.faults.respond(503):
        httpx.get(f"{kv.url}/get/k", headers=kv.headers)
    httpx.post(kv.url, json=["AUTH", "someone", "secret-of-theirs"], headers=kv.headers)
    httpx.post(f"{index.url}/upsert", json={"id": "1", "vector": [1, 0]}, headers=index.headers)
    httpx.post(f"{index.url}/query", json={"vector": [1, 0], "topK": 1}, headers=index.headers)
    auth = (broker.username, broker.password)
    requests.post(f"{broker.url}/produce/orders", json={"value": "v"}, auth=auth, timeout=5)
    requests.get(
        f"{broker.url}/consume/g/i/orders", auth=auth, timeout=5,
        headers={"Kafka-Auto-Offset-Reset": "earliest"},
    )  # fmt: skip
    published = queue.client().message.publish_json(
        url="https://app.test/hook", body={"n": 1}, delay="1h"
    )
    queue.client().message.get(published.message_id)
    queue.client().message.cancel(published.message_id)
    httpx.get(f"{queue.url}/v2/keys", headers=queue.headers)


def record(path: Path, httpx: Any = httpx) -> Path:
    with Cloud(seed="recorded", now=NOON, delivery="driven") as cloud:
        session(cloud, httpx)
        return write(cloud, path / "deep" / "session.har")


def test_an_archive_has_deliveries_and_callbacks_with_their_times_and_a_replay_has_not() -> None:
    with Cloud(seed="recorded", now=NOON, delivery="driven") as cloud:
        queue, kv = cloud.queue(), cloud.kv_server()
        token = f"Bearer {kv.token}"
        queue.destinations.respond("https://app.test", (200, "done"))
        queue.client().message.publish(
            url="https://app.test/hook", body="work", callback="https://app.test/done",
            headers={"Authorization": token},
        )  # fmt: skip
        queue.client().message.publish(url=f"{kv.url}/set/k/v", headers={"Authorization": token})
        queue.deliver_due()
        recorded = archive(cloud)
        assert cloud.replay(recorded) == []
    entries = recorded["log"]["entries"]
    # The second message is delivered to a fake, which has recorded the call.
    kinds = [(entry["_fake"], entry["_kind"]) for entry in entries]
    assert sorted(kinds) == [
        ("kv_server", "call"), ("queue", "call"), ("queue", "call"), ("queue", "callback"),
        ("queue", "message"),
    ]  # fmt: skip
    delivery = next(entry for entry in entries if entry["_kind"] == "message")
    assert (delivery["request"]["url"], delivery["request"]["postData"]["text"]) == (
        "https://app.test/hook", "work",
    )  # fmt: skip
    assert (delivery["response"]["status"], delivery["response"]["content"]["text"]) == (
        200,
        "done",
    )
    assert {"name": "Authorization", "value": "***"} in delivery["request"]["headers"]
    assert {"time", "timings"} <= delivery.keys()


def test_entries_of_an_archive_have_durations() -> None:
    with Cloud(seed="recorded") as cloud:
        kv = cloud.kv_server()
        with kv.faults.delay(0.05):
            kv.client().get("k")
        (entry,) = archive(cloud)["log"]["entries"]
    assert entry["time"] >= 50
    assert entry["timings"]["wait"] == entry["time"]


def test_the_archive_is_a_har_and_keeps_no_secret(tmp_path: Path) -> None:
    with Cloud(seed="recorded", now=NOON, delivery="driven") as cloud:
        session(cloud)
        har = archive(cloud)
        text = json.dumps(har)
        for fake in cloud.fakes():
            for name in ("token", "read_only_token", "password", "current_signing_key"):
                assert getattr(fake, name, "nothing of the kind") not in text
    assert "secret-of-theirs" not in text
    assert har["log"]["version"] == "1.2"
    entries = har["log"]["entries"]
    first = entries[0]
    assert first["startedDateTime"] == "2026-01-01T12:00:00+00:00"
    assert entries[2]["startedDateTime"] == "2026-01-01T12:01:30+00:00"
    assert first["request"]["method"] == "POST"
    assert json.loads(first["request"]["postData"]["text"]) == ["SET", "k", "v", "EX", 60]
    assert {"name": "Authorization", "value": "***"} in first["request"]["headers"]
    assert first["response"]["content"]["text"] == '{"result":"OK"}'
    assert first["response"]["status"] == 200
    assert first["response"]["headers"][1:] == [
        {"name": "Content-Type", "value": "application/json"},
        {"name": "Content-Length", "value": "15"},
    ]
    binary = entries[4]["request"]["postData"]
    assert (binary["encoding"], binary["text"]) == ("base64", "/wA=")
    needed = {"startedDateTime", "time", "request", "response", "cache", "timings"}
    assert all(needed <= entry.keys() for entry in entries)


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_session_can_be_sent_again(library: Any, tmp_path: Path) -> None:
    path = record(tmp_path, library)
    with Cloud(seed="another", now="2027-05-05T05:00:00Z", delivery="driven") as cloud:
        use_in_fixtures(cloud, SETTINGS, None)
        differences = cloud.replay(path)
        assert differences == []
        assert differences == []
        # The replay also advanced the clock by ninety seconds, so the key has expired.
        assert cloud.clock.now().isoformat() == "2027-05-05T05:01:30+00:00"
        kv = fixture_fake(cloud, "kv_server")
        assert kv.value("two words") == "/"
        assert set(kv.keys()) == {"two words", "bin"}
        # Calls with an injected fault and calls with masked passwords are not replayed.
        assert len(kv.journal.calls()) == 6
        # The replay cancelled this cloud's message, whose ID differs from the recorded one.
        queue = fixture_fake(cloud, "queue")
        assert all((call.status or 500) < 300 for call in queue.journal.calls())
        assert queue.messages(state="active") == []


def test_a_difference_says_where(tmp_path: Path) -> None:
    path = record(tmp_path)
    har = json.loads(path.read_text())
    for entry in har["log"]["entries"]:
        content = entry["response"]["content"]
        if content["text"] == '{"result":"OK"}':
            content["text"] = '{"result":"FINE","more":1}'
            entry["response"]["status"] = 201
            break
    path.write_text(json.dumps(har))
    with Cloud(seed=1, now=NOON, delivery="driven") as cloud:
        use_in_fixtures(cloud, SETTINGS, None)
        differences = cloud.replay(path)
    assert list(map(str, differences)) == [
        "request 1 (POST /): status was 201, is 200",
        "request 1 (POST /): body.more was 1, is absent",
        "request 1 (POST /): body.result was 'FINE', is 'OK'",
    ]
    assert isinstance(differences.where(where="status"), list)


def foreign(path: Path, *exchanges: dict[str, Any]) -> Path:
    """Write a HAR file in the style of a browser or a proxy."""
    entries = [
        {
            "startedDateTime": f"2026-03-01T10:00:{second:02}.000Z",
            "request": {
                "method": exchange.get("method", "POST"),
                "url": exchange["url"],
                "headers": [
                    {"name": ":authority", "value": "kv.example.com"},
                    {"name": "Authorization", "value": "Bearer the-real-token"},
                    {"name": "Content-Type", "value": "application/json"},
                ],
                **({"postData": {"text": exchange["body"]}} if "body" in exchange else {}),
            },
            "response": {
                "status": exchange.get("status", 200),
                "content": {"text": json.dumps(exchange["answer"])},
            },
        }
        for second, exchange in enumerate(exchanges)
    ]  # fmt: skip
    path.write_text(json.dumps({"log": {"entries": entries}}))
    return path


def test_a_recording_of_the_real_service_checks_the_fake(tmp_path: Path) -> None:
    path = foreign(
        tmp_path / "real.har",
        {"url": "https://kv.example.com/", "body": '["SET","k","v","EX",1]', "answer": {"result": "OK"}},
        {"url": "https://kv.example.com/get/k?_token=the-real-token", "method": "GET",
         "answer": {"result": None}},
        {"url": "https://kv.example.com", "body": '["INCR","n"]', "answer": {"result": 1}},
    )  # fmt: skip
    with Cloud(seed=1, now=NOON) as cloud:
        kv = cloud.kv_server()
        assert cloud.replay(path, into=kv) == []
        kv.reset()
        assert cloud.replay(path, into={"https://kv.example.com/": kv}) == []
        kv.reset()
        # The recorded interval of a second was not replayed, so the key still exists.
        still = cloud.replay(path, into=kv, move_clock=False)
        assert str(still.only()) == "request 2 (GET /get/k): body.result was None, is 'v'"
        with pytest.raises(ContractError, match="pass its origin in into="):
            cloud.replay(path, into={"https://other.example.com": kv})
        with pytest.raises(ContractError, match="pass into=fake or into="):
            cloud.replay(path)


def test_ids_are_translated_wherever_they_come_again(tmp_path: Path) -> None:
    path = foreign(
        tmp_path / "real.har",
        {"url": "https://queue.example.com/v2/publish/https://app.test/hook",
         "status": 200, "answer": {"messageId": "msg_recorded_1"}},
        {"url": "https://queue.example.com/v2/publish/https://app.test/hook",
         "status": 200, "answer": {"messageId": "msg_recorded_11"}},
        {"url": "https://queue.example.com/v2/messages/msg_recorded_11", "method": "DELETE",
         "status": 202, "answer": {"message": "cancelled"}},
    )  # fmt: skip
    with Cloud(seed=1, now=NOON, delivery="driven") as cloud:
        queue = cloud.queue()
        differences = cloud.replay(path, into=queue, ignore=["message", "deduplicated", "url"])
        first, second = queue.messages()
        assert queue.journal.calls()[-1].path == f"/v2/messages/{second.id}"
        assert [d.where for d in differences if d.number < 3] == []
        assert first.state != second.state


def test_replay_can_be_awaited(tmp_path: Path) -> None:
    path = foreign(
        tmp_path / "real.har",
        {"url": "https://kv.example.com/", "body": '["INCR","n"]', "answer": {"result": 1}},
    )
    with Cloud() as cloud:
        results = asyncio.run(cloud.aio.replay(path, into=cloud.kv_server()))
        assert isinstance(results, Results)
        assert results == []


# -- in a run --------------------------------------------------------------------------------------

SOURCE = """
    import pytest

    @pytest.mark.parametrize("key", ["a/b", "a:b", "plain"])
    def test_it(kv_server, key):
        kv_server.client().set(key, "v")

    def test_failing(kv_server):
        kv_server.client().set("failing", "v")
        assert 0

    def test_without_fakes():
        pass
"""


def test_every_test_with_fakes_gets_a_file(run: Run, pytester: pytest.Pytester) -> None:
    run(SOURCE, "--fakecloud-record=tapes").assert_outcomes(passed=4, failed=1)
    check(pytester.path / "tapes")


def test_calls_of_a_teardown_are_recorded(run: Run, pytester: pytest.Pytester) -> None:
    run(
        """
        import pytest

        @pytest.fixture
        def app(kv_server):
            client = kv_server.client()
            yield client
            client.get("after")

        def test_it(app):
            app.get("before")
        """,
        "--fakecloud-record=tapes",
    ).assert_outcomes(passed=1)
    (tape,) = (pytester.path / "tapes").iterdir()
    assert len(json.loads(tape.read_text(encoding="utf-8"))["log"]["entries"]) == 2


def test_a_reset_in_a_teardown_leaves_the_recording(run: Run, pytester: pytest.Pytester) -> None:
    run(
        """
        import pytest

        @pytest.fixture
        def clean(fakecloud, kv_server):
            yield kv_server.client()
            fakecloud.reset()
            kv_server.client().get("after")
            kv_server.client().get("after")

        def test_it(clean):
            clean.get("before")

        @pytest.fixture
        def skips(kv_server):
            pytest.skip("nothing to record")

        def test_skipped(skips):
            pass
        """,
        "--fakecloud-record=tapes",
    ).assert_outcomes(passed=1, skipped=1)
    (tape,) = (pytester.path / "tapes").iterdir()
    (entry,) = json.loads(tape.read_text(encoding="utf-8"))["log"]["entries"]
    assert "before" in entry["request"]["postData"]["text"]


def check(folder: Path) -> None:
    files = sorted(folder.iterdir())
    assert len(files) == 4
    seen = {}
    for file in files:
        entry = json.loads(file.read_text(encoding="utf-8"))["log"]["entries"][0]
        seen[json.loads(entry["request"]["postData"]["text"])[1]] = file.name
    assert set(seen) == {"a/b", "a:b", "plain", "failing"}
    assert seen["plain"].endswith("test_it-plain.har")


@pytest.mark.slow
def test_workers_do_not_clash(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    pytester.makepyfile(SOURCE)
    pytester.runpytest_inprocess(*quiet_but("xdist"), "-n2", "--fakecloud-record=tapes")
    check(pytester.path / "tapes")


def test_a_failing_run_becomes_a_test(run: Run, pytester: pytest.Pytester) -> None:
    run(SOURCE, "--fakecloud-record=tapes", "-k", "failing")
    tape = next((pytester.path / "tapes").glob("*test_failing.har"))
    run(
        f"""
        def test_again(fakecloud, kv_server):
            assert fakecloud.replay({str(tape)!r}) == []
            assert kv_server.value("failing") == "v"
        """
    ).assert_outcomes(passed=1)
