"""Calls as a report reads them: outcomes, bodies as text, and those of a Redis connection."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from unicodedata import category, normalize

from ..core.calls import Call, Entry, faults_ended
from ..core.timers import to_datetime
from .masking import hides_words

SEVERAL = ("pipeline", "multi-exec")
"""Routes of a key-value server for several commands."""
QUEUED = b"+QUEUED\r\n"
"""The reply to a command in a transaction; EXEC executes the command."""
QUERIES = ("query", "query-data", "resumable-query", "resumable-query-data")
UPSERTS = ("upsert", "upsert-data")
"""Routes of a vector index, repeated here because `vector.handle` would import NumPy."""
PUBLISHING = ("publish", "enqueue", "batch")
"""Routes of a queue that create messages."""


def on_connection(call: Call) -> bool:
    """Return whether a call is a command on a database connection, not an HTTP request."""
    return call.method == "RESP"


def lines_of(call: Call) -> list[list[str]]:
    """Return the commands of a call to a key-value server, each with its name and arguments."""
    lines = call.facts.get("words")
    return lines if isinstance(lines, list) else []


def command_of(call: Call) -> str:
    """Return the first command of a call to a key-value server; empty for another call."""
    return str((call.facts.get("command") or [""])[0])


def has_full_answer(call: Call) -> bool:
    """Return whether a call received a complete response that is not an error."""
    return call.status is not None and call.status < 400 and call.outcome == "answered"


def executed(call: Call) -> bool:
    return call.reached and call.status == 200


def executed_at(entry: Entry) -> int:
    """Return the journal number at which a call was executed, after any fault's function before it."""
    if isinstance(entry, Call) and any(one.get("moment") == "before" for one in entry.faults):
        return faults_ended(entry)
    return entry.number


def executed_but_lost(call: Call) -> bool:
    """Return whether a call was executed although its client received no whole response, or an error.

    If a fault altered the response, the status is the fault's own.
    """
    if call.outcome == "altered":
        return call.reached and (call.status or 0) >= 400
    is_lost = call.outcome in ("lost", "truncated")
    return call.reached and call.status in (200, 201, 202) and is_lost


CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
"""A table for ``str.translate`` that escapes control characters, which a terminal would execute."""

_TOKEN = re.compile(r"eyJ[\w-]+\.(eyJ[\w-]+)\.(?:[\w-]*|\*\*\*)")
"""A JSON web token, possibly with a masked signature."""
_BASE64_LEAST = 16
"""Minimum length of a string that is decoded as Base64; shorter words may be Base64 by chance."""
_END_OF_TIME = 253_402_300_800
_WORDS = ("True", "False", "None")
_TAGS = re.compile(r"(?s)<(script|style|head)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>")
_TITLE = re.compile(r"(?is)<title[^>]*>(.*?)</title>")


def shortened(text: str, most: int = 48) -> str:
    """Shorten a string to ``most`` characters: its two ends and a checksum of the whole string."""
    if len(text) <= most:
        return text
    # The gap and the checksum take eight characters.
    room = max(2, most - 8)
    tail = room // 3
    check = zlib.crc32(text.encode("utf-8", "surrogatepass")) & 0xFFFF
    return f"{text[: room - tail]}…{text[-tail:]} #{check:04x}"


def printable(text: str) -> str:
    r"""Escape the lone surrogates (``"\ud800"``) of a string, because UTF-8 cannot encode them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def visible(text: str) -> str:
    """Escape the characters of a string that a reader cannot see or distinguish.

    These are invisible and bidirectional characters, unusual spaces and decomposed letters.
    """
    if text.isascii():
        return text
    hidden = {"Cf", "Zs", "Zl", "Zp"}
    if normalize("NFC", text) != text:
        hidden.add("Mn")
    return "".join(
        one.encode("ascii", "backslashreplace").decode()
        if one != " " and category(one) in hidden
        else one
        for one in text
    )


def compact(value: Any) -> str:
    """Return a JSON value as one line."""
    return printable(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def scalar(value: Any) -> str:
    """Format a value of a response; quote only strings that look like another type."""
    if not isinstance(value, str) or value in _WORDS:
        return compact(value)
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return value if value and value == value.strip() else compact(value)
    return f"'{value}'" if '"' in value and "'" not in value else compact(value)


def parsed(body: bytes | str) -> Any:
    """Parse a JSON body; return None if it is not JSON, or is nested too deeply."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def items_of(body: bytes | str) -> list[dict[str, Any]]:
    """Return the objects in a JSON body, which is one object or a list of them."""
    value = parsed(body)
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]


