"""ACL users: passwords, permission checks, and the rules of ACL SETUSER and ACL LIST.

A user has a root selector and can have others. A command line is allowed if a single selector
allows its command, all its channels, and the way in which it uses each key.

The vendor's documentation names few categories, and `@array` is Redis' own. Decided here: commands
that only the vendor has are in `@search` and `@vector`, and JSON commands in `@json`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Set
from copy import copy
from functools import cache, cached_property
from hashlib import sha256
from math import log2
from typing import Any, Literal, NamedTuple, get_args

from . import errors
from .algorithms.glob import matcher
from .errors import CommandError
from .reply import Map, SetReply
from .settings import Dialect
from .syntax import encoded
from .table.exceptions import PUBLISHES
from .table.flags import CATEGORIES
from .table.keys import KeySpec
from .table.registry import EVERYTHING, CommandSpec, Table

Reason = Literal["command", "key", "channel"]
_REASONS: tuple[Reason, ...] = get_args(Reason)
"""The reasons in the order in which they are checked."""
_TO_CHANNELS = frozenset({"SUBSCRIBE", "SSUBSCRIBE", "PSUBSCRIBE"})
"""Commands whose arguments are channels or patterns."""


def password_hash(password: bytes) -> str:
    """Return the stored form of a password: its SHA-256 in lower-case hexadecimal digits."""
    return sha256(password).hexdigest()


class Denied(CommandError):
    """Raised for a denied command line; ``subject`` is the denied command, key or channel."""

    def __init__(self, text: bytes, reason: Reason, subject: bytes) -> None:
        super().__init__(text)
        self.reason: Reason = reason
        self.subject = subject


class KeyPattern(NamedTuple):
    """A glob pattern for keys, and whether matching keys may be read and written."""

    pattern: bytes
    reads: bool
    writes: bool

    def allows(self, key: bytes, reads: bool, writes: bool) -> bool:
        """Return whether the pattern matches a key and permits this kind of access to it."""
        if (reads and not self.reads) or (writes and not self.writes):
            return False
        return matcher(self.pattern)(key)


class Selector:
    """Permitted commands, keys and channels. ``future`` (commands added later) is only described."""

    def __init__(self, table: Table = EVERYTHING) -> None:
        self.table = table
        self._commands: frozenset[CommandSpec] = frozenset()
        """The permitted commands, unless all are."""
        self.first_words: dict[CommandSpec, list[bytes]] = {}
        self.all_commands = self.future = False
        self.keys: list[KeyPattern] = []
        self.all_keys = False
        self.channels: list[bytes] = []
        self.all_channels = False

    def copy(self) -> Selector:
        other = copy(self)
        other.first_words = {spec: list(words) for spec, words in self.first_words.items()}
        other.keys, other.channels = list(self.keys), list(self.channels)
        return other

    @property
    def commands(self) -> frozenset[CommandSpec]:
        """The permitted commands, apart from those of which only some first words are."""
        return frozenset(self.table.commands.values()) if self.all_commands else self._commands

    def set_all_commands(self, allowed: bool) -> None:
        """Allow all commands, including those that are added later, or deny all commands."""
        self._commands = frozenset()
        self.first_words.clear()
        self.all_commands = self.future = allowed

    def set_commands(self, specs: Set[CommandSpec], allowed: bool) -> None:
        for spec in specs:
            self.first_words.pop(spec, None)
        self._commands = self.commands | specs if allowed else self.commands - specs
        self.all_commands = self.all_commands and allowed

    def denial(self, spec: CommandSpec, line: list[bytes]) -> tuple[Reason, int] | None:
        """Return why a command line is denied, and for which argument; None if it is allowed."""
        if not self.all_commands and spec not in self.commands and "no_auth" not in spec.flags:
            words = self.first_words.get(spec)
            if not words or len(line) < 2 or line[1].lower() not in words:
                return "command", 0
        # As on a real server, a line has no keys if a part of them cannot be found.
        if not self.all_keys and not spec.lacks_keys(line):
            for place, key in spec.key_positions(line):
                if not key.is_channel and not self.allows_key(line[place], key):
                    return "key", place
        if not self.all_channels and spec.name in PUBLISHES | _TO_CHANNELS:
            for place in range(1, len(line) if spec.name in _TO_CHANNELS else 2):
                if not self.allows_channel(line[place], spec.name == "PSUBSCRIBE"):
                    return "channel", place
        return None

    def allows_key(self, name: bytes, key: KeySpec) -> bool:
        """Return whether a key may be read and written in the way that a line does it."""
        return any(pattern.allows(name, key.reads, key.writes) for pattern in self.keys)

    def allows_channel(self, channel: bytes, is_pattern: bool) -> bool:
        """Return whether a channel is allowed. A pattern must equal a pattern of a rule."""
        if self.all_channels:
            return True
        if is_pattern:
            return channel in self.channels
        return any(matcher(pattern)(channel) for pattern in self.channels)


class RestToken(NamedTuple):
    """A REST token. It is valid as long as its user has the password whose hash it stores."""

    user: str
    hash: str


class AclUser:
    """A user defined by rules; the first selector is the root. ``sanitizes`` is only described.

    Hashes and selectors are made when they are first read: most servers need those of no user.
    """

    def __init__(
        self, name: str, dialect: Dialect = "vendor", table: Table = EVERYTHING, rules: str = ""
    ) -> None:
        self.name = name
        self.dialect: Dialect = dialect
        self.table = table
        self._rules = rules
        self._password = b""
        self.on = False
        self.passwordless = False
        self.sanitizes: bool | None = None
        self.unrestricted = False

    @cached_property
    def hashes(self) -> list[str]:
        return [password_hash(self._password)] if self._password else []

    @cached_property
    def selectors(self) -> list[Selector]:
        return [selector_of(self._rules, self.table) if self._rules else Selector(self.table)]

    def draft(self) -> AclUser:
        """Return a copy whose rules can be changed. ``adopt()`` applies the changes."""
        other = copy(self)
        other.hashes = list(self.hashes)
        other.selectors = [selector.copy() for selector in self.selectors]
        return other

    def adopt(self, other: AclUser) -> None:
        """Copy everything except the name from another user, in place: sessions refer to this user."""
        # Hashes and selectors can be shared: they are changed only in drafts, and each draft has
        # its own copies.
        self.on, self.passwordless = other.on, other.passwordless
        self.hashes, self.sanitizes = other.hashes, other.sanitizes
        self.selectors = other.selectors
        self.update_unrestricted()

    def update_unrestricted(self) -> None:
        root = self.selectors[0]
        self.unrestricted = root.all_commands and root.all_keys and root.all_channels

    @property
    def root(self) -> Selector:
        """The selector that rules outside parentheses change."""
        return self.selectors[0]

    def set_password(self, password: bytes) -> None:
        """Replace all passwords with this one. If it is empty, accept any password."""
        self.passwordless, self._password = not password, password
        vars(self).pop("hashes", None)

    def accepts(self, password: bytes) -> bool:
        return self.accepts_hash(password_hash(password))

    def accepts_hash(self, digest: str) -> bool:
        return self.on and (self.passwordless or digest in self.hashes)

    def check(self, spec: CommandSpec, line: list[bytes]) -> None:
        """Raise ``Denied`` if no selector allows the whole command line."""
        denials = []
        for selector in self.selectors:
            denial = selector.denial(spec, line)
            if denial is None:
                return
            denials.append(denial)
        # Report the denial of the selector that allowed the largest part of the line.
        reason, place = max(denials, key=lambda denial: (_REASONS.index(denial[0]), denial[1]))
        denied = line[place]
        if reason == "command":
            denied = spec.full_name.encode()
            text = errors.no_permission(denied)
            if self.dialect == "vendor":
                text = errors.no_permission_vendor(spec.full_name.split("|")[0])
        else:
            text = errors.NO_KEY_PERMISSION if reason == "key" else errors.NO_CHANNEL_PERMISSION
        raise Denied(text, reason, denied)

    def reads_all_keys(self, spec: CommandSpec) -> bool:
        return any(
            selector.all_keys or any(key.reads and key.pattern == b"*" for key in selector.keys)
            for selector in self.selectors
            if selector.all_commands or spec in selector.commands
        )


class Anonymous(AclUser):
    """The user of a client that has not logged in, who may only log in and out."""

    def check(self, spec: CommandSpec, line: list[bytes]) -> None:
        """Deny all commands except AUTH, HELLO, QUIT and RESET."""
        if "no_auth" not in spec.flags:
            raise CommandError(errors.NOAUTH)


ANONYMOUS = Anonymous("default")


@cache
def selector_of(rules: str, table: Table = EVERYTHING) -> Selector:
    """Return the root selector of a user with these rules."""
    user = AclUser("", "redis", table)
    apply_rules(user, rules.encode().split())
    return user.root


def first_user(dialect: Dialect, table: Table = EVERYTHING) -> AclUser:
    """Return the initial user ``default``, who may do everything and needs no password."""
    user = AclUser("default", dialect, table, "~* &* +@all")
    user.on = user.passwordless = True
    user.update_unrestricted()
    return user


@cache
def tester(dialect: Dialect) -> AclUser:
    """Return the user as which the test itself runs commands. Rules cannot restrict this user."""
    return first_user(dialect)


_READS = "~* &* +@read -@dangerous -@scripting -scan -keys"
_ALSO_READ = " +ping +echo +time +dbsize +command +multi +exec +discard"
"""Commands outside ``@read`` that the read-only user may run, because they show no stored data."""


def read_only_user(dialect: Dialect, table: Table = EVERYTHING) -> AclUser:
    """Return the user of the read-only token, ``default_ro`` (specification).

    KEYS, SCAN and scripts are denied according to the vendor's documentation and user reports. The
    user has no password, because only the read-only token logs in as this user.
    Decided here: PUBLISH and administration are denied as well.
    """
    announces = " +client|setinfo" if "CLIENT SETINFO" in table.commands else ""
    user = AclUser("default_ro", dialect, table, _READS + _ALSO_READ + announces)
    user.on = True
    return user


_MORE_CATEGORIES = ("json", "search", "array", "vector")
"""Categories of commands that Redis 7.0 does not have without modules."""


def categories_of(table: Table) -> tuple[str, ...]:
    """Return the categories of a server's commands in the order of ACL CAT, without the ``@`` sign."""
    return (*CATEGORIES, *(name for name in _MORE_CATEGORIES if table.members_of(f"@{name}")))


