"""Hostile frames for the database port, and what the parser and the port must do with them.

``python -m tests.kv.fuzzing 100000`` tries that many on the parser and a hundredth of them on a
port; the suite tries a few. The commands read are the same for any division of the bytes into
packets. Nothing but ``ProtocolFault`` is raised, no command holds more than was sent, and a port
answers or closes every connection.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.kv.fake import KVServer
from pytest_fakecloud.kv.resp.wire import CommandReader, ProtocolFault

from ..robustness.grammar import Fuzzer, damaged, exchanged, packets
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
    data = b"".join(frame(luck) for _ in range(luck.randint(1, 5)))
    return damaged(data, luck, [b"\r", b"\n", b"*", b"$"])


def read(parts: list[bytes], authenticated: bool) -> tuple[list[list[bytes]], bytes | None]:
    """Return the commands that were read, and the text of a fault."""
    reader = CommandReader(lambda: authenticated, lambda: 2**29, lambda: 2**20)
    commands: list[list[bytes]] = []
    for part in parts:
        reader.feed(part)
        try:
            while (words := reader.next()) is not None:
                commands.append(words)
        except ProtocolFault as fault:
            return commands, fault.text
    return commands, None


def attempt(luck: random.Random) -> str:
    """Try one connection on the parser; return how it ended."""
    data, authenticated = wire(luck), luck.random() < 0.7
    whole = read([data], authenticated)
    assert sum(len(word) for words in whole[0] for word in words) <= len(data), data
    for other in (packets(data, luck), [data[at : at + 1] for at in range(len(data))]):
        assert read(other, authenticated) == whole, (data, whole, read(other, authenticated))
    return "read" if whole[1] is None else whole[1].decode("utf-8", "replace").partition(",")[0]


@contextmanager
def port() -> Iterator[Callable[[random.Random], str]]:
    """Yield a function that tries one connection on a port."""
    context = Context.alone()
    with KVServer(context) as server:
        login, _, address = server.database_url.rpartition("@")
        host, _, number = address.rpartition(":")
        authenticate = pack([b"AUTH", login.rpartition(":")[2].encode()])

        def attempt_port(luck: random.Random) -> str:
            data = (authenticate if luck.random() < 0.7 else b"") + wire(luck)
            got = exchanged((host, int(number)), data)
            assert b"internal error" not in got, (data, got)
            return "answered" if got else "ended"

        yield attempt_port
        server.execute("FLUSHALL")
        assert not [violation for violation in context.violations if violation.kind == "bug"]


FUZZER = Fuzzer(attempt, port)
if __name__ == "__main__":
    FUZZER.main()
