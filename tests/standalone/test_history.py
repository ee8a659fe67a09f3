"""Test what rows changed, going back to just before one, and the versions of an item over time."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import redis

from pytest_fakecloud import Cloud
from pytest_fakecloud.standalone.api import ControlApp

from ..harness import wait_until
from .conftest import Serve, Server, ask, message
from .test_sending import send, workflow

__all__ = ["workflow"]


@pytest.fixture
def server(serve: Serve) -> Iterator[Server]:
    """A server of the test's own: versions are looked for among the rows of all earlier tests."""
    server = serve("--now", "2026-01-01T00:00:00Z", "--broker", 'topics={"orders": 2}')
    yield server
    server.process.terminate()


def kv(server: Server, *words: str) -> int:
    """Run a command like a client, and return the number of its row."""
    return int(send(server, "kv_server", "/", list(words))["row"])


def changes(server: Server, number: int) -> dict[str, Any]:
    """Return the fields before and after a row, by item."""
    status, found = server.ask("GET", f"/journal/{number}/changes")
    assert (status, found["note"]) == (200, "")
    return {
        f"{change['section']}: {change['item']}": (change["before"], change["after"])
        for change in found["changes"]
    }


def value(fields: Any) -> Any:
    return None if fields is None else fields.get("value")


def values(server: Server, number: int) -> dict[str, Any]:
    found = changes(server, number).items()
    return {name: tuple(map(value, pair)) for name, pair in found if name.startswith("keys")}


def kv_values(server: Server, *keys: str) -> list[Any]:
    return list(server.call("kv_server", "execute", "MGET", *keys))


def versions(server: Server, fake: str, section: str, item: str = "") -> list[Any]:
    path = f"/fakes/{fake}/versions?section={section}&item={item}"
    status, found = server.ask("GET", path)
    assert status == 200, found
    return list(found["versions"])


def test_each_row_has_what_it_changed(server: Server) -> None:
    first, second = kv(server, "SET", "a", "1"), kv(server, "INCR", "a")
    popped = (kv(server, "SADD", "s", "1", "2", "3"), kv(server, "SPOP", "s"))[1]
    script = kv(server, "EVAL", "redis.call('SET','x','1') redis.call('DEL','a')", "0")
    read = kv(server, "GET", "x")
    assert values(server, first) == {"keys: a": (None, "1")}
    assert values(server, second) == {"keys: a": ("1", "2")}
    before, after = values(server, popped)["keys: s"]
    # As text, JSON keeps its numbers.
    assert (json.loads(before), len(json.loads(after))) == (["1", "2", "3"], 2)
    assert values(server, script) == {"keys: x": (None, "1"), "keys: a": ("2", None)}
    assert values(server, read) == {}
    upserted = send(server, "vector_index", "/upsert", [{"id": "v", "vector": [1, 2]}])["row"]
    assert changes(server, upserted)["default namespace: v"][1]["vector"] == [1.0, 2.0]
    produced = {"topic": "orders", "value": "tea", "partition": 1}
    row = send(server, "broker", "/produce", produced)["row"]
    assert changes(server, row)["partitions: orders-1"][1]["end"] == 1
    assert "no entry 99999" in message(server.ask("GET", "/journal/99999/changes"), 404)


def test_each_row_has_what_undoes_it_alone_or_why_nothing_does(server: Server) -> None:
    def undo(row: int) -> tuple[Any, str]:
        found = server.ask("GET", f"/journal/{row}/changes")[1]
        return found["undo"], found["why_no_undo"]

    kv(server, "MSET", "a", "1", "b", "1")
    flushed = kv(server, "FLUSHALL")
    assert undo(flushed) == ({"section": "keys", "items": ["a", "b"]}, "")
    # A restore is undone like a call: other keys that have changed since stay.
    part = {"fake": "kv_server", "section": "keys", "items": ["a"]}
    restored = server.ask("POST", f"/journal/{flushed}/restore", part)[1]["row"]
    kv(server, "SET", "later", "1")
    items, _ = undo(restored)
    assert items == {"section": "keys", "items": ["a"]}
    server.ask("POST", f"/journal/{restored}/restore", {"fake": "kv_server", **items})
    assert server.call("kv_server", "execute", "KEYS", "*") == ["later"]
    assert undo(kv(server, "PUBLISH", "news", "x")) == (
        None, "This row changed no data. There is nothing to undo.",
    )  # fmt: skip
    produced = {"topic": "orders", "value": "tea", "partition": 1}
    row = send(server, "broker", "/produce", produced)["row"]
    assert undo(row)[1].endswith(
        "cannot be put back alone: Restore broker takes back all that has changed in it since."
    )


def test_keys_that_have_expired_are_told_from_removed_ones(server: Server) -> None:
    kv(server, "MSET", "a", "1", "b", "1")
    kv(server, "EXPIRE", "a", "60")
    after = kv(server, "GET", "a")
    kv(server, "DEL", "b")
    server.ask("POST", "/clock", {"action": "advance", "by": "2m"})
    since = server.ask("GET", f"/journal/{after}/since?fake=kv_server")[1]
    assert since["sums"] == {"kv_server": {"added": 0, "changed": 0, "removed": 1, "expired": 1}}
    assert [change["item"] for change in since["changes"] if change.get("expired")] == ["a"]


def test_a_delivery_has_what_it_changed_of_its_message(server: Server) -> None:
    send(server, "queue", "/v2/publish/http://127.0.0.1:9/x", **{"Upstash-Retries": "0"})

    def attempts() -> list[Any]:
        rows = server.ask("GET", "/journal")[1]
        return [row["number"] for row in rows if row["kind"] == "delivery"]

    wait_until(attempts)
    changed = changes(server, attempts()[0])
    [(before, after)] = [pair for name, pair in changed.items() if name[:8] == "messages"]
    assert (before["state"], after["state"]) == ("pending", "dead_lettered")
    assert any(name.startswith("dead letters") for name in changed)