_LEAST_BITS = 64
"""Minimum entropy of a password for ACL GENTOKEN: its length times the bits of its distinct bytes."""


def generate_token(name: bytes, password: bytes | None) -> bytes:
    """Return the token of ACL GENTOKEN for a user; raise ``CommandError`` for a weak password."""
    if password is None:
        # Do not derive credentials from the random seed: a test's seed must not reveal its passwords.
        return make_token(secrets.token_bytes())
    if len(password) * log2(max(len(set(password)), 1)) < _LEAST_BITS:
        raise CommandError(errors.ACL_WEAK_PASSWORD)
    return wrapping_token(name, password)


def wrapping_token(name: bytes, password: bytes) -> bytes:
    """Return the token that ACL GENTOKEN makes from a password, which is always the same for a user."""
    return make_token(b"%b:%b" % (name, password))


def make_token(secret: bytes) -> bytes:
    """Return a token, which ends with a checksum of its other digits."""
    digits = password_hash(secret)
    return f"{digits}{password_hash(digits.encode())[:16]}".encode()


def is_token(password: bytes) -> bool:
    """Return whether a password is a token of ACL GENTOKEN."""
    digits, checksum = password[:64], password[64:].decode("latin-1")
    return password_hash(digits)[:16] == checksum


_REFUSED = (
    rb"(?is)nopass|[#(%].*|[+-][^@|]+\|.*|sanitize-payload|skip-sanitize-payload|clearselectors"
)
"""The rules of stock servers that the vendor's service does not support."""


