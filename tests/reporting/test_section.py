"""The section of a failing test, compared whole: what happened on all fakes, at 80 columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator

import httpx
import pytest
import requests

from pytest_fakecloud import Cloud
from pytest_fakecloud.reporting.rows import rows
from pytest_fakecloud.reporting.section import section

from ..harness import Run

NOON = "2026-03-01T12:00:00Z"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed="seed", now=NOON, delivery="driven") as opened:
        opened.clock.wait_cap = 0.01
        yield opened


def shown(cloud: Cloud, **options: str) -> str:
    """The section, with addresses that differ from run to run made the same."""
    text = section(cloud, **options)
    assert max(map(len, text.splitlines())) <= 80
    for number, handle in enumerate(cloud.handles, 1):
        text = text.replace(handle.url.rpartition(":")[2], f"{number}0000")
    return re.sub(r"msg_\w+", "msg_id", text)


def expect(text: str, wanted: str) -> None:
    assert text.splitlines() == textwrap.dedent(wanted).strip("\n").splitlines()


def test_a_cloud_nobody_called(cloud: Cloud) -> None:
    cloud.kv_server()
    expect(
        shown(cloud, link="reports/test_x.html"),
        """
        clock frozen at 2026-03-01 12:00:00Z, seed 'seed'
        kv_server http://127.0.0.1:10000
        timeline: reports/test_x.html
        no client has called
        """,
    )


def test_commands_are_shown_with_their_arguments_and_answers_decoded(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    client = kv.client()
    client.set("session:1", "ada", ex=60)
    client.get("session:1")
    cloud.clock.advance("1d")
    pipeline = client.pipeline()
    pipeline.set("n", 1)
    pipeline.incr("n")
    pipeline.exec()
    httpx.post(kv.url, json=["SET", "long", "x" * 100], headers=kv.headers)
    httpx.get(f"{kv.url}/set/foo/two%20words?EX=100&_token={kv.token}")
    for _ in range(3):
        httpx.get(f"{kv.url}/get/foo", headers=kv.headers)
    expect(
        shown(cloud),
        """
        clock frozen at 2026-03-02 12:00:00Z, seed 'seed'
        kv_server http://127.0.0.1:10000
        -- 2026-03-01 --
        12:00:00.000 --> kv_server SET session:1 ada EX 60 <-- OK
        12:00:00.000 --> kv_server GET session:1 <-- ada
        -- 2026-03-02 --
        12:00:00.000 --> kv_server pipeline of 2 <-- 2 answers
                       SET n 1 <-- OK
                       INCR n <-- 2
        12:00:00.000 --> kv_server SET long xxxxxxxxxxxxxxxxxxxxxxxxxxx…xxxxxxxxxxxxx
                       #5d8f <-- OK
        12:00:00.000 --> kv_server SET foo "two words" EX 100 <-- OK
        12:00:00.000 --> kv_server GET foo (x3) <-- two words
        """,
    )


def test_faults_and_what_came_of_them(cloud: Cloud) -> None:
    kv = cloud.kv_server()

    def get() -> None:
        httpx.get(f"{kv.url}/get/foo", headers=kv.headers)

    kv.faults.sequence([503, None])
    get()
    get()
    kv.faults.drop(times=1)
    kv.faults.lose_answer(times=1)
    for _ in range(2):
        with pytest.raises(httpx.RemoteProtocolError):
            get()
    expect(
        shown(cloud),
        """
        clock frozen at 2026-03-01 12:00:00Z, seed 'seed'
        kv_server http://127.0.0.1:10000
        12:00:00.000 --> kv_server GET foo <-- 503 Service Unavailable
                       fault: sequence [503, ok]
        12:00:00.000 --> kv_server GET foo <-- null fault: sequence [503, ok]
        12:00:00.000 --> kv_server GET foo <-- dropped fault: drop
        12:00:00.000 --> kv_server GET foo <-- 200 lost fault: lose_answer
        """,
    )


def test_attempts_and_callbacks_are_arrows_of_the_queue(cloud: Cloud) -> None:
    queue = cloud.queue()
    capture = cloud.callback_capture()
    queue.destinations.answers("https://app.example.com/hook", 500, 200)
    queue.publish(
        "https://app.example.com/hook",
        json={"n": 1},
        retries=3,
        settings={"Upstash-Retry-Delay": "10000"},
        callback=capture.callback_url,
    )
    queue.run_until_idle()
    queue.publish("https://app.example.com/other", retries=0, failure_callback=capture.failure_url)
    queue.destinations.answers("https://app.example.com/other", 400)
    queue.run_until_idle()
    expect(
        shown(cloud),
        """
        clock frozen at 2026-03-01 12:00:10Z, seed 'seed'; queue http://127.0.0.1:10000
        callback_capture :20000
        12:00:00.000 queue --> attempt 1 of msg_id POST https://app.example.com/hook
                       <-- 500
                       sent {"n":1}
        12:00:00.000 queue --> callback_capture callback msg_id about msg_id POST
                       /callback: status 500, retried 0 of 3 <-- 200
                       published {"n":1}
        12:00:10.000 queue --> attempt 2 of msg_id POST https://app.example.com/hook
                       <-- 200
        12:00:10.000 queue --> callback_capture callback msg_id about msg_id POST
                       /callback: status 200, retried 1 of 3 [1] <-- 200
                       published {"n":1}
        12:00:10.000 queue --> attempt 1 of msg_id POST https://app.example.com/other
                       <-- 400
        12:00:10.000 queue --> callback_capture failure callback msg_id about msg_id
                       POST /failure: status 400, retried 0 of 0 <-- 200

        worth a look: [1] queue: 2 callbacks were sent about msg_id: one for each
          attempt, not only for the last
        unfinished: msg_id given up after 1 attempt, last status 400; dead letter
          1772366410000-0
        """,
    )


def test_an_attempt_says_what_left_the_handler_and_what_was_done_on_purpose(cloud: Cloud) -> None:
    queue = cloud.queue()

    def broken(request: object) -> None:
        raise LookupError("no such customer")

    queue.destinations.call("https://app.example.com/hook", broken)
    queue.faults.duplicate(times=1)
    queue.publish("https://app.example.com/hook", retries=0)
    queue.deliver_due()
    text = shown(cloud)
    assert "attempt 1 of msg_id POST https://app.example.com/hook" in text
    assert "fault: duplicate" in text
    assert "note: the handler raised LookupError: no such customer\n" in text
    assert "(test_section.py:" in text
    assert 'raise LookupError("no such customer")' in next(row.sent for row in rows(cloud))


def test_group_events_stand_in_the_brokers_lane(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"orders": 2})
    auth = (broker.username, broker.password)
    requests.post(f"{broker.url}/produce/orders", json=[{"value": "v"}], auth=auth, timeout=5)
    requests.get(f"{broker.url}/consume/g/i1/orders", auth=auth, timeout=5)
    requests.get(f"{broker.url}/consume/g/i2/orders", auth=auth, timeout=5)
    broker.crash("g", "i1")
    cloud.clock.advance("2m")
    text = shown(cloud)
    expect(
        "\n".join(text.splitlines()[1:]),
        """
        12:00:00.000 --> broker produce orders no key: "v" <-- p0@0
        12:00:00.000 --> broker consume orders as g/i1 [1] <-- no records
                       generation 1: i1: orders[0, 1]
        12:00:00.000 --> broker consume orders as g/i2 <-- no records
                       generation 2: i1: orders[0]; i2: orders[1]
        12:00:00.000 * broker crash: i1 of g crashed; orders[0] stay its own for 120000
                       ms
        12:02:00.000 * broker expire: the session of i1 in g expired; generation 3: i2:
                       orders[0, 1]

        worth a look: [1] broker: group g began at the end of orders-0
          (auto.offset.reset is latest): 1 earlier record never came to it
        """,
    )


def test_what_a_commit_without_a_list_committed_stands_in_its_row(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"orders": 1})
    broker.produce("orders", "v")
    auth = (broker.username, broker.password)
    headers = {"Kafka-Enable-Auto-Commit": "false", "Kafka-Auto-Offset-Reset": "earliest"}
    for path in ("consume/g/i/orders", "commit/g/i"):
        requests.get(f"{broker.url}/{path}", auth=auth, headers=headers, timeout=5)
    assert shown(cloud).splitlines()[3:] == [
        "12:00:00.000 --> broker commit what was delivered as g/i <-- OK",
        "               i of g committed orders-0=1",
    ]


def test_all_fakes_are_merged_on_one_clock_and_problems_stand_at_the_end(cloud: Cloud) -> None:
    kv, broker = cloud.kv_server(), cloud.broker()
    index = cloud.vector_index(name="pages")
    httpx.post(kv.url, json=["SET", "a", "1"], headers=kv.headers)
    cloud.clock.advance("1.5s")
    requests.get(f"{broker.url}/topix", auth=(broker.username, broker.password), timeout=5)
    cloud.clock.advance("1s")
    httpx.post(f"{index.url}/upsert", json={"id": "1", "vector": [1, 0]}, headers=index.headers)
    expect(
        shown(cloud),
        """
        clock frozen at 2026-03-01 12:00:02.500Z, seed 'seed'
        kv_server http://127.0.0.1:10000; broker :20000; pages :30000
        12:00:00.000 --> kv_server SET a 1 <-- OK
        12:00:01.500 --> broker GET /topix <-- 404 Invalid API call: GET /topix
                       note: no route for it; nearest: GET /topics, GET
                         /produce/{topic}, GET /fetch
        12:00:02.500 --> pages upsert "1" <-- Success

        [unrouted] broker got GET /topix: no route for it; nearest: GET /topics, GET
            /produce/{topic}, GET /fetch. To allow it: fakecloud.allow("unrouted",
            path="/topix")
        """,
    )


def test_many_entries_are_shortened_to_the_newest(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    with httpx.Client() as client:
        for number in range(100):
            client.post(kv.url, json=["SET", f"k{number}", "v"], headers=kv.headers)
    lines = shown(cloud).splitlines()
    # The first of its kind is kept too.
    assert lines[2] == "12:00:00.000 --> kv_server SET k0 v <-- OK"
    assert lines[3] == "... 40 rows left out"
    assert lines[4] == "12:00:00.000 --> kv_server SET k41 v <-- OK"
    assert lines[-1] == "12:00:00.000 --> kv_server SET k99 v <-- OK"


# -- credentials -----------------------------------------------------------------------------------


def refuse_none(cloud: Cloud) -> str:
    cloud.kv_server()
    httpx.get(cloud.handles[0].url + "/get/a")
    return "no credentials came with it"


def refuse_other(cloud: Cloud) -> str:
    kv, index = cloud.kv_server(), cloud.vector_index()
    httpx.get(kv.url + "/get/a", headers=index.headers)
    return "the credentials are those of vector_index"


def refuse_rotated(cloud: Cloud) -> str:
    kv = cloud.kv_server()
    old = kv.headers
    kv.rotate_token()
    httpx.get(kv.url + "/get/a", headers=old)
    return "the credentials are not kv_server's"


def refuse_query(cloud: Cloud) -> str:
    kv = cloud.kv_server()
    httpx.get(kv.url + "/get/a?_token=wrong")
    return "a wrong _token"


@pytest.mark.parametrize("refuse", [refuse_none, refuse_other, refuse_rotated, refuse_query])
def test_wrong_credentials_are_named_for_what_they_are(
    cloud: Cloud, refuse: Callable[[Cloud], str]
) -> None:
    why = refuse(cloud)
    text = " ".join(shown(cloud).split())
    assert text.endswith(f"[credentials] kv_server answered 401 to 1 of 1 call(s): {why}")
    assert not cloud.problems


def test_no_secret_is_shown(cloud: Cloud) -> None:
    kv = cloud.kv_server(token="pass word/with=signs")
    broker, queue = cloud.broker(), cloud.queue()
    httpx.post(kv.url, json=["SET", "mine", kv.token], headers=kv.headers)
    httpx.get(f"{kv.url}/get/mine", headers={**kv.headers, "Upstash-Encoding": "base64"})
    httpx.get(f"{kv.url}/set/k/v", params={"_token": kv.token})
    httpx.get(f"{kv.url}/echo/pass%20word%2Fwith%3Dsigns", headers=kv.headers)
    httpx.post(kv.url, json=["AUTH", "somebody", "theirs-alone"], headers=kv.headers)
    httpx.get(f"{kv.url}/auth/somebody/theirs-alone", headers=kv.headers)
    httpx.get(f"{queue.url}/v2/keys", headers=queue.headers)
    old = queue.current_signing_key
    queue.rotate_keys()
    requests.get(f"{broker.url}/topics", auth=(broker.username, broker.password), timeout=5)
    text = section(cloud)
    for secret in (
        kv.token, kv.read_only_token, "theirs-alone", "pass%20word", queue.token, old,
        queue.current_signing_key, queue.next_signing_key, broker.password,
    ):  # fmt: skip
        assert secret not in text
    assert "SET mine ***" in text
    assert "AUTH ***" in text


def test_nothing_is_shown_that_a_terminal_would_obey(cloud: Cloud) -> None:
    kv = cloud.kv_server()
    httpx.post(kv.url, json=["SET", "k", "\x1b[31mred\x07\x9b"], headers=kv.headers)
    httpx.post(kv.url, content=b"\x1b[31mraw", headers=kv.headers)
    text = shown(cloud)
    assert r"SET k \x1b[31mred\x07\x9b" in text
    assert r"POST / \x1b[31mraw" in text
    assert not re.search(r"[^\n -~]", text)


def test_no_secret_of_the_past_is_shown(cloud: Cloud) -> None:
    rotated, closed = cloud.kv_server(name="rotated"), cloud.kv_server(name="closed")
    secrets = [rotated.token, rotated.read_only_token, closed.token, closed.read_only_token]
    for kv, path in ((rotated, "/echo/"), (closed, "/echo/")):
        for secret in secrets:
            httpx.get(kv.url + path + secret, headers=kv.headers)
    rotated.rotate_token()
    closed.close()
    text = section(cloud)
    assert text.count("ECHO ***") == 2  # each of four alike
    assert not [secret for secret in secrets if secret in text]
    assert f"closed {closed.url}, closed" in text


# -- in a run --------------------------------------------------------------------------------------

FAILING = """
        import httpx
        import pytest

        @pytest.mark.fakecloud(now="2026-03-01T12:00:00Z", seed=7)
        def test_it(kv_server):
            httpx.get(kv_server.url + "/get/cart", headers=kv_server.headers)
            assert False, "own reason"

        def test_passes(kv_server):
            httpx.get(kv_server.url + "/get/cart", headers=kv_server.headers)
