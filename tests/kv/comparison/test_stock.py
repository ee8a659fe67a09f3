"""The stock dialect, compared with the server it announces line by line, in RESP2 and RESP3."""

from __future__ import annotations

import itertools
import random
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.kv.acl import CATEGORIES
from pytest_fakecloud.kv.config import PARAMETERS
from pytest_fakecloud.kv.settings import VERSION
from tests.budget import cases
from tests.kv.backing import free_port
from tests.notations import sections

from .faces import Face, InProcess, Port
from .servers import RealServer, running
from .wire import Status, Typed, words

STORIES = sections(Path(__file__).with_name("stock_stories.txt"))
LINES = sections(Path(__file__).with_name("stock_lines.txt"))


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with running(version=VERSION["redis"]) as server:
        yield server


@pytest.fixture(params=[2, 3], ids=["resp2", "resp3"])
def both(request: pytest.FixtureRequest, server: RealServer) -> Iterator[tuple[Face, RealServer]]:
    server.call([b"RESET"])
    server.speak(request.param)
    with Cloud() as cloud:
        face = Port(cloud.kv_server(dialect="redis").database_url, request.param)
        for side in (face, server):
            for line in ("FLUSHALL", "SADD s a b c", "HSET h a 1", "ZADD z 1 a"):
                side.call(words(line))
        yield face, server
        face.close()


@pytest.mark.parametrize("story", STORIES)
def test_a_line_gets_the_same_reply(both: tuple[Face, RealServer], story: str) -> None:
    ours, real = both
    for line in STORIES[story]:
        assert ours.call(words(line)) == real.call(words(line)), line


@pytest.mark.parametrize("line", LINES["cursors"])
def test_a_cursor_leads_to_the_same_cursor(both: tuple[Face, RealServer], line: str) -> None:
    """The items of such a page depend on the server's hashes, which change with each start."""
    replies = [reply.call(words(line)) for reply in both]
    ours, real = (reply[0] if isinstance(reply, list) else reply for reply in replies)
    assert ours == real


def test_a_negative_cursor_ends_a_scan_of_a_set(both: tuple[Face, RealServer]) -> None:
    ours, real = both
    for side in both:
        side.call([b"SADD", b"many", *(b"m%d" % n for n in range(500))])
    for reply in (ours.call(words("SSCAN many -1")), real.call(words("SSCAN many -1"))):
        assert len(reply[1]) < 20


USER = "ACL SETUSER u reset on >p ~a* &x +@all -get -config|set -acl"


def test_acl_log_is_the_same(server: RealServer) -> None:
    def logged(client: Any, admin: Any) -> list[Any]:
        for line in (USER, "ACL LOG RESET"):
            admin.call(words(line))
        for line in ("AUTH u p", *LINES["denied"]):
            client.call(words(line))
        admin.call(words("ACL SETUSER u +get"))
        for line in ("MULTI", "GET a", "SET a 1"):
            client.call(words(line))
        admin.call(words("ACL SETUSER u -get resetkeys"))
        client.call([b"EXEC"])
        entries = admin.call([b"ACL", b"LOG"])
        admin.call([b"ACL", b"DELUSER", b"u"])
        return [_entry(dict(zip(entry[::2], entry[1::2], strict=True))) for entry in entries]

    with Cloud() as cloud:
        url = cloud.kv_server(dialect="redis").database_url
        assert logged(Port(url), Port(url)) == logged(server.again(), server.again())


def _entry(entry: dict[bytes, Any]) -> list[Any]:
    keys = (b"count", b"reason", b"context", b"object", b"username")
    return [*(entry[key] for key in keys), _client(entry[b"client-info"])]


def _client(line: bytes) -> dict[bytes, bytes]:
    pairs = [field.split(b"=") for field in line.split()]
    client = {name: value for name, value in pairs if name in (b"cmd", b"multi", b"flags", b"user")}
    # The real server is asked over a Unix socket, which adds U to the flags.
    client[b"flags"] = client[b"flags"].replace(b"U", b"").replace(b"N", b"")
    return client