def check_rules(rules: list[bytes]) -> None:
    """Raise ``CommandError`` for a rule that the vendor's service does not support."""
    for rule in rules:
        reason = errors.ACL_NOT_SUPPORTED if re.fullmatch(_REFUSED, rule) else ""
        if rule[:1] == b">" and not is_token(rule[1:]):
            reason = errors.ACL_NO_TOKEN
        if reason:
            # The rest of these rules is a secret, which reports must not show.
            shown = rule[:1] if rule[:1] in (b">", b"#") else rule
            raise CommandError(errors.bad_acl_rule(shown, reason))


class _Invalid(Exception):
    """Raised for an invalid rule. The argument is the last part of the error message."""


def apply_rules(user: AclUser, rules: list[bytes]) -> None:
    """Apply rules to a user in order, or none of them; raise ``CommandError`` for an invalid rule."""
    draft = user.draft()
    for rule in join_selectors(rules):
        try:
            _apply(draft, rule)
        except _Invalid as error:
            raise CommandError(errors.bad_acl_rule(rule, str(error))) from None
    user.adopt(draft)


def join_selectors(rules: list[bytes]) -> list[bytes]:
    """Return the rules, joining the words of each selector in parentheses to a single rule."""
    joined_rules: list[bytes] = []
    words = iter(rules)
    for rule in words:
        joined = rule
        while joined.startswith(b"(") and not joined.endswith(b")"):
            word = next(words, None)
            if word is None:
                raise CommandError(errors.unmatched_parenthesis(rule))
            joined += b" " + word
        joined_rules.append(joined)
    return joined_rules


