"""Rewrites command lines and replies, so that a fake uses only its own part of a real server.

Keys get a prefix; the command table declares where the keys of a command are. Channels, patterns
and users get prefixes as well. Replies lose their prefixes. Commands about all keys (KEYS, SCAN,
DBSIZE, FLUSHDB, ...) become commands about the keys with the prefix. Commands that would affect
other data on the server are rejected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .. import errors
from ..errors import CommandError
from ..reply import OK, Reply
from ..table.registry import CommandSpec, find_family
from ..table.syntax import parse_int

_COUNT = b"""
local cursor, found = '0', 0
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', ARGV[1], 'COUNT', 1000)
  cursor, found = page[1], found + #page[2]
until cursor == '0'
return found"""
_FLUSH = b"""
local cursor = '0'
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', ARGV[1], 'COUNT', 1000)
  cursor = page[1]
  for at = 1, #page[2] do redis.call('UNLINK', page[2][at]) end
until cursor == '0'
return redis.status_reply('OK')"""
_RANDOM = b"""
local cursor, keys = '0', {}
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', ARGV[1], 'COUNT', 1000)
  cursor = page[1]
  for at = 1, #page[2] do keys[#keys + 1] = page[2][at] end
until cursor == '0'
if #keys == 0 then return false end
return keys[1 + math.floor(tonumber(ARGV[2]) * #keys)]"""
_TYPES = b"""
local page = redis.call('SCAN', unpack(ARGV))
local found = {}
for at = 1, #page[2] do
  found[2 * at - 1] = page[2][at]
  found[2 * at] = redis.call('TYPE', page[2][at]).ok
end
return {page[1], found}"""

SCRIPTS = frozenset({"EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO", "FCALL", "FCALL_RO"})
_HARMLESS_TEXT = """
    PING ECHO TIME LOLWUT COMMAND INFO LASTSAVE ROLE WAIT WAITAOF MULTI EXEC DISCARD PFSELFTEST
    KEYS SCAN RANDOMKEY DBSIZE FLUSHDB FLUSHALL PUBLISH
"""
_HARMLESS_SUBCOMMANDS_TEXT = """
    COMMAND-COUNT COMMAND-DOCS COMMAND-GETKEYS COMMAND-GETKEYSANDFLAGS COMMAND-INFO COMMAND-LIST
    CONFIG-GET MEMORY-STATS MEMORY-DOCTOR MEMORY-MALLOC-STATS MODULE-LIST SLOWLOG-LEN
    LATENCY-LATEST LATENCY-HISTORY LATENCY-DOCTOR LATENCY-GRAPH LATENCY-HISTOGRAM
    SCRIPT-LOAD SCRIPT-EXISTS SCRIPT-SHOW PUBSUB-CHANNELS PUBSUB-NUMSUB PUBSUB-NUMPAT
    PUBSUB-SHARDCHANNELS PUBSUB-SHARDNUMSUB CLIENT-SETINFO
    ACL-CAT ACL-DELUSER ACL-DRYRUN ACL-GENPASS ACL-GENTOKEN ACL-GETUSER ACL-LIST ACL-RESTTOKEN
    ACL-SETUSER ACL-USERS ACL-WHOAMI
"""
_HARMLESS = frozenset(_HARMLESS_TEXT.split())
_HARMLESS_SUBCOMMANDS = frozenset(_HARMLESS_SUBCOMMANDS_TEXT.split())
_NEVER_TEXT = """
    SYNC PSYNC REPLCONF SHUTDOWN DEBUG FAILOVER REPLICAOF SLAVEOF MIGRATE SWAPDB RESTORE-ASKING
"""
NEVER = frozenset(_NEVER_TEXT.split())
"""Commands that are always rejected, because they control the server process or other servers."""


@dataclass(slots=True)
class Prepared:
    """A command line that is ready to be sent to the server.

    ``answer`` converts the reply. The other fields are flags. ``emulated``: a script replaces the
    client's command. ``placed``: the keys already have their prefix. ``script``: the line runs code
    of the client. ``local``: the fake replies itself and sends nothing.
    """

    argv: list[bytes]
    answer: Callable[[Reply], Reply] | None = None
    emulated: bool = False
    placed: bool = False
    script: bool = False
    local: bool = False


class Names:
    """Adds and removes the prefixes of one fake.

    ``keys``, ``channels`` and ``users`` are the prefixes; they are empty if the fake may use the
    whole server. ``shared`` says whether other clients use the server, too. ``fraction`` returns
    random numbers in [0, 1), and ``patterns`` the number of subscribed patterns.
    """

    def __init__(
        self,
        keys: bytes,
        channels: bytes,
        users: bytes,
        *,
        shared: bool,
        fraction: Callable[[], float],
        patterns: Callable[[], int],
    ) -> None:
        self.keys = keys
        self.channels = channels
        self.users = users
        self.shared = shared
        self._fraction = fraction
        self._patterns = patterns
        self._prefixes = tuple(sorted({keys, channels, users} - {b""}, key=len, reverse=True))

    # -- command lines -----------------------------------------------------------------------------

    def prepare(self, spec: CommandSpec | None, argv: list[bytes]) -> Prepared:
        """Return the line to send for a client's line; raise ``CommandError`` if it is rejected."""
        if spec is None:
            if self.shared:
                raise CommandError(errors.unknown_command(argv))
            return Prepared(argv)
        if spec.name in NEVER:
            raise CommandError(
                _unavailable(
                    spec, "it controls the server process or its connections to other servers"
                )
            )
        if spec.name == "CLIENT SETINFO":
            return Prepared(argv, local=True, answer=lambda _: OK)
        if not spec.least <= len(argv) <= spec.most:
            if spec.name == "UNLINK":
                # The vendor's service returns 0 for UNLINK without keys.
                return Prepared(argv, local=True, answer=lambda _: 0)
            raise CommandError(errors.wrong_arity(spec.full_name))
        self._check_reach(spec, argv)
        special = _SPECIAL.get(spec.name)
        prepared = Prepared(list(argv)) if special is None else special(self, argv)
        if self.keys and not (prepared.emulated or prepared.placed or prepared.local):
            for place, _ in spec.key_positions(prepared.argv):
                prepared.argv[place] = self.keys + prepared.argv[place]
        prepared.script = spec.name in SCRIPTS
        return prepared

    def _check_reach(self, spec: CommandSpec, argv: list[bytes]) -> None:
        if not self.shared or spec.keys or spec.name in _HARMLESS:
            return
        if spec.name.replace(" ", "-") in _HARMLESS_SUBCOMMANDS or spec.name.endswith(" HELP"):
            return
        if spec.subcommands is not None:
            return
        raise CommandError(
            _unavailable(
                spec,
                'it would affect other clients of the server; pass isolation="none" if there are '
                "none, or use the in-memory engine",
            )
        )

    @property
    def everything(self) -> bytes:
        """The glob pattern that matches all keys of the fake."""
        return escaped(self.keys) + b"*"

    def _script(self, code: bytes, *arguments: bytes) -> Prepared:
        return Prepared([b"EVAL", code, b"0", *arguments], emulated=True)

    # -- replies ----------------------------------------------------------------------------------

    def strip(self, reply: Reply) -> Reply:
        """Return a reply without the prefixes at the start of strings and anywhere in errors."""
        if not self._prefixes:
            return reply
        kind = type(reply)
        if kind is bytes:
            for prefix in self._prefixes:
                if reply.startswith(prefix):  # type: ignore[union-attr]
                    return reply[len(prefix) :]  # type: ignore[index]
            return reply
        if kind is list:
            return [self.strip(item) for item in reply]  # type: ignore[union-attr]
        if isinstance(reply, CommandError):
            return CommandError(self.without(reply.text))
        return reply

    def without(self, text: bytes) -> bytes:
        for prefix in self._prefixes:
            text = text.replace(prefix, b"")
        return text

    # -- commands about more than their keys -----------------------------------------------------

    def _keys(self, argv: list[bytes]) -> Prepared:
        return Prepared([b"KEYS", escaped(self.keys) + argv[1]])

    def _scan(self, argv: list[bytes]) -> Prepared:
        line, types, matched, counted, at = argv[:2], False, False, False, 2
        while at < len(argv):
            word = argv[at].upper()
            if word == b"WITHTYPE":
                types, at = True, at + 1
                continue
            pair = argv[at : at + 2]
            if word == b"MATCH" and len(pair) == 2:
                pair, matched = [pair[0], escaped(self.keys) + pair[1]], True
            counted = counted or word == b"COUNT"
            line += pair
            at += 2
        if not counted:
            # As in the vendor's service, pages are large enough to contain a small database.
            line += [b"COUNT", b"1000"]
        if not matched and self.keys:
            line += [b"MATCH", self.everything]
        return self._script(_TYPES, *line[1:]) if types else Prepared(line)

    def _randomkey(self, argv: list[bytes]) -> Prepared:
        if not self.keys:
            return Prepared(argv)
        return self._script(_RANDOM, self.everything, b"%.12f" % self._fraction())

    def _dbsize(self, argv: list[bytes]) -> Prepared:
        return self._script(_COUNT, self.everything) if self.keys else Prepared(argv)

    def _flush(self, argv: list[bytes]) -> Prepared:
        if len(argv) > 2 or (len(argv) == 2 and argv[1].upper() not in (b"ASYNC", b"SYNC")):
            raise CommandError(errors.SYNTAX)
        if not self.keys:
            # As in the vendor's service, FLUSHALL affects only one database.
            return Prepared([b"FLUSHDB", *argv[1:]])
        return self._script(_FLUSH, self.everything)

    def _sort(self, argv: list[bytes]) -> Prepared:
        line, at = list(argv), 2
        while at < len(line):
            word = line[at].upper()
            follows = at + 1 < len(line)
            if word in (b"BY", b"GET") and follows:
                if line[at + 1] != b"#":
                    line[at + 1] = self.keys + line[at + 1]
                at += 1
            elif word == b"STORE" and follows:
                line[at + 1] = self.keys + line[at + 1]
                at += 1
            elif word == b"LIMIT":
                at += 2
            at += 1
        return Prepared(line)

    def _georadius(self, argv: list[bytes]) -> Prepared:
        # If the line has several destinations, the last one counts. The command table declares only
        # the first.
        at = 6 if argv[0].upper() == b"GEORADIUS" else 5
        line = [argv[0], self.keys + argv[1], *argv[2:]]
        while at < len(line) - 1:
            word = line[at].upper()
            if word in (b"STORE", b"STOREDIST"):
                line[at + 1] = self.keys + line[at + 1]
            at += 2 if word in (b"STORE", b"STOREDIST", b"COUNT") else 1
        return Prepared(line, placed=True)

    def _copy(self, argv: list[bytes]) -> Prepared:
        for at, word in enumerate(argv[3:-1], 3):
            if self.shared and word.upper() == b"DB" and argv[at + 1] != b"0":
                raise CommandError(errors.DB_INDEX)
        if self.shared:
            # Omit the option DB: like the vendor's service, a fake has a single database.
            line = argv[:3] + [word for word in argv[3:] if word.upper() not in (b"DB", b"0")]
            return Prepared(line)
        return Prepared(list(argv))

    def _move(self, argv: list[bytes]) -> Prepared:
        if self.shared:
            raise CommandError(errors.DB_INDEX)
        return Prepared(list(argv))

    def _without_block(self, argv: list[bytes]) -> Prepared:
        # Omit the option BLOCK: over REST, a read that could block returns immediately.
        at = 4 if argv[0].upper() == b"XREADGROUP" else 1
        while at < len(argv) - 1:
            word = argv[at].upper()
            if word == b"STREAMS":
                break
            if word == b"BLOCK":
                parse_int(argv[at + 1], 0, 2**63 - 1, errors.TIMEOUT_NOT_INTEGER)
                return self._without_block(argv[:at] + argv[at + 2 :])
            at += 2 if word == b"COUNT" else 1
        return Prepared(list(argv))

    def _wait(self, argv: list[bytes]) -> Prepared:
        return Prepared([*argv[:-1], b"1" if argv[-1] == b"0" else argv[-1]])

    def _publish(self, argv: list[bytes]) -> Prepared:
        return Prepared([argv[0], self.channels + argv[1], argv[2]])

    def _pubsub_channels(self, argv: list[bytes]) -> Prepared:
        pattern = argv[2] if len(argv) > 2 else b"*"
        return Prepared([*argv[:2], escaped(self.channels) + pattern, *argv[3:]])

    def _pubsub_numsub(self, argv: list[bytes]) -> Prepared:
        return Prepared([*argv[:2], *(self.channels + name for name in argv[2:])])

    def _pubsub_numpat(self, argv: list[bytes]) -> Prepared:
        if not self.shared:
            return Prepared(argv)
        return Prepared(argv, local=True, answer=lambda _: self._patterns())


_SPECIAL: dict[str, Callable[[Names, list[bytes]], Prepared]] = {
    "KEYS": Names._keys,
    "SCAN": Names._scan,
    "RANDOMKEY": Names._randomkey,
    "DBSIZE": Names._dbsize,
    "FLUSHDB": Names._flush,
    "FLUSHALL": Names._flush,
    "SORT": Names._sort,
    "SORT_RO": Names._sort,
    "GEORADIUS": Names._georadius,
    "GEORADIUSBYMEMBER": Names._georadius,
    "COPY": Names._copy,
    "MOVE": Names._move,
    "XREAD": Names._without_block,
    "XREADGROUP": Names._without_block,
    "WAIT": Names._wait,
    "WAITAOF": Names._wait,
    "PUBLISH": Names._publish,
    "PUBSUB CHANNELS": Names._pubsub_channels,
    "PUBSUB NUMSUB": Names._pubsub_numsub,
    "PUBSUB SHARDCHANNELS": Names._pubsub_channels,
    "PUBSUB SHARDNUMSUB": Names._pubsub_numsub,
    "PUBSUB NUMPAT": Names._pubsub_numpat,
}


def find_spec(argv: list[bytes]) -> CommandSpec | None:
    """Return the declaration of a line's command or subcommand, or None if it is unknown."""
    spec = find_family(argv)
    if spec is not None and spec.subcommands is not None and len(argv) > 1:
        return spec.subcommands.get(argv[1].upper())
    return spec


def escaped(text: bytes) -> bytes:
    """Return a glob pattern that matches only the given string."""
    for sign in (b"\\", b"*", b"?", b"[", b"]"):
        text = text.replace(sign, b"\\" + sign)
    return text


def _unavailable(spec: CommandSpec, why: str) -> bytes:
    return f"ERR '{spec.name}' is not available with this engine: {why}".encode()
