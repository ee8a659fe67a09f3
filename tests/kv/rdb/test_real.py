"""Dumps exchanged with a real server: DEBUG DIGEST of the data is the same on both sides."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.kv.fake import KVServer
from tests.budget import cases

from ..comparison.servers import RealServer
from ..comparison.wire import Error, pack, read
from .made import lines_of
from .packing import LIBRARY

BINARY = shutil.which("redis-server")
BATCH = 100

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BINARY is None, reason="no redis-server is installed"),
]


class Redis(RealServer):
    """A real server with its dump in a folder, from which it starts."""

    def __init__(self, folder: Path) -> None:
        options = ("--enable-debug-command", "yes", "--dir", str(folder))
        super().__init__("redis", BINARY or "", *options)

    def run(self, lines: Iterable[list[bytes]]) -> list[Any]:
        replies: list[Any] = []
        waiting = list(lines)
        for at in range(0, len(waiting), BATCH):
            batch = waiting[at : at + BATCH]
            self._socket.sendall(b"".join(map(pack, batch)))
            replies += [read(self._stream) for _ in batch]
        failed = [reply for reply in replies if isinstance(reply, Error)]
        assert not failed
        return [plain(reply) for reply in replies]


class Fake:
    def __init__(self) -> None:
        # The idle times of consumers are compared, so the clock is the machine's.
        context = Context.alone(clock="running")
        self.server = KVServer(context, dialect="redis", version="7.0", debug_command=True)
        self._session = self.server._engine.session()

    def run(self, lines: Iterable[list[bytes]]) -> list[Any]:
        return [plain(self.server._engine.execute(self._session, line)) for line in lines]


def plain(reply: Any) -> Any:
    """Return a reply without the distinction of statuses from strings, and maps from lists."""
    if isinstance(reply, list):
        return [plain(item) for item in reply]
    return getattr(reply, "text", reply)


@contextmanager
def redis(folder: Path) -> Iterator[Redis]:
    server = Redis(folder)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def fake() -> Iterator[Fake]:
    server = Fake()
    with server.server:
        yield server


def looks(keys: list[bytes], *, encodings: bool = True) -> list[list[bytes]]:
    lines = [[b"PEXPIRETIME", key] for key in keys]
    return lines + [[b"OBJECT", b"ENCODING", key] for key in keys] if encodings else lines


def groups_of(server: Redis | Fake, keys: list[bytes]) -> list[Any]:
    """Return what streams hold besides their entries, without idle times."""
    groups = []
    for key in keys:
        [reply] = server.run([[b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"]])
        about = dict(zip(reply[::2], reply[1::2], strict=True))
        # Deleted entries are not kept, so the number of nodes may differ.
        del about[b"radix-tree-keys"], about[b"radix-tree-nodes"]
        groups.append(about)
    return groups


def fill(server: Redis | Fake, count: int) -> list[bytes]:
    random = Random(24)
    names = [b"key:%d" % number for number in range(count)]
    server.run(line for name in names for line in lines_of(random, name))
    return names


def keys_of(server: Redis, count: int) -> tuple[list[bytes], list[bytes]]:
    names = fill(server, count)
    types = server.run([b"TYPE", name] for name in names)
    return names, [name for name, kind in zip(names, types, strict=True) if kind == b"stream"]


def same(
    first: Redis | Fake, second: Redis | Fake, keys: list[bytes], streams: list[bytes]
) -> None:
    digests = [[b"DEBUG", b"DIGEST-VALUE", *keys[at : at + 500]] for at in range(0, len(keys), 500)]
    mine, theirs = first.run(digests), second.run(digests)
    different = [
        key
        for key, our_value, their_value in zip(keys, chain(*mine), chain(*theirs), strict=True)
        if our_value != their_value
    ]
    assert not different
    assert first.run([[b"DEBUG", b"DIGEST"]]) == second.run([[b"DEBUG", b"DIGEST"]])
    assert first.run(looks(keys)) == second.run(looks(keys))
    assert groups_of(first, streams) == groups_of(second, streams)


def test_a_dump_of_redis_is_loaded_and_one_of_the_fake_starts_redis(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir()
    with redis(theirs) as first, fake() as copy:
        keys, streams = keys_of(first, cases(2000))
        first.run([[b"FUNCTION", b"LOAD", LIBRARY]])
        first.run([[b"SELECT", b"3"], [b"SET", b"there", b"3"], [b"SELECT", b"0"], [b"SAVE"]])
        copy.server.load(theirs / "dump.rdb")
        same(first, copy, keys, streams)
        assert copy.run([[b"FCALL", b"f", b"0"]]) == [7]
        copy.server.dump_rdb(ours / "dump.rdb")
        with redis(ours) as second:
            same(first, second, keys, streams)
            assert second.run([[b"FCALL", b"f", b"0"]]) == [7]


def test_redis_starts_from_what_the_fake_made(tmp_path: Path) -> None:
    with fake() as first:
        keys = fill(first, cases(300))
        first.server.dump_rdb(tmp_path / "dump.rdb")
        with redis(tmp_path) as second:
            same(first, second, keys, [])


def test_payloads_go_both_ways(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    with redis(tmp_path) as first, redis(folder) as second, fake() as copy, fake() as other:
        keys, streams = keys_of(first, cases(300))
        first.run([[b"SAVE"]])
        copy.server.load(tmp_path / "dump.rdb")
        restored_by(second, copy.run([b"DUMP", key] for key in keys), keys)
        restored_by(other, first.run([b"DUMP", key] for key in keys), keys)
        first.run([b"PERSIST", key] for key in keys)
        same(first, second, keys, streams)
        same(first, other, keys, streams)


def restored_by(server: Redis | Fake, payloads: list[bytes], keys: list[bytes]) -> None:
    pairs = zip(keys, payloads, strict=True)
    server.run([b"RESTORE", key, b"0", payload] for key, payload in pairs)
