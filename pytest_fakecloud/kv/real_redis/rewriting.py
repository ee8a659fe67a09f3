"""Rewrites command lines, so that a fake uses only its own part of a real server.

Keys get a prefix; the command table declares where the keys of a command are. Channels and patterns
get prefixes as well. Commands about all keys (KEYS, SCAN, DBSIZE, FLUSHDB, ...) become commands
about the keys with the prefix, some of them as Lua scripts. Commands that would affect other data on
the server are rejected.

The scripts of the vendor's libraries start with ``#!lua flags=allow-key-locking``. Real servers
reject the flag, so they receive the scripts without it. Clients keep using the digests of their own
scripts, which are translated. Decided here: the flag, which restricts scripts to their declared
keys, has no effect, because scripts can reach only the fake's own keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from .. import errors
from ..acl import generate_token, join_selectors, selector_of
from ..errors import CommandError
from ..reply import OK, Reply
from ..scripting.libraries import KEY_LOCKING, digest
from ..syntax import option_places, parse_int
from ..table.exceptions import OPTIONS_OF_READS
from ..table.registry import CommandSpec


class Prefixes:
    """The prefixes of a fake's names, empty if it may use the whole server."""

    def __init__(self, keys: bytes, channels: bytes, users: bytes, *, shared: bool) -> None:
        self.keys = keys
        self.channels = channels
        self.users = users
        self.shared = shared
        # Patterns contain the escaped prefixes.
        prefixes = {keys, channels, users, escaped(keys), escaped(channels)} - {b""}
        self._longest_first = tuple(sorted(prefixes, key=len, reverse=True))

    @property
    def everything(self) -> bytes:
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
        for prefix in self._longest_first:
            text = text.replace(prefix, b"")
        return text


def escaped(text: bytes) -> bytes:
    """Return a glob pattern that matches only the given string."""
    for sign in (b"\\", b"*", b"?", b"[", b"]"):
        text = text.replace(sign, b"\\" + sign)
    return text


DEFAULT_USERS = (b"default", b"default_ro")
_SCRIPTS = frozenset({"EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO", "FCALL", "FCALL_RO"})
_HARMLESS = selector_of(
    "+ping +echo +time +lolwut +info +lastsave +role +wait +waitaof +multi +exec +discard +publish "
    "+pfselftest +keys +scan +randomkey +dbsize +flushdb +flushall +command +pubsub +acl -acl|load "
    "-acl|log -acl|save +config|get +memory -memory|purge +module|list +slowlog|len +latency "
    "-latency|reset +script|load +script|exists +script|show +client|setinfo"
).commands
"""Commands without declared keys that affect only the fake or nothing."""
_NEVER = frozenset({
    "SYNC", "PSYNC", "REPLCONF", "SHUTDOWN", "DEBUG", "FAILOVER", "REPLICAOF", "SLAVEOF", "MIGRATE",
    "SWAPDB", "RESTORE-ASKING",
})  # fmt: skip
"""Commands that are always rejected, because they control the server process or other servers."""


@dataclass(slots=True)
class Prepared:
    """A command line to send to the server, and a function that converts the reply.

    ``emulated`` means that the line replaces the client's command by a script of this module.
    ``runs_script`` means that the line runs code of the client.
    """

    argv: list[bytes]
    answer: Callable[[Reply], Reply] | None = None
    emulated: bool = False
    runs_script: bool = False


class Answered(NamedTuple):
    """The reply of the fake itself to a command that is not sent to the server."""

    reply: Reply


