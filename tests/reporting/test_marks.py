"""Rows are touched, linked or refused by their accesses, ids and causes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import replace
from hashlib import sha1
from typing import Any

import pytest
import redis
from upstash_redis.errors import UpstashError

from pytest_fakecloud import Cloud
from pytest_fakecloud.broker.report.accesses import GROUP, TOPIC
from pytest_fakecloud.cloud.services import services_by_word
from pytest_fakecloud.kv.report.accesses import CHANNEL, KEY
from pytest_fakecloud.kv.report.effects import did_something
from pytest_fakecloud.kv.table.registry import COMMANDS
from pytest_fakecloud.queue.report.accesses import MESSAGE, RUN, SCHEDULE
from pytest_fakecloud.reporting.accesses import EVERY_KIND, DataAccess, ReportSubject, Sought
from pytest_fakecloud.reporting.lookups import Lookups, records_of
from pytest_fakecloud.reporting.marks import marks_of_rows
from pytest_fakecloud.reporting.model import AppliedFault, Kind, Marks, OrderedAccess, ReportRow
from pytest_fakecloud.reporting.observed import ObservedTest
from pytest_fakecloud.reporting.render.wording import describe
from pytest_fakecloud.reporting.report import report_of
from pytest_fakecloud.reporting.statement.read_data import ReadByRows
from pytest_fakecloud.vector.report.accesses import NAMESPACE

KINDS = {
    kind.name: kind
    for kind in (CHANNEL, EVERY_KIND, GROUP, KEY, MESSAGE, NAMESPACE, RUN, SCHEDULE, TOPIC)
}


def subject(name: str) -> ReportSubject:
    """Return the subject of a name such as ``key:a``."""
    kind, _, name = name.partition(":")
    if name == "*":
        return ReportSubject.all_of(KINDS[kind], "fake")
    return ReportSubject(KINDS[kind], name, "fake")


class Scene:
    """Rows with their accesses, for example ``"w key:a f"``: a write of the field f of the key a."""

    def __init__(self) -> None:
        self.rows: list[ReportRow] = []
        self.accesses: list[OrderedAccess] = []
        self.lines: dict[int, Hashable] = {}

    def add(
        self, *texts: str, kind: Kind = "call", line: str = "", executed: int = 0, **fields: Any
    ) -> int:
        number = len(self.rows) + 1
        accesses: list[DataAccess] = []
        for access in texts:
            verb, name, part, *_ = *access.split(), "", ""
            succeeded = {"W": False, "R": False}.get(verb, True)
            accesses.append(DataAccess(subject(name), verb.lower() == "w", part, succeeded))
        named = fields.pop("accesses", ())
        row = ReportRow(
            number,
            0,
            kind,
            "client",
            "fake",
            "",
            began=number,
            accesses=(*named, *accesses),
            **fields,
        )
        self.rows.append(row)
        order = executed or number
        self.accesses += [OrderedAccess(row, replace(access, order=order)) for access in accesses]
        if line:
            self.lines[number] = line
        return number

    def marks(self, *sought: str, **fields: Any) -> Marks:
        every = tuple(Sought(subject(name), part) for name, _, part in
                      (text.partition(" ") for text in sought))  # fmt: skip
        until = dict.fromkeys(every, fields.pop("until", 1_000))
        found = ReadByRows(sought=every, until=until, **fields)
        return self.marks_for(found)

    def marks_for(self, found: ReadByRows | None) -> Marks:
        cloud: Any = None
        test = ObservedTest(cloud, Lookups(), self.rows, self.accesses)
        places: Any = {number: ("application", line) for number, line in self.lines.items()}
        test.places = places
        return marks_of_rows(test, found)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_rows_that_accessed_what_was_read_are_touched(scene: Scene) -> None:
    own = {scene.add("w key:a"), scene.add("r key:a"), scene.add("w key:*"), scene.add("w key:a f")}
    scene.add("w key:b")
    asked = scene.add()
    marks = scene.marks("key:a", row_numbers=(asked,))
    assert marks.touched == own | {asked}
    assert (marks.linked, marks.refused) == (set(), set())


@pytest.mark.parametrize(("data", "has_writer"), [("key:a", True), ("message:m", False)])
def test_a_reset_accesses_all_data_of_its_fake(scene: Scene, data: str, has_writer: bool) -> None:
    scene.add(f"w {data}")
    reset = scene.add("w data:*", kind="action")
    marks = scene.marks(data)
    assert reset in marks.touched
    assert marks.writers == ({reset} if has_writer else set())


def test_a_field_is_not_another_field(scene: Scene) -> None:
    own = {scene.add("w key:h f"), scene.add("w key:h")}
    scene.add("w key:h g")
    assert scene.marks("key:h f").touched == own


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("message:m", "message:m"), ("schedule:s", "schedule:s"), ("run:r", "run:r"),
        ("topic:t t-0@1", "topic:t t-0@1"), ("namespace:n v", "namespace:n v"),
    ],
)  # fmt: skip
def test_rows_with_the_id_of_a_linked_row_are_linked(scene: Scene, first: str, second: str) -> None:
    near = scene.add(f"w {first}", line="x")
    direct = scene.add("w key:a", line="x")
    far = scene.add(f"r {second}")
    further = scene.add(f"r {second}", "w message:n")
    last = scene.add("r message:n")
    scene.add("w message:other", "w topic:t t-0@2", "w namespace:n u")
    marks = scene.marks("key:a")
    assert marks.touched == {direct}
    assert marks.linked == {near, far, further, last}


def test_subjects_of_rows_are_ids_whichever_fake_names_them(scene: Scene) -> None:
    other = scene.add(accesses=(DataAccess.named(MESSAGE, "m", "other"),))
    direct = scene.add("r key:a", "w message:m")
    assert scene.marks("key:a") == Marks(frozenset({direct}), frozenset({other}))


@pytest.mark.parametrize("kind", ["delivery", "request"])
def test_the_delivery_or_request_around_a_row_and_all_that_it_did(scene: Scene, kind: Kind) -> None:
    outer = scene.add(kind="request")
    around = scene.add(kind=kind, parent=outer)
    direct = scene.add("w key:a", parent=around)
    other = scene.add("r key:b", parent=around)
    inner = scene.add("r key:c", parent=other)
    scene.add("w key:d", parent=outer)
    marks = scene.marks("key:a")
    assert marks.touched == {direct}
    assert marks.linked == {outer, around, other, inner}


def test_all_calls_of_one_line_of_the_test(scene: Scene) -> None:
    first, direct = scene.add("r key:b", line="x"), scene.add("r key:a", line="x")
    scene.add("r key:c", line="y")
    scene.add("r key:c")
    assert scene.marks("key:a") == Marks(frozenset({direct}), frozenset({first}))


def test_keys_that_the_activity_of_a_touched_row_accessed(scene: Scene) -> None:
    around = scene.add(kind="request")
    direct, cached = scene.add("w key:a", parent=around), scene.add("r key:cache", parent=around)
    writer = scene.add(kind="request")
    wrote, beside = scene.add("w key:cache", parent=writer), scene.add("r key:x", parent=writer)
    reader = scene.add(kind="request")
    has_read = scene.add("r key:cache", parent=reader)
    scene.add("w key:y", parent=reader)  # A reader of the cache changed nothing.
    scene.add("r key:x")  # The key of a row that is only linked.
    marks = scene.marks("key:a")
    assert marks.touched == {direct}
    assert marks.linked == {around, cached, writer, wrote, beside, reader, has_read}


def test_an_event_has_the_marks_of_its_call(scene: Scene) -> None:
    direct = scene.add("w group:g", line="x")
    event = scene.add(kind="event", first_cause=direct)
    linked = scene.add(line="x")
    other = scene.add(kind="event", first_cause=linked)
    marks = scene.marks("group:g")
    assert (marks.touched, marks.linked) == ({direct, event}, {linked, other})


def test_refused_rows(scene: Scene) -> None:
    scene.add("w key:a")
    failed = scene.add("w key:a", ok=False)
    faulty = scene.add(faults=(AppliedFault("delay", "delay 1 s"),))
    nothing = scene.add("r key:a", "W key:b")
    assert scene.marks("key:a").refused == {failed, faulty, nothing}
    assert scene.marks_for(None) == Marks(refused=frozenset({failed, faulty, nothing}))


def test_the_last_write_before_the_read_was_read(scene: Scene) -> None:
    scene.add("w key:a")
    last = scene.add("w key:a")
    scene.add("W key:a")
    until = len(scene.rows)
    scene.add("w key:a")
    assert scene.marks("key:a", until=until).writers == {last}
    assert scene.marks("key:a", until=until, is_read=False).writers == set()


@pytest.mark.parametrize(("executed", "is_read"), [(7, True), (12, False)])
def test_a_write_that_waited_was_read_if_it_was_executed_before_the_look(
    scene: Scene, executed: int, is_read: bool
) -> None:
    write = scene.add("w key:a", executed=executed)
    marks = scene.marks("key:a", until=8)
    assert marks.writers == ({write} if is_read else set())


@pytest.mark.parametrize(
    ("accesses", "number"),
    [
        (["W key:a"], 1), (["w key:a", "W key:a"], 2), (["W key:a", "w key:a"], 0),
        (["W key:a f", "w key:a g"], 1), (["W key:a f", "w key:a"], 0), (["W key:a", "w key:a f"], 0),
        (["W key:a", "w key:*"], 0), (["W key:b"], 0), (["R key:a"], 0),
        (["w message:m", "W message:m"], 2), (["w key:a", "r key:a", "r key:a", "W key:a"], 0),
    ],
)  # fmt: skip
def test_the_last_write_that_did_nothing(scene: Scene, accesses: list[str], number: int) -> None:
    for access in accesses:
        scene.add(access)
    assert scene.marks("key:a", "message:m", until=3).refused_write == number


def test_a_write_of_the_whole_value_replaces_its_parts(scene: Scene) -> None:
    first, second = scene.add("w key:h f"), scene.add("w key:h g")
    assert scene.marks("key:h").writers == {first, second}
    whole = scene.add("w key:h")
    assert scene.marks("key:h").writers == {whole}
    flushed = scene.add("w key:*")
    assert scene.marks("key:h").writers == {flushed}


@pytest.mark.parametrize(
    ("lines", "contributed"),
    [
        # Those of a value that the last of them only changed.
        ("INCR k; SET k 1; INCR k; INCRBY k 2", ".xxx"), ("RPUSH k a; RPUSH k b; LPUSH k c", "xxx"),
        ("SET k 1; APPEND k 2; SETRANGE k 0 3; EXPIRE k 60", "xxxx"),
        ("RPUSH k a; DEL k; XADD k * a 1; XADD k * a 2", ".xxx"),
        ("RPUSH k a; LPOP k; RPUSH k b; LSET k 0 c", "xxxx"), ("PFADD k a; PFMERGE k l", "xx"),
        ("HINCRBY k f 1; HINCRBY k f 1; HINCRBY k g 1", "xxx"),
        ("HSET k f 1; HEXPIRE k 60 FIELDS 1 f", "xx"),
        ("HSET k f 1; EXPIRE k 60; HSET k g 1", "xxx"), ("ZADD k 1 a; ZINCRBY k 1 a; ZADD k 2 b", "xxx"),
        ("SADD k a; SADD k b", "xx"), ("JSON.SET k $ {}; JSON.SET k $.a 1; JSON.MERGE k $ {}", "xxx"),
        # A write that replaces the value, or removes it.
        ("INCR k; SET k 1", ".x"), ("INCR k; GETSET k 1", ".x"), ("INCR k; GETDEL k; INCR k", ".xx"),
        ("RPUSH k a; RENAME k l; RPUSH k b", ".xx"), ("RPUSH l a; RPUSH k b; RENAME l k", "..x"),
        ("SADD k a; SADD l b; SUNIONSTORE k k l", "..x"),
        ("HSET k f 1; HSET k f 2", ".x"), ("HINCRBY k f 1; HDEL k f; HINCRBY k f 1", ".xx"),
        ("ZADD k 1 a; ZADD k 2 a", ".x"), ("JSON.SET k $ {}; JSON.DEL k; JSON.SET k $ {}", "..x"),
        ("INCR k; FLUSHALL; INCR k", ".xx"), ("SADD k a; SADD k b; SREM k a", ".xx"),
        # One of what has expired.
        ("INCR k; EXPIRE k 5; +5; INCR k", "..x"), ("INCR k; EXPIRE k 5; +4; INCR k", "xxx"),
        ("SET k 1 EX 5; EXPIRE k 9; +6; INCR k", "xxx"),
        ("HSET k f 1; EXPIRE k 5; +6; HSET k g 1", "..x"),
        ("HSET k f 1 g 1; HEXPIRE k 5 FIELDS 1 f; +6; HINCRBY k f 1", "x.x"),
    ],
)  # fmt: skip
def test_all_writes_that_led_to_the_value_were_read(
    cloud: Cloud, lines: str, contributed: str
) -> None:
    kv = cloud.kv_server()
    client: Any = kv.client(allow_telemetry=False)
    for line in lines.split("; "):
        if line[0] == "+":
            cloud.clock.advance(int(line[1:]))
        else:
            client.execute(line.split())
    calls = [call.number for call in cloud.journal.calls()]
    expected = {number for number, mark in zip(calls, contributed, strict=True) if mark == "x"}
    with pytest.raises(AssertionError) as failed:
        assert kv.ttl("k") == "other"
    marks = report_of(cloud, raised=failed.value).marks
    assert marks.writers == expected


def test_a_vector_that_was_updated_has_two_writers(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=1)
    client = index.client()
    for vector in ([1.0], [2.0]):
        client.upsert([("a", vector)])
    client.update("a", metadata={"x": 1})
    with pytest.raises(AssertionError) as failed:
        assert index.vectors() == []
    marks = report_of(cloud, raised=failed.value).marks
    numbers = [call.number for call in cloud.journal.calls()]
    assert (marks.writers, marks.last_writer) == ({*numbers[1:]}, numbers[-1])


# -- answers that say that nothing happened ---------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "is_marked"),
    [
        ("DEL other", True), ("HDEL stock pear", True), ("SREM names pear", True),
        ("LREM jobs 0 c", True), ("ZREMRANGEBYSCORE ranks 5 9", True), ("SMOVE names new a", True),
        ("SET stock 1 NX", True), ("SETNX jobs 1", True), ("HSETNX stock tea 1", True),
        ("SADD names tea", True), ("EXPIRE other 5", True), ("PERSIST jobs", True),
        ("ZADD ranks NX 5 tea", True), ("XADD other NOMKSTREAM * a 1", True), ("INCR jobs", True),
        ("GET jobs", True), ("LPOP text", True), ("EVAL return#redis.call('GET','jobs') 0", True),
        ("EVALSHA 5bbfb80aa98b4b4ea1b1fd5a29b5b2b6bb7ecf4b 1 jobs", True),
        ("SET text 1 NX GET", False), ("HDEL stock tea", False), ("LPOP jobs 1", False),
        ("ZREMRANGEBYSCORE ranks 0 9", False), ("XGROUP DELCONSUMER log group worker", False),
        ("SADD names pear", False), ("HSET stock tea 2", False), ("ZADD ranks 2 tea", False),
        ("SETBIT bits 0 1", False), ("GETSET new 1", False), ("SET fresh 1 GET", False),
        # The answer to a question, also to one for what there is to take.
        ("GET other", False), ("MGET other another", False), ("EXISTS other", False),
        ("SISMEMBER names pear", False), ("LRANGE jobs 7 8", False), ("ZRANK ranks pear", False),
        ("EVAL return#0 1 jobs", False), ("LPOP empty 2", False), ("GETDEL other", False),
        ("HGETDEL stock FIELDS 1 pear", False), ("LMOVE empty jobs LEFT LEFT", False),
        ("XREADGROUP GROUP group other STREAMS log >", False), ("XCLAIM log group b 0 1-1", False),
        ("XAUTOCLAIM log group other 60000 0", False),
    ],
)  # fmt: skip
def test_a_command_is_refused_if_it_failed_or_changed_nothing(
    cloud: Cloud, line: str, is_marked: bool
) -> None:
    kv = cloud.kv_server()
    for command in (
        "HSET stock tea 1 jug 1", "SADD names tea", "RPUSH jobs a b", "ZADD ranks 1 tea", "SET text x",
        "XGROUP CREATE log group 0 MKSTREAM", "XGROUP CREATECONSUMER log group worker",
    ):  # fmt: skip
        kv.execute(*command.split())
    client: Any = kv.client(allow_telemetry=False)
    words = [word.replace("#", " ") for word in line.split()]
    with suppress(UpstashError):
        client.execute(words)
    assert bool(report_of(cloud).marks.refused) is is_marked


@pytest.mark.parametrize(
    ("line", "result", "expected"),
    [
        ("INCREX a BYINT 5 UBOUND 3", [0, 0], False), ("INCREX a BYINT 2 UBOUND 3", [2, 2], True),
        ("INCREX a BYINT 5 UBOUND 3 SATURATE", [3, 0], True),
        ("SET a 1 GET", None, True), ("SET a 1 NX GET", None, None), ("SET a 1 NX GET", "2", None),
    ],
)  # fmt: skip
def test_results_of_writes_that_are_no_counts(
    line: str, result: object, expected: bool | None
) -> None:
    words = line.split()
    assert did_something(COMMANDS[words[0]], words, result) is expected


@pytest.mark.parametrize("route", ["pipeline", "multi", "script", "connection"])
@pytest.mark.parametrize(
    ("commands", "is_refused", "refused"),
    [
        ("SET a 1; SETNX a 2; DEL other", False, ["SETNX a 2", "DEL other"]),
        ("GET other; SET a 1", False, []),
        ("SETNX stock 2; DEL other", True, ["SETNX stock 2", "DEL other"]),
        ("SET a 1; INCR text", False, ["INCR text"]),
        ("GET stock; SET stock 2 NX", False, ["SET stock 2 NX"]),
    ],
)
def test_the_refused_commands_of_a_call(
    cloud: Cloud, route: str, commands: str, is_refused: bool, refused: list[str]
) -> None:
    kv = cloud.kv_server()
    kv.load({"stock": 1, "text": "x"})
    lines = [command.split() for command in commands.split("; ")]
    if route == "connection":
        pipeline: Any = redis.Redis.from_url(kv.database_url).pipeline()
        for line in lines:
            pipeline.execute_command(*line)
        pipeline.execute(raise_on_error=False)
    elif route == "script":
        records_of(cloud).records_scripts = True
        calls = [", ".join(f"'{word}'" for word in line) for line in lines]
        kv.client(allow_telemetry=False).eval("; ".join(f"redis.pcall({call})" for call in calls))
    else:
        client: Any = kv.client(allow_telemetry=False)
        pipeline = getattr(client, route)()
        for line in lines:
            pipeline.execute(line)
        with suppress(UpstashError):
            pipeline.exec()
    report = report_of(cloud)
    row = report.rows[-1]
    assert (row.number in report.marks.refused) is is_refused
    assert (row.number in report.marks.partly_refused) is bool(refused and not is_refused)
    texts = describe(row, report.lookups).lines(with_marks=True)
    marked = [text.removeprefix("! ").removeprefix("executed ").partition(" <--")[0]
              for text in texts if text.startswith("! ")]  # fmt: skip
    assert marked == refused


def cancels_twice(cloud: Cloud) -> None:
    queue = cloud.queue()
    message = queue.publish("https://app.example.com/do", delay="1h")
    client = queue.client()
    client.message.cancel(message.id)
    with pytest.raises(Exception, match="not found"):
        client.message.cancel(message.id)


def publishes_twice(cloud: Cloud) -> None:
    client = cloud.queue().client()
    for body in ("1", "2"):
        client.message.publish(url="https://app.example.com", body=body, deduplication_id="a")


def asks_for_nothing(cloud: Cloud) -> None:
    cloud.broker(topics={"t": 1}).client().get("/consume/g/i/t?timeout=0")
    client = cloud.vector_index(dimension=1).client()
    client.query([1.0])
    client.fetch(["a"])


def deletes_twice(cloud: Cloud) -> None:
    client = cloud.vector_index(dimension=1).client()
    client.upsert([("a", [1.0])])
    for _ in range(2):
        client.delete("a")


@pytest.mark.parametrize(
    ("use", "refused"),
    [(cancels_twice, 1), (publishes_twice, 1), (deletes_twice, 1), (asks_for_nothing, 0)],
)
def test_a_request_is_refused_if_it_changed_nothing(
    cloud: Cloud, use: Callable[[Cloud], None], refused: int
) -> None:
    use(cloud)
    report = report_of(cloud)
    calls = [row.number for row in report.rows if row.kind == "call"]
    assert report.marks.refused == set(calls[len(calls) - refused :])


@pytest.mark.parametrize("sends", [True, False])
def test_an_unknown_script_is_an_answer_if_the_client_sends_the_script(
    cloud: Cloud, sends: bool
) -> None:
    client = cloud.kv_server().client(allow_telemetry=False, rest_retries=0)
    script = "return redis.call('INCR', KEYS[1])"
    with pytest.raises(UpstashError, match="NOSCRIPT"):
        client.evalsha(sha1(script.encode()).hexdigest(), keys=["a"])
    client.eval(script if sends else "return 1", keys=["a"])
    report = report_of(cloud)
    assert report.marks.refused == (set() if sends else {report.rows[0].number})


def test_requests_about_a_message_access_this_message(cloud: Cloud) -> None:
    queue = cloud.queue()
    message = queue.publish("https://app.example.com/lapsed", delay="1h")
    queue.publish("https://app.example.com/other", delay="1h")
    client = queue.client()
    client.message.get(message.id)
    client.schedule.create(destination="https://app.example.com/messages/7", cron="0 0 * * *")
    client.message.cancel(message.id)

    def fail() -> None:
        assert queue.message(message.id) is None

    with pytest.raises(AssertionError) as failed:
        fail()
    report = report_of(cloud, raised=failed.value)
    shown = [row.operation for row in report.rows if row.number in report.marks.touched]
    assert shown[:1] == ["publish"]
    assert len(shown) == 3


LOOKS = {"kv_server": "keys", "vector_index": "vectors", "broker": "topics", "queue": "messages"}


@pytest.mark.parametrize("kind", ["reset", "restore"])
@pytest.mark.parametrize("service", [service.fixture for service in services_by_word().values()])
def test_a_reset_or_restore_wrote_what_a_statement_read(
    cloud: Cloud, service: str, kind: str
) -> None:
    assert service in LOOKS, "add a method of the new service that is a look"
    look = LOOKS[service]
    fake = getattr(cloud, service)()
    getattr(fake, kind)(*([fake.snapshot()] if kind == "restore" else []))
    with pytest.raises(AssertionError) as failed:
        assert getattr(fake, look)() == ["a"]
    report = report_of(cloud, raised=failed.value)
    assert report.read_data is not None
    assert not report.read_data.unwritten
    assert [row.operation for row in report.rows if row.number in report.marks.touched] == [kind]
