"""The wording of a story and of its cause."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import pytest
import redis as redis_py
import upstash_redis
from upstash_redis import Redis
from upstash_redis.asyncio import Redis as AsyncRedis
from upstash_redis.errors import UpstashError
from upstash_vector import Index

from pytest_fakecloud import Cloud, DeliveredRequest, History, KVServer, always
from pytest_fakecloud.reporting.violations import violations

from ..harness import apart
from .conftest import broken, broken_if_disturbed, cause, expects, failure


def test_transactions_show_their_commands(cloud: Cloud, kv: KVServer) -> None:
    client = redis_py.Redis.from_url(kv.database_url)

    def run() -> None:
        multi = Redis(kv.url, kv.token).multi()
        multi.incrby("a", 7)
        multi.exec()
        with client.pipeline() as pipeline:
            pipeline.incrby("a", 1)
            pipeline.execute()

    error = failure(cloud, run, broken)
    assert "multi-exec of 1 (INCRBY a 7 <-- 7)" in error.story
    assert "EXEC of 1 (INCRBY a 1 <-- 8)" in error.story


def test_characters_that_hide_or_reorder_text_are_escaped(cloud: Cloud, redis: Redis) -> None:
    error = failure(cloud, lambda: redis.set("price", "7\u202e8\x1b"), broken)
    assert r"SET price 7\u202e8\x1b" in error.story


def test_an_order_that_the_undisturbed_run_has_too_is_no_cause(cloud: Cloud, redis: Redis) -> None:
    clients = {"ann": lambda: redis.set("a", "1"), "bob": lambda: redis.get("a"), "cat": redis.ping}

    assert cause(cloud, clients, "ann.1 switch cat", broken) == ""

    def bob_reads_it(history: History) -> None:
        assert history.results["bob"] == "1"

    error = failure(cloud, clients, bob_reads_it, schedule="ann.1 switch bob")
    assert error.cause.startswith("bob's GET a ")
    assert "came before ann's SET a 1" in error.cause


def test_the_summary_of_a_given_schedule_that_holds(cloud: Cloud, redis: Redis) -> None:
    result = cloud.explore(redis.ping, lambda: None, schedule="ping.1 crash")
    assert str(result).startswith("the promise held in the given schedule\n")


def shown_calls(story: str) -> list[str]:
    """Return the calls and the words of a story's only line, without the lines of the code."""
    (line,) = [line for line in story.splitlines() if not line.startswith("check:")]
    return re.sub(r" \(test_story.py:\d+\)", "", line.partition(": ")[2]).split("; ")


def test_a_long_turn_hides_reads_before_writes(cloud: Cloud, redis: Redis) -> None:
    def run() -> None:
        for key in ("a", "b", "c", "d"):
            redis.get(key)
        redis.set("e", "1")
        redis.ping()

    error = failure(cloud, run, broken)
    calls = ["GET a → null", "3 more calls", "SET e 1 → OK", "PING → PONG"]
    assert shown_calls(error.story) == calls


def test_a_long_turn_shows_a_call_from_each_line_of_the_code(cloud: Cloud, redis: Redis) -> None:
    def run() -> None:
        for key in ("a", "b", "c", "d"):
            redis.set(key, "1")
        redis.get("e")
        for _ in range(4):
            redis.ping()

    error = failure(cloud, run, broken)
    calls = ["3 more calls", "SET d 1 → OK", "GET e → null", "3 more calls", "PING → PONG"]
    assert shown_calls(error.story) == calls


def test_a_long_turn_shows_calls_that_conflict_with_another_strand(
    cloud: Cloud, redis: Redis
) -> None:
    def run() -> None:
        for key in "abcdefgh":
            redis.get(key)

    error = failure(
        cloud,
        {"ann": run, "bob": lambda: redis.delete("f", "g")},
        broken,
        schedule="ann.7 delay 30",
    )
    story = error.story
    assert "GET a → null (test_story.py" in story
    assert "; 3 more calls; GET f → null (" in story.partition("bob: ")[0]
    assert "GET g → null" in story.partition("bob: ")[2]