def test_data_goes_back_to_just_before_a_row_without_a_snapshot(server: Server) -> None:
    kv(server, "SET", "kept", "1")
    send(server, "vector_index", "/upsert", [{"id": "v1", "vector": [1, 2]}])
    bad = kv(server, "FLUSHALL")
    kv(server, "SET", "later", "1")
    send(server, "vector_index", "/upsert", [{"id": "v2", "vector": [2, 1]}])
    one = {"fake": "kv_server"}
    assert server.ask("POST", f"/journal/{bad}/restore", one)[1]["restored"] == ["kv_server"]
    assert server.call("kv_server", "execute", "KEYS", "*") == ["kept"]
    assert len(server.ask("GET", "/fakes/vector_index/lists/vectors")[1]["items"]) == 2
    restored = server.ask("POST", f"/journal/{bad}/restore", {})[1]["restored"]
    assert sorted(restored) == ["broker", "kv_server", "queue", "vector_index"]
    shown = server.ask("GET", "/fakes/vector_index/lists/vectors")[1]["items"]
    assert [vector["id"] for vector in shown] == ["v1"]
    # The credentials stay, and rows after the restore are known again.
    with redis.Redis.from_url(server.fake("kv_server")["env"]["REDIS_URL"]) as client:
        client.set("over the port", "1")
    row = kv(server, "SET", "kept", "2")
    assert values(server, row) == {"keys: kept": ("1", "2")}


def test_one_key_is_put_back_and_the_others_stay(server: Server) -> None:
    kv(server, "SET", "a", "1", "EX", "600")
    edit = kv(server, "SET", "a", "2")
    kv(server, "SET", "b", "1")
    path = f"/journal/{edit}/restore"
    one = {"fake": "kv_server", "section": "keys", "items": ["a"]}
    assert server.ask("POST", path, one)[0] == 200
    assert server.call("kv_server", "execute", "MGET", "a", "b") == ["1", "1"]
    assert server.call("kv_server", "execute", "TTL", "a") == 600
    made = kv(server, "HSET", "h", "f", "v")
    server.ask("POST", f"/journal/{made}/restore", {**one, "items": ["h"]})
    assert server.call("kv_server", "execute", "EXISTS", "h") == 0
    server.ask("POST", f"/journal/{made}/restore", {**one, "items": ["h"], "after": True})
    assert server.call("kv_server", "execute", "HGET", "h", "f") == "v"
    refused = server.ask("POST", path, {"fake": "kv_server", "after": True})
    assert "only items can be restored to just after a row" in message(refused)


@pytest.mark.parametrize("part", [{"section": "keys", "items": ["a"]}, {}], ids=["item", "fake"])
def test_a_restore_is_undone_although_another_client_goes_on(
    server: Server, part: dict[str, Any]
) -> None:
    url = server.fake("kv_server")["env"]["REDIS_URL"]
    edit, ended = (kv(server, "SET", "a", "1"), kv(server, "SET", "a", "2"))[1], threading.Event()

    def call() -> None:
        with redis.Redis.from_url(url) as connection:
            while not ended.is_set():
                connection.get("a")
                connection.incr("visits")

    client = threading.Thread(target=call)
    client.start()
    part = {"fake": "kv_server", **part}
    try:
        for _ in range(10):
            status, restored = server.ask("POST", f"/journal/{edit}/restore", part)
            assert status == 200, restored
            status, undone = server.ask("POST", f"/journal/{restored['row']}/restore", part)
            assert status == 200, undone
            assert kv_values(server, "a") == ["2"]
            kv(server, "SET", "a", "1")
            edit = kv(server, "SET", "a", "2")
    finally:
        ended.set()
        client.join(10)


def test_a_restore_is_a_row_of_the_console(server: Server) -> None:
    edit = kv(server, "SET", "a", "1")
    path = f"/journal/{edit}/restore"
    server.ask("POST", "/snapshots", {"id": "one"})
    server.ask("POST", path, {"fake": "kv_server", "section": "keys", "items": ["a"]})
    kv(server, "SET", "a", "1")
    server.ask("POST", path, {"fake": "kv_server"})
    made = server.ask("POST", "/snapshots/one", {})[1]
    rows = [row for row in server.ask("GET", "/journal")[1] if row["kind"] == "event"]
    assert {row["actor"] for row in rows} == {"console"}
    assert [row["text"]["what"] for row in rows if row["peer"] == "kv_server"] == [
        f"restored: a to just before #{edit}",
        f"restored: all data of kv_server to just before #{edit}",
        "restored: all data of kv_server to the snapshot one",
    ]
    assert made["row"] in [row["number"] for row in rows]
    again = kv(server, "SET", "a", "2")
    assert values(server, again) == {"keys: a": ("1", "2")}


def test_a_restore_has_rows_of_the_fakes_that_changed_with_their_data(server: Server) -> None:
    kv(server, "SET", "a", "1")
    server.ask("POST", "/snapshots", {"id": "one"})
    assert server.ask("POST", "/snapshots/one", {})[1]["row"] == 0
    edit = kv(server, "SET", "a", "2")
    send(server, "vector_index", "/upsert", [{"id": "v", "vector": [1, 2]}])

    def rows() -> dict[str, int]:
        return {
            row["fake"]: row["number"]
            for row in server.ask("GET", "/journal")[1]
            if row["kind"] == "event" and row["operation"] == "restored"
        }

    first = server.ask("POST", "/snapshots/one", {})[1]["row"]
    assert rows() == {"kv_server": first, "vector_index": first + 1}
    assert values(server, first) == {"keys: a": ("2", "1")}
    second = server.ask("POST", f"/journal/{first}/restore", {})[1]["row"]
    third = server.ask("POST", f"/journal/{edit}/restore", {"fake": "kv_server"})[1]["row"]
    kv(server, "SET", "a", "5")
    # Each has the data before and after it, whether a call, another restore or nothing followed.
    for row, expected in ((first, ("2", "1")), (second, ("1", "2")), (third, ("2", "1"))):
        assert values(server, row) == {"keys: a": expected}
    [upserted] = [pair for name, pair in changes(server, first + 1).items() if name.endswith(": v")]
    assert upserted[1] is None


