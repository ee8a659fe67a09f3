"""The prefixes that keep the names of one fake apart from all other names on a real server."""

from __future__ import annotations

from ..errors import CommandError
from ..reply import Reply


class Prefixes:
    """The prefixes of one fake's keys, channels and users, which replies must not contain.

    The prefixes are empty if the fake may use the whole server. ``shared`` says whether other
    clients use the server, too.
    """

    def __init__(self, keys: bytes, channels: bytes, users: bytes, *, shared: bool) -> None:
        self.keys = keys
        self.channels = channels
        self.users = users
        self.shared = shared
        self._longest_first = tuple(sorted({keys, channels, users} - {b""}, key=len, reverse=True))

    @property
    def everything(self) -> bytes:
        """The glob pattern that matches all keys of the fake."""
        return escaped(self.keys) + b"*"

    def strip(self, reply: Reply) -> Reply:
        """Return a reply without the prefixes at the start of strings and anywhere in errors.

        A stored value that begins with a prefix is shortened, too (decided here).
        """
        if not self._longest_first:
            return reply
        kind = type(reply)
        if kind is bytes:
            for prefix in self._longest_first:
                if reply.startswith(prefix):  # type: ignore[union-attr]
                    return reply[len(prefix) :]  # type: ignore[index]
            return reply
        if kind is list:
            return [self.strip(item) for item in reply]  # type: ignore[union-attr]
        if isinstance(reply, CommandError):
            return CommandError(self.without(reply.text))
        return reply

    def without(self, text: bytes) -> bytes:
        """Return a text without the prefixes, wherever they are."""
        for prefix in self._longest_first:
            text = text.replace(prefix, b"")
        return text


def escaped(text: bytes) -> bytes:
    """Return a glob pattern that matches only the given string."""
    for sign in (b"\\", b"*", b"?", b"[", b"]"):
        text = text.replace(sign, b"\\" + sign)
    return text
