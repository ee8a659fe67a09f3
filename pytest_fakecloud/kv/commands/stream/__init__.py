"""Stream commands, and their parsers for entry IDs and for ranges of IDs."""

from __future__ import annotations

import re

from ... import errors
from ...errors import CommandError
from ...values.stream import ID_MAX, SEQUENCE_MAX, format_id, make_id

_UNSIGNED = re.compile(rb"[ \t\n\v\f\r]*\+?[0-9]+\Z")


def entry_reply(entry_id: int, fields: list[bytes]) -> list[bytes | list[bytes]]:
    """Return an entry as a reply: its ID, and a list of its fields and values."""
    return [format_id(entry_id), list(fields)]


def _part(text: bytes) -> int:
    """Parse the milliseconds or the sequence number of an ID."""
    if not _UNSIGNED.match(text):
        raise CommandError(errors.STREAM_ID)
    number = int(text)
    if number > SEQUENCE_MAX:
        raise CommandError(errors.STREAM_ID)
    return number


def _split_id(text: bytes) -> tuple[int, bytes | None]:
    """Return the milliseconds of an ID and its unparsed sequence number, if it has one."""
    # Redis copies an ID into a buffer of 128 bytes, which ends at the first NUL.
    if len(text) > 127:
        raise CommandError(errors.STREAM_ID)
    milliseconds, dash, sequence = text.split(b"\0")[0].partition(b"-")
    return _part(milliseconds), sequence if dash else None


def parse_id(text: bytes, sequence: int = 0) -> int:
    """Parse an ID; ``sequence`` is the default for a missing sequence number."""
    milliseconds, given = _split_id(text)
    return make_id(milliseconds, sequence if given is None else _part(given))


def parse_new_id(text: bytes) -> tuple[int, bool]:
    """Parse an ID for XADD; return it and whether its sequence number is fixed (unlike ``5-*``)."""
    milliseconds, given = _split_id(text)
    if given == b"*":
        return make_id(milliseconds, 0), False
    return make_id(milliseconds, 0 if given is None else _part(given)), True


def parse_extreme_id(text: bytes, sequence: int = 0) -> int:
    """Parse an ID, or ``-`` or ``+`` for the lowest or highest ID."""
    if text == b"-":
        return 0
    if text == b"+":
        return ID_MAX
    return parse_id(text, sequence)


def parse_start(text: bytes) -> int:
    """Parse the start of a range: an ID, ``-``, ``+``, or ``(id`` to start after the ID."""
    if len(text) > 1 and text.startswith(b"("):
        start = parse_id(text[1:])
        if start == ID_MAX:
            raise CommandError(errors.INTERVAL_START)
        return start + 1
    return parse_extreme_id(text)


def parse_end(text: bytes) -> int:
    """Parse the end of a range: an ID, ``-``, ``+``, or ``(id`` to end before the ID."""
    if len(text) > 1 and text.startswith(b"("):
        end = parse_id(text[1:], SEQUENCE_MAX)
        if end == 0:
            raise CommandError(errors.INTERVAL_END)
        return end - 1
    return parse_extreme_id(text, SEQUENCE_MAX)


def parse_interval(start: bytes, end: bytes) -> tuple[int, int]:
    """Parse both bounds of a range; if both are invalid, the error is about the start."""
    return parse_start(start), parse_end(end)
