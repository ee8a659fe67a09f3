"""Adapts scripts with the vendor's shebang flag to real servers, which reject the flag.

The scripts of the vendor's libraries start with ``#!lua flags=allow-key-locking``. The server
receives them without the flag. Clients keep using the digests of their own scripts, which are
translated. Decided here: the flag, which restricts scripts to their declared keys, has no effect,
because scripts can reach only the fake's own keys.
"""

from __future__ import annotations

import hashlib

from ..scripting.shebang import KEY_LOCKING
from .rewriting import Prepared

_FLAGS = b"flags="


class RedisScripts:
    """The scripts of one fake that were changed before they were sent to the server."""

    def __init__(self) -> None:
        self._sent: dict[bytes, bytes] = {}
        """Maps the digests of clients' scripts to the digests of the scripts that were sent."""

    def adapt(self, name: str, prepared: Prepared) -> None:
        """Change a command line that runs, loads or names scripts so that a real server accepts it."""
        argv = prepared.argv
        if name in ("EVAL", "EVAL_RO") and not prepared.emulated:
            argv[1] = self._accepted(argv[1])
        elif name in ("EVALSHA", "EVALSHA_RO", "SCRIPT EXISTS", "SCRIPT SHOW"):
            first = 2 if name.startswith("SCRIPT") else 1
            last = len(argv) if name == "SCRIPT EXISTS" else first + 1
            argv[first:last] = [self._sent.get(one.lower(), one) for one in argv[first:last]]
        elif name == "SCRIPT LOAD":
            text = argv[2]
            argv[2] = self._accepted(text)
            if argv[2] is not text:
                prepared.answer = lambda _: _digest(text)

    def _accepted(self, text: bytes) -> bytes:
        """Return a script without the vendor's flag."""
        line, _, body = text.partition(b"\n")
        if not line.startswith(b"#!") or KEY_LOCKING not in line:
            return text
        words = (_without_flag(word) for word in line.split(b" "))
        sent = b" ".join(word for word in words if word != _FLAGS) + b"\n" + body
        self._sent[_digest(text)] = _digest(sent)
        return sent


def _without_flag(word: bytes) -> bytes:
    if not word.startswith(_FLAGS):
        return word
    flags = word.removeprefix(_FLAGS).split(b",")
    return _FLAGS + b",".join(flag for flag in flags if flag != KEY_LOCKING)


def _digest(text: bytes) -> bytes:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
