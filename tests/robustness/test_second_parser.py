"""Compare our HTTP/1.1 parser with h11 on the same bytes.

Request smuggling relies on two parsers that disagree about the end of a request. Requests that both
accept must be equal; requests that only one accepts are counted by reason, and every reason must be
known.
"""

from __future__ import annotations

import random
import re
from collections import Counter

import h11
import pytest

from tests.budget import cases
from tests.http.fuzzing import Seen, read, wire

STRICTER = "ours refuses, h11 serves"
LOOSER = "h11 refuses, ours serves"


def read_by_h11(data: bytes) -> tuple[list[Seen], str | None]:
    """Return the requests that h11 reads, and the reason why it stopped."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=4000)
    connection.receive_data(data)
    seen: list[Seen] = []
    head: h11.Request | None = None
    body = b""
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            return seen, str(error)
        if event in (h11.NEED_DATA, h11.PAUSED):
            if event is h11.NEED_DATA or connection.their_state is h11.MUST_CLOSE:
                return seen, None
            _answer(connection)
            continue
        if isinstance(event, h11.Request):
            head, body = event, b""
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            seen.append(_seen(head, body))
            if connection.their_state is h11.MUST_CLOSE:
                return seen, None
            _answer(connection)
        else:
            return seen, None


def _answer(connection: h11.Connection) -> None:
    """Answer the request, so that h11 can read the next one."""
    if connection.our_state in (h11.SEND_RESPONSE, h11.IDLE):
        connection.send(h11.Response(status_code=404, headers=[("Content-Length", "0")]))
        connection.send(h11.EndOfMessage())
    if connection.our_state is h11.DONE and connection.their_state is h11.DONE:
        connection.start_next_cycle()


def _seen(head: h11.Request, body: bytes) -> Seen:
    pairs = tuple(
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in head.headers.raw_items()
    )
    return head.method.decode(), head.target.decode("latin-1"), pairs, body


def plain(seen: Seen) -> tuple[str, str, bytes, tuple[tuple[str, str], ...]]:
    """Return the parts that must be equal: method, target, body, and the fields except framing
    fields and trailers.
    """
    method, target, fields, body = seen
    plain_fields = [
        (name.lower(), value.strip()) for name, value in fields if name.lower() not in FRAMING
    ]
    return method, target, body, tuple(sorted(plain_fields))


FRAMING = {"content-length", "transfer-encoding", "t", "connection", "upgrade", "expect"}


def compare(data: bytes) -> str:
    """Parse the bytes with both and return how the results relate; raise ``AssertionError`` if
    accepted requests differ.
    """
    ours, status, _ = read([data])
    theirs, reason = read_by_h11(data)
    for our_request, their_request in zip(ours, theirs, strict=False):
        assert plain(our_request) == plain(their_request), (data, our_request, their_request)
    if len(ours) == len(theirs):
        return "both refuse" if status and reason else "the same"
    if len(ours) > len(theirs):
        return f"{LOOSER}: {_group(reason)}"
    return f"{STRICTER}: {status}"


def _group(reason: str | None) -> str:
    return re.sub(r"\d+|b?['\"].*", "", reason or "waits for more").strip()


KNOWN = {
    # It is safe to reject more than h11 does.
    *(f"{STRICTER}: {status}" for status in (400, 405, 413, 417, 431, 501, 505)),
    # RFC 9112 allows two spaces before the version (section 3) and an empty line before the request
    # (section 2.2); neither moves the end of a request.
    f"{LOOSER}: illegal request line: bytearray(",
    f"{LOOSER}: no request line received",
    # h11 ends every HTTP/1.0 connection; ours keeps those that request it.
    f"{LOOSER}: waits for more",
    f"{LOOSER}: Got data when expecting EOF",
}


def run(seed: int, rounds: int) -> None:
    luck = random.Random(seed)
    counts = Counter(compare(wire(luck)) for _ in range(rounds))
    assert counts["the same"] > rounds / 5
    assert counts["both refuse"] > rounds / 10
    assert set(counts) - {"the same", "both refuse"} <= KNOWN, counts


@pytest.mark.parametrize("seed", range(2))
def test_both_read_the_same(seed: int) -> None:
    run(seed, cases(700))


@pytest.mark.long
def test_both_read_the_same_for_long() -> None:
    run(random.randrange(2**32), 200_000)


def test_a_disagreement_is_found() -> None:
    """Check that the comparison can fail: a parser that accepts a length with a sign must be found."""
    head = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n"
    honest = head + b"helloGET /b HTTP/1.1\r\nHost: h\r\n\r\n"
    assert compare(honest) == "the same"
    assert plain(read([honest])[0][0]) != plain(read_by_h11(honest.replace(b"5", b"4", 1))[0][0])
