"""Reads command lines from HTTP requests, and defines the journal's fields for them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote_to_bytes

from ...core.errors import ContractError
from ...core.field_types import TEXT, FieldType
from ...core.matching import Question
from ...core.wording import did_you_mean
from .. import errors
from ..errors import RestError
from ..table.registry import COMMANDS


class _Command(FieldType):
    """Matches command names in any case; one without a subcommand matches all subcommands."""

    expected = "a command's name ('SET', 'XGROUP', 'xgroup create', 'H*'), a pattern"

    def accepts(self, wanted: Any) -> bool:
        return TEXT.accepts(wanted)

    def check(self, name: str, wanted: Any) -> None:
        super().check(name, wanted)
        if not isinstance(wanted, str) or wanted.upper() in COMMANDS:
            return
        if not any(self.equals(known, wanted) for known in COMMANDS):
            raise ContractError(
                f"{name}={wanted!r} is not a command{did_you_mean(wanted, COMMANDS) or '.'} "
                f"Pass {self.expected}. To match unknown commands that clients sent, use a pattern"
            )

    def equals(self, found: Any, wanted: Any) -> bool:
        if not (isinstance(found, str) and isinstance(wanted, str)):
            return super().equals(found, wanted)
        wanted = wanted.upper()
        return super().equals(found, wanted) or super().equals(found.partition(" ")[0], wanted)


class _Lines(FieldType):
    """Matches the command lines of a request.

    A list of words matches a request with such a command line. A list of such lists matches a
    request that consists of exactly these command lines.
    """

    expected = "a command line as the list of its words, such as ['SET', 'key', '*']"

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, list | tuple)

    def check(self, name: str, wanted: Any) -> None:
        super().check(name, wanted)
        if isinstance(wanted, list | tuple):
            for one in wanted:
                (self if self.accepts(one) else TEXT).check(name, one)

    def equals(self, found: Any, wanted: Any) -> bool:
        if not self.accepts(wanted):
            return super().equals(found, wanted)
        if wanted and all(map(self.accepts, wanted)):
            return _pairwise(found, wanted, lambda line, words: _pairwise(line, words, _is_word))
        return any(_pairwise(line, wanted, _is_word) for line in found)


def _pairwise(
    found: Sequence[Any], wanted: Sequence[Any], agrees: Callable[[Any, Any], bool]
) -> bool:
    return len(found) == len(wanted) and all(map(agrees, found, wanted))


def _is_word(found: str, wanted: Any) -> bool:
    return Question("word", wanted, TEXT).agrees(found)


COMMAND, LINES = _Command(), _Lines()
_ON_AN_INDEX = re.compile(r"SEARCH\.(?!LIST)", re.IGNORECASE)


def facts_of(lines: list[list[str]]) -> dict[str, Any]:
    """Return the fields that the journal records: names of commands, lines, search indexes."""
    return {
        "command": [command_name(line) for line in lines],
        "words": lines,
        "index": [line[1] for line in lines if line[1:] and _ON_AN_INDEX.match(line[0])],
    }


def command_name(words: Sequence[str]) -> str:
    """Return the name of the command in upper case, including the subcommand if there is one."""
    name = words[0].upper()
    spec = COMMANDS.get(name)
    has_child = spec is not None and spec.subcommands is not None and len(words) > 1
    return f"{name} {words[1].upper()}" if has_child else name


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


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _argument(item: Any, at: int, what: str) -> bytes:
    if isinstance(item, str):
        try:
            return item.encode()
        except UnicodeEncodeError:
            return _LONE_SURROGATE.sub("\ufffd", item).encode()
    if item is True:
        return b"true"
    if item is False:
        return b"false"
    shown = {type(None): "null", list: "an array", dict: "an object"}[type(item)]
    place = f"argument {at}" if at else "the name"
    raise RestError(
        400, f"{errors.BAD_ARGUMENTS}: {place} of {what} is {shown}, expected a string or a number"
    )


def _line(items: Any, what: str) -> list[bytes]:
    if not isinstance(items, list):
        raise RestError(400, f"{errors.BAD_ARGUMENTS}: {what} is not an array")
    if not items:
        raise RestError(400, f"{errors.EMPTY_COMMAND}: {what} is an empty array")
    with suppress(AttributeError, UnicodeEncodeError):
        return [item.encode() for item in items]
    return [_argument(item, at, what) for at, item in enumerate(items)]


def command_of_body(body: bytes) -> list[bytes]:
    """Return the command line in a JSON array; raise ``RestError`` for null and nested values."""
    return _line(_json(body), "the body")


def commands_of_body(body: bytes) -> list[list[bytes]]:
    """Return the command lines in a JSON array of arrays; raise ``RestError`` 400 if it is invalid."""
    lines = _json(body)
    if not isinstance(lines, list):
        raise RestError(400, f"{errors.BAD_ARGUMENTS}: the body is not an array of arrays")
    if not lines:
        raise RestError(400, errors.EMPTY_PIPELINE)
    if all(type(line) is list for line in lines):
        # Fast path for the usual case that every argument is a string.
        with suppress(AttributeError, UnicodeEncodeError):
            found = [[item.encode() for item in line] for line in lines]
            if all(found):
                return found
    return [_line(line, f"command {at}") for at, line in enumerate(lines, 1)]


def command_of_path(raw: str, body: bytes, query_string: str) -> list[bytes]:
    """Return the command line in a URL: the path's segments, the body, the query parameters.

    The path is split before its segments are decoded. A query parameter adds its name and its
    value, or only its name if the value is empty (``NX=``). ``_token`` is ignored.
    """
    segments = raw.split("/")
    if len(segments) > 1 and not segments[-1]:
        segments.pop()
    line = [unquote_to_bytes(segment.encode("latin-1")) for segment in segments]
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
    return unquote_to_bytes(raw.replace("+", " ").encode("latin-1"))
