"""Users and what they may do: passwords, selectors, and the check of a command line.

A user has a root selector and any number of further ones; a command line is allowed when one of
them allows all of it: the command, every key for what the command does with it, every channel.
Rules are read and shown by ``acl_rules.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from .. import errors
from ..algorithms.glob import matcher
from ..errors import CommandError
from ..table.registry import EVERYTHING, CommandSpec, KeySpec, Table

if TYPE_CHECKING:
    from ..settings import Dialect

Reason = Literal["command", "key", "channel"]
_RANKS: dict[Reason, int] = {"command": 1, "key": 2, "channel": 3}
_CHANNELS = {
    "PUBLISH": False,
    "SPUBLISH": False,
    "SUBSCRIBE": True,
    "SSUBSCRIBE": True,
    "PSUBSCRIBE": True,
}
"""Commands with channels, and whether all their arguments are some or only the first."""


def password_hash(password: bytes) -> str:
    """The form in which passwords are kept: SHA-256 in lower-case hexadecimal digits."""
    return sha256(password).hexdigest()


class Denied(CommandError):
    """A command line its user may not run: for which ``reason``, because of which ``object``."""

    def __init__(self, text: bytes, reason: Reason, object: bytes) -> None:
        super().__init__(text)
        self.reason: Reason = reason
        self.object = object


class KeyPattern(NamedTuple):
    """A glob pattern of keys, and what may be done with those that match."""

    pattern: bytes
    reads: bool
    writes: bool

    def allows(self, key: bytes, reads: bool, writes: bool) -> bool:
        """Whether a key may be read, written, or both, as far as each is wanted."""
        if (reads and not self.reads) or (writes and not self.writes):
            return False
        return matcher(self.pattern)(key)


class Refusal(NamedTuple):
    """Why a selector does not allow a command line, and at which argument."""

    reason: Reason
    place: int


class Selector:
    """A set of commands, key patterns and channel patterns that go together.

    ``future`` says whether commands that do not exist yet are included, which decides how the rules
    are shown. ``table`` has the commands there are. ``first_words`` holds, for a command that is not
    allowed as a whole, the first arguments with which it is.
    """

    __slots__ = (
        "all_channels", "all_commands", "all_keys", "channels", "commands", "first_words", "future",
        "keys", "table",
    )  # fmt: skip

    def __init__(self, table: Table = EVERYTHING) -> None:
        self.table = table
        self.commands: frozenset[CommandSpec] = frozenset()
        self.first_words: dict[CommandSpec, list[bytes]] = {}
        self.all_commands = False
        self.future = False
        self.keys: list[KeyPattern] = []
        self.all_keys = False
        self.channels: list[bytes] = []
        self.all_channels = False

    def copy(self) -> Selector:
        """An independent copy."""
        other = Selector(self.table)
        other.commands = self.commands
        other.first_words = {spec: list(words) for spec, words in self.first_words.items()}
        other.keys, other.channels = list(self.keys), list(self.channels)
        other.all_commands, other.future = self.all_commands, self.future
        other.all_keys, other.all_channels = self.all_keys, self.all_channels
        return other

    # -- changing --------------------------------------------------------------------------------

    def allow_all_commands(self) -> None:
        """Every command, those to come included."""
        self.commands = frozenset(self.table.specs())
        self.first_words.clear()
        self.all_commands = self.future = True

    def refuse_all_commands(self) -> None:
        """No command at all."""
        self.commands = frozenset()
        self.first_words.clear()
        self.all_commands = self.future = False

    def set_command(self, spec: CommandSpec, allowed: bool) -> None:
        """Allow or refuse a command with all its sub-commands."""
        family = [spec, *(spec.subcommands or {}).values()]
        for member in family:
            self.first_words.pop(member, None)
        if allowed:
            self.commands = self.commands.union(family)
        else:
            self.commands = self.commands.difference(family)
            self.all_commands = False

    def set_category(self, category: str, allowed: bool) -> None:
        """Allow or refuse every command and sub-command of a category (``@read``)."""
        members = self.table.members_of(category)
        for spec in members:
            self.first_words.pop(spec, None)
        if allowed:
            self.commands |= members
        else:
            self.commands -= members
            self.all_commands = False

    def allow_first_word(self, spec: CommandSpec, word: bytes) -> None:
        """Allow a command when its first argument is that word."""
        words = self.first_words.setdefault(spec, [])
        if word not in words:
            words.append(word)

    # -- asking ----------------------------------------------------------------------------------

    def refusal(self, spec: CommandSpec, argv: list[bytes]) -> Refusal | None:
        """Why a command line is not allowed, or None when it is."""
        if not self.all_commands and spec not in self.commands and "no_auth" not in spec.flags:
            words = self.first_words.get(spec)
            if not words or len(argv) < 2 or argv[1].lower() not in words:
                return Refusal("command", 0)
        if not self.all_keys:
            for place, reads, writes in keys_of(spec, argv):
                if not any(each.allows(argv[place], reads, writes) for each in self.keys):
                    return Refusal("key", place)
        if not self.all_channels and spec.name in _CHANNELS:
            last = len(argv) if _CHANNELS[spec.name] else 2
            for place in range(1, last):
                if not self.allows_channel(argv[place], spec.name == "PSUBSCRIBE"):
                    return Refusal("channel", place)
        return None

    def allows_channel(self, channel: bytes, is_pattern: bool) -> bool:
        """Whether a channel may be used; a pattern to listen to must itself be one of the rules."""
        if self.all_channels:
            return True
        if is_pattern:
            return channel in self.channels
        return any(matcher(pattern)(channel) for pattern in self.channels)

    def reads_all_keys(self) -> bool:
        """Whether every key may be read."""
        return self.all_keys or any(each.reads and each.pattern == b"*" for each in self.keys)


def keys_of(spec: CommandSpec, argv: list[bytes]) -> Iterator[tuple[int, bool, bool]]:
    """Each key of a command line as its place, whether it is read and whether it is written.

    Where that depends on the arguments (SET, BITFIELD, SORT), on those of this very line.
    """
    name = spec.name
    for place, key in spec.key_positions(argv):
        if "not_key" in key.flags:
            continue
        yield place, *_use(name, key, argv)
    if name == "SORT":
        stores = [at + 1 for at in range(2, len(argv) - 1) if argv[at].upper() == b"STORE"]
        for place in stores[-1:]:
            yield place, False, True


def _use(name: str, key: KeySpec, argv: list[bytes]) -> tuple[bool, bool]:
    if name == "SET":
        return b"GET" in {word.upper() for word in argv[3:]}, True
    if name == "BITFIELD":
        words = {word.upper() for word in argv[2:]}
        return True, bool(words & {b"SET", b"INCRBY"})
    return key.reads, key.writes


@dataclass(frozen=True, slots=True)
class RestToken:
    """What a REST token stands for: a user, as long as it accepts the password of that hash."""

    user: str
    hash: str


class AclUser:
    """A user made of rules.

    ``on`` says whether it may log in, ``passwordless`` whether any password does (``nopass``),
    ``hashes`` are the hashes of its passwords, ``sanitizes`` is shown among its flags and has no
    other effect: every payload is checked. ``selectors`` begins with the root selector.
    """

    known: ClassVar[bool] = True

    def __init__(self, name: str, dialect: Dialect = "vendor", table: Table = EVERYTHING) -> None:
        self.name = name
        self.dialect: Dialect = dialect
        self.table = table
        self.on = False
        self.passwordless = False
        self.hashes: list[str] = []
        self.sanitizes: bool | None = None
        self.selectors = [Selector(table)]
        self.unrestricted = False

    def draft(self) -> AclUser:
        """One whose rules can be changed; ``adopt`` it to make the changes count."""
        other = AclUser(self.name, self.dialect, self.table)
        other.adopt(self)
        other.hashes = list(self.hashes)
        other.selectors = [selector.copy() for selector in self.selectors]
        return other

    def copy(self) -> AclUser:
        """An independent copy."""
        other = AclUser(self.name, self.dialect, self.table)
        other.adopt(self)
        return other

    def adopt(self, other: AclUser) -> None:
        """Take over everything from another user but its name; who is logged in keeps this one."""
        # Hashes and selectors are shared: those of a user are never changed, only those of a draft.
        self.on, self.passwordless = other.on, other.passwordless
        self.hashes, self.sanitizes = other.hashes, other.sanitizes
        self.selectors = other.selectors
        self.settle()

    def settle(self) -> None:
        """Note after changes whether anything is left to check at all."""
        root = self.selectors[0]
        self.unrestricted = root.all_commands and root.all_keys and root.all_channels

    @property
    def root(self) -> Selector:
        """The selector of the rules that stand outside of parentheses."""
        return self.selectors[0]

    def set_password(self, password: bytes) -> None:
        """Make this the only password; an empty one lets everybody in."""
        self.passwordless = not password
        self.hashes = [password_hash(password)] if password else []

    def accepts(self, password: bytes) -> bool:
        """Whether the password is this user's."""
        return self.on and (self.passwordless or password_hash(password) in self.hashes)

    def accepts_token(self, token: RestToken) -> bool:
        """Whether a REST token made for this user is still valid."""
        return self.on and (self.passwordless or token.hash in self.hashes)

    def check(self, spec: CommandSpec, argv: list[bytes]) -> None:
        """Raise ``Denied`` unless one selector allows the whole command line."""
        worst: Refusal | None = None
        for selector in self.selectors:
            refusal = selector.refusal(spec, argv)
            if refusal is None:
                return
            # The selector that went furthest explains best.
            if worst is None or _reach(refusal) > _reach(worst):
                worst = refusal
        assert worst is not None
        if worst.reason == "command":
            object = spec.full_name.encode()
            text = errors.no_permission(spec.full_name, vendor=self.dialect == "vendor")
        else:
            object = argv[worst.place]
            text = (
                errors.NO_KEY_PERMISSION if worst.reason == "key" else errors.NO_CHANNEL_PERMISSION
            )
        raise Denied(text, worst.reason, object)

    def reads_all_keys(self, spec: CommandSpec) -> bool:
        """Whether a selector that allows the command lets it read every key."""
        return any(
            each.reads_all_keys()
            for each in self.selectors
            if each.all_commands or spec in each.commands
        )

    def may_listen(self, name: bytes, is_pattern: bool) -> bool:
        """Whether the user may listen to a channel or pattern."""
        return any(each.allows_channel(name, is_pattern) for each in self.selectors)


