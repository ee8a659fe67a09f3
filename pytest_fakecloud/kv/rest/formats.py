"""Reads command lines from REST requests, checks their limits, and formats the responses.

Large replies are encoded in pieces, so that memory never contains a second copy of a reply.
"""

from __future__ import annotations

import codecs
import json
import re
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import orjson

from ...http.messages import Answer, Request, Stream, decode_bytes
from .. import errors
from ..errors import CommandError, RestError
from ..reply import LARGEST, OK, STREAMED, Reply, resp_parts, size_of, to_json, to_resp
from ..settings import KVConfig

Headers = list[tuple[str, str]]
_BINARY = "application/octet-stream"
_PIECE = 3 * 2**16
"""Number of string bytes per piece: a multiple of three, so that base64 pieces can be joined."""


class Format(NamedTuple):
    """The response format that a request asks for."""

    base64: bool
    resp2: bool

    def reply(self, reply: Reply, headers: Headers) -> Answer | Stream:
        if _is_large(size_of(reply)):
            parts = resp_parts(reply) if self.resp2 else json_of(reply, self.base64)
            return self._in_pieces(parts, headers)
        body = to_resp(reply) if self.resp2 else {"result": to_json(reply, self.base64)}
        return self._whole(body, headers)

    def replies(self, replies: list[Reply], size: int, headers: Headers) -> Answer | Stream:
        """Return the response to several commands, which have ``size`` bytes of strings."""
        if _is_large(size):
            encoded = chain.from_iterable(map(resp_parts, replies))
            parts = encoded if self.resp2 else json_of_each(replies, self.base64)
            return self._in_pieces(parts, headers)
        body = b"".join(map(to_resp, replies)) if self.resp2 else self._envelopes(replies)
        return self._whole(body, headers)

    def error(self, error: CommandError) -> Answer:
        if self.resp2:
            return Answer(to_resp(error), 400, (), _BINARY)
        return Answer({"error": str(error)}, 400)

    def _envelopes(self, replies: list[Reply]) -> list[dict[str, object]]:
        base64 = self.base64
        found: list[dict[str, object]] = []
        for reply in replies:
            # Nearly all replies are of the first two kinds, so convert them without a call.
            if reply is OK:
                found.append({"result": "OK"})
            elif type(reply) is bytes and not base64:
                found.append({"result": reply.decode("utf-8", "replace")})
            elif isinstance(reply, CommandError):
                found.append({"error": str(reply)})
            else:
                found.append({"result": to_json(reply, base64)})
        return found

    def _whole(self, body: object, headers: Headers) -> Answer:
        return Answer(body, 200, headers, self._content_type)

    def _in_pieces(self, parts: Iterable[bytes], headers: Headers) -> Stream:
        pieces = (part[at : at + _PIECE] for part in parts for at in range(0, len(part), _PIECE))
        return Stream(pieces, self._content_type, 200, headers)

    @property
    def _content_type(self) -> str:
        return _BINARY if self.resp2 else "application/json"


def _is_large(size: int) -> bool:
    """Return whether to send a reply in pieces; raise ``RestError`` above the size limit."""
    if size > LARGEST:
        raise RestError(400, errors.MAX_REQUEST_SIZE.decode())
    return size > STREAMED


def format_of(request: Request) -> Format:
    """Return the response format of a request; raise ``RestError`` if it does not exist."""
    base64 = option(request, "encoding").lower() == "base64"
    name = option(request, "response-format").lower()
    if name not in ("", "json", "resp2"):
        raise RestError(400, errors.BAD_FORMAT)
    if base64 and name == "resp2":
        raise RestError(400, errors.FORMAT_WITH_BASE64)
    return Format(base64, name == "resp2")


def option(request: Request, name: str) -> str:
    """Return the header ``upstash-<name>`` or ``service-<name>``, or an empty string."""
    fields = request.fields
    return (fields.get(f"upstash-{name}") or fields.get(f"service-{name}") or "").strip()


def json_of(reply: Reply, base64: bool) -> Iterator[bytes]:
    yield b'{"result":'
    yield from _value(reply, base64)
    yield b"}"


def json_of_each(replies: list[Reply], base64: bool) -> Iterator[bytes]:
    separator = b"["
    for reply in replies:
        yield separator
        separator = b","
        if isinstance(reply, CommandError):
            yield orjson.dumps({"error": str(reply)})
        else:
            yield from json_of(reply, base64)
    yield b"]"


def _value(reply: Reply, base64: bool) -> Iterator[bytes]:
    if isinstance(reply, bytes | bytearray) and len(reply) > _PIECE:
        yield b'"'
        yield from _long_string(reply, base64)
        yield b'"'
    elif isinstance(reply, list):
        separator = b"["
        for item in reply:
            yield separator
            separator = b","
            yield from _value(item, base64)
        yield b"]" if reply else b"[]"
    else:
        yield orjson.dumps(to_json(reply, base64))


def _long_string(text: bytes | bytearray, base64: bool) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with memoryview(text) as view:
        for at in range(0, len(view), _PIECE):
            piece = view[at : at + _PIECE]
            if base64:
                yield b64encode(piece)
            else:
                is_last = at + _PIECE >= len(view)
                yield orjson.dumps(decoder.decode(piece, final=is_last))[1:-1]


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


# Numbers keep their source text: 1.10 stays 1.10, and a number may have 5,000 digits.
_decode = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_reject_constant).decode


