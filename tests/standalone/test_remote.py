"""Handles of a stand-alone server behave like local ones."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Broker, Cloud, ContractError, KVServer, Queue, Reply, VectorIndex
from pytest_fakecloud.queue.delivery.drivers import Attempts
from pytest_fakecloud.standalone import remote_objects
from pytest_fakecloud.standalone.codec import Objects, decode_error, encode, encode_error

from ..harness import Run, apart
from .conftest import Serve, Server

pytestmark = pytest.mark.slow


@pytest.fixture
def cloud(server: Server) -> Iterator[Cloud]:
    with Cloud.connect(server.url, server.token) as connected:
        yield connected


@pytest.fixture
def kv(cloud: Cloud) -> Any:
    return cloud.fixture_handle("kv_server")


@pytest.fixture
def broker(cloud: Cloud) -> Any:
    return cloud.fixture_handle("broker")


@pytest.fixture
def queue(cloud: Cloud) -> Any:
    return cloud.fixture_handle("queue")


def test_handles_are_of_the_same_classes(cloud: Cloud) -> None:
    kv, vector, broker, queue = cloud.handles
    assert isinstance(kv, KVServer)
    assert isinstance(vector, VectorIndex)
    assert isinstance(broker, Broker)
    assert isinstance(queue, Queue)
    assert [handle.name for handle in cloud.handles] == [
        "kv_server", "vector_index", "broker", "queue",
    ]  # fmt: skip
    assert cloud.env["UPSTASH_REDIS_REST_URL"] == kv.url


def test_objects_of_two_servers_differ() -> None:
    here, there = (remote_objects.Connection(f"http://127.0.0.1:{port}", "t") for port in (1, 2))
    one, same, other = (
        remote_objects.RemoteObject(to, 7, "Call", "<Call>") for to in (here, here, there)
    )
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    with pytest.raises(ContractError, match="of another server"):
        there.call(7, "matches", (one,))


def test_closing_goes_on_if_one_fake_cannot_be_closed(server: Server) -> None:
    def fail() -> None:
        raise ContractError("closed already")

    cloud = Cloud.connect(server.url, server.token)
    name = cloud.kv_server(name="second").name
    started: list[Any] = cloud._started  # type: ignore[attr-defined]
    started.insert(0, SimpleNamespace(close=fail))
    cloud.close()
    with Cloud.connect(server.url, server.token) as again:
        assert name not in [handle.name for handle in again.handles]


def test_a_test_works_as_in_process(cloud: Cloud, kv: Any) -> None:
    client = kv.client()
    client.set("a", "1", ex=60)
    assert kv.value("a") == "1"
    assert kv.ttl("a") == 60
    cloud.clock.advance("61s")
    assert client.get("a") is None
    kv.assert_called("GET", times=1)
    with pytest.raises(AssertionError, match="expected a call HSET at least once"):
        kv.assert_called("HSET")
    with kv.faults.answer(400, {"error": "ERR planned"}) as fault:
        with pytest.raises(Exception, match="ERR planned"):
            client.get("a")
        assert fault.hits == 1


def test_values_keep_their_types(cloud: Cloud, broker: Any) -> None:
    produced = broker.produce("orders", "x", key="k")
    record = broker.records("orders").only()
    assert (record.offset, record.key, record.value) == (produced.offset, "k", "x")
    assert broker.records("orders", partition=produced.partition).only() == record
    assert broker.topic("orders").records.only() == record
    assert cloud.clock.now().tzinfo is not None
    assert broker.group("nobody").state == "Dead"


def test_a_message_is_watched_from_afar(cloud: Cloud, queue: Any) -> None:
    message = queue.publish("http://127.0.0.1:9/gone", json={"a": 1}, retries=1)
    assert cloud.clock.advance("1m")
    assert message.state == "dead_lettered"
    assert message.json() == {"a": 1}
    assert "backoff" in message.timeline
    assert queue.dead_letters().only().message.id == message.id
    queue.assert_dead_lettered(times=1)


def test_prepared_answers_cross_to_the_server(queue: Any) -> None:
    later = Reply(202, {"a": 1}, after="5s")
    route = queue.destinations.answers("https://app.test/hook", 503, later)
    # The server delivers on its own; such deliveries count like those that a call makes.
    message = queue.publish("https://app.test/hook", body="x")
    queue.run_until_idle()
    assert [attempt.status for attempt in message.attempts] == [503, 202]
    assert [request.body for request in route.deliveries] == [b"x", b"x"]
    assert message.attempts[-1].body == b'{"a": 1}'
    queue.destinations.hang("https://app.test")
    assert [one.where for one in queue.destinations.routes] == ["answers", "hang"]
    queue.destinations.clear()
    assert queue.destinations.routes == []


def test_snapshots_cross_as_references(cloud: Cloud, kv: Any) -> None:
    kv.execute("SET", "a", "1")
    snapshot = cloud.snapshot()
    kv.execute("SET", "a", "2")
    cloud.restore(snapshot)
    assert kv.value("a") == "1"


def test_what_was_started_here_ends_here(server: Server, cloud: Cloud) -> None:
    with Cloud.connect(server.url, server.token) as second:
        more = second.vector_index(dimension=2, name="more")
        more.load({"a": [1, 2]})
        assert more.vectors().only()["id"] == "a"
        assert "more" in [handle.name for handle in cloud.handles]
    assert "more" not in [handle.name for handle in cloud.handles]


def test_contract_errors_of_the_server_come_back(cloud: Cloud) -> None:
    with pytest.raises(ContractError, match="is not a duration"):
        cloud.clock.advance("soon")
    with pytest.raises(ContractError, match="'colour' is not a setting of "):
        cloud.kv_server(colour="red")


def test_awaitable_twins_work(cloud: Cloud) -> None:
    before = cloud.clock.now()
    asyncio.run(cloud.clock.aio.advance("1h"))
    assert (cloud.clock.now() - before).total_seconds() == 3600


def test_a_token_is_needed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_FAKECLOUD_TOKEN", raising=False)
    with pytest.raises(ContractError, match="needs its control token"):
        Cloud.connect(server.url)
    with pytest.raises(ContractError, match="rejected GET /state"):
        Cloud.connect(server.url, "wrong")
    monkeypatch.setenv("PYTEST_FAKECLOUD_TOKEN", server.token)
    with Cloud.connect(server.url) as cloud:
        assert len(cloud.handles) == 4


def test_no_server_is_said() -> None:
    with pytest.raises(ContractError, match="no stand-alone server responds"):
        Cloud.connect("http://127.0.0.1:9", "x")


def test_settings_of_one_test_reach_the_server(server: Server, run: Run) -> None:
    result = suite(
        run,
        server,
        """
        import datetime
        import os
        import pytest

        seen = {}

        @pytest.mark.fakecloud(
            now="2030-05-05T00:00:00Z", seed=7, env=True,
            broker={"topics": {"orders": 2}}, kv_server={"max_request_size": 100},
        )
        @pytest.mark.parametrize("turn", range(2))
        def test_settings(fakecloud, broker, kv_server, queue, turn):
            assert fakecloud.clock.now() == datetime.datetime(2030, 5, 5, tzinfo=datetime.UTC)
            assert fakecloud.seed == 7
            assert broker.topic("orders").partitions == 2
            assert os.environ["UPSTASH_REDIS_REST_URL"] == kv_server.url
            assert os.environ["UPSTASH_KAFKA_REST_URL"] == broker.url
            with pytest.raises(Exception, match="max request size"):
                kv_server.client().set("k", "v" * 200)
            seen["urls"] = {kv_server.url, broker.url}
            fakecloud.clock.advance("1d")

        def test_nothing_of_them_is_left(fakecloud, broker, kv_server):
            assert fakecloud.clock.now() == datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
            assert not seen["urls"] & {handle.url for handle in fakecloud.handles}
            assert kv_server.client().set("k", "v" * 200)

        class TestClass:
            @pytest.fixture
            def fakecloud_settings(self):
                return {"clock": "running"}

            def test_by_the_settings_fixture(self, fakecloud):
                assert fakecloud.clock.mode == "running"

        @pytest.mark.fakecloud(tls=True)
        def test_what_a_process_is_started_with(kv_server):
            pass

        @pytest.mark.fakecloud(vector_index={"embedding": len})
        def test_what_cannot_cross(vector_index):
            pass
        """,
    )
    result.assert_outcomes(passed=4, errors=2)
    result.stdout.fnmatch_lines(
        [
            "fakecloud: tls cannot be set for one test, because the fakes run in a stand-alone server*",
            "fakecloud: embedding= of vector_index()*",
        ]
    )


def test_a_suite_runs_against_the_server(server: Server, run: Run) -> None:
    result = suite(
        run,
        server,
        """
        import pytest

        @pytest.mark.parametrize("turn", range(2))
        def test_it(kv_server, broker, fakecloud, turn):
            assert kv_server.values() == {}
            kv_server.client().set("a", "1", ex=60)
            fakecloud.clock.advance("61s")
            assert kv_server.value("a") is None
            broker.produce("orders", "x")
            assert broker.records("orders").only().value == "x"
            kv_server.execute("SET", "left", "behind")
        """,
    )
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (None, "None is not a string"),
        (b"http://127.0.0.1:1", "is not a string"),
        ("http://[::1", "is not a URL: Invalid IPv6 URL"),
        ("http://127.0.0.1:99999", "no stand-alone server responds"),
        ("", "no stand-alone server responds"),
    ],
)
def test_what_is_no_url_is_said(url: Any, text: str) -> None:
    with pytest.raises(ContractError, match=re.escape(text)):
        Cloud.connect(url, "x")


@pytest.mark.parametrize("token", ["a\nb", "☃", "ü", 5, ["x"]])
def test_what_can_be_no_token_is_said(server: Server, token: Any) -> None:
    with pytest.raises(ContractError, match="is not a control token"):
        Cloud.connect(server.url, token)


@contextmanager
def other_server(answers: Callable[[str], bytes | None]) -> Iterator[str]:
    """Start a server of another kind, whose answer depends on the path; None means no answer."""
    stop = threading.Event()

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            answer = answers(self.path)
            if answer is None:
                stop.wait(20)
                return
            self.send_response(404 if b"not found" in answer else 200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        stop.set()
        server.shutdown()


@pytest.mark.parametrize(
    "answer",
    [
        b"[]", b"5", b"null", b'"x"', b"{}", b'["not found"]', b'"not found"', b'{"handles":5}',
        b'{"seed":1,"handles":[{}]}', b'{"seed":1,"handles":5}', b"<html>",
        b'{"seed":null,"handles":[]}',
    ],
)  # fmt: skip
def test_another_kind_of_server_is_said(answer: bytes) -> None:
    with (
        other_server(lambda _: answer) as url,
        pytest.raises(ContractError, match=r"not a control API|cannot be read"),
    ):
        Cloud.connect(url, "x")


@pytest.mark.parametrize(
    "answer",
    [
        {"value": {"$": "unheard of", "v": 1}},
        {"value": {"$": "data", "c": "pytest_fakecloud.later:X", "v": {}}},
        {"value": {"$": "data", "c": "pytest_fakecloud.core.journal:Later", "v": {}}},
        {"value": {"$": "named", "c": "pytest_fakecloud.broker.model:Later", "v": [1]}},
        {"value": {"$": "datetime", "v": "then"}},
        {"raise": 5},
        {},
    ],
)
def test_a_server_of_another_version_is_said(answer: Any) -> None:
    def answers(path: str) -> bytes:
        return json.dumps({"seed": 1, "handles": []} if "state" in path else answer).encode()

    with (
        other_server(answers) as url,
        Cloud.connect(url, "x") as cloud,
        pytest.raises(ContractError, match="another version"),
    ):
        cloud.journal  # noqa: B018


def test_an_error_that_is_not_known_here_keeps_its_words() -> None:
    for name in ("pytest_fakecloud.later:Trouble", "builtins:ExceptionGroup", "acme:Trouble"):
        error = decode_error({"c": name, "text": "no way", "fields": {}})
        assert isinstance(error, RuntimeError)
        assert str(error) == f"{name.replace(':', '.')}: no way"
    again = decode_error(encode_error(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "why")))
    assert "can't decode byte 0xff" in str(again)
    assert isinstance(decode_error(encode_error(KeyError("k"))), KeyError)


def test_a_hung_server_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_objects, "ANSWERS_WITHIN", 0.2)
    monkeypatch.setattr(remote_objects, "CALLS_TAKE_AT_MOST", 0.2)
    with (
        other_server(lambda _: None) as url,
        pytest.raises(ContractError, match=r"did not answer GET /state within 0\.2 s"),
    ):
        Cloud.connect(url, "x")

    def answers(path: str) -> bytes | None:
        return b'{"seed":1,"handles":[]}' if "state" in path else None

    with (
        other_server(answers) as url,
        Cloud.connect(url, "x") as cloud,
        pytest.raises(ContractError, match="did not answer POST /call within"),
    ):
        cloud.journal  # noqa: B018


@pytest.mark.parametrize("name", ["a/b", "a?b", "a#b", "..", ".", "%2F", "ü b", "<b>"])
def test_a_handle_of_any_name_closes(cloud: Cloud, name: str) -> None:
    handle = cloud.kv_server(name=name)
    handle.execute("SET", "a", "1")
    assert handle.value("a") == "1"
    handle.close()
    assert name not in [one.name for one in cloud.handles]
    handle.close()


def test_a_handle_that_another_closed_is_gone(server: Server) -> None:
    with Cloud.connect(server.url, server.token) as cloud:
        handle = cloud.kv_server(name="mine")
        server.ask("DELETE", "/handles/mine")
        with pytest.raises(ContractError, match=r"'mine' is not a fake. Known fakes: kv_server"):
            handle.value("a")
    with pytest.raises(ContractError, match=r"this connection to .* is closed: make a new one"):
        cloud.kv_server()
    with pytest.raises(ContractError, match="is closed"):
        cloud.handles  # noqa: B018


def test_handles_are_equal_when_they_are_the_same(cloud: Cloud, kv: Any) -> None:
    assert kv in cloud.handles
    assert kv != cloud.fixture_handle("queue")
    assert len({kv, *cloud.handles}) == 4
    assert kv != 5


def test_an_object_over_there_is_only_itself(cloud: Cloud) -> None:
    route = cloud.fixture_handle("queue").destinations.answers("https://a.test", 200)
    assert route
    assert route != 5
    assert not hasattr(route, "_private")
    with pytest.raises(ContractError, match="cannot be set from this process"):
        route.url = "https://b.test"


def test_a_connection_is_closed_once(server: Server) -> None:
    cloud = Cloud.connect(server.url, server.token)
    name = cloud.kv_server().name
    for _ in range(2):
        cloud.close()
        handles = server.ask("GET", "/state")[1]["handles"]
        assert name not in [one["name"] for one in handles]


def test_a_client_that_was_refused_may_be_allowed_from_afar(cloud: Cloud) -> None:
    cloud.allow("refused", path="/metrics")
    assert cloud._allowed.covers("refused", {"path": "/metrics"})
    assert not cloud._allowed.covers("refused", {"path": "/other"})
    with pytest.raises(ContractError, match="'nothing' is not a field of "):
        cloud.allow("refused", nothing=1)


def test_faults_are_looked_at_as_in_process(cloud: Cloud) -> None:
    faults = cloud.fixture_handle("kv_server").faults
    assert not faults
    assert list(faults) == []
    fault = faults.drop(times=1)
    assert faults
    assert len(faults) == 1
    assert list(faults) == [fault]
    assert fault in faults
    with pytest.raises(TypeError, match="object of type 'Clock' has no len"):
        len(cloud.clock)  # type: ignore[arg-type]


MISTAKES: list[tuple[Callable[[Any], object], str]] = [
    (lambda cloud: setattr(cloud.journal, "keep", 5), "keep of .* cannot be set from this process"),
    (lambda cloud: setattr(cloud.handles[0], "token", "x"), "token of <KVServer kv_server at"),
    (lambda cloud: cloud.handles[0].on_close(print), "on_close does not work over a stand"),
    (lambda cloud: cloud.handles[0].execute("SET", endless()), r"argument 2 of execute\(\)"),
    (lambda cloud: cloud.begin(clock=print), r"clock= of begin\(\) cannot be sent"),
    (lambda cloud: cloud.reseed(object()), "the seed cannot be sent"),
    (lambda cloud: cloud.kv_server(token=b"x"), "token=b'x' of kv_server must be a non-empty string"),
    (lambda cloud: cloud.kv_server(token=cloud.clock), "token=.* must be a non-empty string"),
    (lambda cloud: cloud.kv_server(max_request_size={1}),
     r"max_request_size=\{1\} of kv_server must be"),
    (lambda cloud: cloud.handles[3].destinations.call("https://a.test", print),
     r"argument 2 of call\(\) cannot be sent"),
    (lambda cloud: cloud.handles[0].between(commands=[], run=print), "between does not work"),
    (lambda cloud: cloud.vector_index(embedding=lambda text: [1.0]),
     r"embedding= of vector_index\(\) cannot be sent to another process"),
    (lambda cloud: cloud.handles[0].faults.drop(when=lambda request: True),
     r"when= of drop\(\) cannot be sent"),
    (lambda cloud: cloud.handles[0].intercept("https://kv.example"), "intercept does not work"),
    (lambda cloud: cloud.every_failure(lambda: None), "every_failure does not work"),
]  # fmt: skip


@pytest.mark.parametrize(("use", "text"), MISTAKES)
def test_a_mistake_is_named(cloud: Cloud, use: Callable[[Cloud], object], text: str) -> None:
    with pytest.raises(ContractError, match=text):
        use(cloud)


def endless() -> list[Any]:
    """Return a list that contains itself."""
    made: list[Any] = []
    made.append(made)
    return made


def test_an_object_that_cannot_be_shown_crosses_all_the_same() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise AttributeError("not ready")

    assert encode(Shy(), Objects())["repr"] == "<Shy, whose repr raises>"
    with pytest.raises(ContractError, match=r"the value cannot be sent .*<Shy, whose repr"):
        encode(Shy())


def test_a_path_is_the_same_file_for_the_server(
    broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orders.jsonl").write_text('{"topic": "orders", "value": "x"}\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    broker.load(Path("orders.jsonl"))
    assert broker.records("orders").only().value == "x"


def test_an_awaitable_that_cannot_cross_is_named_before_anything_runs(cloud: Cloud) -> None:
    ran: list[int] = []

    async def run() -> None:
        ran.append(1)

    with pytest.raises(ContractError, match="every_failure does not work over a stand-alone"):
        asyncio.run(cloud.aio.every_failure(run))
    assert ran == []


def test_a_certificate_that_is_not_trusted_is_said(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("trustme")
    server = serve("kv", "--tls")
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(
        ContractError, match=r"the TLS connection to .* failed .* set SSL_CERT_FILE"
    ):
        Cloud.connect(server.url, server.token)
    with pytest.raises(ContractError, match="no stand-alone server responds at http:"):
        Cloud.connect(server.url.replace("https:", "http:"), server.token)
    monkeypatch.setenv("SSL_CERT_FILE", server.summary["env"]["SSL_CERT_FILE"])
    with Cloud.connect(server.url, server.token) as cloud:
        assert cloud.fixture_handle("kv_server").execute("PING") == "PONG"


def suite(run: Run, server: Server, text: str) -> pytest.RunResult:
    """Run a test file against the server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_FAKECLOUD_TOKEN", server.token)
        return run(text, f"--fakecloud-url={server.url}")


