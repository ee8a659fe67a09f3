"""Reads the commands of one connection to the database port, and sends its replies.

Commands have two forms, which differ in their first byte. In the Redis protocol, a command starts
with ``*`` and a count. An inline command is a line of words, which can be quoted as in a shell.
"""

from __future__ import annotations

import functools
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Literal

from ...core.clock import Timekeeper
from ...http.server import Connection
from ..algorithms.quoting import split_words
from ..reply import Encoded, Reply, to_resp

LINE_LIMIT = 64 * 1024
"""Maximum length in bytes of an inline command, and of a line with a count or a length."""
_COUNT = ord("*")
"""The first byte of a command in the Redis protocol."""
COUNT_LIMIT = 2**31 - 1
WORD_BYTES = 64
"""Number of bytes added for each word when the size of a command is compared with its limit."""
UNKNOWN_COUNT_LIMIT = 10
UNKNOWN_LENGTH_LIMIT = 16384
"""Maximum length in bytes of a word from a client that has not logged in."""

# What short commands begin with, and the lengths of their words, which are below every limit. Reading
# them at once saves a user of redis-py 8 % of a run of 300 small tests.
SHORT = 999
"""Maximum number of bytes of a command that ``short_command()`` parses."""
_BREAKS = {b"*%d\r\n" % count: 2 * count + 1 for count in range(1, 11)}
"""The number of line breaks of a command of one-line words, by its first line."""
_LENGTHS = [b"$%d" % length for length in range(SHORT)]


