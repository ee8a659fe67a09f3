"""Reads command lines from the bodies and paths of HTTP requests."""

from __future__ import annotations

import json
import re
from typing import Any

from ...http.readers import decode_bytes
from .. import errors
from ..errors import RestError


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