def test_variables_are_set_for_fakes_that_the_test_starts(serve: Serve, run: Run) -> None:
    result = suite(
        run,
        serve("queue"),
        """
        import os
        import pytest

        @pytest.mark.fakecloud(env=True)
        def test_by_its_fixture(kv_server):
            assert os.environ["UPSTASH_REDIS_REST_URL"] == kv_server.url

        @pytest.mark.fakecloud(env=True)
        def test_by_itself(fakecloud):
            index = fakecloud.vector_index()
            assert os.environ["UPSTASH_VECTOR_REST_URL"] == index.url

        def test_nothing_is_left(fakecloud):
            fakecloud.broker()
            assert not [name for name in os.environ if name.startswith("UPSTASH_")]
        """,
    )
    result.assert_outcomes(passed=3)


def test_a_fake_that_is_gone_is_started_again(serve: Serve, run: Run) -> None:
    result = suite(
        run,
        serve("kv"),
        """
        def test_closed_here(kv_server):
            kv_server.close()

        def test_a_new_one(kv_server):
            assert kv_server.execute("PING") == "PONG"

        def test_closed_from_elsewhere(fakecloud, kv_server):
            fakecloud.handles.where(name=kv_server.name).only().close()

        def test_another_one(kv_server):
            assert kv_server.execute("PING") == "PONG"
        """,
    )
    result.assert_outcomes(passed=4)