class ProtocolFault(Exception):
    """Raised for bytes that are not a command. ``text`` is the error reply before closing."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.text = f"ERR Protocol error: {reason}".encode()


def protocol_of(begun: bytes) -> Literal["redis", "http"] | None:
    """Return the protocol of a connection, given its first bytes, or None if it is still open."""
    if begun[:1] == b"*":
        return "redis"
    end = begun.find(b"\n")
    if end < 0:
        return "redis" if len(begun) > LINE_LIMIT or b"\0" in begun else None
    line = begun[:end].rstrip(b"\r")
    return "http" if line[-9:-1] == b" HTTP/1." and line[-1:].isdigit() else "redis"


class CommandReader:
    """Splits received bytes into command lines, in time proportional to the number of bytes.

    ``is_known`` returns whether the client has logged in. Before that, a command may have at most ten
    words of 16 KiB each. ``longest`` returns the maximum size of a word in bytes
    (``proto-max-bulk-len``), ``most`` the maximum size of a command
    (``client-query-buffer-limit``). Both limits must allow ``SHORT`` bytes in ten words.
    """

    def __init__(
        self,
        is_known: Callable[[], bool],
        longest: Callable[[], int],
        most: Callable[[], int] = lambda: 2**30,
    ) -> None:
        self._known = is_known
        self._longest = longest
        self._most = most
        self._buffer: bytes | bytearray = b""
        """The received bytes; a ``bytearray`` if a command has arrived in several parts."""
        self._at = 0
        """Position in the buffer of the first byte that has not been parsed."""
        self._words: list[bytes] = []
        """The words of the current command that have been read."""
        self._held = 0
        """Estimated size in bytes of these words."""
        self._missing = 0
        """Number of words that the current command still lacks."""
        self._length: int | None = None
        """Size in bytes of the next word; None until its header has been read."""

    def feed(self, data: bytes) -> None:
        if self._at == len(self._buffer):
            self._buffer = data
        else:
            if isinstance(self._buffer, bytes):
                self._buffer = bytearray(self._buffer)
            del self._buffer[: self._at]
            self._buffer += data
        self._at = 0

    @property
    def pending(self) -> bool:
        """Whether there are bytes that no command returned so far has consumed."""
        return self._missing > 0 or self._at < len(self._buffer)

    def next(self) -> list[bytes] | None:
        """Return the next command line that is not empty, or None; raise ``ProtocolFault``."""
        # Each of these methods returns None if bytes are missing. An empty list is no command: the
        # words of the command follow, or its line is empty.
        words: list[bytes] | None
        while self._missing or self._at < len(self._buffer):
            at = self._at
            if self._missing:
                words = self._read_words()
            else:
                words, size = short_command(bytes(self._buffer[at : at + SHORT]))
                if words:
                    self._at = at + size
                    return words
                words = self._read_count() if self._buffer[at] == _COUNT else self._read_inline()
            if words is None or words:
                return words
        return None

    def _read_inline(self) -> list[bytes] | None:
        line = self._line("too big inline request")
        if line is None:
            return None
        words = split_words(line)
        if words is None:
            raise ProtocolFault("unbalanced quotes in request")
        return words

    def _line(self, too_big: str) -> bytes | None:
        end = self._buffer.find(b"\n", self._at, self._at + LINE_LIMIT + 1)
        if self._buffer.find(b"\0", self._at, end if end >= 0 else self._at + LINE_LIMIT) >= 0:
            # A real server finds no line break behind a NUL byte, so it never runs the commands in the
            # bytes that follow, for example of a TLS handshake. Here, the connection ends at once.
            raise ProtocolFault("NUL byte in a line")
        if end < 0:
            if len(self._buffer) - self._at > LINE_LIMIT:
                raise ProtocolFault(too_big)
            return None
        line = bytes(self._buffer[self._at : end])
        self._at = end + 1
        return line[:-1] if line.endswith(b"\r") else line

    def _read_count(self) -> list[bytes] | None:
        line = self._line("too big mbulk count string")
        if line is None:
            return None
        count = _number(line[1:])
        if count is None or count > COUNT_LIMIT:
            raise ProtocolFault("invalid multibulk length")
        if count > UNKNOWN_COUNT_LIMIT and not self._known():
            raise ProtocolFault("unauthenticated multibulk length")
        self._missing = max(count, 0)
        return []

    def _read_words(self) -> list[bytes] | None:
        buffer, words = self._buffer, self._words
        longest, most = self._longest(), self._most()
        while self._missing:
            length = self._length
            if length is None:
                length = self._length = self._read_length(longest)
                if length is None:
                    return None
            start = self._at
            end = start + length
            if len(buffer) < end + 2:
                return None
            if length <= LINE_LIMIT:
                words.append(bytes(buffer[start:end]))
            else:
                with memoryview(buffer) as view:
                    words.append(bytes(view[start:end]))
            # Like a real server, skip the two bytes of the line break without checking them.
            self._at = end + 2
            if self._at == len(buffer):
                # Discard the bytes now, to keep no second copy of a large word during its command.
                buffer = self._buffer = b""
                self._at = 0
            self._held += length + WORD_BYTES
            if self._held > most:
                raise ProtocolFault("too big request")
            self._length = None
            self._missing -= 1
        self._words = []
        self._held = 0
        return words

    def _read_length(self, longest: int) -> int | None:
        line = self._line("too big bulk count string")
        if line is None:
            return None
        if line[:1] != b"$":
            shown = chr(line[0]) if line else "\r"
            raise ProtocolFault(f"expected '$', got '{shown}'")
        length = _number(line[1:])
        if length is None or not 0 <= length <= longest:
            raise ProtocolFault("invalid bulk length")
        if length > UNKNOWN_LENGTH_LIMIT and not self._known():
            raise ProtocolFault("unauthenticated bulk length")
        return length


def short_command(data: bytes) -> tuple[list[bytes], int]:
    """Return the words of the command at the beginning of at most ``SHORT`` bytes, and its size in
    bytes; no words and 0 unless the command is complete and has few words of one line.
    """
    breaks = _BREAKS.get(data[:4]) or _BREAKS.get(data[:5])
    if breaks is None or len(data) > SHORT:
        return [], 0
    parts = data.split(b"\r\n", breaks)
    if len(parts) <= breaks:
        return [], 0
    words = parts[2::2]
    if parts[1:-1:2] != [*map(_LENGTHS.__getitem__, map(len, words))]:
        return [], 0
    return words, len(data) - len(parts[-1])


def _number(text: bytes) -> int | None:
    digits = text[1:] if text[:1] == b"-" else text
    if not digits.isdigit() or len(digits) > 20 or (digits[:1] == b"0" and len(text) > 1):
        return None
    return int(text)


class ExecMessages:
    """Encoded messages that stand in the reply to EXEC, by the index of the command that caused them."""

    def __init__(self) -> None:
        self.instead: defaultdict[int, bytes] = defaultdict(bytes)
        """Confirmations of SUBSCRIBE, which stand instead of the reply to it."""
        self.before: defaultdict[int, bytes] = defaultdict(bytes)
        """Published messages, which stand before the reply to the command (before Redis 7.2)."""

    def fill(self, reply: Reply, resp: int) -> Reply:
        """Return a reply with the messages in it. Only that to EXEC has any, unless EXEC has failed."""
        if not isinstance(reply, list):
            return reply
        replies: list[Reply] = list(reply)
        for at, data in self.instead.items():
            replies[at] = Encoded(data)
        for at, data in self.before.items():
            replies[at] = Encoded(data + to_resp(replies[at], resp))
        return replies


class Outbox:
    """Orders the messages that are written to a connection: replies, and what is pushed to its client.

    The thread that runs the connection's commands puts their replies here. Any thread can push a
    message. If the running command has reserved the place of its reply, the message follows the reply.
    """

    def __init__(
        self, connection: Connection, clock: Timekeeper, buffer_limits_text: Callable[[], str]
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._buffer_limits_text = buffer_limits_text
        self._lock = threading.Lock()
        """The lock of the messages. No thread waits while it holds it."""
        self._behind: list[bytes] = []
        """The messages that follow the reply to the running command."""
        self._is_reserved = False
        """Whether all messages follow this reply, because its place is reserved."""
        self._over_since_us: int | None = None

    def reserve(self) -> None:
        """Reserve the place of the reply to the running command. What is pushed now follows it.

        The reply itself is put there later, because a fault can replace it, and it is recorded first.
        """
        self._is_reserved = True  # As each call of push(), this is done under the engine's lock.

    def put(self, data: bytes, *, is_last: bool = False) -> None:
        """Write a reply, which can be empty, and the messages that follow it, unless it ``is_last``."""
        with self._lock:
            if data:
                self._connection.write(data)
            if not is_last:
                self._is_reserved = False
                if self._behind:
                    for message in self._behind:
                        self._connection.write(message)
                    self._behind.clear()

    def push(self, data: bytes, *, behind: bool = False) -> None:
        """Write a message. It follows the reply to the running command if it belongs ``behind`` it,
        or if the reply's place is reserved.
        """
        with self._lock:
            if behind or self._is_reserved:
                self._behind.append(data)
            else:
                self._connection.write(data)

    def exceeds_limits(self) -> bool:
        """Return whether the bytes that wait to be sent exceed ``client-output-buffer-limit``.

        Call this method after each push, because the soft limit depends on the time since it was
        exceeded. Clients that run MONITOR have the limits of subscribers, too (decided here).
        """
        hard, soft, seconds = _pubsub_limits(self._buffer_limits_text())
        waiting_bytes = self._connection.unsent_bytes + sum(map(len, self._behind))
        if hard and waiting_bytes > hard:
            return True
        if not soft or waiting_bytes <= soft:
            self._over_since_us = None
            return False
        now_us = self._clock.now_us()
        if self._over_since_us is None:
            self._over_since_us = now_us
        return now_us - self._over_since_us > seconds * 1_000_000


@functools.lru_cache(maxsize=16)
def _pubsub_limits(text: str) -> tuple[int, int, int]:
    """Return the limits of subscribers: hard and soft bytes, and the seconds above the soft one."""
    words = text.split()
    hard, soft, seconds = map(int, words[words.index("pubsub") + 1 :][:3])
    return hard, soft, seconds