def test_a_long_turn_shows_the_call_before_a_crash(cloud: Cloud, redis: Redis) -> None:
    def run() -> None:
        for key in "abcdefgh":
            redis.set(key, "1")

    error = failure(cloud, run, broken, schedule="run.8 crash")
    assert re.search(r"; \d more calls; SET g 1 → OK \(.*\)\n.* run: crashes", error.story)


def test_a_long_turn_shows_queries_that_miss_pending_changes(cloud: Cloud) -> None:
    index = cloud.vector_index(dimension=2)
    client = Index(index.url, index.token)

    def run() -> None:
        for name in "abcd":
            client.query(vector=[1.0, 0.0], top_k=1)
            client.upsert([(name, [1.0, 0.0])])
            client.upsert([(name, [0.0, 1.0])])

    error = failure(cloud, run, broken, schedule="run.1 hold")
    assert error.story.count("query top 1 → no hits") == 4


def test_calls_with_a_rotated_token_are_in_the_story(cloud: Cloud, kv: KVServer) -> None:
    redis = Redis(kv.url, kv.token, rest_retries=0)

    def run() -> None:
        redis.set("a", "1")
        for key in "bcdefg":
            with contextlib.suppress(UpstashError):
                redis.set(key, "1")

    error = failure(cloud, run, broken, schedule="run.1 rotate_token")
    _, _, *calls = shown_calls(error.story)
    assert calls == ["SET a 1 → OK", *(f"SET {key} 1 → 401" for key in "bcdefg")]
    # The report does not accuse the code of having wrong credentials.
    assert list(violations(cloud)) == []


def test_calls_with_a_wrong_token_are_in_the_story(cloud: Cloud, kv: KVServer) -> None:
    redis = Redis(kv.url, "wrong", rest_retries=0)

    def run() -> None:
        kv.client().get("/ping")
        with contextlib.suppress(UpstashError):
            redis.get("a")

    error = failure(cloud, run, broken, schedule="run.1 rotate_token")
    assert "GET a → 401" in error.story
    assert [violation.kind for violation in violations(cloud)] == ["rejected"]


def test_the_story_describes_calls_of_the_queue_in_words(cloud: Cloud) -> None:
    queue = cloud.queue()
    error = failure(cloud, lambda: queue.client().dlq.list(), broken)
    assert ": list dead letters" in error.story