def _apply(user: AclUser, rule: bytes) -> None:
    """Apply a rule about the user, or pass a rule about permissions on to the root selector."""
    word = rule.lower()
    if not rule:
        return
    if word in (b"on", b"off"):
        user.on = word == b"on"
    elif word in (b"sanitize-payload", b"skip-sanitize-payload"):
        user.sanitizes = word == b"sanitize-payload"
    elif word in (b"nopass", b"resetpass"):
        user.passwordless = word == b"nopass"
        user.hashes.clear()
    elif rule[:1] in (b">", b"#"):
        user.hashes = [*dict.fromkeys([*user.hashes, _hash_of(rule)])]
        user.passwordless = False
    elif rule[:1] in (b"<", b"!"):
        if (removed := _hash_of(rule)) not in user.hashes:
            raise _Invalid(errors.ACL_NO_PASSWORD)
        user.hashes.remove(removed)
    elif rule.startswith(b"("):
        selector = Selector(user.table)
        for part in rule[1:-1].split():
            _apply_to_selector(user, selector, part)
        user.selectors.append(selector)
    elif word == b"clearselectors":
        del user.selectors[1:]
    elif word == b"reset":
        user.on = user.passwordless = False
        user.hashes.clear()
        user.sanitizes = None if user.dialect == "vendor" else True  # The vendor has no such flag.
        user.selectors = [Selector(user.table)]
    else:
        _apply_to_selector(user, user.root, rule)


def _hash_of(rule: bytes) -> str:
    if rule[:1] in (b">", b"<"):
        return password_hash(rule[1:])
    if not re.fullmatch(rb"[0-9a-f]{64}", rule[1:]):
        raise _Invalid(errors.ACL_BAD_HASH)
    return rule[1:].decode()


