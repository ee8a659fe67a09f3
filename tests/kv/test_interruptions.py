"""Interruptions of clients: positions, clients over both protocols, and unused interruptions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import ANY

import httpx
import pytest
import redis
from upstash_redis import Redis

from pytest_fakecloud import Cloud
from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.kv.interruptions import Between
from tests.harness import in_threads

Send = Callable[[Sequence[list[Any]]], object]


@pytest.fixture
def server() -> Iterator[KVServer]:
    with KVServer(Context.alone(now="2026-01-01T00:00:00Z")) as server:
        yield server


def over_pipeline(server: KVServer) -> Iterator[Send]:
    yield lambda lines: httpx.post(
        server.url + "/pipeline", json=list(lines), headers=server.headers
    ).raise_for_status()


def over_one_connection(server: KVServer) -> Iterator[Send]:
    with httpx.Client(base_url=server.url, headers=server.headers) as http:
        yield lambda lines: [http.post("/", json=line).raise_for_status() for line in lines]


def over_new_connections(server: KVServer) -> Iterator[Send]:
    yield lambda lines: [httpx.post(server.url, json=x, headers=server.headers) for x in lines]


def over_paths(server: KVServer) -> Iterator[Send]:
    with httpx.Client(base_url=server.url, headers=server.headers) as http:
        yield lambda lines: [http.get("/".join(["", *map(str, line)])) for line in lines]


def over_redis(server: KVServer) -> Iterator[Send]:
    with redis.Redis.from_url(server.database_url) as client:
        yield lambda lines: [client.execute_command(*line) for line in lines]


def over_a_redis_pipeline(server: KVServer) -> Iterator[Send]:
    with redis.Redis.from_url(server.database_url) as client:

        def send(lines: Sequence[list[Any]]) -> None:
            with client.pipeline(transaction=False) as pipe:
                for line in lines:
                    pipe.execute_command(*line)
                pipe.execute()

        yield send


WAYS = (
    over_pipeline, over_one_connection, over_new_connections, over_paths, over_redis,
    over_a_redis_pipeline,
)  # fmt: skip


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def send(request: pytest.FixtureRequest, server: KVServer) -> Iterator[Send]:
    yield from request.param(server)


@contextmanager
def unused(server: KVServer, commands: Any, message: str, **where: Any) -> Iterator[Between]:
    with (
        pytest.raises(ContractError, match=re.escape(message)),
        server.between(commands, run=print, **where) as between,
    ):
        yield between


LINES = (["GET", "n"], ["SET", "m", 1], ["GET", "n"], ["GET", "n"])


class TestNeighbours:
    """Commands of one client are neighbours, however it sends them."""

    def test_between_two_names(self, server: KVServer, send: Send) -> None:
        with server.between(("GET", "SET"), run=["SET", "k", "stolen"]) as between:
            send([["GET", "k"], ["SET", "k", 1, "NX"]])
        assert (between.hits, between.place, server.value("k")) == (1, 1, "stolen")

    def test_after_a_number_of_commands(self, server: KVServer, send: Send) -> None:
        with server.between(2, run=lambda: server.execute("COPY", "m", "n", "REPLACE")) as between:
            send([["SET", "m", "a"], ["SET", "n", "-"], ["SET", "m", "b"], ["SET", "m", "c"]])
        assert (between.hits, between.place, server.value("n")) == (1, 2, "a")
        assert not server._app.interruptions

    def test_every_position(self, server: KVServer, send: Send) -> None:
        places = []
        with server.between(run=lambda: places.append(between.place)) as between:
            send(LINES)
        assert places == [1, 2, 3]

    def test_a_loop(self, server: KVServer, send: Send) -> None:
        server.load([["APPEND", "n", ""]])
        before, values = server.snapshot(), []
        for place in server.between(run=["APPEND", "n", "|"]):
            server.restore(before)
            send([["APPEND", "n", word] for word in "abc"])
            values.append((place, server.value("n")))
        assert values == [(1, "a|bc"), (2, "ab|c"), (3, "abc")]

    def test_the_commands_of_run_are_no_neighbours(self, server: KVServer, send: Send) -> None:
        def rival() -> None:
            for way in WAYS:
                for theirs in way(server):
                    theirs([["GET", "theirs"], ["SET", "theirs", 1], ["GET", "theirs"]])

        with server.between(("GET", "SET"), run=rival) as between:
            send([["GET", "k"], ["SET", "k", 1], ["INCR", "k"]])
        assert between.hits == 1

    def test_the_commands_of_run_are_not_seen(self, server: KVServer) -> None:
        send = next(over_pipeline(server))
        with (
            unused(server, ("SET", "GET"), "It saw GET, SET."),
            server.between(("GET", "SET"), run=lambda: send([["SET", "k", 2], ["GET", "k"]])),
        ):
            send([["GET", "k"], ["SET", "k", 1]])

    def test_an_unused_block_is_an_error(self, server: KVServer) -> None:
        message = (
            "between(('GET', 'SET')) interrupted nothing. It saw GET, INCR, SET. Name two "
            "neighbouring commands of one client, or remove the interruption"
        )
        with unused(server, ("GET", "SET"), message):
            next(over_pipeline(server))([["GET", "k"], ["INCR", "n"], ["SET", "k", 1]])
        assert not server._app.interruptions
        assert not server._unmet()

    def test_a_loop_without_a_position_is_an_error(self, server: KVServer, send: Send) -> None:
        turns = []

        def loop() -> None:
            for turn in server.between(run=print):
                turns.append(turn)
                send([["INCR", "n"]])

        message = r"between\(\) interrupted nothing\. It saw INCR\. "
        with pytest.raises(ContractError, match=message):
            loop()
        assert turns == [1]


class TestConditions:
    """Commands that do not match the conditions of ``between()`` are ignored."""

    STOCK = (
        ["GET", "stock:1"], ["GET", "price:1"], ["INCR", "n"], ["SET", "stock:1", 0],
        ["MSET", "price:1", 0, "stock:2", 0], ["GET", "price:1"], ["SET", "price:1", 1],
    )  # fmt: skip

    @pytest.mark.parametrize(
        "key", ["stock:*", re.compile("^stock"), lambda key: key.startswith("stock:")]
    )
    def test_neighbours_are_matching_commands(self, server: KVServer, send: Send, key: Any) -> None:
        with server.between(("GET", "SET"), key=key, run=["INCR", "rival"]) as between:
            send(self.STOCK)
        assert (between.hits, between.place, server.integer("rival")) == (1, 1, 1)

    def test_every_position_of_matching_commands(self, server: KVServer, send: Send) -> None:
        places = []
        with server.between(key="stock:*", run=lambda: places.append(between.place)) as between:
            send(self.STOCK)
        assert places == [1, 2]

    @pytest.mark.parametrize(
        "where", [{"key": "price:1"}, {"words": ["GET", "*"]}, {"command": "*SET"}]
    )
    def test_a_number_counts_matching_commands(
        self, server: KVServer, send: Send, where: Any
    ) -> None:
        with server.between(1, run=["INCR", "rival"], **where) as between:
            send(self.STOCK)
        assert (between.hits, between.place, server.integer("rival")) == (1, 1, 1)

    def test_a_loop_over_matching_commands(self, server: KVServer, send: Send) -> None:
        places = []
        for place in server.between(key="price:1", run=["SET", "rival", 1]):
            send(self.STOCK)
            places.append(place)
        assert places == [1, 2, 3, 4]

    def test_an_unused_block_lists_what_it_ignored(self, server: KVServer, send: Send) -> None:
        message = (
            "between(('GET', 'SET'), key='stokc:*') interrupted nothing. It saw no matching command "
            "of a client, and ignored 'GET stock:1', 'GET price:1', 'INCR n', 'SET stock:1', "
            "'MSET price:1 stock:2', 'GET price:1', 'SET price:1'. Name two"
        )
        with unused(server, ("GET", "SET"), message, key="stokc:*"):
            send(self.STOCK)
        ignored = ", ".join(["'GET stock:1'"] * 40)
        message = f"It saw GET, and ignored {ignored} and 5 more commands."
        with unused(server, None, message, key="price:1"):
            send([*[["GET", "stock:1"]] * 45, ["GET", "price:1"]])

    def test_nothing_runs_inside_a_transaction(self, server: KVServer) -> None:
        message = "It saw GET, SET, and ignored 'INCR n', 'MULTI', 'EXEC'. Nothing runs inside"
        with (
            httpx.Client(base_url=server.url, headers=server.headers) as http,
            unused(server, ("GET", "SET"), message, key="stock:1"),
        ):
            http.post("/", json=["GET", "stock:1"])
            http.post("/", json=["INCR", "n"])
            http.post("/multi-exec", json=[["SET", "stock:1", 1]])

    def test_a_condition_that_raises_is_reported(self) -> None:
        with Cloud() as cloud, cloud.kv_server() as server:
            server.between(key=lambda key: 1 / 0, run=print)
            answer = httpx.post(server.url, json=["GET", "k"], headers=server.headers)
            assert answer.status_code == 500
            assert "raised ZeroDivisionError" in cloud.violations().where(kind="bug").only().text


class TestClients:
    """Decided here: which commands belong to one client."""

    def test_connections_of_redis_are_clients(self, server: KVServer) -> None:
        def of_two() -> None:
            with (
                redis.Redis.from_url(server.database_url) as ann,
                redis.Redis.from_url(server.database_url) as bob,
            ):
                ann.get("k")
                bob.set("k", 1)
                bob.get("k")
                ann.delete("k")

        with unused(server, ("GET", "SET"), "saw GET, DEL of client 1; SET, GET of client 2."):
            of_two()
        with server.between(("GET", "DEL"), run=print):
            of_two()

    def test_connections_of_rest_are_clients(self, server: KVServer) -> None:
        with (
            httpx.Client(base_url=server.url, headers=server.headers) as ann,
            httpx.Client(base_url=server.url, headers=server.headers) as bob,
            server.between(("GET", "SET"), run=["SET", "k", "stolen"]) as between,
        ):
            ann.get("/get/k")
            bob.get("/incr/n")
            ann.get("/set/k/1/nx")
        assert (between.hits, server.value("k")) == (1, "stolen")

    def test_connections_of_rest_continue_the_sequence_of_their_token(
        self, server: KVServer
    ) -> None:
        message = "saw GET, SET of client 1; INCR, DEL of client 2 after GET of client 1."
        with (
            httpx.Client(base_url=server.url, headers=server.headers) as ann,
            httpx.Client(base_url=server.url, headers=server.headers) as bob,
        ):
            for http in (ann, bob):
                http.get("/get/k")  # before the block, in which both connections are new
            for place in (("INCR", "SET"), ("SET", "DEL")):
                with unused(server, place, message):
                    ann.get("/get/k")
                    bob.get("/incr/n")
                    ann.get("/set/k/1")
                    bob.get("/del/k")
            with server.between(("GET", "INCR"), run=print):
                ann.get("/get/k")
                bob.get("/incr/n")

    def test_a_new_connection_with_another_token_is_another_client(self, server: KVServer) -> None:
        readers = {"Authorization": f"Bearer {server.read_only_token}"}
        with unused(server, ("GET", "SET"), "saw GET of client 1; SET of client 2."):
            httpx.get(server.url + "/get/k", headers=readers)
            httpx.get(server.url + "/set/k/1", headers=server.headers)

    def test_requests_without_a_socket_continue_the_sequence(self) -> None:
        with Cloud(transport="inprocess") as cloud:
            server = cloud.kv_server()
            client = Redis(server.url, server.token, allow_telemetry=False)
            with server.between(("GET", "SET"), run=["SET", "k", "stolen"]) as between:
                client.get("k")
                client.set("k", "1", nx=True)
            assert between.hits == 1
            with server.between(run=["INCR", "n"]) as between:
                client.get("k")
                with server.faults.delay(0):  # which uses a socket
                    client.get("k")
                client.get("k")
            assert (between.hits, between.place) == (2, 2)

    def test_restoring_data_begins_a_new_sequence(self, server: KVServer) -> None:
        before = server.snapshot()
        with unused(server, ("GET", "SET"), "saw GET of client 1; SET of client 2."):
            httpx.get(server.url + "/get/k", headers=server.headers)
            server.restore(before)
            httpx.get(server.url + "/set/k/1", headers=server.headers)

    def test_the_tests_own_commands_are_not_a_clients(self, server: KVServer) -> None:
        with unused(server, None, "saw no command of a client."):
            server.execute("GET", "k")
            server.execute("SET", "k", 1)

    def test_clients_at_the_same_time(self, server: KVServer) -> None:
        def work() -> None:
            with httpx.Client(base_url=server.url, headers=server.headers) as http:
                for _ in range(20):
                    http.get("/get/k")
                    http.get("/incr/k")

        with server.between(("GET", "INCR"), run=["INCR", "rival"]) as between:
            in_threads(*[work] * 4)
        assert server.value("k") == "80"
        assert server.integer("rival") == between.hits > 0

    def test_many_clients_are_forgotten(
        self, server: KVServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pytest_fakecloud.kv.interruptions._MOST_CLIENTS", 3)
        with server.between(("GET", "SET"), run=print):
            for _ in range(5):
                httpx.get(server.url + "/get/k", headers=server.headers)
            (interruption,) = server._app.interruptions
            assert len(interruption._progress) == 3
            httpx.get(server.url + "/set/k/1", headers=server.headers)

    def test_the_error_lists_the_first_commands(self, server: KVServer) -> None:
        message = f"saw {', '.join(['GET'] * 40)}; and 5 more commands."
        with unused(server, ("GET", "SET"), message):
            next(over_pipeline(server))([["GET", "k"]] * 45)


class TestTransactions:
    """Nothing runs inside a transaction or a script."""

    WORK = (["GET", "k"], ["SET", "k", 1])

    def over_rest(self, server: KVServer) -> None:
        http = httpx.Client(base_url=server.url, headers=server.headers)
        with http:
            http.post("/", json=["GET", "k"])
            http.post("/multi-exec", json=list(self.WORK)).raise_for_status()
            http.post("/", json=["STRLEN", "k"])

    def over_redis(self, server: KVServer) -> None:
        with redis.Redis.from_url(server.database_url) as client:
            client.get("k")
            with client.pipeline() as pipe:
                pipe.get("k").set("k", 1).execute()
            client.strlen("k")

    @pytest.fixture(params=["over_rest", "over_redis"])
    def work(self, request: pytest.FixtureRequest) -> Callable[[KVServer], None]:
        return getattr(self, request.param)  # type: ignore[no-any-return]

    def test_between_its_commands(self, server: KVServer, work: Callable[..., None]) -> None:
        saw = "GET, MULTI, GET, SET, EXEC, STRLEN. Nothing runs inside a transaction"
        for place in (("GET", "SET"), ("MULTI", "GET"), ("SET", "EXEC"), 2, 3, 4):
            with unused(server, place, saw):
                work(server)

    def test_before_and_after_it(self, server: KVServer, work: Callable[..., None]) -> None:
        places = []
        with server.between(run=lambda: places.append(between.place)) as between:
            work(server)
        assert places == [1, 5]
        for place in (("GET", "MULTI"), ("EXEC", "STRLEN")):
            with server.between(place, run=print):
                work(server)

    def test_a_watched_key_that_another_client_changes(self, server: KVServer) -> None:
        with (
            redis.Redis.from_url(server.database_url) as client,
            client.pipeline() as pipe,
            server.between(("GET", "MULTI"), run=["SET", "k", "rival"]),
        ):
            pipe.watch("k")
            pipe.get("k")
            pipe.multi()
            pipe.set("k", "mine")
            with pytest.raises(redis.WatchError):
                pipe.execute()
        assert server.value("k") == "rival"

    def test_a_script_is_one_command(self, server: KVServer, send: Send) -> None:
        script = "redis.call('GET', 'k') redis.call('SET', 'k', '1')"
        with unused(server, ("GET", "SET"), "saw EVAL."):
            send([["EVAL", script, "0"]])


class TestUnused:
    def test_an_exception_of_the_block_is_not_replaced(self, server: KVServer) -> None:
        with pytest.raises(ZeroDivisionError), server.between(("GET", "SET"), run=print):
            raise ZeroDivisionError

        def loop() -> None:
            for _ in server.between(run=print):
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            loop()
        assert not server._app.interruptions

    def test_an_interruption_that_could_not_raise_is_unmet(self) -> None:
        with Cloud() as cloud:
            server = cloud.kv_server()
            with pytest.raises(ZeroDivisionError), server.between(("GET", "SET"), run=print):
                _ = 1 / 0
            server.between(3, run=print).remove()
            for _ in server.between(run=print):
                break
            texts = [violation.text for violation in cloud.violations().where(kind="unmet")]
            assert [text.partition(" interrupted nothing. ")[0] for text in texts] == [
                "kv_server: between(('GET', 'SET'))",
                "kv_server: between(3)",
                "kv_server: between()",
            ]
            server.reset()
            assert not cloud.violations()

    def test_an_ended_interruption_is_not_used_again(self, server: KVServer) -> None:
        between = server.between(run=print)
        with between:
            next(over_pipeline(server))(LINES)
        for use in (between.__enter__, lambda: next(iter(between))):
            with pytest.raises(ContractError, match="has ended: call between"):
                use()


class TestPositions:
    def post(self, server: KVServer, lines: Sequence[list[Any]] = LINES) -> httpx.Response:
        return httpx.post(server.url + "/pipeline", json=lines, headers=server.headers)

    def send(self, server: KVServer) -> list[Any]:
        return [item["result"] for item in self.post(server).json()]

    @pytest.mark.parametrize("run", [["INCR", "n"], None])
    def test_reports_show_the_command(self, server: KVServer, run: Any) -> None:
        with server.between(1, run=run or (lambda: server.execute("INCR", "n"))):
            self.send(server)
        (action,) = server.journal._recorder.shared.actions
        assert (action.kind, action.data["arguments"]) == ("execute", ["'INCR'", "'n'"])
        assert action.data["where"]["file"] == __file__

    @pytest.mark.parametrize(
        "names", [("G*", "G*"), (re.compile("^GET$"), "get"), (ANY, lambda name: name == "GET")]
    )
    def test_between_two_that_are_asked_for(self, server: KVServer, names: Any) -> None:
        server.execute("SET", "n", 0)
        with server.between(names, run=["INCR", "n"]) as between:
            answer = self.post(server, [["GET", "n"], ["GET", "n"]])
        assert answer.json() == [{"result": "0"}, {"result": "1"}]
        assert between.hits == 1

    def test_positions_continue_over_calls_of_one_turn(self, server: KVServer) -> None:
        hits = []
        between = server.between(run=lambda: hits.append(between.place))
        for _ in between:
            self.send(server)
            self.send(server)
        assert hits == [1, 2, 3, 4, 5, 6, 7]

    def test_a_loop_that_is_left_leaves_no_race(self, server: KVServer) -> None:
        between = server.between(run=["INCR", "n"])
        for place in between:
            assert self.send(server) == [None, "OK", "1", "1"]
            assert place == 1
            break
        between.remove()
        between.remove()
        assert self.send(server) == ["1", "OK", "1", "1"]

    def test_a_number_is_reached_once_per_client(self, server: KVServer) -> None:
        with server.between(1, run=["INCR", "n"]):
            assert self.send(server) == [None, "OK", "1", "1"]
            assert self.send(server) == ["1", "OK", "1", "1"]

    def test_a_single_position_is_no_loop(self, server: KVServer) -> None:
        with pytest.raises(ContractError, match="cannot be iterated"):
            list(server.between(1, run=lambda: None))

    def test_a_function_whose_code_would_not_run_is_refused(self, server: KVServer) -> None:
        async def rival() -> None:
            """Never called."""

        def steps() -> Iterator[None]:
            yield

        for run in (rival, steps):
            with pytest.raises(ContractError, match="must be awaited or iterated"):
                server.between(1, run=run)

    def test_a_failure_is_the_tests_own(self, server: KVServer) -> None:
        def rival() -> None:
            raise ValueError("of the test")

        for run, message in (
            (rival, "ValueError('of the test')"),
            (["NOPE"], "Command is not available"),
        ):
            with server.between(2, run=run):
                answer = self.post(server)
            assert answer.status_code == 500
            violation = server._context.violations.pop()
            assert isinstance(violation.exception, ContractError)
            assert "the run= of between() failed after 2 commands" in violation.text
            assert message in violation.text
