"""Mask credentials in reports, pages and recordings."""

from __future__ import annotations

import base64
import copy
import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..core.calls import ITEMS_OF_CUT, Headers
from ..handle import closed_fakes_of, secrets_of

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud
    from ..core.calls import Call, Event
    from .applications import Served

HIDDEN = "***"
_SHORTEST = 8
"""Minimum length of a secret, in characters: shorter ones also occur in ordinary words."""
_SECRET_HEADER = re.compile(
    r"authorization|cookie|signature|password|secret|api-?key|(?<!sync-)token", re.IGNORECASE
)
_TOKEN = re.compile(r"eyJ[\w-]+\.eyJ[\w-]+\.\*\*\*")
_SECRET_PARAMETERS = (
    r"(?:(?:access|api|auth|bearer|csrf|id|private|qstash|refresh|session)?[_-]?token"
    r"|(?:x[_-])?api[_-]?key|(?:access|private|secret)[_-]?key|awsaccesskeyid|jwt"
    r"|pass(?:wd|word|phrase)?|pwd|auth(?:orization)?|credentials?|(?:client[_-]?)?secret"
    r"|sig(?:nature)?|x-(?:amz|goog)-(?:credential|security-token|signature))"
)
# Use separate patterns for plain URLs and for URLs inside a part of another URL: a common pattern
# would end at a "%2F" in a password.
_SECRET_SHAPES = re.compile(
    # Signing keys and signatures, including rotated keys. No word is scanned twice, because a body
    # can be a single word of several megabytes.
    r"\bsig_\w{16,}|(?<![\w-])(?P<claims>eyJ[\w-]+\.eyJ[\w-]+\.)[\w-]+"
    # User and password before a host name, including JSON with escaped slashes.
    r"""|(?<=://)[^/?#\s"'<>\\]+(?=@)|(?<=:\\/\\/)[^/?#\s"'<>\\]+(?=@)"""
    r"""|(?i:(?<=%3A%2F%2F)(?:(?!%2F|%3F|%23)[^/?#\s"'<>\\])+(?=%40))"""
    # Query parameters, by name.
    rf"""|(?i:(?<=[?&;])(?P<name>{_SECRET_PARAMETERS}=)[^&#\s"'<>\\]+)"""
    rf"""|(?i:(?<=\\u0026)(?P<escaped>{_SECRET_PARAMETERS}=)[^&#\s"'<>\\]+)"""
    rf"""|(?i:(?<=%3F|%26)(?P<coded>{_SECRET_PARAMETERS}%3D)(?:(?!%26|%23)[^&#\s"'<>\\])+)"""
)
_SECRET_COMMANDS = frozenset({"AUTH", "HELLO", "ACL", "CONFIG", "MIGRATE"})


def hides_words(call: Call) -> bool:
    """Return whether a command of a call may contain a password."""
    words = call.facts.get("words")
    if call.cut and _may_have_lost_a_secret(call):
        return True
    return isinstance(words, list) and any(
        line[0].upper() in _SECRET_COMMANDS and len(line) > 2 - (line[0].upper() == "AUTH")
        for line in words
    )


def _may_have_lost_a_secret(call: Call) -> bool:
    """Return whether a call was shortened so that a command with a password may be missing."""
    if "facts" in call.cut:
        return call.service == "kv"  # the bodies of key-value calls are commands
    return "words" in call.cut and len(call.facts["words"]) >= ITEMS_OF_CUT