def _apply_to_selector(user: AclUser, selector: Selector, rule: bytes) -> None:
    word = rule.lower()
    sign = rule[:1]
    if word in (b"allkeys", b"~*", b"resetkeys"):
        selector.keys = []
        selector.all_keys = word != b"resetkeys"
    elif word in (b"allchannels", b"&*", b"resetchannels"):
        selector.channels = []
        selector.all_channels = word != b"resetchannels"
    elif word in (b"allcommands", b"+@all", b"nocommands", b"-@all"):
        selector.set_all_commands(word in (b"allcommands", b"+@all"))
    elif sign in (b"~", b"%"):
        _add_keys(selector, rule)
    elif sign == b"&":
        if selector.all_channels:
            raise _Invalid(errors.ACL_PATTERN_AFTER_ALL_CHANNELS)
        if has_space(rule[1:]):
            raise _Invalid(errors.ACL_SYNTAX)
        if rule[1:] not in selector.channels:
            selector.channels.append(rule[1:])
    elif rule[:2] in (b"+@", b"-@"):
        category = rule[2:].decode("utf-8", "replace").lower()
        if category not in categories_of(user.table):
            raise _Invalid(errors.ACL_UNKNOWN_COMMAND)
        selector.set_commands(user.table.members_of(f"@{category}"), sign == b"+")
    elif sign in (b"+", b"-"):
        _set_command(user, selector, rule[1:], sign == b"+")
    else:
        raise _Invalid(errors.ACL_SYNTAX)


def has_space(pattern: bytes) -> bool:
    """Return whether a pattern or a name contains a space or another byte that ends a word."""
    return any(byte in b" \t\n\r\v\f\0" for byte in pattern)


def _add_keys(selector: Selector, rule: bytes) -> None:
    if selector.all_keys:
        raise _Invalid(errors.ACL_PATTERN_AFTER_ALL_KEYS)
    # As on a real server, a rule such as `%R` has an empty pattern.
    match = re.fullmatch(rb"(?is)~(.*)|%(R|W|RW|WR)(?:~(.*))?", rule)
    if match is None:
        raise _Invalid(errors.ACL_SYNTAX)
    letters, pattern = (match[2] or b"RW").upper(), match[1] or match[3] or b""
    reads, writes = b"R" in letters, b"W" in letters
    if has_space(pattern):
        raise _Invalid(errors.ACL_SYNTAX)
    for at, present in enumerate(selector.keys):
        if present.pattern == pattern:
            selector.keys[at] = KeyPattern(
                pattern, present.reads or reads, present.writes or writes
            )
            return
    selector.keys.append(KeyPattern(pattern, reads, writes))


def _set_command(user: AclUser, selector: Selector, name: bytes, allowed: bool) -> None:
    parent_name, bar, child = name.partition(b"|")
    parent = user.table.find([parent_name])
    if parent is None:
        raise _Invalid(errors.ACL_UNKNOWN_COMMAND)
    if not bar:
        selector.set_commands(_with_subcommands(parent), allowed)
        return
    # The vendor's service does not support rules for first arguments.
    if user.dialect == "vendor":
        raise _Invalid(errors.ACL_UNKNOWN_COMMAND)
    subcommands = parent.subcommands or {}
    if allowed and b"|" in child:
        # Only what follows the last bar can be a first argument.
        is_subcommand = child.rpartition(b"|")[0].upper() in subcommands
        raise _Invalid(
            errors.ACL_FIRST_WORD_OF_SUBCOMMAND if is_subcommand else errors.ACL_UNKNOWN_COMMAND
        )
    if allowed and not child:
        raise _Invalid(errors.ACL_SYNTAX)
    if parent.subcommands is None and allowed:
        if parent not in selector.commands:
            words = selector.first_words.setdefault(parent, [])
            if child.lower() not in words:
                words.append(child.lower())
        return
    subcommand = subcommands.get(child.upper())
    if subcommand is None:
        raise _Invalid(errors.ACL_UNKNOWN_COMMAND)
    selector.set_commands({subcommand}, allowed)


def _with_subcommands(spec: CommandSpec) -> set[CommandSpec]:
    return {spec, *(spec.subcommands or {}).values()}