def test_a_server_without_a_password_is_the_same(server: RealServer) -> None:
    def replies(*clients: Any) -> list[Any]:
        lines = LINES["passwords"]
        numbered = [line.partition(" ")[::2] for line in lines]
        return [clients[int(number)].call(words(line)) for number, line in numbered]

    with Cloud() as cloud:
        url = cloud.kv_server(dialect="redis", database_password="").database_url
        assert replies(Port(url), Port(url)) == replies(server.again(), server.again())


def test_client_list_is_the_same(server: RealServer) -> None:
    def listed(client: Any, admin: Any) -> list[Any]:
        number = client.call([b"CLIENT", b"ID"])
        clients = []
        for line in LINES["listed"]:
            reply = client.call(words(line))
            if line == "EXEC" and isinstance(reply, list):
                fields = next(
                    line for line in reply[1].splitlines() if line.startswith(b"id=%d " % number)
                )
                clients.append(_client(fields))
            clients.append(_client(admin.call([b"CLIENT", b"LIST", b"ID", b"%d" % number])))
        return clients

    with Cloud() as cloud:
        url = cloud.kv_server(dialect="redis").database_url
        assert listed(Port(url), Port(url)) == listed(server.again(), server.again())


def test_the_rules_of_a_user_are_written_the_same_way(server: RealServer) -> None:
    """Categories are in the same order; the server orders single commands by hashes of its own."""
    ours = InProcess(version=server.version)
    chance = random.Random(20261121)
    names = sorted(name.decode() for name in server.call([b"COMMAND", b"LIST"]))
    for _ in range(cases(3)):
        rules = [
            chance.choice("+-")
            + chance.choice(["@all", "@" + chance.choice(CATEGORIES), chance.choice(names)])
            for _ in range(chance.randint(1, 6))
        ]
        parsed = []
        for side in (ours, server):
            side.call(words(" ".join(["ACL SETUSER u reset", *rules])))
            reply = side.call([b"ACL", b"GETUSER", b"u"])
            flat = reply.value if isinstance(reply, Typed) else reply
            text = flat[flat.index(b"commands") + 1].split()
            parsed.append(
                ([w for w in text if b"@" in w], sorted(w for w in text if b"@" not in w))
            )
        assert parsed[0] == parsed[1], rules


ARRAYS = "local t = {{}} for i = 1, {} do t = {{t}} end return t"
NESTED = [
    *(ARRAYS.format(depth) for depth in (100, 2000, 7994, 7995, 20_000)),
    "local t = 1 for i = 1, 7995 do t = {t} end return t",
    *(
        f"redis.setresp(3) local t = {{}} for i = 1, {depth} do t = {{{kind}}} end return t"
        for kind, depths in {
            "map = {a = t}": (500, 2664, 2665),
            "map = {[t] = 1}": (1998, 2000),
            "set = {[t] = true}": (2664, 2665),
        }.items()
        for depth in depths
    ),
    "redis.setresp(3) local t = {} for i = 1, 1000 do t = {map = {a = t}} end "
    "for i = 1, 4995 do t = {t} end return t",
    "local t = {} t[1] = t return t",
]


@pytest.mark.parametrize("script", NESTED, ids=range(len(NESTED)))
def test_a_reply_may_be_nested_as_deep(server: RealServer, script: str) -> None:
    def written(connection: Any) -> list[bytes]:
        """Return the lines of a reply that is too deep for a recursive reader."""
        connection.call([b"HELLO", b"3"])
        stream = connection.send([b"EVAL", script.encode(), b"0"])
        lines, items = [], 1
        while items:
            line = stream.readline()
            lines.append(line)
            items -= 1
            if line[:1] in b"*~%":
                items += int(line[1:]) * (2 if line[:1] == b"%" else 1)
            elif line[:1] == b"$" and int(line[1:]) >= 0:
                lines.append(stream.read(int(line[1:]) + 2))
        return lines

    with Cloud() as cloud:
        ours, real = Port(cloud.kv_server(dialect="redis").database_url), server.again()
        assert written(ours) == written(real)
        ours.close()
        real.close()