def test_a_restore_is_about_the_items_that_it_changes(server: Server) -> None:
    edit = kv(server, "SET", "a", "1")
    kv(server, "SET", "b", "1")
    path = f"/journal/{edit}/restore"
    server.ask("POST", path, {"fake": "kv_server", "section": "keys", "items": ["a"]})
    server.ask("POST", path, {"fake": "kv_server"})
    rows = [row for row in server.ask("GET", "/journal")[1] if row["kind"] == "event"]
    assert [[subject["name"] for subject in row["subjects"]] for row in rows] == [["a"], ["b"]]


def test_keys_that_expire_during_a_move_are_rows_and_events_of_it(server: Server) -> None:
    server.ask("POST", "/clock", {"action": "freeze"})
    kv(server, "SET", "late", "1", "EX", "60")
    kv(server, "SET", "soon", "1", "EX", "10")
    kv(server, "SET", "stays", "1", "EX", "600")
    moved = server.ask("POST", "/clock", {"action": "advance", "by": "2m"})[1]
    fired = [line.split(" ", 1)[1] for line in moved["fired"] if " key " in line]
    assert fired == ["key soon expires", "key late expires"]
    rows = [row for row in server.ask("GET", "/journal")[1] if row["kind"] == "event"]
    assert [row["text"]["what"] for row in rows] == ["expired: soon", "expired: late"]
    assert [row["subjects"][0]["name"] for row in rows] == ["soon", "late"]
    assert rows[1]["at_us"] - rows[0]["at_us"] == 50_000_000


def test_what_a_restore_changes_is_known_before_it(server: Server) -> None:
    kv(server, "SET", "a", "1")
    edit = kv(server, "SET", "a", "2")
    kv(server, "SET", "b", "1")
    send(server, "vector_index", "/upsert", [{"id": "v1", "vector": [1, 2]}])

    def since(query: str) -> list[tuple[str, Any, Any]]:
        found = server.ask("GET", f"/journal/{edit}/since{query}")[1]
        assert found["count"] == len(found["changes"])
        return sorted(
            (change["item"], value(change["before"]), value(change["after"]))
            for change in found["changes"]
            if change["section"] == "keys" or "namespace" in change["section"]
        )

    changed = [("a", "1", "2"), ("b", None, "1")]
    assert since("?fake=kv_server") == changed
    assert since("") == [*changed, ("v1", None, None)]
    assert since('?fake=kv_server&section=keys&items=["a"]') == changed[:1]
    assert since('?fake=kv_server&section=keys&items=["b"]') == changed[1:]
    assert "must be a JSON list" in message(server.ask("GET", f"/journal/{edit}/since?items=a"))
    assert server.ask("GET", "/journal/99999/since")[0] == 404


def test_the_records_that_a_topic_has_got_are_among_the_changes(server: Server) -> None:
    record = {"topic": "orders", "partition": 1, "key": "k"}
    send(server, "broker", "/produce", {**record, "value": "old"})
    server.ask("POST", "/snapshots", {"id": "one"})
    first = send(server, "broker", "/produce", {**record, "value": "tea"})["row"]
    send(server, "broker", "/produce", {**record, "value": "cup"})
    kv(server, "SET", "a", "1")
    for path in ("/snapshots/one/changes", f"/journal/{first}/since"):
        found = server.ask("GET", path)[1]["changes"]
        added = {change["item"]: change.get("added") for change in found}
        records = added.pop("orders-1") or []
        assert [(record["id"], record["key"], record["value"]) for record in records] == [
            ("1-1", "k", "tea"), ("1-2", "k", "cup"),
        ]  # fmt: skip
        assert not any(added.values())


def test_a_restore_is_undone_by_a_restore_to_its_row(server: Server) -> None:
    edit = kv(server, "SET", "a", "1")
    kv(server, "SET", "a", "2")
    row = server.ask("POST", f"/journal/{edit}/restore", {})[1]["row"]
    assert server.call("kv_server", "execute", "GET", "a") is None
    server.ask("POST", f"/journal/{row}/restore", {})
    assert server.call("kv_server", "execute", "GET", "a") == "2"


def test_versions_tell_a_key_that_has_expired_from_a_deleted_one(server: Server) -> None:
    for key in ("soon", "gone"):
        kv(server, "SET", key, "1", "EX", "60")
    kv(server, "DEL", "gone")
    server.ask("POST", "/clock", {"action": "advance", "by": "2m"})
    path = "/fakes/kv_server/versions?section=keys&item="
    last = {key: server.ask("GET", path + key)[1]["versions"][-1] for key in ("soon", "gone")}
    assert [one["fields"] for one in last.values()] == [None, None]
    assert last["soon"]["expired"].startswith("2026-01-01T00:01:00")
    assert last["gone"]["expired"] is None