def _reach(refusal: Refusal) -> tuple[int, int]:
    return _RANKS[refusal.reason], refusal.place


class Anonymous:
    """A client that has not logged in: it may log in, and nothing else."""

    known: ClassVar[bool] = False
    name = "default"
    unrestricted = False
    passwordless = False

    def accepts(self, password: bytes) -> bool:
        """Whether the password is right: never."""
        return False

    def copy(self) -> Anonymous:
        """Itself: it never changes."""
        return self

    def check(self, spec: CommandSpec, argv: list[bytes]) -> None:
        """Refuse all but AUTH, HELLO, QUIT and RESET."""
        if "no_auth" not in spec.flags:
            raise CommandError(errors.NOAUTH)

    def reads_all_keys(self, spec: CommandSpec) -> bool:
        """No key."""
        return False

    def may_listen(self, name: bytes, is_pattern: bool) -> bool:
        """To nothing."""
        return False


ANONYMOUS = Anonymous()


@cache
def _everything(table: Table) -> Selector:
    selector = Selector(table)
    selector.allow_all_commands()
    selector.all_keys = selector.all_channels = True
    return selector


def first_user(dialect: Dialect, table: Table = EVERYTHING) -> AclUser:
    """The user ``default`` as a server begins with it: everything, without a password."""
    user = AclUser("default", dialect, table)
    user.on = user.passwordless = True
    user.selectors = [_everything(table)]
    user.settle()
    return user