TRACKING = """\
OPTIN|OPTOUT|BCAST|NOLOOP|PREFIX a|PREFIX ab|PREFIX|REDIRECT 99999|REDIRECT x|REDIRECT SELF|FOO
REDIRECT 99999 REDIRECT x|REDIRECT SELF REDIRECT x"""
BEFORE = ("", "CLIENT TRACKING ON", "CLIENT TRACKING ON OPTIN", "CLIENT TRACKING ON OPTOUT",
          "CLIENT TRACKING ON BCAST PREFIX a")  # fmt: skip


@pytest.mark.parametrize("before", BEFORE)
def test_the_first_wrong_option_of_tracking_is_reported(
    both: tuple[Face, RealServer], before: str
) -> None:
    numbers = [b"%d" % reply.call([b"CLIENT", b"ID"]) for reply in both]
    for count, mode in ((0, "ON"), (1, "ON"), (2, "ON"), (3, "ON"), (1, "OFF"), (2, "MAYBE")):
        for chosen in itertools.combinations(re.split(r"[|\n]", TRACKING), count):
            line = " ".join(["CLIENT TRACKING", mode, *chosen])
            replies = []
            for client, number in zip(both, numbers, strict=True):
                client.call(words("CLIENT TRACKING OFF"))
                if before:
                    client.call(words(before))
                replies.append(
                    client.call([number if word == b"SELF" else word for word in words(line)])
                )
            assert replies[0] == replies[1], line


VALUES = LINES["values of parameters"]
NOT_SET = {
    "port tls-port bind": "the next tests set them on servers that listen",
    "maxclients": "the limit depends on the number of files that the server may open",
    "activedefrag": "it needs the allocator of the official build",
    "watchdog-period": "the shortest period depends on `hz`",
}
"""Parameters that the next test omits, with the reason."""


def test_every_parameter_accepts_the_same_values() -> None:
    excluded = " ".join(NOT_SET).split()
    assert set(excluded) < set(PARAMETERS)
    with running("redis", version=VERSION["redis"]) as server:
        ours = InProcess()
        for side in (ours, server):
            side.call(words("CONFIG SET save ''"))
        for name in sorted(set(PARAMETERS) - set(excluded)):
            for value in VALUES:
                replies = []
                for side in (ours, server):
                    reply = side.call([b"CONFIG", b"SET", name.encode(), *words(value)])
                    if reply == Status(b"OK"):
                        reply = side.call([b"CONFIG", b"GET", name.encode()])
                    replies.append(reply)
                assert replies[0] == replies[1], (name, value)


def test_addresses_that_a_server_cannot_listen_on_are_rejected() -> None:
    with (
        running("redis", "--port", str(free_port()), "--bind", "127.0.0.1") as server,
        Cloud() as cloud,
    ):
        ours = Port(cloud.kv_server(dialect="redis").database_url)
        for line in ("127.0.0.1", *LINES["addresses"]):
            for command in (f"CONFIG SET bind {line}", "CONFIG GET bind"):
                assert ours.call(words(command)) == server.call(words(command)), line
        ours.close()


def test_an_occupied_port_is_rejected(both: tuple[Face, RealServer]) -> None:
    ours, real = both
    with socket.socket() as taken, socket.socket() as free:
        for listener in (taken, free):
            listener.bind(("127.0.0.1", 0))
        taken.listen()
        numbers = [listener.getsockname()[1] for listener in (taken, free)]
        free.close()
        lines = [
            *(f"CONFIG SET port {number}" for number in (numbers[0], 70_000, "x", -1, "''")),
            f"CONFIG SET maxmemory 5mb port {numbers[0]}",
            "CONFIG GET maxmemory",
            "CONFIG SET tls-port 1",
            f"CONFIG SET port {numbers[1]}",
            f"CONFIG SET port {numbers[1]}",
            "CONFIG GET port",
            "CONFIG SET port 0",
        ]
        for line in lines:
            assert ours.call(words(line)) == real.call(words(line)), line