def _json(body: bytes) -> Any:
    try:
        return _decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RestError(400, f"{errors.BAD_JSON}: not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise RestError(400, f"{errors.BAD_JSON}: nested too deeply") from None
    except ValueError as error:
        raise RestError(400, f"{errors.BAD_JSON}: {error}") from None


def _argument(item: Any, index: int, line_name: str) -> bytes:
    if isinstance(item, str):
        try:
            return item.encode()
        except UnicodeEncodeError:
            return re.sub("[\ud800-\udfff]", "\ufffd", item).encode()
    if item is True:
        return b"true"
    if item is False:
        return b"false"
    shown = {type(None): "null", list: "an array", dict: "an object"}[type(item)]
    place = f"argument {index}" if index else "the name"
    raise RestError(
        400,
        f"{errors.BAD_ARGUMENTS}: {place} of {line_name} is {shown}, expected a string or a number",
    )


def _command_line(items: Any, number: int = 0) -> list[bytes]:
    """Return the command line in a parsed array. ``number`` is its position in a pipeline, from 1."""
    try:
        if isinstance(items, list) and items:
            return list(map(str.encode, items))
    except (TypeError, UnicodeEncodeError):
        pass  # An argument is not a string, or contains a lone surrogate.
    name = f"command {number}" if number else "the body"
    if not isinstance(items, list):
        raise RestError(400, f"{errors.BAD_ARGUMENTS}: {name} is not an array")
    if not items:
        raise RestError(400, f"{errors.EMPTY_COMMAND}: {name} is an empty array")
    return [_argument(item, index, name) for index, item in enumerate(items)]


def command_of_body(body: bytes) -> list[bytes]:
    """Return the command line in a JSON array; raise ``RestError`` for null and nested values."""
    return _command_line(_json(body))


def commands_of_body(body: bytes) -> list[list[bytes]]:
    """Return the command lines in a JSON array of arrays; raise ``RestError`` 400 if it is invalid."""
    lines = _json(body)
    if not isinstance(lines, list):
        raise RestError(400, f"{errors.BAD_ARGUMENTS}: the body is not an array of arrays")
    if not lines:
        raise RestError(400, errors.EMPTY_PIPELINE)
    return [_command_line(line, number) for number, line in enumerate(lines, 1)]


def command_of_path(raw_path: str, body: bytes, query_string: str) -> list[bytes]:
    """Return the command line in a URL: the path's segments, the body, the query parameters.

    The path is split before its segments are decoded. A query parameter adds its name and its
    value, or only its name if the value is empty (``NX=``). ``_token`` is ignored.
    """
    segments = raw_path.split("/")
    if len(segments) > 1 and not segments[-1]:
        segments.pop()
    line = [decode_bytes(segment) for segment in segments]
    if not line[0]:
        raise RestError(400, errors.EMPTY_COMMAND)
    if body:
        line.append(body)
    for part in query_string.split("&"):
        name, _, value = part.partition("=")
        word = _query_bytes(name)
        if word and word != b"_token":
            line.append(word)
            if value:
                line.append(_query_bytes(value))
    return line


def _query_bytes(raw: str) -> bytes:
    return decode_bytes(raw.replace("+", " "))


_DAY_US = 86_400_000_000
_SECOND_US = 1_000_000


class CommandLimits:
    """Enforces the limits of a database. ``now_us`` returns the time of the fake's clock."""

    def __init__(self, limits: KVConfig, now_us: Callable[[], int]) -> None:
        self._max_size = limits.max_request_size
        self._now_us = now_us
        self._lock = threading.Lock()
        self._windows = [
            _Window(width_us, limit, error)
            for width_us, limit, error in (
                (_DAY_US, limits.daily_limit, errors.MAX_DAILY_REQUESTS),
                (_SECOND_US, limits.max_requests_per_second, errors.MAX_REQUESTS),
            )
            if limit is not None
        ]

    def must_check(self, request: Request) -> bool:
        """Return whether the commands of a request must be checked.

        If their number is not limited, only a request that exceeds the maximum size of a command
        can contain a command that exceeds it, because decoding only shortens commands.
        """
        if self._windows:
            return True
        size = len(request.body) + len(request.target)
        return self._max_size is not None and size > self._max_size

    def check(self, line: list[bytes]) -> None:
        """Count a command, even if it is too large; raise ``CommandError`` if it exceeds a limit."""
        self.count()
        self.check_size(line)

    def check_size(self, line: list[bytes]) -> None:
        """Raise ``CommandError`` if a command is too large."""
        if self._max_size is not None and sum(map(len, line)) > self._max_size:
            raise CommandError(errors.MAX_REQUEST_SIZE)

    def count(self, commands: int = 1) -> None:
        """Count commands. If they would exceed a limit, raise ``CommandError`` and count none."""
        if not self._windows:
            return
        with self._lock:
            now_us = self._now_us()
            for window in self._windows:
                window.advance(now_us)
                if window.used + commands > window.limit:
                    raise CommandError(window.error)
            for window in self._windows:
                window.used += commands

    def reset(self) -> None:
        with self._lock:
            for window in self._windows:
                window.used = 0


@dataclass(eq=False, repr=False, slots=True)
class _Window:
    """A period of the clock in which at most ``limit`` commands may run."""

    width_us: int
    limit: int
    error: bytes
    index: int = 0
    """The number of whole periods since the Unix epoch."""
    used: int = 0

    def advance(self, now_us: int) -> None:
        index = now_us // self.width_us
        if index != self.index:
            self.index = index
            self.used = 0
