"""Values of reports as strings: readable bodies and compact JSON, with credentials masked.

Known secrets are masked, and what looks like a credential. Recordings can be read only by their
owner, because masking may miss a secret in a whole request. Pages and their data have the mode that
the umask gives, because they are made to be published.
"""

from __future__ import annotations

import base64
import copy
import html
import json
import math
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from http.client import responses
from pathlib import Path
from typing import Any
from unicodedata import category, normalize

from ..cloud.base import BaseCloud, secrets_in
from ..core.calls import ITEMS_OF_CUT, Call, Event, Headers, set_facts
from ..core.errors import listed
from ..process.applications import ServedRequest

HIDDEN = "***"
_PASSWORD_COMMANDS = {"AUTH": 2, "HELLO": 3, "ACL": 3, "CONFIG": 3, "MIGRATE": 3}
"""Maps commands to the minimum number of words, including the name, of a call with a password."""
NUMBER = re.compile(r"(?<![0-9])[0-9]{1,15}(?![0-9])")
"""A number that may count the repetitions of a row."""
_MINIMUM_LENGTH = 8
"""Minimum length of a secret, in characters: shorter ones also occur in ordinary words."""
_SECRET_HEADER = re.compile(
    r"authorization|cookie|signature|password|secret|api-?key|(?<!sync-)token", re.IGNORECASE
)
_MASKED_TOKEN = re.compile(r"eyJ[\w-]+\.eyJ[\w-]+\.\*\*\*")
_PARAMETER = (
    r"(?i:(?:access|api|auth|bearer|csrf|id|private|qstash|refresh|session)?[_-]?token"
    r"|(?:x[_-])?api[_-]?key|(?:access|private|secret)[_-]?key|awsaccesskeyid|jwt"
    r"|pass(?:wd|word|phrase)?|pwd|auth(?:orization)?|credentials?|(?:client[_-]?)?secret"
    r"|sig(?:nature)?|x-(?:amz|goog)-(?:credential|security-token|signature))"
)
_USER, _VALUE = r"[^/?#\s\"'<>\\]", r"[^&#\s\"'<>\\]"
# The columns are a kind of credentials, a pattern for the position of such a credential, a pattern for
# a first part that remains readable, and a pattern for the part that is masked. URLs inside a part of
# another URL have patterns of their own: a common pattern would end at a "%2F" in a password. No word
# is scanned twice, because a body can be a single word of several megabytes.
_SHAPES = (
    # sig_0123456789abcdef
    ("signing_key", r"\b", "", r"sig_\w{16,}"),
    # eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJVcHN0YXNoIn0.c2lnbmF0dXJl
    ("web_token", r"(?<![\w-])", r"eyJ[\w-]+\.eyJ[\w-]+\.", r"[\w-]+"),
    # https://ada:password@host
    ("user", r"(?<=://)", "", rf"{_USER}+(?=@)"),
    # "https:\/\/ada:password@host"
    ("user_in_json", r"(?<=:\\/\\/)", "", rf"{_USER}+(?=@)"),
    # ?next=https%3A%2F%2Fada%3Apassword%40host
    ("user_in_url", r"(?<=%3[Aa]%2[Ff]%2[Ff])", "", rf"(?:(?!%2[3Ff]|%3[Ff]){_USER})+(?=%40)"),
    # ?access_token=word
    ("parameter", r"(?<=[?&;])", f"{_PARAMETER}=", rf"{_VALUE}+"),
    # "?a=1\u0026access_token=word"
    ("parameter_in_json", r"(?<=\\[Uu]0026)", f"{_PARAMETER}=", rf"{_VALUE}+"),
    # ?next=https%3A%2F%2Fhost%3Faccess_token%3Dword
    ("parameter_in_url", r"(?<=%3[Ff]|%26)", f"{_PARAMETER}%3[Dd]", rf"(?:(?!%2[36]){_VALUE})+"),
)
_CREDENTIALS = re.compile(
    "|".join(f"{place}(?P<{kind}>{shown}){secret}" for kind, place, shown, secret in _SHAPES)
)
"""Matches a credential. The only group that matched is the first part, which remains readable."""
_HINT = re.compile(r"[@=]|sig_|eyJ|%40|%3[Dd]")
"""Matches a part of every credential."""


