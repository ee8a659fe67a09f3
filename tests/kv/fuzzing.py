"""Hostile frames for the database port, and what the parser and the port must do with them.

``python -m tests.kv.fuzzing 100000`` tries that many on the parser and a hundredth of them on a
port; the suite tries a few. The commands read are the same for any division of the bytes into
packets. Nothing but ``ProtocolFault`` is raised, no command holds more than was sent, and a port
answers or closes every connection.
"""

from __future__ import annotations

import contextlib
import random
import socket
import sys
from collections import Counter

from pytest_fakecloud.handle import Context
from pytest_fakecloud.kv.handle import KVServer
from pytest_fakecloud.kv.resp.wire import CommandReader, ProtocolFault

from .comparison.wire import pack

COUNTS = ["-1", "0", "1", "2", "3", "03", "+3", "3 ", "x", "", "2147483647", "2147483648", "9" * 25]
LENGTHS = ["-1", "0", "1", "03", "x", "", "16384", "16385", "536870912", "536870913", "9" * 25, "٣"]
WORDS = [
    b"SET", b"GET", b"k", b"", b"\0", b"\r\n", b"*1\r\n$4\r\nPING\r\n", b"x" * 300, b"\xff\xfe",
    b"EVAL",
]  # fmt: skip
INLINE = [
    b"PING", b"", b" ", b"GET k", b'SET k "a b"', b'SET k "a', b"SET k 'a\\'b'", b'"\\xzz"', b'"a"b',
    b"GET / HTTP/1.1", b"*", b"$3", b"\0", b"\xff" * 10, b"x" * 2000,
]  # fmt: skip
LINES = [
    ["PING"], ["SET", "k", "v"], ["GET", "k"], ["MULTI"], ["EXEC"], ["SUBSCRIBE", "c"], ["UNSUBSCRIBE"],
    ["HELLO", "3"], ["HELLO", "9"], ["RESET"], ["CLIENT", "REPLY", "SKIP"], ["CLIENT", "REPLY", "OFF"],
    ["MONITOR"], ["QUIT"], ["INFO"], ["COMMAND", "COUNT"], ["NOSUCH"], ["CLIENT", "KILL", "ID", "1"],
    ["EVAL", "return 1", "0"], ["PUBLISH", "c", "m"], ["LRANGE", "k", "0", "x"], ["AUTH", "wrong"],
]  # fmt: skip


def frame(luck: random.Random) -> bytes:
    """Return one command, valid or not."""
    kind = luck.random()
    if kind < 0.5:
        return pack([word.encode() for word in luck.choice(LINES)])
    if kind < 0.65:
        return luck.choice(INLINE) + luck.choice([b"\r\n", b"\n", b"\r\n\r\n", b"\r"])
    if kind < 0.8:
        return pack(luck.sample(WORDS, luck.randint(0, 4)))
    words = luck.sample(WORDS, 2)
    count = luck.choice([*COUNTS, "2", "2", "2"])
    lengths = [luck.choice([*LENGTHS, *[str(len(word))] * 6]) for word in words]
    parts = [
        f"${length}\r\n".encode() + word + b"\r\n"
        for length, word in zip(lengths, words, strict=True)
    ]
    return f"*{count}\r\n".encode() + b"".join(parts)


def wire(luck: random.Random) -> bytes:
    """Return the bytes of one connection: some commands, perhaps damaged."""
    data = bytearray(b"".join(frame(luck) for _ in range(luck.randint(1, 5))))
    for _ in range(luck.choice([0, 0, 0, 0, 1, 3])):
        at = luck.randrange(len(data) + 1)
        damage = luck.choice([b"", b"\0", b"\r", b"\n", b"*", b"$", bytes([luck.randrange(256)])])
        data[at : at + luck.choice([0, 1, 1, 20])] = damage
    return bytes(data)


def read(parts: list[bytes], known: bool) -> tuple[list[list[bytes]], bytes | None]:
    """Return the commands that were read, and the text of a fault."""
    reader = CommandReader(lambda: known, lambda: 2**29, lambda: 2**20)
    found: list[list[bytes]] = []
    for part in parts:
        reader.feed(part)
        try:
            while (words := reader.next()) is not None:
                found.append(words)
        except ProtocolFault as fault:
            return found, fault.text
    return found, None


def attempt(luck: random.Random) -> str:
    """Try one connection on the parser; return how it ended."""
    data, known = wire(luck), luck.random() < 0.7
    whole = read([data], known)
    assert sum(len(word) for words in whole[0] for word in words) <= len(data), data
    edges = sorted(luck.randrange(len(data) + 1) for _ in range(luck.randint(0, 8)))
    parts = [data[a:b] for a, b in zip([0, *edges], [*edges, len(data)], strict=True) if a < b]
    for other in (parts, [data[at : at + 1] for at in range(len(data))]):
        assert read(other, known) == whole, (data, whole, read(other, known))
    return "read" if whole[1] is None else whole[1].decode("utf-8", "replace").partition(",")[0]


def attempt_port(server: KVServer, login: bytes, luck: random.Random) -> str:
    """Try one connection on a port; return how it ended, within ten seconds."""
    host, _, port = server.database_url.rpartition("@")[2].rpartition(":")
    data = (login if luck.random() < 0.7 else b"") + wire(luck)
    with socket.create_connection((host, int(port)), 10) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
        got = b""
        with contextlib.suppress(ConnectionError):
            while part := client.recv(65536):
                got += part
    assert b"internal error" not in got, (data, got)
    return "answered" if got else "ended"


def main(rounds: int, on_port: int, seed: int = 0) -> tuple[Counter[str], Counter[str]]:
    """Run a number of rounds on the parser and on a port; count how they ended."""
    luck = random.Random(seed)
    read_ones = Counter(attempt(luck) for _ in range(rounds))
    context = Context.alone()
    with KVServer(context) as server:
        where = server.database_url.rpartition("@")[0]
        login = pack([b"AUTH", where.rpartition(":")[2].encode()])
        port_ones = Counter(attempt_port(server, login, luck) for _ in range(on_port))
        server.execute("FLUSHALL")
        assert not [problem for problem in context.problems if problem.kind == "bug"]
    return read_ones, port_ones


if __name__ == "__main__":
    rounds = int(sys.argv[1])
    print(*main(rounds, rounds // 100, int(sys.argv[2]) if len(sys.argv) > 2 else 0), sep="\n")