def _command_rules(selector: Selector) -> bytes:
    """Return rules for the commands of a selector: the best-fitting categories, then commands.

    The first rule denies or allows all commands. Rules for single commands are in the order of the
    table; Redis orders them by a hash that changes with each start.
    """
    table = selector.table
    adds = not selector.future
    sign, opposite = ("+", "-") if adds else ("-", "+")
    permitted = selector.commands
    wanted_commands = {spec for spec in table.commands.values() if (spec in permitted) == adds}
    categories = _fitting_categories(table, wanted_commands)
    covered = {spec for name in categories for spec in table.members_of(f"@{name}")}
    rules = ["-@all" if adds else "+@all", *(f"{sign}@{name}" for name in categories)]
    for spec in table.commands.values():
        # A rule for a container also applies to its subcommands, which follow it in the table.
        family = _with_subcommands(spec)
        if spec in wanted_commands and spec not in covered:
            rules.append(f"{sign}{spec.full_name}")
            covered |= family
        elif spec in covered and spec not in wanted_commands:
            rules.append(f"{opposite}{spec.full_name}")
            covered -= family
    for spec in table.commands.values():
        words = selector.first_words.get(spec, ())
        rules += [f"+{spec.full_name}|{word.decode('utf-8', 'replace')}" for word in words]
    return " ".join(rules).encode()


def _fitting_categories(table: Table, wanted_commands: set[CommandSpec]) -> list[str]:
    """Return categories that contain more uncovered than other commands, best first.

    As in Redis 7.0, a command that an earlier category covers counts as another command.
    """
    members = {name: set(table.members_of(f"@{name}")) for name in categories_of(table)}
    uncovered = set(wanted_commands)
    chosen: list[str] = []
    while True:
        ratings = {
            name: (len(commands - uncovered), -len(commands & uncovered))
            for name, commands in members.items()
            if len(commands & uncovered) > len(commands - uncovered)
        }
        if not ratings:
            return chosen
        best = min(ratings, key=ratings.__getitem__)
        uncovered -= members.pop(best)
        chosen.append(best)


def _keys(selector: Selector) -> list[bytes]:
    patterns = [b"~*"] if selector.all_keys else []
    for key in selector.keys:
        both = key.reads and key.writes
        patterns.append((b"~" if both else b"%R~" if key.reads else b"%W~") + key.pattern)
    return patterns


def _channels(selector: Selector) -> list[bytes]:
    return [b"&*"] if selector.all_channels else [b"&" + channel for channel in selector.channels]


def _flags(user: AclUser) -> list[bytes]:
    flags = [b"on" if user.on else b"off"]
    if user.passwordless:
        flags.append(b"nopass")
    if user.sanitizes is not None:
        flags.append(b"sanitize-payload" if user.sanitizes else b"skip-sanitize-payload")
    return flags


def _selector_line(selector: Selector) -> bytes:
    channels = _channels(selector)
    if not selector.all_channels:
        channels.insert(0, b"resetchannels")
    return b" ".join([*_keys(selector), *channels, _command_rules(selector)])


def describe_user(user: AclUser) -> bytes:
    words = [b"user", encoded(user.name), *_flags(user)]
    words += [b"#" + digest.encode() for digest in user.hashes]
    words.append(_selector_line(user.root))
    words += [b"(" + _selector_line(selector) + b")" for selector in user.selectors[1:]]
    return b" ".join(words)


def _selector_details(selector: Selector) -> list[Any]:
    return [
        b"commands", _command_rules(selector),
        b"keys", b" ".join(_keys(selector)),
        b"channels", b" ".join(_channels(selector)),
    ]  # fmt: skip


def user_details(user: AclUser) -> Map:
    if user.dialect == "vendor":
        # The vendor documents these five fields, and lists of patterns in place of strings.
        return Map([
            b"flags", SetReply(_flags(user)),
            b"passwords", [digest.encode() for digest in user.hashes],
            b"commands", _command_rules(user.root),
            b"keys", _keys(user.root),
            b"channels", _channels(user.root),
        ])  # fmt: skip
    return Map([
        b"flags", SetReply(_flags(user)),
        b"passwords", [digest.encode() for digest in user.hashes],
        *_selector_details(user.root),
        b"selectors", [Map(_selector_details(selector)) for selector in user.selectors[1:]],
    ])  # fmt: skip