def hides_words(call: Call) -> bool:
    """Return whether a command of a call may contain a password."""
    # A call that was shortened may have lost a command with a password.
    if "facts" in call.cut:
        return call.service == "kv"  # the bodies of key-value calls are commands
    words = call.facts.get("words")
    if not isinstance(words, list):
        return False
    return ("words" in call.cut and len(words) >= ITEMS_OF_CUT) or any(
        len(line) >= _PASSWORD_COMMANDS.get(line[0].upper(), math.inf) for line in words
    )


class Mask:
    """Masks credentials in any encoding: the given ``secrets`` and those of a cloud's fakes."""

    def __init__(self, cloud: BaseCloud | None = None, *, secrets: Iterable[str] = ()) -> None:
        all_secrets = frozenset(secrets)
        if cloud is not None:
            all_secrets |= secrets_in(cloud)
        self._secrets = _secrets_pattern(all_secrets)

    def text(self, text: str) -> str:
        """Mask the secrets in a string, and the parts that look like credentials.

        These are signing keys, the signatures of web tokens (the claims remain readable), and in
        URLs the part before ``@`` and parameters with a name such as ``access_token``.
        """
        text = self._secrets.sub(HIDDEN, text)
        # Most strings are words without credentials, and a pipeline has thousands of them.
        return _CREDENTIALS.sub(_mask_credential, text) if _HINT.search(text) else text

    def data(self, body: bytes) -> bytes:
        # Latin-1 maps each byte to one character and back.
        return self.text(body.decode("latin-1")).encode("latin-1")

    def header(self, name: str, value: str) -> str:
        """Return a header's value, masked if the header's name says that it contains a secret.

        Only the signature of a web token is masked.
        """
        text = self.text(value)
        return HIDDEN if _SECRET_HEADER.search(name) and not _MASKED_TOKEN.fullmatch(text) else text

    def target(self, call: Call) -> str:
        path = call.target.partition("?")[0]
        if path.count("/") > 1 and hides_words(call):
            return f"{path[: path.index('/', 1)]}/{HIDDEN}"
        return self.text(call.target)

    def body(self, call: Call) -> bytes:
        """Return a call's request body, hidden whole if a command may contain a password."""
        if call.request_body and hides_words(call):
            return HIDDEN.encode()
        return self.data(call.request_body)

    def headers(self, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        return [(name, self.header(name, value)) for name, value in pairs]

    def call(self, call: Call) -> Call:
        """Return a copy of a call, masked before it is shortened so that no part of a secret remains."""
        masked = copy.copy(call)
        masked.target = self.target(call)
        masked.request_headers = Headers(self.headers(call.request_headers.pairs))
        masked.request_body = self.body(call)
        masked.response_body = self.data(call.response_body)
        masked.response_headers = Headers(self.headers(call.response_headers.pairs))
        masked.note = self.text(call.note)
        set_facts(masked, self.value(call.facts))
        return masked

    def value(self, value: Any) -> Any:
        """Return a JSON value with every string in it masked."""
        return map_strings(value, self.text)

    def event(self, event: Event) -> Event:
        masked = copy.copy(event)
        masked.text = self.text(event.text)
        masked.data = {
            key: self.headers(content or ()) if key == "sent_headers" else self.value(content)
            for key, content in event.data.items()
        }
        return masked

    def served(self, served: ServedRequest) -> ServedRequest:
        """Return a copy of a request to the application with a masked target, body and exception.

        `as_json` masks the headers and the response when it decodes them.
        """
        masked = copy.copy(served)
        masked.target, masked.raised = self.text(served.target), self.text(served.raised)
        masked.body, masked.environ = self.text(served.body), None
        return masked


def _mask_credential(match: re.Match[str]) -> str:
    shown = match[str(match.lastgroup)]
    punctuation = match[0][len(match[0].rstrip(":,.;)]}")) :] if shown else ""
    return shown + HIDDEN + punctuation


# Building a pattern takes a millisecond, and the console masks thousands of rows separately.
@lru_cache(maxsize=4)
def _secrets_pattern(secrets: frozenset[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of these credentials in all their encodings."""
    long_enough = (secret for secret in secrets if len(secret) >= _MINIMUM_LENGTH)
    spellings = set[str]().union(*map(_spellings, long_enough))
    patterns = map(_in_any_url, sorted(spellings, key=len, reverse=True))
    return re.compile("|".join(patterns) or r"(?!)")


def _in_any_url(spelling: str) -> str:
    """Return a pattern for a string in which each character may be escaped as in URLs or JSON."""
    patterns = []
    for character in spelling:
        if character.isascii() and (character.isalnum() or character in "-._~"):
            patterns.append(re.escape(character))
            continue
        coded = "".join(f"%{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))
        ways = [re.escape(character), f"(?i:{coded})"]
        ways += {" ": [r"\+"], "/": [r"\\/"]}.get(character, [])
        patterns.append(f"(?:{'|'.join(ways)})")
    return "".join(patterns)


def _spellings(secret: str) -> Iterator[str]:
    yield secret
    # A body is searched as Latin-1, which has one character for each byte.
    yield secret.encode().decode("latin-1")
    yield json.dumps(secret)[1:-1]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(secret.encode()).decode().rstrip("=")
        # Inside a longer encoded value (a Basic header, a body), the secret can begin at any of the
        # three bytes of a group. Leave out characters that also encode bits of surrounding bytes.
        for offset in range(3):
            padded = bytes(offset) + secret.encode()
            start, end = math.ceil(offset * 8 / 6), len(padded) * 8 // 6  # six bits per character
            yield encode(padded).decode()[start:end]


# -- files -----------------------------------------------------------------------------------------


def make_private(path: Path) -> Path:
    """Create a file and its folders, readable only by its owner; return the path.

    An existing file keeps its content. A pipe or a terminal keeps its mode.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        # os.open() sets the mode of new files only.
        if hasattr(os, "fchmod") and stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    return path


def write_private(path: Path, text: str) -> Path:
    """Write a string to a file that only its owner can read, creating folders; return the path."""
    make_private(path).write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


def write_public(path: Path, text: str) -> Path:
    """Write a string to a new file with the mode that the umask gives; return the path.

    It replaces an existing file, whose mode may be another one. Folders are created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


# -- values ----------------------------------------------------------------------------------------

PIPELINED = 12
"""Maximum number of commands of a pipeline that are shown; failed commands are always shown."""
EXCERPT = 400
"""Maximum length of a body in a row, in characters."""
_BASE64_LEAST = 16
"""Minimum length of a string that is decoded as Base64; shorter words may be Base64 by chance."""
_LONGEST_KEPT = 20_000
"""Maximum length of a body whose readable form is kept for the next time."""
_WORDS = ("True", "False", "None")
_TAGS = re.compile(r"(?s)<(script|style|head)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>")
_TITLE = re.compile(r"(?is)<title[^>]*>(.*?)</title>")


def map_strings(value: Any, change: Callable[[str], str], *, names: bool = True) -> Any:
    """Return a JSON value with every string in it changed, the ``names`` of members only if true."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return [map_strings(item, change, names=names) for item in value]
    if isinstance(value, dict):
        return {
            map_strings(name, change) if names else name: map_strings(item, change, names=names)
            for name, item in value.items()
        }
    return value


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


_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"})
"""Categories of characters that a terminal executes, that change the order of a line, or that a reader
cannot see.
"""
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and symbols without a visible form."""
_SHOWN = frozenset(" \t\n")


def visible(text: str) -> str:
    """Escape characters that a reader cannot see or distinguish, and those that a terminal executes or
    that change the order of a line. Tabs and line feeds stay.
    """
    if text.isascii() and text.isprintable():
        return text
    hidden = _HIDDEN | {"Mn"} if normalize("NFC", text) != text else _HIDDEN
    unseen = {
        character for character in set(text) - _SHOWN
        if category(character) in hidden or character in _BLANK or _is_noncharacter(character)
    }  # fmt: skip
    return text.translate(
        {ord(character): character.encode("unicode_escape").decode() for character in unseen}
    )


def _is_noncharacter(character: str) -> bool:
    code = ord(character)
    return code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF


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
    """Return the objects in a JSON body: one object, or those in a list. The answer to a batch has a
    list inside the list for the messages of a URL group.
    """
    value = parsed(body)
    items = value if isinstance(value, list) else [value]
    lists = [item if isinstance(item, list) else [item] for item in items]
    return [item for item_list in lists for item in item_list if isinstance(item, dict)]


def readable(body: bytes | str, kind: str = "") -> str:
    """Return a body as one line: compact JSON, the text of HTML, or the body itself.

    ``kind`` is its content type. Encoded strings in JSON are decoded (`decoded()`).
    """
    # The state of a queue is read for each row of a report, with the same bodies.
    return (_readable_once if len(body) <= _LONGEST_KEPT else _readable)(body, kind)


def _readable(body: bytes | str, kind: str) -> str:
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


_readable_once = lru_cache(maxsize=1_000)(_readable)


def decoded(value: Any) -> Any:
    """Decode the strings in a JSON value that contain JSON or Base64.

    A decoded string becomes an object that names its encoding, so that it cannot be mistaken for
    JSON that was sent. A value that is nested too deeply is returned unchanged.
    """
    try:
        return _decoded(value)
    except RecursionError:
        return value


def _decoded(value: Any) -> Any:
    if isinstance(value, str):
        return _inside(value)
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = ("sourceBody", "body", "responseBody") if "sourceBody" in value else ()
    members: dict[str, Any] = {}
    for name, inner in value.items():
        if name == "bodyBase64" and isinstance(inner, str):
            members[name] = from_base64(inner)
        elif name not in fields:
            members[name] = _decoded(inner)
        elif isinstance(inner, str):
            text = from_base64(inner)
            whole = parsed(text)
            members[name] = {"Base64": text if whole is None else _decoded(whole)}
        else:
            members[name] = inner
    return members


def _inside(text: str) -> Any:
    """Return an object that maps a string's encoding to its content, or the string itself."""
    if text[:1] in ("{", "["):
        value = parsed(text)
        return {"JSON in a string": _decoded(value)} if isinstance(value, dict | list) else text
    if len(text) < _BASE64_LEAST:
        return text
    coded = _padded(text) if "-" in text or "_" in text else text
    inner = from_base64(coded)
    is_readable = inner.isascii() and all(
        character.isprintable() or character in "\r\n\t" for character in inner
    )
    if inner == coded or not is_readable:
        return text
    value = parsed(inner)
    return {"Base64": _decoded(value) if isinstance(value, dict | list) else inner}


def _padded(text: str) -> str:
    """Convert URL-safe Base64 to the standard alphabet, with padding."""
    return text.translate({45: "+", 95: "/"}) + "=" * (-len(text) % 4)


def each_from_base64(value: Any) -> Any:
    return map_strings(value, from_base64, names=False)


def from_base64(value: str) -> str:
    """Return the text that a Base64 string encodes; the string itself if it does not encode text."""
    try:
        return base64.b64decode(value, validate=True).decode("utf-8")
    except ValueError:
        return value


def namespace(name: str) -> str:
    return f"namespace {compact(name)}" if name else "the default namespace"


def pairs(values: Mapping[str, Any]) -> str:
    """Format names with values in JSON, which distinguishes strings from numbers."""
    return listed([f"{name}={shortened(compact(value))}" for name, value in values.items()])


def phrase_of(status: int) -> str:
    """Return the reason phrase of a status; empty if it has none."""
    return responses.get(status, "")