def test_the_undo_of_a_restore_can_leave_what_was_written_since(server: Server) -> None:
    kv(server, "MSET", "stock", "5", "price", "3")
    first = kv(server, "MSET", "stock", "6", "price", "4")
    kv(server, "SET", "new", "1")
    restored = server.ask("POST", f"/journal/{first}/restore", {"skip_unknown": True})[1]["row"]
    assert kv_values(server, "stock", "price", "new") == ["5", "3", None]
    kv(server, "MSET", "price", "9", "later", "1")
    own = server.ask("GET", f"/journal/{restored}/since?own=yes")[1]
    whole = server.ask("GET", f"/journal/{restored}/since")[1]
    assert sorted(change["item"] for change in own["changes"]) == ["new", "stock"]
    assert len(whole["changes"]) == 4
    status, undone = server.ask("POST", f"/journal/{restored}/restore", {"own": True})
    assert (status, undone["restored"]) == (200, ["kv_server"])
    assert kv_values(server, "stock", "price", "new", "later") == ["6", "9", "1", "1"]
    # This is a restore too.
    server.ask("POST", f"/journal/{undone['row']}/restore", {"own": True})
    assert kv_values(server, "stock", "price", "new", "later") == ["5", "9", None, "1"]
    # Nothing of the first restore is as it left it.
    kv(server, "MSET", "stock", "7", "new", "2")
    nothing = server.ask("POST", f"/journal/{restored}/restore", {"own": True})[1]
    assert nothing == {"restored": [], "row": 0}
    own = server.ask("GET", f"/journal/{first}/since?own=yes")[1]
    assert "is not that of a restore" in own["why_not_own"]


def test_a_restore_of_all_fakes_has_its_own_items_in_each(server: Server) -> None:
    row = kv(server, "SET", "stock", "5")
    send(server, "vector_index", "/upsert", [{"id": "v1", "vector": [1, 2]}])
    restored = server.ask("POST", f"/journal/{row}/restore", {})[1]["row"]
    undone = server.ask("POST", f"/journal/{restored}/restore", {"own": True})[1]
    assert sorted(undone["restored"]) == ["kv_server", "vector_index"]
    assert kv_values(server, "stock") == ["5"]


def test_a_restore_of_messages_cannot_be_undone_alone(server: Server) -> None:
    row = kv(server, "SET", "stock", "5")
    server.call("queue", "publish", "https://shop.example/hook", delay="1h")
    restored = server.ask("POST", f"/journal/{row}/restore", {})[1]["row"]
    own = server.ask("GET", f"/journal/{restored}/since?own=yes")[1]
    assert "cannot be put back alone" in own["why_not_own"]
    rejected = server.ask("POST", f"/journal/{restored}/restore", {"own": True})
    assert message(rejected) == own["why_not_own"]


def test_versions_name_the_restore_that_made_them(server: Server) -> None:
    rows = [kv(server, "SET", "restored", "1"), kv(server, "SET", "restored", "2")]
    one = {"fake": "kv_server", "section": "keys", "items": ["restored"]}
    rows.append(server.ask("POST", f"/journal/{rows[1]}/restore", one)[1]["row"])
    found = [
        (one["number"], value(one["fields"]))
        for one in versions(server, "kv_server", "keys", "restored")
    ]
    assert found == [(rows[0], "1"), (rows[1], "2"), (rows[2], "1")]
    rows.append(kv(server, "SET", "restored", "3"))
    numbers = [one["number"] for one in versions(server, "kv_server", "keys", "restored")]
    assert numbers == rows


def test_requests_that_are_sent_here_are_those_of_the_console(server: Server) -> None:
    with redis.Redis.from_url(server.fake("kv_server")["env"]["REDIS_URL"]) as client:
        client.set("a", "1")
    [row] = [row for row in server.ask("GET", "/journal")[1] if row["text"]["what"] == "SET a 1"]
    server.ask("POST", f"/journal/{row['number']}/again", {"commands": [["SET", "a", "2"]]})
    kv(server, "SET", "a", "3")
    rows = server.ask("GET", "/journal")[1]
    assert [(row["text"]["what"], row["actor"]) for row in rows if "SET a" in row["text"]["what"]] == [
        ("SET a 1", "client"), ("SET a 2", "console"), ("SET a 3", "console"),
    ]  # fmt: skip


def test_vectors_are_put_back_and_the_others_stay(server: Server) -> None:
    def ids() -> list[str]:
        found = server.ask("GET", "/fakes/vector_index/lists/vectors?namespace=films")[1]["items"]
        return [one["id"] for one in found]

    def record(name: str, number: int) -> dict[str, Any]:
        return {"id": name, "vector": [number, 1], "metadata": {"number": number}}

    send(server, "vector_index", "/upsert/films", [record("a", 1), record("b", 2), record("c", 3)])
    deletion = send(server, "vector_index", "/delete/films", {"ids": ["a", "b"]})["row"]
    send(server, "vector_index", "/upsert/films", [record("b", 9), record("c", 9)])
    some = {"fake": "vector_index", "section": "namespace films", "items": ["a", "b", "new"]}
    assert server.ask("POST", f"/journal/{deletion}/restore", some)[0] == 200
    assert ids() == ["a", "b", "c"]
    found = server.ask("GET", "/fakes/vector_index/lists/vectors/b?namespace=films")[1]
    assert (found["vector"], found["metadata"]) == ([2, 1], {"number": 2})
    path, other = f"/journal/{deletion}/restore", some | {"section": "resumable queries"}
    assert "only vectors can be put back" in message(server.ask("POST", path, other))


def test_an_item_has_its_versions_with_their_rows(server: Server) -> None:
    assert versions(server, "kv_server", "keys", "n") == []
    rows = [kv(server, "SET", "n", "1"), kv(server, "INCR", "n")]
    kv(server, "SET", "other", "1")
    server.call("kv_server", "execute", "SET", "n", "by the control API")
    rows += [kv(server, "INCRBY", "other", "1"), kv(server, "DEL", "n")]
    found = [
        (one["number"], value(one["fields"])) for one in versions(server, "kv_server", "keys", "n")
    ]
    assert found == [
        (rows[0], "1"), (rows[1], "2"), (0, "by the control API"), (rows[3], None),
    ]  # fmt: skip
    send(server, "broker", "/consume/billing/a", {"topic": "orders"})
    group = versions(server, "broker", "group billing")
    assert group[-1]["fields"].keys() == {"orders-0", "orders-1"}


