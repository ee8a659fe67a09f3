"""Lua scripts of the fake and of its clients, as they are sent to a real server.

The scripts of the vendor's libraries start with ``#!lua flags=allow-key-locking``. Real servers
reject the flag, so they receive the scripts without it. Clients keep using the digests of their own
scripts, which are translated. Decided here: the flag, which restricts scripts to their declared
keys, has no effect, because scripts can reach only the fake's own keys.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ..scripting.scripts import KEY_LOCKING

if TYPE_CHECKING:
    from .rewriting import Prepared

# Scripts that replace commands about all keys, which would see the keys of other clients.

_FIND_KEYS = b"""
local cursor, found, known = '0', {}, {}
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', ARGV[1], 'COUNT', 1000)
  cursor = page[1]
  for at = 1, #page[2] do
    local key = page[2][at]
    if not known[key] then
      known[key], found[#found + 1] = true, key
    end
  end
until cursor == '0'
"""
"""Lua code that lists the keys of the fake, without those that SCAN returns twice, in ``found``."""
COUNT_KEYS = _FIND_KEYS + b"return #found"
UNLINK_KEYS = (
    _FIND_KEYS
    + b"""
for at = 1, #found do redis.call('UNLINK', found[at]) end
return redis.status_reply('OK')"""
)
RANDOM_KEY = (
    _FIND_KEYS
    + b"""
return #found > 0 and found[1 + math.floor(tonumber(ARGV[2]) * #found)]"""
)
SCAN_WITH_TYPES = b"""
local page = redis.call('SCAN', unpack(ARGV))
local found = {}
for at = 1, #page[2] do
  found[2 * at - 1] = page[2][at]
  found[2 * at] = redis.call('TYPE', page[2][at]).ok
end
return {page[1], found}"""

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