@dataclass(frozen=True)
class Rewriter:
    """Rewrites the command lines of one fake.

    ``fraction`` returns random numbers in [0, 1), ``patterns`` the number of subscribed patterns.
    """

    prefixes: Prefixes
    fraction: Callable[[], float]
    patterns: Callable[[], int]

    def prepare(self, spec: CommandSpec | None, argv: list[bytes]) -> Prepared | Answered:
        """Return the line to send for a client's line; raise ``CommandError`` if it is rejected."""
        if spec is None:
            if self.prefixes.shared:
                raise CommandError(errors.unknown_command(argv))
            return Prepared(argv)
        if spec.name == "CLIENT SETINFO":
            return Answered(OK)
        if spec.name == "UNLINK" and len(argv) == 1:
            return Answered(0)  # As in the vendor's service.
        self.check(spec, argv)
        if spec.name == "MOVE" and self.prefixes.shared:
            raise CommandError(errors.DB_INDEX)  # A fake has a single database.
        if spec.name == "RANDOMKEY" and self.prefixes.keys:
            return _emulated(RANDOM_KEY, self.prefixes.everything, b"%.12f" % self.fraction())
        if spec.name == "PUBSUB NUMPAT" and self.prefixes.shared:
            return Answered(self.patterns())
        rewrite = _REWRITTEN.get(spec.name)
        line = list(argv) if rewrite is None else rewrite(self.prefixes, argv)
        if isinstance(line, Prepared):
            return line
        for place, _ in spec.key_positions(line):
            line[place] = self.prefixes.keys + line[place]
        return Prepared(line, runs_script=spec.name in _SCRIPTS)

    def check(self, spec: CommandSpec, argv: list[bytes]) -> None:
        """Raise ``CommandError`` for a wrong number of arguments and for a command out of reach."""
        if spec.name in _NEVER:
            why = "it controls the server process or its connections to other servers"
            raise _unavailable(spec, why)
        if not spec.least <= len(argv) <= spec.most:
            raise CommandError(errors.wrong_arity(spec.full_name))
        if not self.prefixes.shared or spec.keys or spec in _HARMLESS:
            return
        if spec.subcommands is None and not spec.name.endswith(" HELP"):
            raise _unavailable(
                spec,
                'it would affect other clients of the server; pass isolation="none" if there are '
                "none, or use the in-memory engine",
            )


def _emulated(script: bytes, *arguments: bytes) -> Prepared:
    return Prepared([b"EVAL", script, b"0", *arguments], emulated=True)


def _without(argv: list[bytes], positions: list[int]) -> list[bytes]:
    return [word for at, word in enumerate(argv) if at not in positions]


def _sort(prefixes: Prefixes, argv: list[bytes]) -> list[bytes]:
    line = list(argv)
    for at, word in option_places(argv[:-1], 2, {b"BY": 2, b"GET": 2, b"STORE": 2, b"LIMIT": 3}):
        if word in (b"BY", b"GET") and line[at + 1] != b"#":
            line[at + 1] = prefixes.keys + line[at + 1]
    return line


def _copy(prefixes: Prefixes, argv: list[bytes]) -> list[bytes]:
    # Omit the option DB: like the vendor's service, a fake has a single database.
    omitted: list[int] = []
    if prefixes.shared:
        for at, word in option_places(argv[:-1], 3, {b"DB": 2}):
            if word == b"DB":
                if argv[at + 1] != b"0":
                    raise CommandError(errors.DB_INDEX)
                omitted += (at, at + 1)
    return _without(argv, omitted)


def _without_block(prefixes: Prefixes, argv: list[bytes]) -> list[bytes]:
    # Omit the option BLOCK: over REST, a read that could block returns immediately.
    omitted: list[int] = []
    for at, word in option_places(argv[:-1], 1, OPTIONS_OF_READS):
        if word == b"STREAMS":
            break
        if word == b"BLOCK":
            parse_int(argv[at + 1], 0, 2**63 - 1, errors.TIMEOUT_NOT_INTEGER)
            omitted += (at, at + 1)
    return _without(argv, omitted)


def _wait(prefixes: Prefixes, argv: list[bytes]) -> list[bytes]:
    # A timeout of 0 waits forever, and would occupy the connection. Wait for a millisecond instead.
    return [*argv[:-1], b"1" if argv[-1] == b"0" else argv[-1]]


def _pubsub_channels(prefixes: Prefixes, argv: list[bytes]) -> list[bytes]:
    pattern = argv[2] if len(argv) > 2 else b"*"
    return [*argv[:2], escaped(prefixes.channels) + pattern, *argv[3:]]


def _pubsub_numsub(prefixes: Prefixes, argv: list[bytes]) -> list[bytes]:
    return [*argv[:2], *(prefixes.channels + name for name in argv[2:])]