def test_what_the_clock_changed_has_its_time_and_its_event(server: Server) -> None:
    send(server, "broker", "/produce", {"topic": "orders", "value": "tea", "partition": 0})
    send(server, "broker", "/consume/billing/a", {"topic": "orders", "timeout": 0})
    cron = {"Upstash-Cron": "0 9 * * *"}
    schedule = send(server, "queue", "/v2/schedules/http://127.0.0.1:9/x", "", **cron)["body"]
    server.ask("POST", "/clock", {"action": "advance", "by": "40h"})
    rows = {row["number"]: row for row in server.ask("GET", "/journal")[1]}
    found = versions(server, "broker", "group billing")
    causes = [(rows[one["number"]]["operation"], one["at"]) for one in found]
    assert [operation for operation, _ in causes][-2:] == ["close", "rebalance"]
    events = [row for row in rows.values() if row["operation"] in ("close", "rebalance")]
    assert [at[:19] for _, at in causes][-2:] == [row["at"][:19] for row in events][-2:]
    found = versions(server, "queue", "schedules", json.loads(schedule)["scheduleId"])
    assert [one["at"][11:19] for one in found[1:]] == ["09:00:00", "09:00:00"]


def change_among_many(server: Server, section: str) -> tuple[list[int], list[Any]]:
    """Change one item of many very often; return the rows that did so, and its versions."""
    others = [f"other-{number}" for number in range(1500)]
    if section == "keys":
        kv(server, "MSET", *(word for name in others for word in (name, "1")))
        rows = [kv(server, "INCR", "counter") for _ in range(300)]
        return rows, versions(server, "kv_server", section, "counter")
    if section == "partitions":
        for name in others:
            server.call("broker", "create_topic", name)
        record = {"topic": "orders", "value": "tea", "partition": 1}
        rows = [send(server, "broker", "/produce", record)["row"] for _ in range(300)]
        return rows, versions(server, "broker", section, "orders-1")
    send(server, "vector_index", "/upsert", [{"id": name, "vector": [1, 2]} for name in others])
    records = [{"id": "moving", "vector": [number, 1]} for number in range(300)]
    rows = [send(server, "vector_index", "/upsert", [record])["row"] for record in records]
    return rows, versions(server, "vector_index", section, "moving")


@pytest.mark.parametrize("section", ["keys", "default namespace", "partitions"])
def test_an_item_among_many_has_its_versions(server: Server, section: str) -> None:
    # To read all items after each call would exceed the limits of a replay.
    rows, item_versions = change_among_many(server, section)
    made_by = [version["number"] for version in item_versions]
    assert made_by[-len(rows):] == rows  # fmt: skip


def test_data_is_known_after_the_oldest_rows_were_dropped(serve: Serve) -> None:
    # With a running clock, and more entries than between two copies of the data.
    busy = serve("kv", "--random", "--journal-entries", "1500")
    for number in range(2000):
        kv(busy, "SET", f"key:{number % 50}", str(number))
    last = kv(busy, "INCR", "key:49")
    assert values(busy, last) == {"keys: key:49": ("1999", "2000")}
    first = busy.ask("GET", "/journal")[1][0]["number"]
    status, found = busy.ask("GET", f"/journal/{first}/changes")
    assert (status, found["changes"]) == (200, None)
    assert "earlier calls were dropped" in found["note"]
    newest = versions(busy, "kv_server", "keys", "key:49")
    assert [value(version["fields"]) for version in newest][-2:] == ["1999", "2000"]


@pytest.mark.parametrize("mode", ["frozen", "running"])
def test_time_changes_data_between_rows(serve: Serve, mode: str) -> None:
    server = serve("kv", "--random", "--clock", mode)
    kv(server, "SET", "short", "1", "PX", "60000")
    server.ask("POST", "/clock", {"action": "advance", "by": "2m"})
    again = kv(server, "SET", "short", "2")
    assert values(server, again) == {"keys: short": (None, "2")}


def rows_of_every_kind(server: Server, workflow: tuple[str, list[Any]]) -> list[Any]:
    """Make calls, deliveries and events of every service, and return their rows."""
    url, received = workflow
    kv(server, "HSET", "user:1", "name", "Ada")
    kv(server, "EVAL", "return redis.call('HGETALL', KEYS[1])", "1", "user:1")
    kv(server, "XADD", "events", "1-1", "n", "1")
    kv(server, "XGROUP", "CREATE", "events", "stats", "0")
    kv(server, "XREADGROUP", "GROUP", "stats", "one", "STREAMS", "events", ">")
    send(server, "kv_server", "/multi-exec", [["SET", "a", "1"], ["INCR", "a"]])
    kv(server, "SET", "short", "1", "PX", "10")
    send(server, "vector_index", "/upsert/films", [{"id": "v", "vector": [1, 2]}])
    send(server, "vector_index", "/query/films", {"vector": [1, 2], "topK": 1})
    send(server, "broker", "/produce", {"topic": "orders", "value": "tea", "partition": 1})
    consumed = {"method": "GET", "target": "/consume/g/one/orders"}
    consumed["headers"] = {"Kafka-Auto-Offset-Reset": "earliest"}  # type: ignore[assignment]
    server.ask("POST", "/fakes/broker/requests", consumed)

    def rows() -> list[Any]:
        return [row for row in server.ask("GET", "/journal")[1] if row["operation"] != "restored"]

    def has_attempts(count: int) -> bool:
        attempts = [row for row in rows() if row["kind"] == "delivery"]
        return len(attempts) == count and all(row["done"] for row in rows())

    # One after the other, because the ids of messages published at the same time are not replayed.
    for code, count in ((200, 2), (503, 4)):
        destination = {"url": f"https://app.example/{code}", "answer": code}
        server.ask("POST", "/fakes/queue/destinations", destination)
        own = {
            "Upstash-Retries": "0",
            "Upstash-Callback": "https://app.example/200",
            "X-Trace": "7",
        }
        send(server, "queue", f"/v2/publish/https://app.example/{code}", "whole body", **own)
        wait_until(partial(has_attempts, count))
    header = {"Upstash-Forward-Upstash-Workflow-Sdk-Version": "1"}
    send(server, "queue", f"/v2/trigger/{url}", "in", **header)
    server.ask("POST", "/clock", {"action": "advance", "by": "1s"})
    wait_until(partial(has_attempts, 7))
    assert len(received) == 3
    return rows()