def test_a_lost_call_is_the_cause_and_not_an_order(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def ann() -> None:
        redis.get("a")
        redis.set("a", "1")

    clients = {"ann": ann, "bob": lambda: redis.set("a", "2"), "cat": redis.ping}

    cause_of = partial(cause, cloud, clients)
    assert re.fullmatch(
        r"ann's SET a 1 \(test_story.py:\d+\) is lost before it arrives", cause_of("ann.2 drop")
    )
    assert re.fullmatch(
        r"ann's SET a 1 \(test_story.py:\d+\) receives its answer 4 s later",
        cause_of("ann.2 slow 4"),
    )
    assert cause_of("ann.1 crash") == "ann crashes"
    assert re.fullmatch(r"ann crashes after GET a \(test_story.py:\d+\)", cause_of("ann.2 crash"))
    assert cause_of("ann.2 delay 30", expects(kv, "2", "a")).startswith("bob's SET a 2 (")
    assert cause_of("cat.1 delay 30") == "cat pauses for 30 s before its call: PING"
    assert cause_of("ann.2 rotate_token").startswith("the token of kv_server is rotated")
    assert cause_of("ann.1 drop, ann.2 drop").startswith("ann's GET a (")


def test_an_order_is_no_cause_beside_a_lost_call(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    clients = {"ann": lambda: redis.set("a", "1"), "bob": lambda: redis.set("a", "2")}

    sentence = cause(cloud, clients, "ann.1 switch bob", expects(kv, "2", "a"))
    assert sentence.startswith("bob's SET a 2 (")
    disturbed = cause(cloud, clients, "ann.1 switch bob, ann.1 drop")
    assert disturbed.startswith("bob runs before ann continues")


@pytest.mark.parametrize(
    ("disturbance", "pause"),
    [
        ("ann.2 delay 30", "30 s before its call"),
        ("ann.2 jump", "30 s before its call, and the others wait"),
        ("ann.2 nearly", "29.999 s before its call, and the others wait"),
        ("ann.2 past", "31 s before its call, and the others wait"),
        ("ann.2 tick 1s", "1 s before its call, and the others wait"),
    ],
)
def test_a_pause_says_whether_the_others_wait(
    cloud: Cloud, redis: Redis, disturbance: str, pause: str
) -> None:
    def ann() -> None:
        redis.set("a", "1", ex=30)
        redis.incr("b")

    clients = {"ann": ann, "bob": redis.ping}
    error = failure(cloud, clients, broken_if_disturbed, schedule=disturbance)
    assert f"ann: pauses for {pause}\n" in error.story
    assert re.fullmatch(rf"ann pauses for {pause}: INCR b \(.*\)", error.cause)

    error = failure(cloud, {"ann": ann}, broken, schedule=disturbance)
    assert "before its call\n" in error.story


def test_a_pause_says_that_deliveries_wait(cloud: Cloud, redis: Redis) -> None:
    queue = cloud.queue()
    queue.destinations.call("https://a.example/in", lambda request: None)

    def publish() -> None:
        queue.client().message.publish(url="https://a.example/in", body="1")
        redis.ping()

    error = failure(cloud, publish, broken, schedule="publish.2 tick 1s")
    assert "publish: pauses for 1 s before its call, and the others wait\n" in error.story


def test_a_pause_of_a_task_says_whether_other_tasks_wait(cloud: Cloud, kv: KVServer) -> None:
    redis = AsyncRedis(kv.url, kv.token)

    async def twice() -> None:
        await redis.get("a")
        await redis.get("b")

    async def both() -> None:
        await asyncio.gather(twice(), twice())

    def story(run: Callable[[], object], schedule: str) -> str:
        return failure(cloud, run, broken, schedule=schedule).story

    assert "before its call\n" in story(twice, "twice.2 tick 1s")
    assert "before its call, and the others wait\n" in story(both, "both:twice.2 tick 1s")


def test_the_undisturbed_run_has_no_cause(cloud: Cloud, redis: Redis) -> None:
    def ann() -> None:
        redis.set("a", "1")
        time.sleep(2)
        redis.get("a")

    def bob() -> None:
        time.sleep(1)
        redis.set("a", "2")

    assert failure(cloud, [ann, bob], broken).cause == ""


def test_a_cause_names_the_strands_that_the_schedule_switched(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    def device() -> None:
        for _ in range(3):
            redis.incr("units")
            time.sleep(2)

    def bill() -> None:
        for _ in range(2):
            units = int(redis.get("units") or 0)
            if units:
                redis.decrby("units", units)
                redis.incrby("total", units)
            time.sleep(3)

    clients = {"device": device, "one": bill, "two": bill}
    promise = always(lambda: int(kv.value("units") or 0) >= 0)
    sentence = failure(cloud, clients, promise, schedule="one.5 switch two").cause
    assert sentence.startswith("two's DECRBY units 1 (")
    assert "came between one's GET units (" in sentence
    assert "and one's DECRBY units 1 (" in sentence


def test_the_order_of_deliveries_is_the_cause_and_not_that_of_publishing(
    cloud: Cloud, kv: KVServer, redis: Redis
) -> None:
    queue = cloud.queue()

    def handle(request: DeliveredRequest) -> None:
        redis.set("a", request.text)

    queue.destinations.call("https://a.example/in", handle)

    def publish(*bodies: str) -> None:
        for body in bodies:
            queue.client().message.publish(url="https://a.example/in", body=body)

    clients = {"one": lambda: publish("1", "2"), "two": lambda: publish("3")}

    sentence = cause(cloud, clients, "one.2 switch two", expects(kv, "3", "a"))
    assert sentence.startswith("delivery2's SET a 3 (")
    assert "came before delivery3's SET a 2 (" in sentence


def test_a_story_ends_where_the_promise_breaks(cloud: Cloud, kv: KVServer, redis: Redis) -> None:
    def run() -> None:
        for number in range(6):
            redis.set("a", str(number))
            time.sleep(1)

    def below_two() -> None:
        assert kv.value("a") in (None, "0", "1"), "two"

    error = failure(cloud, run, always(below_two))
    lines = error.story.splitlines()
    assert lines[3].endswith("the promise breaks here")
    assert lines[4:] == ["afterwards: 3 more steps", "check: two"]


def test_equal_restarts_are_counted(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"orders": 1})
    broker.produce("orders", "1")

    def consume() -> None:
        headers = {"Kafka-Enable-Auto-Commit": "false", "Kafka-Auto-Offset-Reset": "earliest"}
        broker.client().get("/consume/readers/one/orders", headers=headers)

    error = failure(cloud, [], broken, workers=consume)
    *_, first, last, check = error.story.splitlines()
    assert "consume/2" not in error.story
    assert "session of one in readers ended" in first
    assert last == "consume restarts 3 more times, with the same calls"
    assert check == "check: broken"


def test_a_duplicate_of_a_consume_names_the_records_that_the_client_never_gets(
    cloud: Cloud,
) -> None:
    broker = cloud.broker(topics={"orders": 1})
    broker.produce("orders", ["1", "2"])
    headers = {"Kafka-Auto-Offset-Reset": "earliest"}

    def consume() -> None:
        broker.client().get("/consume/readers/one/orders", headers=headers)

    error = failure(cloud, consume, broken, schedule="consume.1 duplicate")
    words = "arrives twice, and the first answer with orders-0@0, orders-0@1 is lost"
    assert words in error.story


def test_calls_that_a_client_repeats_are_counted(cloud: Cloud, redis: Redis) -> None:
    def wait() -> None:
        while redis.get("ready") is None:
            time.sleep(1)

    def begin() -> None:
        time.sleep(4.5)
        redis.set("ready", "yes")

    error = failure(cloud, [wait, begin], broken)
    story = re.sub(r" \(test_story.py:\d+\)", "", error.story)
    assert story.splitlines() == [
        "1.     +0 s  wait: GET ready → null; repeated 4 times, until +4 s",
        "2. +4.500 s  begin: SET ready yes → OK",
        "3.     +5 s  wait: GET ready → yes",
        "check: broken",
    ]


def test_a_long_turn_shows_rejected_calls(cloud: Cloud, redis: Redis) -> None:
    def run() -> None:
        for key in ("a", "b", "c", "d", "e"):
            redis.set(key, "x")
        with contextlib.suppress(UpstashError):
            redis.incr("a")

    error = failure(cloud, run, broken)
    assert "; INCR a → 400" in error.story


def test_errors_of_the_redis_protocol_have_their_text(cloud: Cloud, kv: KVServer) -> None:
    def run() -> None:
        with redis_py.Redis.from_url(kv.database_url, protocol=2) as client:
            client.set("a", "x")
            for command in ("INCR", "LPOP"):
                with contextlib.suppress(redis_py.ResponseError):
                    client.execute_command(command, "a")
            with contextlib.suppress(redis_py.ResponseError):
                client.pipeline().execute_command("NONE").set("a", "y").execute()

    story = failure(cloud, run, broken).story
    assert "INCR a → ERR value is not an integer or out of range (" in story
    assert "LPOP a → WRONGTYPE Operation against a key holding the wrong kind of value (" in story
    assert "→ EXECABORT Transaction discarded because of" in story
    assert "→ 400" not in story


def test_a_long_turn_shows_refusals_and_answers_that_differ_from_the_undisturbed_run(
    cloud: Cloud, redis: Redis
) -> None:
    def worker() -> None:
        redis.get("place")
        redis.get("count")
        redis.set("mark", "1", nx=True)
        redis.sadd("seen", "a")
        redis.set("other", "1")
        redis.ping()
        for number in range(9):
            redis.set("place", number)

    found = failure(cloud, {}, broken, workers={"worker": worker}, schedule="worker.8 crash")
    again = re.sub(r" \(test_story.py:\d+\)", "", found.story.splitlines()[2])
    assert again == (
        '3. +1 s  worker/2: GET place → "0"; 1 more call; SET mark 1 NX → null; SADD seen a → 0; '
        "SET other 1 → OK; 9 more calls; SET place 8 → OK"
    )


def test_a_story_ends_with_the_calls_of_the_check(cloud: Cloud, redis: Redis, kv: KVServer) -> None:
    def check() -> None:
        with redis_py.Redis.from_url(kv.database_url, protocol=2) as client:
            client.pipeline().incr("jobs").incr("jobs").execute()
        redis.get("jobs")
        broken()

    found = failure(cloud, redis.ping, check)
    answers = "EXEC of 2 (INCRBY jobs 1 <-- 1; INCRBY jobs 1 <-- 2) → 2 answers"
    assert found.story.endswith(f'\n2. +0 s  check: {answers}; GET jobs → "2"\ncheck: broken')


def test_a_step_of_a_workflow_run_has_its_name(cloud: Cloud) -> None:
    queue = cloud.queue()
    step = {"stepId": 1, "stepName": "pay", "stepType": "Run", "out": "null", "concurrent": 1}
    items = [{"url": "https://a.example/pay", "body": json.dumps(step)}]

    def run() -> None:
        queue.client().message.batch(items)

    error = failure(cloud, run, broken)
    assert 'run: step 1 "pay" (Run)' in error.story


def test_a_call_that_waits_is_answered_after_what_it_waited_for(cloud: Cloud, kv: KVServer) -> None:
    broker = cloud.broker()
    broker.create_topic("t", partitions=1)

    def consume() -> object:
        url = f"{broker.url}/consume/g/i/t?timeout=5000"
        return httpx.get(url, headers=broker.headers).json()

    def produce() -> None:
        time.sleep(1)
        httpx.get(f"{broker.url}/produce/t/x", headers=broker.headers)

    def pop() -> None:
        with redis_py.Redis.from_url(kv.database_url) as redis:
            redis.blpop(["list"], 9)

    def push() -> None:
        time.sleep(2)
        kv.client().rpush("list", "x")

    clients = {"consume": consume, "produce": produce, "pop": pop, "push": push}
    story = failure(cloud, clients, broken).story
    order = [
        re.sub(r"^\d+\. +(\+\d+ s)  (\w+): (\w+).*", r"\1 \2 \3", line)
        for line in story.splitlines()
    ]
    assert order[:-1] == [
        "+0 s consume waits",
        "+0 s pop waits",
        "+1 s produce produce",
        "+1 s consume consume",
        "+2 s push RPUSH",
        "+2 s pop BLPOP",
    ]


_OBSERVED = """
import asyncio, logging, warnings
import fastapi, flask, httpx
from fastapi.testclient import TestClient

ASYNC = fastapi.FastAPI()
FLASK = flask.Flask("shop")

def buy(kv_server):
    print("prints")
    logging.getLogger("shop").warning("logs")
    warnings.warn(UserWarning("warns"))
    redis = kv_server.client(rest_retries=0)
    redis.incr("sold"), redis.incr("billed")
    return {{}}

def test_it(kv_server, queue, fakecloud):
    FLASK.post("/buy")(lambda: buy(kv_server))
    ASYNC.post("/buy")(lambda: buy(kv_server))

    async def transport():
        client = httpx.AsyncClient(transport=httpx.ASGITransport(ASYNC), base_url="http://shop")
        async with client:
            await client.post("/buy")

    def check():
        assert kv_server.value("sold") == kv_server.value("billed")

    queue.destinations.wsgi("https://shop.example.com", FLASK)
    fakecloud.explore({run}, check, kinds="respond")
"""
_CLIENTS = {
    "flask": "lambda: FLASK.test_client().post('/buy')",
    "TestClient": "lambda: TestClient(ASYNC).post('/buy')",
    "ASGITransport": "transport",
    "destination": "lambda: queue.publish('https://shop.example.com/buy', retries=0)",
}


@pytest.mark.parametrize("client", _CLIENTS)
def test_a_report_has_requests_logs_warnings_and_output_of_the_failing_schedule_only(
    run: Callable[..., pytest.RunResult], client: str
) -> None:
    result = run(_OBSERVED.format(run=_CLIENTS[client]), "-W", "default")
    result.assert_outcomes(failed=1, warnings=None)
    text = result.stdout.str()
    for collected in ("prints", "UserWarning: warns"):
        assert len(re.findall(f"(?m)^ *(?:.*: )?{collected}$", text)) == 1, collected
    log = text.partition("Captured log call")[2]
    assert len(re.findall(r"(?m)^WARNING .* logs$", log)) == 1
    # A report shows a destination's requests as deliveries, beside the action that led to them.
    assert text.count("application POST /buy") == (client != "destination")
    if client == "destination":
        assert text.count("* test queue.publish(") == 1
        assert "(x" not in text.partition("* test queue.publish(")[2].partition("application")[0]


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("TestClient", "note: the handler crashed"),
        ("ASGITransport", "note: the handler crashed"),
        ("destination", "<-- no answer"),
    ],
)
def test_a_report_says_that_a_handler_crashed(
    run: Callable[..., pytest.RunResult], client: str, text: str
) -> None:
    """And not which exception of the package, or of a library that handles it, ended the handler."""
    code = _OBSERVED.format(run=_CLIENTS[client]).replace('kinds="respond"', 'kinds="crash"')
    result = run(code, "-W", "ignore")
    result.assert_outcomes(failed=1)
    report = result.stdout.str().partition(" fakecloud ---")[2]
    assert text in report
    assert not re.search("Crash|turns.py|calls.py|RuntimeError|CancelledError", report)