"""


def test_a_failing_test_gets_one_section(run: Run) -> None:
    result = run(FAILING)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        [
            "E*AssertionError: own reason",
            "---------------------------------- fakecloud -----------------------------------",
            "clock frozen at 2026-03-01 12:00:00Z, seed 7; kv_server http://127.0.0.1:*",
            "12:00:00.000 --> kv_server GET cart <-- null",
        ],
        consecutive=False,
    )
    assert result.stdout.str().count("- fakecloud -") == 1


def test_the_section_can_be_had_never(run: Run) -> None:
    result = run(FAILING, "--fakecloud-journal=never")
    assert "- fakecloud -" not in result.stdout.str()


def test_the_section_can_be_had_always(run: Run) -> None:
    result = run(FAILING, "--fakecloud-journal=always", "-rP")
    assert result.stdout.str().count("- fakecloud -") == 2


def test_a_fixture_that_fails_gets_one_too(run: Run) -> None:
    result = run(
        """
        import httpx
        import pytest

        @pytest.fixture
        def cart(kv_server):
            httpx.get(kv_server.url + "/get/cart", headers=kv_server.headers)
            raise RuntimeError("in the fixture")

        def test_it(cart):
            pass
        """
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*- fakecloud -*", "*--> kv_server GET cart <-- null*"])


def test_a_fixture_that_fails_at_its_end_gets_one_too(run: Run) -> None:
    result = run(
        """
        import httpx
        import pytest

        @pytest.fixture
        def cart(kv_server):
            yield kv_server
            httpx.get(kv_server.url + "/get/cart?_token=" + kv_server.token)
            raise RuntimeError("not tidied up")

        def test_passes(cart):
            httpx.get(cart.url + "/set/cart/" + cart.token, headers=cart.headers)

        def test_fails(cart):
            assert 0
        """
    )
    result.assert_outcomes(passed=1, failed=1, errors=2)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of test_passes*",
            "*kv_server http://127.0.0.1:*, closed",
            "* --> kv_server SET cart [*][*][*] <-- OK",
            "* --> kv_server GET cart *",
        ]
    )
    assert result.stdout.str().count("- fakecloud -") == 2


def test_an_unittest_case_gets_one(run: Run) -> None:
    result = run(
        """
        import unittest
        import pytest

        class TestCase(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def fakes(self, kv_server):
                self.kv = kv_server

            def test_it(self):
                self.kv.client().get("cart")
                self.fail("own reason")
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*own reason", "*- fakecloud -*", "*--> kv_server GET cart <-- null*"]
    )
    assert result.stdout.str().count("- fakecloud -") == 1


def test_no_password_shows_in_what_is_left_of_a_cut_call() -> None:
    password = "a-password-nobody-knows"
    acl = ["ACL", "SETUSER", "u", f">{password}"]
    large = ["SET", "k", "v" * 20_000]
    with Cloud() as cloud:
        server = cloud.kv_server()
        cloud.journal.keep_bytes = 1000
        wrong = {"Authorization": "Bearer wrong"}
        with httpx.Client(base_url=server.url) as client:
            for headers in (server.headers, wrong):
                client.post("/pipeline", json=[acl, large], headers=headers)
                client.post("/pipeline", json=[["PING"]] * 20 + [acl, large], headers=headers)
                client.post(f"/acl/setuser/u/%3E{password}", content="v" * 20_000, headers=headers)
            client.post("/", json=large, headers=server.headers)
        assert all(call.cut for call in cloud.journal.calls())
        shown = rows(cloud)
        assert password not in "".join(map(repr, shown))
        assert shown[-1].what.startswith("SET k vvv")
        assert "cut by the journal: " in shown[-1].note
