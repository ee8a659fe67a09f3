"""Parses commands from received bytes, without using sockets.

Commands have two forms, which differ in their first byte. In the Redis protocol, a command starts
with ``*`` and a count. An inline command is a line of words, which can be quoted as in a shell.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from ..algorithms.quoting import split_words

LINE_LIMIT = 64 * 1024
"""Maximum length in bytes of an inline command, and of a line with a count or a length."""
COUNT_LIMIT = 2**31 - 1
WORD_BYTES = 64
"""Number of bytes added for each word when the size of a command is compared with its limit."""
UNKNOWN_COUNT_LIMIT = 10
UNKNOWN_LENGTH_LIMIT = 16384
"""Maximum length in bytes of a word from a client that has not logged in."""

# Patterns for the counts and lengths that clients usually send, which are below every limit.
_FEW = re.compile(rb"\*([1-9]|10)\r?\n")
_SHORT = re.compile(rb"\$(0|[1-9][0-9]{0,2})\r?\n")


class ProtocolFault(Exception):
    """Raised for bytes that are not a command. ``text`` is the error reply before closing."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.text = f"ERR Protocol error: {reason}".encode()


def protocol_of(begun: bytes) -> Literal["native", "http", "inline"] | None:
    """Return the protocol of a connection, given its first bytes, or None if it is still open."""
    if begun[:1] == b"*":
        return "native"
    end = begun.find(b"\n")
    if end < 0:
        return "inline" if len(begun) > LINE_LIMIT else None
    line = begun[:end].rstrip(b"\r")
    return "http" if line[-9:-1] == b" HTTP/1." and line[-1:].isdigit() else "inline"


class CommandReader:
    """Splits received bytes into command lines, in time proportional to the number of bytes.

    ``known`` returns whether the client has logged in. Before that, a command may have at most ten
    words of 16 KiB each. ``longest`` returns the maximum size of a word in bytes
    (``proto-max-bulk-len``), ``most`` the maximum size of a command
    (``client-query-buffer-limit``). Both limits must allow ten words of 999 bytes.
    """

    def __init__(
        self,
        known: Callable[[], bool],
        longest: Callable[[], int],
        most: Callable[[], int] = lambda: 2**30,
    ) -> None:
        self._known = known
        self._longest = longest
        self._most = most
        self._buffer = bytearray()
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
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        self._buffer += data

    @property
    def pending(self) -> bool:
        """Whether a part of an incomplete command has been received."""
        return self._at < len(self._buffer) or self._missing > 0

    def next(self) -> list[bytes] | None:
        """Return the next command line that is not empty, or None; raise ``ProtocolFault``."""
        # Each of these methods returns None if bytes are missing. An empty list is no command: the
        # words of the command follow, or its line is empty.
        while self._missing or self._at < len(self._buffer):
            if self._missing:
                words = self._read_words()
            elif (words := self._read_short()) is None:
                is_inline = self._buffer[self._at] != ord("*")
                words = self._read_inline() if is_inline else self._read_count()
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

    def _read_short(self) -> list[bytes] | None:
        """Return the next command if it is complete and has few short words (the usual case)."""
        buffer = self._buffer
        announced = _FEW.match(buffer, self._at)
        if announced is None:
            return None
        at = announced.end()
        words = []
        for _ in range(int(announced[1])):
            announced = _SHORT.match(buffer, at)
            if announced is None:
                return None
            start = announced.end()
            at = start + int(announced[1])
            words.append(bytes(buffer[start:at]))
            at += 2
        if at > len(buffer):
            return None
        self._at = at
        return words

    def _line(self, too_big: str) -> bytes | None:
        end = self._buffer.find(b"\n", self._at, self._at + LINE_LIMIT + 1)
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
                buffer = self._buffer = bytearray()
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


def _number(text: bytes) -> int | None:
    digits = text[1:] if text[:1] == b"-" else text
    if not digits.isdigit() or len(digits) > 20 or (digits[:1] == b"0" and len(text) > 1):
        return None
    return int(text)