def _scan(prefixes: Prefixes, argv: list[bytes]) -> Prepared:
    line = list(argv)
    places = dict[bytes, list[int]]()
    for at, word in option_places(argv, 2, {b"MATCH": 2, b"COUNT": 2, b"TYPE": 2}):
        places.setdefault(word, []).append(at)
        if word == b"MATCH" and at + 1 < len(line):
            line[at + 1] = escaped(prefixes.keys) + line[at + 1]
    with_types = places.get(b"WITHTYPE", [])
    line = _without(line, with_types)
    if b"COUNT" not in places:
        # As in the vendor's service, pages are large enough to contain a small database.
        line += [b"COUNT", b"1000"]
    if b"MATCH" not in places and prefixes.keys:
        line += [b"MATCH", prefixes.everything]
    return _emulated(SCAN_WITH_TYPES, *line[1:]) if with_types else Prepared(line)


def _dbsize(prefixes: Prefixes, argv: list[bytes]) -> Prepared:
    return _emulated(COUNT_KEYS, prefixes.everything) if prefixes.keys else Prepared(argv)


def _flush(prefixes: Prefixes, argv: list[bytes]) -> Prepared:
    if len(argv) > 2 or (len(argv) == 2 and argv[1].upper() not in (b"ASYNC", b"SYNC")):
        raise CommandError(errors.SYNTAX)
    if not prefixes.keys:
        # As in the vendor's service, FLUSHALL affects only one database.
        return Prepared([b"FLUSHDB", *argv[1:]])
    return _emulated(UNLINK_KEYS, prefixes.everything)


def _georadius(prefixes: Prefixes, argv: list[bytes]) -> Prepared:
    # Of several destinations, the last one counts. The command table declares only the first.
    line = [argv[0], prefixes.keys + argv[1], *argv[2:]]
    start = 6 if argv[0].upper() == b"GEORADIUS" else 5
    for at, word in option_places(argv[:-1], start, {b"STORE": 2, b"STOREDIST": 2, b"COUNT": 2}):
        if word in (b"STORE", b"STOREDIST"):
            line[at + 1] = prefixes.keys + line[at + 1]
    return Prepared(line)


def _setuser(prefixes: Prefixes, argv: list[bytes]) -> Prepared:
    _refuse_default_users(argv[2:3], errors.fixed_user)
    rules = (_with_prefixes(prefixes, rule) for rule in join_selectors(argv[3:]))
    return Prepared([*argv[:2], prefixes.users + argv[2], *rules])


def _deluser(prefixes: Prefixes, argv: list[bytes]) -> Prepared:
    _refuse_default_users(argv[2:], errors.cannot_remove)
    return Prepared([*argv[:2], *(prefixes.users + name for name in argv[2:])])


def _gentoken(prefixes: Prefixes, argv: list[bytes]) -> Prepared:
    if len(argv) > 4:
        raise CommandError(errors.wrong_arity("acl|gentoken"))
    token = generate_token(argv[2], argv[3] if len(argv) == 4 else None)
    # The server checks whether the user may run ACL GENPASS, which it has instead.
    return Prepared([b"ACL", b"GENPASS"], lambda reply: token)


def _about_user(prefixes: Prefixes, argv: list[bytes]) -> Prepared:
    name = argv[2] if argv[2] in DEFAULT_USERS else prefixes.users + argv[2]
    return Prepared([*argv[:2], name, *argv[3:]], partial(_without_prefixes, prefixes))


def _refuse_default_users(names: list[bytes], refusal: errors.Template) -> None:
    for name in names:
        if name in DEFAULT_USERS:
            raise CommandError(refusal(name))


def _with_prefixes(prefixes: Prefixes, rule: bytes) -> bytes:
    """Return a rule, or a selector in parentheses, with the fake's prefixes in the patterns."""
    if rule.startswith(b"("):
        inner = (_with_prefixes(prefixes, word) for word in rule[1:-1].split())
        return b"(" + b" ".join(inner) + b")"
    rule = {b"allkeys": b"~*", b"allchannels": b"&*"}.get(rule.lower(), rule)
    sign, tilde, pattern = rule.partition(b"~")
    if tilde and (not sign or sign.startswith(b"%")):
        return sign + b"~" + escaped(prefixes.keys) + pattern
    if rule.startswith(b"&"):
        return b"&" + escaped(prefixes.channels) + rule[1:]
    return rule