def readable(body: bytes | str, kind: str = "") -> str:
    """Return a body as one line: compact JSON, the text of HTML, or the body itself.

    ``kind`` is its content type. Encoded strings in JSON are decoded (`decoded()`).
    """
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
    stripped = text.lstrip()
    if stripped[:1] in ("{", "["):
        value = parsed(text)
        if value is not None:
            return compact(decoded(value))
    if "html" in kind or stripped[:9].lower().startswith(("<!doctype", "<html")):
        title = _TITLE.search(text)
        text = html.unescape(_TAGS.sub(" ", text))
        if title:
            name = " ".join(html.unescape(title[1]).split())
            if name[:3].isdigit():
                return name
            text = " ".join(text.split()).removeprefix(name)
            text = f"{name}: {text}" if text.strip() else name
    return " ".join(text.split())


def decoded(value: Any) -> Any:
    """Decode the strings in a JSON value that contain JSON, Base64 or web tokens.

    A decoded string becomes an object that names its encoding, so that it cannot be mistaken for
    JSON that was sent. The Base64 fields of a callback or dead letter are replaced directly. A
    value that is nested too deeply is returned unchanged.
    """
    try:
        return _decoded(value)
    except RecursionError:
        return value


def _decoded(value: Any) -> Any:
    if isinstance(value, str):
        return _inside(value)
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    fields = ("sourceBody", "body", "responseBody") if "sourceBody" in value else ()
    found = {}
    for name, inner in value.items():
        if name == "bodyBase64" and isinstance(inner, str):
            found[name] = from_base64(inner)
        elif name in fields and isinstance(inner, str):
            text = from_base64(inner)
            found[name] = text if (whole := parsed(text)) is None else _decoded(whole)
        else:
            found[name] = inner if name in fields else _decoded(inner)
    return found


def _inside(text: str) -> Any:
    """Return an object that maps a string's encoding to its content, or the string itself."""
    if text[:1] in ("{", "["):
        value = parsed(text)
        return {"JSON in a string": _decoded(value)} if isinstance(value, dict | list) else text
    token = _TOKEN.fullmatch(text)
    if token:
        claims = parsed(from_base64(_padded(token[1])))
        return {"JWT": _with_times(claims)} if isinstance(claims, dict) else text
    if len(text) < _BASE64_LEAST:
        return text
    coded = _padded(text) if "-" in text or "_" in text else text
    inner = from_base64(coded)
    is_readable = inner.isascii() and all(one.isprintable() or one in "\r\n\t" for one in inner)
    if inner == coded or not is_readable:
        return text
    value = parsed(inner)
    return {"Base64": _decoded(value) if isinstance(value, dict | list) else inner}


def _padded(text: str) -> str:
    """Convert URL-safe Base64 to the standard alphabet, with padding."""
    return text.translate({45: "+", 95: "/"}) + "=" * (-len(text) % 4)


def _with_times(claims: dict[str, Any]) -> dict[str, Any]:
    found = dict(claims)
    for name in ("exp", "nbf", "iat"):
        seconds = claims.get(name)
        if type(seconds) is int and 0 < seconds < _END_OF_TIME:
            found[name] = f"{seconds} ({to_datetime(seconds * 1_000_000):%Y-%m-%d %H:%M:%SZ})"
    return found


def each_from_base64(value: Any) -> Any:
    """Return a JSON value with its Base64 strings decoded."""
    if isinstance(value, list):
        return [each_from_base64(each) for each in value]
    if isinstance(value, dict):
        return {key: each_from_base64(each) for key, each in value.items()}
    return from_base64(value) if isinstance(value, str) else value


def from_base64(value: str) -> str:
    """Return the text that a Base64 string encodes; the string itself if it does not encode text."""
    try:
        return base64.b64decode(value, validate=True).decode("utf-8")
    except ValueError:
        return value


_GREETINGS = {"HELLO", "AUTH", "SELECT", "CLIENT SETINFO", "CLIENT SETNAME",
              "CLIENT MAINT_NOTIFICATIONS"}  # fmt: skip
"""Commands that set up a connection."""
_REFUSABLE = "CLIENT MAINT_NOTIFICATIONS"
"""A command that redis-py sends to every server, ignoring an error."""
_SCALARS: Mapping[bytes, Callable[[str], Any]] = {
    b"-": lambda text: {"error": text},
    b":": int,
    b",": float,
    b"#": lambda text: text == "t",
}
"""Functions that read values of one line. Status replies and large numbers remain strings."""


