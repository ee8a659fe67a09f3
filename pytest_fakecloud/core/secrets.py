"""Hides credentials in text: known secrets in any encoding, and what looks like a credential."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

HIDDEN = "***"
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


class SecretMask:
    """Hides credentials in texts, bytes and headers: the given secrets, and what looks like one."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = _secrets_pattern(frozenset(secrets))

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

    def headers(self, pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        return [(name, self.header(name, value)) for name, value in pairs]


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