def test_a_server_that_dies_does_not_end_the_run(serve: Serve, run: Run) -> None:
    server = serve("kv")
    result = suite(
        run,
        server,
        f"""
        import os, signal, time

        def test_that_sees_it_die(kv_server):
            os.kill({server.process.pid}, signal.SIGTERM)
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline:
                kv_server.execute("PING")

        def test_with_a_fake(kv_server):
            pass

        def test_without():
            pass
        """,
    )
    # Every test of the run needs the server for the baseline, and the server is gone.
    result.assert_outcomes(failed=1, errors=2)
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    result.stdout.fnmatch_lines(
        ["the report of the fakes could not be made: no stand-alone server responds at *"]
    )


def test_settings_of_the_session_are_for_fakes_in_process(
    server: Server, pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def fakecloud_session_settings():
            return {"kv_server": {"max_request_size": 100}}
        """
    )
    result = suite(run, server, "def test_it(kv_server): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["fakecloud: the fixture fakecloud_session_settings cannot change *"]
    )


def test_workers_cannot_share_a_server(server: Server, pytester: pytest.Pytester, run: Run) -> None:
    # Set the variables that xdist sets in a worker, because runs inside of tests also see them.
    pytester.makeconftest("def pytest_configure(config): config.workerinput = {'workercount': 2}")
    result = suite(run, server, "def test_it(kv_server): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*tests of several workers (pytest -n) cannot share one *"])


def test_workers_may_have_a_server_each(
    serve: Serve, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xdist")
    monkeypatch.setenv("PYTEST_FAKECLOUD_TOKEN", "chosen")
    urls = [serve("kv", "--control-token", "chosen").url for _ in range(2)]
    pytester.makeconftest(
        f"""
        def pytest_configure(config):
            if hasattr(config, "workerinput"):
                number = int(config.workerinput["workerid"].removeprefix("gw"))
                config.option.fakecloud_url = {urls!r}[number]
        """
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("turn", range(8))
        def test_it(kv_server, turn):
            for number in range(20):
                assert kv_server.execute("INCR", "n") == number + 1
        """
    )
    apart(pytester, "-n2", plugins=("xdist",)).assert_outcomes(passed=8)


