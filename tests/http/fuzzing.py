"""Generate hostile HTTP from a grammar, damage it, and check how it is parsed.

``python -m tests.http.fuzzing 100000`` runs that many rounds on the reader and a hundredth of them
on a server; the suite runs a few. A round is the data of one connection. However it is split into
packets, and whatever the connection has received before, the parsed requests are the same, none is
larger than the data, and no other exception is raised. Raw non-ASCII bytes in a target are excluded,
because they are accepted only if their whole line is in one packet.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from pytest_fakecloud.http.parsing import RequestReader

from ..demo import Demo
from ..robustness.grammar import Fuzzer, damaged, exchanged, packets

METHODS = ["GET", "POST", "PUT", "HEAD", "OPTIONS", "BREW", "CONNECT", "get", "G(T", "", "X" * 40]
TARGETS = ["/", "/a?b=c", "*", "//x", "http://h/x", "h:443", "/%00", "/a b", "", "/" + "y" * 300]
VERSIONS = [
    "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.7", "",
    "http/1.1",
]  # fmt: skip
ENDS = ["\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", "\r\r\n", "\n\r\n"]
LENGTHS = [
    "0", "5", "05", "+5", "-5", "5, 5", "5,6", " 5", "5 ", "0x5", "99999999999999999999", "", "5;a",
    "٥",
]  # fmt: skip
CODINGS = [
    "chunked", "Chunked", "chunked, chunked", "gzip, chunked", "chunked, identity", "identity",
    " chunked", "chunked ", "\tchunked", "x", "chunked\x00", "",
]  # fmt: skip
SIZES = [
    "5", "05", "5;a=b", '5;a="\r\n"', "5 ", " 5", "0x5", "-5", "", "ffffffffffffffff", "5\t", "g",
]  # fmt: skip
OTHERS = [
    "Connection: close", "Connection: keep-alive", "Connection: upgrade", "Upgrade: h2c",
    "Expect: 100-continue", "Expect: tea", "X: a\x00b", "X : a", " folded", "X", ": x", "X:" + "z" * 400,
    "Host: other", "X-\xe9: \xff", "Transfer_Encoding: chunked", "Content-Length\x00: 5",
]  # fmt: skip
BODY = "hello"
SMUGGLED = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"

Seen = tuple[str, str, tuple[tuple[str, str], ...], bytes]


def request(luck: random.Random) -> str:
    """Return one request, mostly valid, with one or more odd parts."""
    odd = luck.random() < 0.35

    def one(usual: str, odd_ones: list[str], chance: float = 0.25) -> str:
        return luck.choice(odd_ones) if odd and luck.random() < chance else usual

    end = one("\r\n", ENDS, 0.1)
    lines = [f"{one('POST', METHODS)} {one('/a', TARGETS)} {one('HTTP/1.1', VERSIONS)}"]
    lines += ["Host: h"] * (luck.choice([0, 2]) if odd and luck.random() < 0.1 else 1)
    kind = luck.choice(
        ["none", "length", "chunked", "both"] if odd else ["none", "length", "chunked"]
    )
    body = ""
    if kind in ("length", "both"):
        lines += [
            f"{one('Content-Length', ['content-length', 'Content-Length '])}: {one('5', LENGTHS)}"
        ]
        if odd and luck.random() < 0.1:
            lines.append(f"Content-Length: {luck.choice(LENGTHS)}")
        body = BODY
    if kind in ("chunked", "both"):
        lines.append(f"Transfer-Encoding: {one('chunked', CODINGS)}")
        if odd and luck.random() < 0.1:
            lines.append(f"Transfer-Encoding: {luck.choice(CODINGS)}")
        body = f"{one('5', SIZES)}{end}{BODY}{end}" * luck.randint(0, 3)
        trailers = "".join(f"T: {n}{end}" for n in range(luck.choice([0, 0, 1, 40])))
        body += f"{one('0', ['00', '0;x', '000000000000000000', ''], 0.1)}{end}{trailers}{end}"
    if odd:
        lines += luck.sample(OTHERS, luck.choice([0, 0, 1, 2]))
    fields = lines[1:]
    luck.shuffle(fields)
    return (
        end.join([lines[0], *fields, "", ""])
        + body
        + (SMUGGLED if odd and luck.random() < 0.2 else "")
    )


def wire(luck: random.Random) -> bytes:
    """Return the data of one connection: some requests, possibly damaged."""
    data = "".join(request(luck) for _ in range(luck.randint(1, 4))).encode("utf-8", "replace")
    times = (0, 0, 0, 0, 0, 1, 3)
    return damaged(data, luck, [b"\r", b"\n", b" "], times, below=128)


def read(
    parts: list[bytes], reader: RequestReader | None = None
) -> tuple[list[Seen], int | None, bool]:
    """Return the parsed requests, the status of a rejection, and whether a request is incomplete."""
    reader = reader or RequestReader(head_limit=2000, body_limit=10_000)
    seen: list[Seen] = []
    for part in parts:
        reader.feed(part)
        while reader.requests:
            message = reader.requests.popleft()
            seen.append(
                (message.method, message.target, tuple(message.headers.pairs), message.body)
            )
            if not message.keep_alive:
                return seen, None, False  # the data after a rejection is ignored
        if reader.malformed is not None:
            break
    return seen, reader.malformed.status if reader.malformed else None, reader.pending is not None


def warmed(data: bytes) -> RequestReader | None:
    """Return a reader that has read this data before; None if it was refused."""
    reader = RequestReader(head_limit=2000, body_limit=10_000)
    reader.feed(data)
    if reader.malformed is not None or reader.pending is not None or reader._head:
        return None
    if not all(message.keep_alive for message in reader.requests):
        return None
    reader.requests.clear()
    return reader


def attempt(luck: random.Random) -> str:
    """Check one connection on the reader; return how it ended, or raise ``AssertionError``."""
    data = wire(luck)
    whole = read([data])
    seen, status, _ = whole
    assert status is None or 400 <= status <= 505, (status, data)
    assert sum(len(body) for *_, body in seen) <= len(data), data
    for other in (read(packets(data, luck)), read([data[at : at + 1] for at in range(len(data))])):
        # A rejection because of a head's size may come sooner, but parsed requests must agree.
        assert other[0] == seen, (data, seen, other)
        assert (other[1] is None) == (status is None), (data, whole, other)
    reader = warmed(data)
    if reader is not None:
        assert read(packets(data, luck), reader) == whole, (data, "a connection that has seen it")
    return "served" if status is None else str(status)


def attempt_port(
    address: tuple[str, int],
    luck: random.Random,
    change: Callable[[bytes], bytes] = lambda data: data,
) -> str:
    """Check one connection on a server: it ends without a 500."""
    data = change(wire(luck))
    got = exchanged(address, data)
    statuses = re.findall(rb"(?:^|\n)HTTP/1\.1 (\d+)", got)
    assert b"500" not in statuses, (data, got)
    return statuses[-1].decode() if statuses else "ended"


@contextmanager
def port() -> Iterator[Callable[[random.Random], str]]:
    """Yield a function that checks one connection on a server."""
    with Demo() as demo:
        yield partial(attempt_port, demo.mount.address)
        assert not [violation for violation in demo.context.violations if violation.kind == "bug"]


FUZZER = Fuzzer(attempt, port)
if __name__ == "__main__":
    FUZZER.main()
