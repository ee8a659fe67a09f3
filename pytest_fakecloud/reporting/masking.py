"""Mask credentials in reports, pages and recordings."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..core.calls import ITEMS_OF_CUT, Headers
from ..handle import closed_fakes_of, secrets_of
from .credentials import (
    HIDDEN,
    is_masked_token,
    is_secret_header,
    mask_credentials,
    secrets_pattern,
)  # fmt: skip

if TYPE_CHECKING:
    from ..any_cloud import AnyCloud
    from ..core.calls import Call, Event
    from .applications import Served

_PASSWORD_COMMANDS = {"AUTH": 2, "HELLO": 3, "ACL": 3, "CONFIG": 3, "MIGRATE": 3}
"""Maps commands to the minimum number of words, including the name, of a call with a password."""


def hides_words(call: Call) -> bool:
    """Return whether a command of a call may contain a password."""
    words = call.facts.get("words")
    if call.cut and _may_have_lost_a_secret(call):
        return True
    return isinstance(words, list) and any(
        len(line) >= _PASSWORD_COMMANDS.get(line[0].upper(), math.inf) for line in words
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
        self._secrets = secrets_pattern(known)

    def text(self, text: str) -> str:
        """Return a string in which the secrets, and parts that look like credentials, are masked."""
        return mask_credentials(self._secrets.sub(HIDDEN, text))

    def data(self, body: bytes) -> bytes:
        # Latin-1 maps each byte to one character and back.
        return self.text(body.decode("latin-1")).encode("latin-1")

    def header(self, name: str, value: str) -> str:
        """Return a header's value, masked if the header's name says that it contains a secret.

        Only the signature of a web token is masked.
        """
        text = self.text(value)
        return HIDDEN if is_secret_header(name) and not is_masked_token(text) else text

    def target(self, call: Call) -> str:
        path = call.target.partition("?")[0]
        if hides_words(call) and path.count("/") > 1:
            return f"{path[: path.index('/', 1)]}/{HIDDEN}"
        return self.text(call.target)

    def body(self, call: Call) -> bytes:
        """Return a call's request body, hidden as a whole if a command in it may contain a
        password.
        """
        return HIDDEN.encode() if call.body and hides_words(call) else self.data(call.body)

    def _headers(self, headers: Headers) -> Headers:
        return Headers([(name, self.header(name, value)) for name, value in headers.pairs])

    def call(self, call: Call) -> Call:
        """Return a masked copy of a call. It is masked before it is shortened, so that no part of a
        secret remains.
        """
        masked = copy.copy(call)
        masked.target = self.target(call)
        masked.headers = self._headers(call.headers)
        masked.body = self.body(call)
        masked.answer = self.data(call.answer)
        masked.answer_headers = self._headers(call.answer_headers)
        masked.note = self.text(call.note)
        masked._facts = self.value(call.facts)
        return masked

    def value(self, value: Any) -> Any:
        """Return a JSON value with every string in it masked."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        if isinstance(value, dict):
            return {self.value(name): self.value(each) for name, each in value.items()}
        return value

    def event(self, event: Event) -> Event:
        masked = copy.copy(event)
        masked.text = self.text(event.text)
        masked.data = {
            key: [[name, self.header(name, value)] for name, value in content]
            if key == "sent_headers" and content
            else self.value(content)
            for key, content in event.data.items()
        }
        return masked

    def served(self, served: Served) -> Served:
        """Return a copy of a request to the application with a masked target, body and exception.

        `as_json` masks the headers and the response when it decodes them.
        """
        masked = copy.copy(served)
        masked.target, masked.raised = self.text(served.target), self.text(served.raised)
        masked.body, masked.environ = self.text(served.body), None
        return masked