def test_variables_of_a_session_end_with_the_test(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeini("[pytest]\nfakecloud_scope = session\n")
    result = run(
        """
        import os
        import pytest

        @pytest.mark.fakecloud(env=True)
        def test_that_wants_them(fakecloud):
            pass

        def test_that_does_not(fakecloud):
            fakecloud.vector_index()
            assert not [name for name in os.environ if name.startswith("UPSTASH_")]

        def test_by_the_fixture(fakecloud_env):
            pass

        def test_after_the_fixture(fakecloud):
            fakecloud.vector_index()
            assert not [name for name in os.environ if name.startswith("UPSTASH_")]
        """
    )
    result.assert_outcomes(passed=4)


def test_a_receiver_is_written_and_read_from_afar(cloud: Cloud, queue: Any) -> None:
    capture = cloud.callback_capture()
    queue.destinations.answers("https://app.test/hook", (200, "done"))
    queue.publish("https://app.test/hook", body="x", callback=capture.callback_url)
    queue.run_until_idle()
    callback = capture.wait_for_callback()
    assert (callback.status, callback.body, callback.verified) == (200, b"done", True)
    assert len(capture.callbacks) == 1
    assert capture.callbacks.only().source_message_id == callback.source_message_id
    assert [one.status for one in capture.callbacks] == [200]
    assert capture.callbacks.wait_for(1, timeout=20)[0].status == 200
    assert capture.callbacks.where(status=404) == []
    assert queue.messages().where(url="https://app.test/*", label="x") == []
    assert len(queue.messages().where(json=1)) == 0
    for found in (queue.messages(), queue.dead_letters(), queue.schedules(), cloud.handles):
        with pytest.raises(
            ContractError, match=r"url='app.test' can never match|'url' is not a field of "
        ):
            found.where(url="app.test")
    capture.callbacks.assert_received(times=1)
    with capture.callbacks.faults.answer(503) as fault:
        assert fault.kind == "answer"
        assert len(capture.callbacks.faults) == 1
    capture.expect_request("/other").respond_with_json({"a": 1})
    assert httpx.get(f"{capture.url}/other").json() == {"a": 1}
    capture.clear()


def test_blocks_of_the_handles_work_from_afar(cloud: Cloud) -> None:
    broker, index = cloud.fixture_handle("broker"), cloud.vector_index(dimension=2)
    with pytest.raises(ZeroDivisionError), broker.reorder():
        _ = 1 / 0
    with pytest.raises(ContractError, match="mixed nothing"), broker.reorder():
        broker.produce("orders", "x")
    with index.pending() as pending:
        index.client().upsert([("a", [1.0, 2.0])])
        assert [item["id"] for item in index.pending()] == ["a"]
    assert list(pending) == pending
    assert asyncio.run(broker.aio.wait_for_record("orders", timeout=20)).value == "x"
    message = cloud.fixture_handle("queue").publish("http://127.0.0.1:9/x", retries=0)
    assert cloud.fixture_handle("queue").message(message.id).id == message.id
    attempts = asyncio.run(cloud.fixture_handle("queue").aio.run_until_idle())
    # The server may have delivered it by then.
    assert isinstance(attempts, Attempts)
    assert attempts.waiting == "nothing"
    assert cloud.problems == []


def test_what_is_not_offered_from_afar_is_no_attribute(cloud: Cloud, kv: Any) -> None:
    with pytest.raises(
        AttributeError, match=r"'colour' is not an attribute of .* Known attributes: "
    ):
        kv.colour  # noqa: B018
    with pytest.raises(AttributeError, match="Known attributes: advance, advance_to_next"):
        cloud.clock.call_at  # noqa: B018
    with pytest.raises(AttributeError, match="Known attributes: none"):
        cloud.snapshot().handles  # noqa: B018
    assert not hasattr(kv, "password")


def test_which_is_asked_as_in_process(cloud: Cloud, kv: Any) -> None:
    kv.client().set("a", "1")
    kv.assert_called(path=re.compile("^/$|set"), times=1)
    assert kv.journal.calls().where(command="S*").only().status == 200
    with pytest.raises(
        ContractError, match="'comand' is not a field of a call; did you mean 'command'"
    ):
        kv.assert_not_called(comand="SET")
    httpx.get(f"{kv.url}/a/b/c/d/nope", headers=kv.headers)
    with pytest.raises(
        ContractError, match="'unruted' is not a kind of problem; did you mean 'unrou"
    ):
        cloud.allow("unruted")
    with pytest.raises(ContractError, match=r"'paht' is not a field of .*; did you mean 'path'"):
        cloud.allow("unrouted", paht="/x")
    cloud.allow("unrouted", path=re.compile("nope$"))
    assert cloud.problems == []