@pytest.mark.parametrize("way", ["row", "snapshot", "first"])
def test_a_restore_changes_no_recorded_row(
    server: Server, workflow: tuple[str, list[Any]], way: str
) -> None:
    server.ask("POST", "/snapshots", {"id": way})
    before = rows_of_every_kind(server, workflow)

    def changes() -> list[Any]:
        numbers = [row["number"] for row in before]
        return [server.ask("GET", f"/journal/{number}/changes")[1] for number in numbers]

    changed = changes()
    assert [found["note"] for found in changed if found["note"]] == []
    if way == "snapshot":
        assert server.ask("POST", f"/snapshots/{way}", {})[0] == 200
    else:
        number = before[0 if way == "first" else len(before) // 2]["number"]
        assert server.ask("POST", f"/journal/{number}/restore", {})[0] == 200
    known = {row["number"]: row for row in server.ask("GET", "/journal")[1]}
    assert [known[row["number"]] for row in before] == before
    assert changes() == changed
    bodies = {row["request"]["body"] for row in before if row["kind"] == "delivery"}
    assert "whole body" in bodies


@pytest.mark.parametrize("fake", [None, "kv_server"])
def test_a_reset_that_is_recorded_can_be_undone(server: Server, fake: str | None) -> None:
    kv(server, "SET", "a", "1")
    send(server, "vector_index", "/upsert", [{"id": "v1", "vector": [1, 2]}])
    row = server.ask("POST", "/reset", {"fake": fake, "record": True})[1]["row"]
    assert server.call("kv_server", "execute", "DBSIZE") == 0
    rows = {one["number"]: one["text"]["what"] for one in server.ask("GET", "/journal")[1]}
    assert rows[row].startswith("restored: all data of ")
    assert rows[row].endswith(" to the baseline")
    # The data can change meanwhile.
    kv(server, "SET", "b", "1")
    assert server.ask("POST", f"/journal/{row}/restore", {"fake": fake})[0] == 200
    assert server.call("kv_server", "execute", "KEYS", "*") == ["a"]
    vectors = server.ask("GET", "/fakes/vector_index/lists/vectors")[1]["items"]
    assert [vector["id"] for vector in vectors] == ["v1"]
    # Another client does not ask for the row, and its journal is empty.
    assert server.ask("POST", "/reset", {})[1]["row"] is None
    assert server.ask("GET", "/journal")[1] == []


def test_a_change_without_a_call_is_recorded_and_undone(server: Server) -> None:
    send(server, "broker", "/produce", {"topic": "orders", "value": "tea", "partition": 1})
    server.call("broker", "create_topic", "kept")
    row = server.ask("POST", "/journal", {"fake": "broker", "what": "create the topic late"})[1]
    server.call("broker", "create_topic", "late")
    [shown] = [one for one in server.ask("GET", "/journal")[1] if one["number"] == row["row"]]
    assert (shown["actor"], shown["text"]["what"]) == ("console", "changed: create the topic late")

    def topics() -> list[str]:
        found = server.ask("GET", "/fakes/broker/lists/topics")[1]["items"]
        return [topic["name"] for topic in found]

    assert topics() == ["kept", "late", "orders"]
    made = versions(server, "broker", "topics", "late")
    assert [version["number"] for version in made] == [row["row"]]
    path = f"/journal/{row['row']}/restore"
    assert server.ask("POST", path, {"fake": "broker"})[0] == 200
    assert topics() == ["kept", "orders"]
    assert "'none' is not a fake" in message(
        server.ask("POST", "/journal", {"fake": "none", "what": "x"}), 404
    )


def test_a_restore_keeps_destinations_and_is_undone(server: Server) -> None:
    url = "https://app.example/503"
    server.ask("POST", "/fakes/queue/destinations", {"url": url, "answer": 503})
    sent = send(server, "queue", f"/v2/publish/{url}", "hello", **{"Upstash-Retries": "0"})

    def letters() -> list[Any]:
        return list(server.ask("GET", "/fakes/queue/lists/dead-letters")[1]["items"])

    wait_until(letters)
    destinations = server.ask("GET", "/fakes/queue/destinations")
    row = server.ask("POST", f"/journal/{sent['row']}/restore", {"fake": "queue"})[1]["row"]
    assert letters() == []
    assert server.ask("GET", "/fakes/queue/destinations") == destinations
    assert server.ask("POST", f"/journal/{row}/restore", {"fake": "queue"})[0] == 200
    assert len(letters()) == 1
    assert server.ask("GET", "/fakes/queue/destinations") == destinations


def test_versions_of_one_field_are_those_in_which_it_changed(server: Server) -> None:
    first = kv(server, "HSET", "hash:busy", "name", "Ada", "visits", "1")
    second = kv(server, "HINCRBY", "hash:busy", "visits", "1")
    renamed = kv(server, "HSET", "hash:busy", "name", "Bob")
    gone = kv(server, "HDEL", "hash:busy", "name")
    kv(server, "RPUSH", "list:busy", "a", "b")
    pushed = kv(server, "LPUSH", "list:busy", "c")

    def of(item: str, part: str) -> list[Any]:
        path = f"/fakes/kv_server/versions?section=keys&item={item}&part={part}"
        found = server.ask("GET", path)[1]["versions"]
        return [(version["number"], value(version["fields"])) for version in found]

    assert of("hash:busy", "visits") == [(first, "1"), (second, "2")]
    assert of("hash:busy", "name") == [(first, "Ada"), (renamed, "Bob"), (gone, None)]
    assert of("hash:busy", "none") == []
    assert of("list:busy", "first") == [(pushed - 1, "a"), (pushed, "c")]
    assert of("list:busy", "last") == [(pushed - 1, "b")]
    path = "/fakes/kv_server/versions?section=keys&item="
    assert server.ask("GET", path + "hash:busy")[1]["parts"] == ["name", "visits"]
    assert server.ask("GET", path + "list:busy")[1]["parts"] == ["first", "last"]


def test_equal_increments_by_the_same_request_are_a_run(server: Server) -> None:
    kv(server, "HSET", "user", "visits", "3", "name", "Ada")
    for command in (
        *[["HINCRBY", "user", "visits", "1"]] * 4, ["HSET", "user", "name", "Bob"],
        *[["HINCRBY", "user", "visits", "1"]] * 2, *[["HINCRBY", "user", "visits", "2"]] * 3,
        ["HSET", "user", "visits", "17"],
    ):  # fmt: skip
        kv(server, *command)
    for amount in (0.5, 0.5, 0.5, 0.5):
        kv(server, "INCRBYFLOAT", "sum", str(amount))

    def runs(query: str) -> list[tuple[int, int, str]]:
        found = server.ask("GET", f"/fakes/kv_server/versions?section=keys&item={query}")[1]
        return [(repeat["first"], repeat["last"], repeat["by"]) for repeat in found["repeats"]]

    assert runs("user") == [(1, 4, "+1"), (8, 10, "+2")]
    # Of the field alone, all increments by one follow each other.
    assert runs("user&part=visits") == [(1, 6, "+1"), (7, 9, "+2")]
    assert runs("user&part=name") == []
    assert runs("sum") == [(1, 3, "+0.5")]


def test_all_fakes_but_those_whose_data_is_unknown_are_restored() -> None:
    with Cloud(now="2026-03-01T12:00:00Z") as cloud:
        app, fakes = ControlApp(cloud, "token"), (cloud.kv_server(), cloud.kv_server(name="other"))
        app.history.begin()
        with fakes[0].client() as client, fakes[1].client() as other:
            client.set("a", "1")
            other.set("b", "1")
            client.set("a", "2")
            inexact = cloud.journal.calls(fake="kv_server").last
            inexact.response_body = b"other"
            client.set("a", "3")
            row = cloud.journal.calls(fake="kv_server").last.number
            other.set("b", "2")
        status, since = ask(app, "GET", f"/journal/{row}/since")
        assert status == 200, since
        assert (list(since["sums"]), since["not_compared"]) == (["other"], ["kv_server"])
        status, since = ask(app, "GET", f"/journal/{row}/since?fake=kv_server&unknown=ok")
        assert (status, since["count"]) == (200, 0)
        assert f"call {inexact.number} " in since["why_unknown"]
        assert f"call {inexact.number} " in message(ask(app, "POST", f"/journal/{row}/restore", {}))
        skipping = {"skip_unknown": True}
        _, restored = ask(app, "POST", f"/journal/{row}/restore", skipping)
        assert restored.get("restored") == ["other"], restored
        assert "not known" in message(
            ask(app, "POST", f"/journal/{row}/restore", {"fake": "kv_server", **skipping})
        )
        app.history.end()


def test_without_fakes_there_is_no_row_to_go_back_to() -> None:
    with Cloud() as cloud:
        app = ControlApp(cloud, "token")
        app.history.begin()
        assert ask(app, "POST", "/journal", {"what": "load x"}) == (200, {"row": 0})
        status, answer = ask(app, "POST", "/reset", {"record": True})
        assert (status, answer["row"]) == (200, 0)
        app.history.end()


def test_keys_that_a_restore_would_let_expire_are_not_promised(server: Server) -> None:
    kv(server, "SET", "short", "1", "EX", "60")
    kv(server, "SET", "long", "1", "EX", "7200")
    server.ask("POST", "/snapshots", {"id": "before"})
    row = kv(server, "DEL", "long")
    server.ask("POST", "/clock", {"action": "advance", "by": "1h"})
    for path in (f"/journal/{row}/since", "/snapshots/before/changes"):
        for query, wanted in (("", ["long", "short"]), ("?as_restored=yes", ["long"])):
            found = server.ask("GET", path + query)[1]["changes"]
            keys = [change["item"] for change in found if change["section"] == "keys"]
            assert sorted(keys) == wanted
        assert server.ask("GET", path)[1]["not_restored"].get("keys", 0) == 0
        assert server.ask("GET", path + "?as_restored=yes")[1]["not_restored"]["keys"] == 1
    put_back = f'/journal/{row}/since?as_restored=yes&fake=kv_server&section=keys&items=["short"]'
    assert len(server.ask("GET", put_back)[1]["changes"]) == 1


@pytest.mark.parametrize("mode", ["freeze", "resume"])
def test_a_move_of_the_clock_is_undone_with_all_that_it_caused(server: Server, mode: str) -> None:
    state = {"destinations": {"https://shop.example/hook": 200}}
    server.ask("POST", "/load", {"state": state})
    server.ask("POST", "/clock", {"action": mode})
    kv(server, "SET", "short", "1", "EX", "50")
    kv(server, "SET", "stock", "5")
    server.call("queue", "publish", "https://shop.example/hook", delay="1m")
    messages = server.ask("GET", "/fakes/queue/lists/messages")[1]["items"]
    began, due = server.ask("GET", "/clock")[1], server.ask("GET", "/due")[1]["count"]
    body = {"action": "advance", "by": "8d", "undoable": True}
    moved = server.ask("POST", "/clock", body)[1]
    assert [event["kind"] for event in moved["events"]] == ["expiry", "delivery"]
    kv(server, "INCR", "stock")
    _, found = server.ask("GET", "/clock/undo")
    assert {"short", "stock"} <= {change["item"] for change in found["changes"]}
    status, undone = server.ask("POST", "/clock/undo")
    assert (status, undone["mode"]) == (200, began["mode"])
    assert undone["now"][:15] == began["now"][:15]
    assert server.ask("GET", "/due")[1]["count"] == due
    assert server.ask("GET", "/fakes/queue/lists/messages")[1]["items"] == messages
    assert kv(server, "GET", "short") > moved["events"][0]["row"]
    # All that was recorded keeps its changes, and later rows have theirs.
    row = kv(server, "INCR", "stock")
    assert values(server, row) == {"keys: stock": ("5", "6")}
    assert versions(server, "kv_server", "keys", "stock")[-1]["number"] == row
    # It happens once, and the data of the later time can be restored.
    assert server.ask("POST", "/clock/undo")[0] == 409
    again = server.ask("POST", "/clock", {"action": "advance", "by": "2m"})[1]
    assert [event["what"] for event in again["events"]] == [
        event["what"] for event in moved["events"]
    ]
    server.ask("POST", f"/journal/{undone['row']}/restore", {})
    assert values(server, kv(server, "INCR", "stock")) == {"keys: stock": ("6", "7")}


def test_the_undo_of_a_move_can_keep_what_was_written_since(server: Server) -> None:
    state = {"destinations": {"https://shop.example/hook": 200}}
    server.ask("POST", "/load", {"state": state})
    kv(server, "SET", "short", "1", "EX", "50")
    kv(server, "SET", "longer", "1", "EX", "150")
    kv(server, "SET", "stock", "5")
    server.call("queue", "publish", "https://shop.example/hook", delay="1m")
    messages = server.ask("GET", "/fakes/queue/lists/messages")[1]["items"]
    server.ask("POST", "/clock", {"action": "advance", "by": "2m", "undoable": True})
    # What expires afterwards was not written.
    server.ask("POST", "/clock", {"action": "advance", "by": "1m"})
    kv(server, "INCR", "stock")
    kv(server, "SET", "fresh", "1")
    server.call("broker", "produce", "orders", "mail")
    _, found = server.ask("GET", "/clock/undo")
    names = {
        part: {change["item"] for change in found[part]["changes"]} for part in ("own", "later")
    }
    assert names["later"] == {"stock", "fresh", "orders-0"}
    assert {"short", "longer"} <= names["own"]
    assert not names["own"] & names["later"]
    assert found["lost"]["count"] == 0
    status, undone = server.ask("POST", "/clock/undo", {"own": True})
    assert status == 200
    assert server.ask("GET", "/fakes/queue/lists/messages")[1]["items"] == messages
    assert server.call("kv_server", "value", "stock") == "6"
    assert server.call("kv_server", "value", "fresh") == "1"
    assert 0 < server.call("kv_server", "ttl", "short") <= 50
    assert 50 < server.call("kv_server", "ttl", "longer") <= 150
    assert len(server.call("broker", "records", "orders")) == 1
    # The undo is one restore, which can be undone itself.
    server.ask("POST", f"/journal/{undone['row']}/restore", {})
    assert server.call("kv_server", "value", "short") is None


def test_the_undo_of_a_move_names_what_goes_anyway(server: Server) -> None:
    server.call("queue", "publish", "https://shop.example/hook", delay="1m")
    server.ask("POST", "/clock", {"action": "advance", "by": "2m", "undoable": True})
    server.call("queue", "publish", "https://shop.example/hook", delay="1m")
    later = server.ask("GET", "/fakes/queue/lists/messages")[1]["items"][0]["id"]
    _, found = server.ask("GET", "/clock/undo")
    assert later in {change["item"] for change in found["lost"]["changes"]}
    assert found["later"]["count"] == 0
    server.ask("POST", "/clock/undo", {"own": True})
    assert len(server.ask("GET", "/fakes/queue/lists/messages")[1]["items"]) == 1


def test_a_snapshot_is_restored_for_one_fake(server: Server) -> None:
    server.ask("POST", "/snapshots", {"id": "before"})
    kv(server, "SET", "a", "1")
    server.call("broker", "produce", "orders", "mail")
    _, found = server.ask("GET", "/snapshots/before/changes?fake=kv_server")
    assert list(found["sums"]) == ["kv_server"]
    _, restored = server.ask("POST", "/snapshots/before", {"fake": "kv_server"})
    assert server.call("kv_server", "value", "a") is None
    assert len(server.call("broker", "records", "orders")) == 1
    server.ask("POST", f"/journal/{restored['row']}/restore", {"fake": "kv_server"})
    assert server.call("kv_server", "value", "a") == "1"
    assert server.ask("POST", "/snapshots/before", {"fake": "none"})[0] == 404


def test_dead_letters_that_are_too_old_are_not_promised(server: Server) -> None:
    send(server, "queue", "/v2/publish/http://127.0.0.1:9/x", **{"Upstash-Retries": "0"})
    wait_until(lambda: server.call("queue", "dead_letters"))
    server.ask("POST", "/snapshots", {"id": "before"})
    server.ask("POST", "/clock", {"action": "advance", "by": "7d"})
    path = "/snapshots/before/changes"
    assert server.ask("GET", path)[1]["sums"]["queue"]["expired"] == 1
    found = server.ask("GET", path + "?as_restored=yes")[1]
    assert (found["count"], found["not_restored"]["dead letters"]) == (0, 1)