def _without_prefixes(prefixes: Prefixes, reply: Reply) -> Reply:
    if isinstance(reply, list):
        return [_without_prefixes(prefixes, item) for item in reply]
    return prefixes.without(reply) if isinstance(reply, bytes) else reply


def _own_names(prefixes: Prefixes, reply: Reply) -> Reply:
    """Return ``default``, the user of the fake's token, and the fake's names in a reply of ACL USERS."""
    if not prefixes.users or not isinstance(reply, list):
        return reply
    own = [name for name in reply if name.startswith(prefixes.users)]
    return [b"default", *(prefixes.without(name) for name in own)]


def _own_lines(prefixes: Prefixes, reply: Reply) -> Reply:
    """Return the lines in a reply of ACL LIST about the fake's users and ``default``."""
    if not prefixes.users or not isinstance(reply, list):
        return reply
    starts = (b"user " + prefixes.users, b"user default ")
    return [prefixes.without(line) for line in reply if line.startswith(starts)]


_REWRITTEN: dict[str, Callable[[Prefixes, list[bytes]], list[bytes] | Prepared]] = {
    "KEYS": lambda prefixes, argv: [b"KEYS", escaped(prefixes.keys) + argv[1]],
    "SORT": _sort,
    "SORT_RO": _sort,
    "COPY": _copy,
    "XREAD": _without_block,
    "XREADGROUP": _without_block,
    "WAIT": _wait,
    "WAITAOF": _wait,
    "PUBLISH": lambda prefixes, argv: [argv[0], prefixes.channels + argv[1], argv[2]],
    "PUBSUB CHANNELS": _pubsub_channels,
    "PUBSUB NUMSUB": _pubsub_numsub,
    "PUBSUB SHARDCHANNELS": _pubsub_channels,
    "PUBSUB SHARDNUMSUB": _pubsub_numsub,
    "SCAN": _scan,
    "DBSIZE": _dbsize,
    "FLUSHDB": _flush,
    "FLUSHALL": _flush,
    "GEORADIUS": _georadius,
    "GEORADIUSBYMEMBER": _georadius,
    "ACL GENTOKEN": _gentoken,
    "ACL SETUSER": _setuser,
    "ACL DELUSER": _deluser,
    "ACL GETUSER": _about_user,
    "ACL DRYRUN": _about_user,
    "ACL USERS": lambda prefixes, argv: Prepared(argv, partial(_own_names, prefixes)),
    "ACL LIST": lambda prefixes, argv: Prepared(argv, partial(_own_lines, prefixes)),
}
"""Functions that return a changed line, whose declared keys get their prefix afterwards, or a
complete line.
"""


def _unavailable(spec: CommandSpec, why: str) -> CommandError:
    return CommandError(f"ERR '{spec.name}' is not available with this engine: {why}".encode())


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
            argv[first:last] = [
                self._sent.get(digest.lower(), digest) for digest in argv[first:last]
            ]
        elif name == "SCRIPT LOAD":
            text = argv[2]
            argv[2] = self._accepted(text)
            if argv[2] is not text:
                prepared.answer = lambda _: digest(text)

    def _accepted(self, text: bytes) -> bytes:
        """Return a script without the vendor's flag."""
        line, _, body = text.partition(b"\n")
        if not line.startswith(b"#!") or KEY_LOCKING not in line:
            return text
        words = line.split(b" ")
        for at, word in enumerate(words):
            if word.startswith(_FLAGS):
                flags = word.removeprefix(_FLAGS).split(b",")
                words[at] = _FLAGS + b",".join(flag for flag in flags if flag != KEY_LOCKING)
        sent = b" ".join(word for word in words if word != _FLAGS) + b"\n" + body
        self._sent[digest(text)] = digest(sent)
        return sent