def reply(call: Call) -> Any:
    """Return the reply of a call as REST does: ``{"result": …}`` or ``{"error": text}``.

    Errors inside an array have the second form too. Raises ``ValueError`` for an incomplete reply.
    """
    value, _ = _read(call.response_body, 0)
    return value if is_error(value) else {"result": value}


def is_error(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == ["error"]


def _read(data: bytes, start: int) -> tuple[Any, int]:
    """Return the value that begins at an index, and the index after the value."""
    end = data.index(b"\r\n", start)
    kind, text = data[start : start + 1], data[start + 1 : end].decode("utf-8", "replace")
    after = end + 2
    if kind == b"_" or (text == "-1" and kind in (b"$", b"*")):
        return None, after
    if kind in (b"$", b"=", b"!"):
        end = after + int(text)
        if len(data) < end + 2:
            raise ValueError("the reply was cut")
        return _string(kind, data[after:end].decode("utf-8", "replace")), end + 2
    if kind in (b"*", b"~", b">"):
        return _read_array(data, after, int(text))
    if kind in (b"%", b"|"):
        pairs, after = _read_array(data, after, 2 * int(text))
        if kind == b"|":  # an attribute, which precedes the value that it describes
            return _read(data, after)
        return dict(zip(map(str, pairs[::2]), pairs[1::2], strict=True)), after
    return _SCALARS.get(kind, str)(text), after


def _string(kind: bytes, text: str) -> Any:
    if kind == b"!":
        return {"error": text}
    return text[4:] if kind == b"=" else text  # a verbatim string begins with its format ("txt:")


def _read_array(data: bytes, start: int, count: int) -> tuple[list[Any], int]:
    items = []
    for _ in range(count):
        item, start = _read(data, start)
        items.append(item)
    return items, start


def gathered(entries: Iterable[Entry]) -> tuple[dict[int, list[Call]], set[int]]:
    """Group the setup of a connection under its first call, and a transaction under its last one.

    Return a mapping from the number of the call that has a row to the calls in this row, and the
    numbers of the calls without a row of their own. The setup of a fake's only connection has no
    row at all if the connection has other commands, because they show that it exists.
    """
    connections: dict[tuple[str, object], list[Call]] = {}
    for call in entries:
        if isinstance(call, Call) and on_connection(call) and call.client is not None:
            connections.setdefault((call.handle, call.client), []).append(call)
    count = Counter(handle for handle, _ in connections)
    groups: dict[int, list[Call]] = {}
    without_row: set[int] = set()
    for (handle, _), calls in connections.items():
        setups = _setups(calls)
        in_setups = {call.number for setup in setups for call in setup}
        others = [call for call in calls if call.number not in in_setups]
        groups |= {setup[0].number: setup for setup in setups}
        is_known = bool(others) and count[handle] == 1
        without_row |= in_setups if is_known else in_setups - groups.keys()
        for end, steps in _transactions(others):
            groups[end.number] = steps[1:]
            without_row.update(step.number for step in steps)
    return groups, without_row


def _setups(calls: Iterable[Call]) -> list[list[Call]]:
    """Return the commands that set up a connection: its first ones, and those from each HELLO."""
    setups: list[list[Call]] = [[]]
    is_open = True  # until another command
    for call in calls:
        name = command_of(call)
        succeeded = call.fault is None and (call.status == 200 or name == _REFUSABLE)
        if name == "HELLO":
            setups.append([])
            is_open = True
        is_open = is_open and name in _GREETINGS and succeeded
        if is_open:
            setups[-1].append(call)
    return list(filter(None, setups))


def _transactions(calls: Iterable[Call]) -> Iterator[tuple[Call, list[Call]]]:
    """Yield the end of each transaction on a connection, and its other commands from its MULTI."""
    steps: list[Call] | None = None
    for call in calls:
        name = command_of(call)
        if name == "MULTI" and call.status == 200 and call.fault is None:
            steps = [call]
        elif name in ("EXEC", "DISCARD"):
            if steps is not None:
                yield call, steps
            steps = None
        elif steps is not None and call.response_body == QUEUED and call.fault is None:
            steps += [] if hides_words(call) else [call]


def error_of(call: Call) -> tuple[str, str]:
    """Return the status and the message of an error response; empty strings for any other response."""
    if call.status is None or call.status < 400:
        return "", ""
    if on_connection(call) and call.response_body.startswith(b"-"):
        return "", str(reply(call)["error"])  # a Redis reply has no status
    body = parsed(call.response_body)
    if isinstance(body, dict) and isinstance(body.get("error"), str):
        return str(call.status), scalar(body["error"])
    return str(call.status), readable(call.response_body)