@pytest.mark.parametrize(
    ("place", "has_metadata"), [("vendor", False), ("lib/site-packages", True)]
)
def test_an_installed_application_has_its_lines_and_a_vendored_client_has_none(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, place: str, has_metadata: bool
) -> None:
    site = pytester.mkdir("root") / place
    shutil.copytree(Path(upstash_redis.__file__).parent, site / "upstash_redis")
    (site / "shop.py").write_text(
        "def view(redis):\n    redis.set('views', int(redis.get('views')) + 1)\n\n"
        "def checked(redis):\n    view(redis)\n    assert redis.get('views') != '8'\n"
    )
    if has_metadata:
        pytester.makepyprojecttoml('[project]\nname = "shop"')
        for name, files in (("shop", ["shop.py"]), ("client", [*site.glob("upstash_redis/**/*")])):
            metadata = site / f"{name}-1.0.dist-info"
            metadata.mkdir()
            lines = (f"{Path(site / file).relative_to(site)},,\n" for file in files)
            (metadata / "RECORD").write_text("".join(lines))
    monkeypatch.setenv("PYTHONPATH", str(site))
    pytester.makepyfile(
        """
        import shop
        from upstash_redis import Redis

        def explore(kv_server, fakecloud, view):
            redis = Redis(kv_server.url, kv_server.token)
            kv_server.load({"views": "7"})
            clients = {name: lambda: view(redis) for name in ("ann", "bob")}
            fakecloud.explore(clients, budget=40)

        def test_anomaly(kv_server, fakecloud):
            explore(kv_server, fakecloud, shop.view)

        def test_assertion(kv_server, fakecloud):
            explore(kv_server, fakecloud, shop.checked)
        """
    )
    result = apart(pytester)
    result.assert_outcomes(failed=2)
    output = result.stdout.str()
    assert "anomaly: not serializable (views): views is 8" in output
    assert "the promise was broken" in output, "the assertion of the application is its promise"
    assert 'GET views → "7" (shop.py:2)' in output
    assert "http.py" not in output


@pytest.mark.parametrize("options", ["", "processes=2"])
def test_a_test_that_passes_has_logs_warnings_and_output_of_the_undisturbed_run(
    run: Callable[..., pytest.RunResult], options: str
) -> None:
    code = f"""
import logging, warnings

def test_it(kv_server, fakecloud):
    def buy():
        kv_server.client(rest_retries=0).incr("sold")
        print("prints")
        logging.getLogger("shop").warning("logs")
        warnings.warn(DeprecationWarning("warns"))

    def check():
        assert int(kv_server.value("sold") or 0) <= 2

    fakecloud.explore([buy, buy], check, kinds=["respond", "drop"], budget=20, {options})
"""
    result = run(code, "-W", "default", "-rP")
    result.assert_outcomes(passed=1, warnings=1)
    text = result.stdout.str()
    assert len(re.findall(r"(?m)^prints$", text)) == 2
    assert len(re.findall(r"(?m)^WARNING .* logs$", text)) == 2
    run(code, "-W", "error:warns").assert_outcomes(failed=1)