@cache
def tester(dialect: Dialect) -> AclUser:
    """The tester behind a handle: everything is allowed, whatever rules the users have."""
    return first_user(dialect)


_ALSO_READ = ("PING", "ECHO", "TIME", "DBSIZE", "COMMAND", "MULTI", "EXEC", "DISCARD")
"""What shows nothing that was written, and what a read needs around it."""


@cache
def _reads(table: Table) -> Selector:
    selector = Selector(table)
    selector.set_category("@read", True)
    for category in ("@dangerous", "@scripting"):
        selector.set_category(category, False)
    for name in ("SCAN", "KEYS"):
        selector.set_command(table.commands[name], False)
    for name in (*_ALSO_READ, "CLIENT SETINFO"):
        if name in table.commands:
            selector.set_command(table.commands[name], True)
    selector.all_keys = selector.all_channels = True
    return selector


def read_only_user(dialect: Dialect, table: Table = EVERYTHING) -> AclUser:
    """The user ``default_ro``: read commands only, without the powerful ones (specification).

    Refused besides writes: KEYS, SCAN and scripts (the vendor's documentation and user reports),
    PUBLISH, and whatever administers the server (decided here). No password lets anybody in: only
    the read-only token is this user.
    """
    user = AclUser("default_ro", dialect, table)
    user.on = True
    user.selectors = [_reads(table)]
    return user