class Mask:
    """Masks credentials in strings of any encoding: the given ``secrets`` and those of a cloud's
    fakes.
    """

    def __init__(self, cloud: AnyCloud | None = None, *, secrets: Iterable[str] = ()) -> None:
        known = frozenset(secrets)
        if cloud is not None:
            known |= closed_fakes_of(cloud).secrets.union(*map(secrets_of, cloud.handles))
        self._secrets = _pattern(known)

    def text(self, text: str) -> str:
        """Return a string in which known credentials, and parts that look like credentials, are
        masked.

        The latter are signing keys, the signatures of web tokens (the claims remain readable), and
        in URLs the part before ``@`` and parameters with a name such as ``access_token``.
        """
        return _SECRET_SHAPES.sub(_hidden, self._secrets.sub(HIDDEN, text))

    def data(self, body: bytes) -> bytes:
        # Latin-1 maps each byte to one character and back.
        return self.text(body.decode("latin-1")).encode("latin-1")

    def header(self, name: str, value: str) -> str:
        """Return a header's value, masked if the header's name says that it contains a secret.

        Only the signature of a web token is masked.
        """
        text = self.text(value)
        return HIDDEN if _SECRET_HEADER.search(name) and not _TOKEN.fullmatch(text) else text

    def target(self, call: Call) -> str:
        path = call.target.partition("?")[0]
        if hides_words(call) and path.count("/") > 1:
            return f"{path[: path.index('/', 1)]}/{HIDDEN}"
        return self.text(call.target)

    def _headers(self, headers: Headers) -> Headers:
        return Headers([(name, self.header(name, value)) for name, value in headers.pairs])

    def call(self, call: Call) -> Call:
        """Return a masked copy of a call. It is masked before it is shortened, so that no part of a
        secret remains.
        """
        told = copy.copy(call)
        told.target = self.target(call)
        told.headers = self._headers(call.headers)
        told.body = HIDDEN.encode() if call.body and hides_words(call) else self.data(call.body)
        told.answer = self.data(call.answer)
        told.answer_headers = self._headers(call.answer_headers)
        told.note = self.text(call.note)
        told._facts = self.value(call.facts)
        return told

    def value(self, value: Any) -> Any:
        """Return a JSON value with every string in it masked."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        if isinstance(value, dict):
            return {self.value(name): self.value(each) for name, each in value.items()}
        return value

    def body(self, call: Call) -> bytes | str:
        """Return a call's request body, masked if a command in it may contain a password."""
        return HIDDEN if call.body and hides_words(call) else call.body

    def event(self, event: Event) -> Event:
        told = copy.copy(event)
        told.text = self.text(event.text)
        told.data = {
            name: [[one, self.header(one, it)] for one, it in value]
            if name == "sent_headers" and value
            else self.value(value)
            for name, value in event.data.items()
        }
        return told

    def served(self, served: Served) -> Served:
        told = copy.copy(served)
        told.target, told.raised = self.text(served.target), self.text(served.raised)
        told.body, told.environ = self.text(served.body), None
        return told


def _hidden(found: re.Match[str]) -> str:
    parameter = next(filter(None, found.groups()), "")
    after = found[0][len(found[0].rstrip(":,.;)]}")) :] if parameter else ""
    return parameter + HIDDEN + after


# Cache the pattern, because building it takes a millisecond and the console masks thousands of rows
# separately.
@lru_cache(maxsize=4)
def _pattern(secrets: frozenset[str]) -> re.Pattern[str]:
    """Return a pattern that matches any of these credentials in all their encodings."""
    spellings = {
        spelling
        for secret in secrets
        if len(secret) >= _SHORTEST
        for spelling in _spellings(secret)
    }
    return re.compile(
        "|".join(map(_in_any_url, sorted(spellings, key=len, reverse=True))) or r"(?!)"
    )


def _in_any_url(spelling: str) -> str:
    """Return a pattern for a string in which each character may be escaped as in URLs or JSON."""
    found = []
    for one in spelling:
        if one.isascii() and (one.isalnum() or one in "-._~"):
            found.append(re.escape(one))
            continue
        coded = "".join(f"%{byte:02x}" for byte in one.encode("utf-8", "surrogatepass"))
        ways = [re.escape(one), f"(?i:{coded})"]
        ways += {" ": [r"\+"], "/": [r"\\/"]}.get(one, [])
        found.append(f"(?:{'|'.join(ways)})")
    return "".join(found)


def _spellings(secret: str) -> Iterator[str]:
    yield secret
    # A body is searched as Latin-1, which has one character for each byte.
    yield secret.encode().decode("latin-1")
    yield json.dumps(secret)[1:-1]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(secret.encode()).decode().rstrip("=")
        # Inside a longer encoded value (a Basic header, a body), the secret can begin at any of the
        # three bytes of a group. Only the characters at its ends depend on the surrounding bytes.
        for before in range(3):
            whole = bytes(before) + secret.encode()
            yield encode(whole).decode()[-(-before * 8 // 6) : len(whole) * 8 // 6]
