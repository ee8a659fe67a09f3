"""Rules of users: applies them, and describes users by rules, as ACL LIST and ACL GETUSER do."""

from __future__ import annotations

import re
from typing import Any

from .. import errors
from ..errors import CommandError
from ..reply import Map, SetReply
from ..table.registry import CommandSpec, Table
from ..table.syntax import encoded
from .users import AclUser, KeyPattern, Selector, password_hash

_CATEGORY_WORDS = (
    "keyspace read write set sortedset list hash string bitmap hyperloglog geo stream pubsub admin "
    "fast slow blocking dangerous connection transaction scripting"
)
CATEGORIES = tuple(_CATEGORY_WORDS.split())
"""The categories of commands in the order of ACL CAT, without the ``@`` sign."""
_MORE_CATEGORIES = ("json", "search")
"""Categories of commands that only servers with modules have."""
_HASH = re.compile(rb"[0-9a-f]{64}")
_KEY_RULE = re.compile(rb"(?:%(R|W|RW|WR))?~(.*)", re.IGNORECASE | re.DOTALL)


def categories_of(table: Table) -> tuple[str, ...]:
    """Return the categories of a server's commands in the order of ACL CAT, without the ``@`` sign."""
    more = (name for name in _MORE_CATEGORIES if table.members_of(f"@{name}"))
    return (*CATEGORIES, *more)


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
    found: list[bytes] = []
    open_rule: bytes | None = None
    first = b""
    for rule in rules:
        if open_rule is not None:
            open_rule += b" " + rule
        elif rule.startswith(b"("):
            open_rule = first = rule
        else:
            found.append(rule)
            continue
        if open_rule.endswith(b")"):
            found.append(open_rule)
            open_rule = None
    if open_rule is not None:
        raise CommandError(errors.unmatched_parenthesis(first))
    return found


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
        user.sanitizes = True
        user.selectors = [Selector(user.table)]
    else:
        _apply_to_selector(user, user.root, rule)


def _hash_of(rule: bytes) -> str:
    if rule[:1] in (b">", b"<"):
        return password_hash(rule[1:])
    if not _HASH.fullmatch(rule[1:]):
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
        _add_channel(selector, rule[1:])
    elif rule[:2] in (b"+@", b"-@"):
        category = rule[2:].decode("utf-8", "replace").lower()
        if category not in categories_of(user.table):
            raise _Invalid(errors.ACL_UNKNOWN_COMMAND)
        selector.set_category(f"@{category}", sign == b"+")
    elif sign in (b"+", b"-"):
        _set_command(user, selector, rule[1:], sign == b"+")
    else:
        raise _Invalid(errors.ACL_SYNTAX)


def has_space(pattern: bytes) -> bool:
    """Return whether a pattern or a name contains a space or another byte that ends a word."""
    return any(byte in b" \t\n\r\v\f\0" for byte in pattern)


def _add_keys(selector: Selector, rule: bytes) -> None:
    found = _KEY_RULE.fullmatch(rule)
    if found is None:
        raise _Invalid(errors.ACL_SYNTAX)
    letters, pattern = (found[1] or b"RW").upper(), found[2]
    reads, writes = b"R" in letters, b"W" in letters
    if selector.all_keys:
        raise _Invalid(errors.ACL_PATTERN_AFTER_ALL_KEYS)
    if has_space(pattern):
        raise _Invalid(errors.ACL_SYNTAX)
    for at, known in enumerate(selector.keys):
        if known.pattern == pattern:
            selector.keys[at] = KeyPattern(pattern, known.reads or reads, known.writes or writes)
            return
    selector.keys.append(KeyPattern(pattern, reads, writes))


def _add_channel(selector: Selector, pattern: bytes) -> None:
    if selector.all_channels:
        raise _Invalid(errors.ACL_PATTERN_AFTER_ALL_CHANNELS)
    if has_space(pattern):
        raise _Invalid(errors.ACL_SYNTAX)
    if pattern not in selector.channels:
        selector.channels.append(pattern)


def _set_command(user: AclUser, selector: Selector, name: bytes, allowed: bool) -> None:
    parent_name, bar, child = name.partition(b"|")
    parent = user.table.lookup.get(parent_name.upper()) if parent_name else None
    if parent is None:
        raise _Invalid(errors.ACL_UNKNOWN_COMMAND)
    if not bar:
        selector.set_command(parent, allowed)
        return
    # The vendor's service does not support rules for first arguments.
    if not child or user.dialect == "vendor":
        raise _Invalid(errors.ACL_UNKNOWN_COMMAND)
    if parent.subcommands is not None:
        if b"|" in child:
            raise _Invalid(errors.ACL_FIRST_WORD_OF_SUBCOMMAND)
        found = parent.subcommands.get(child.upper())
        if found is None:
            raise _Invalid(errors.ACL_UNKNOWN_COMMAND)
        selector.set_command(found, allowed)
    elif not allowed:
        raise _Invalid(errors.ACL_UNKNOWN_COMMAND)
    elif parent not in selector.commands:
        selector.allow_first_word(parent, child.lower())


# -- descriptions ----------------------------------------------------------------------------------


def _command_rules(selector: Selector) -> list[str]:
    """Return rules for the commands of a selector: the best-fitting categories, then commands.

    The first rule denies or allows all commands. The wanted commands are the exceptions from it.
    Categories with the opposite sign cover as many of them as possible, and rules for single
    commands correct the rest. Single commands are in the order of the table; Redis orders them by a
    hash that changes with each start.
    """
    table = selector.table
    adds = not selector.future
    sign, opposite = ("+", "-") if adds else ("-", "+")
    wanted = {spec for spec in table.specs() if (spec in selector.commands) == adds}
    categories = _fitting_categories(table, wanted)
    covered = {spec for name in categories for spec in table.members_of(f"@{name}")}
    rules = ["-@all" if adds else "+@all", *(f"{sign}@{name}" for name in categories)]
    for spec in table.specs():
        # A rule for a container also applies to its subcommands, which follow it in the table.
        family = {spec, *(spec.subcommands or {}).values()}
        if spec in wanted and spec not in covered:
            rules.append(f"{sign}{spec.full_name}")
            covered |= family
        elif spec in covered and spec not in wanted:
            rules.append(f"{opposite}{spec.full_name}")
            covered -= family
    for spec in table.specs():
        words = selector.first_words.get(spec, ())
        rules += [f"+{spec.full_name}|{word.decode('utf-8', 'replace')}" for word in words]
    return rules


def _fitting_categories(table: Table, wanted: set[CommandSpec]) -> list[str]:
    """Return categories that contain more uncovered than other commands, best first.

    As in Redis 7.0, a command that an earlier category covers counts as another command.
    """
    members = {name: set(table.members_of(f"@{name}")) for name in categories_of(table)}
    uncovered = set(wanted)
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
    found = [b"~*"] if selector.all_keys else []
    for key in selector.keys:
        both = key.reads and key.writes
        found.append((b"~" if both else b"%R~" if key.reads else b"%W~") + key.pattern)
    return found


def _channels(selector: Selector) -> list[bytes]:
    if selector.all_channels:
        return [b"&*"]
    return [b"&" + pattern for pattern in selector.channels]


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
    return b" ".join([*_keys(selector), *channels, " ".join(_command_rules(selector)).encode()])


def describe_user(user: AclUser) -> bytes:
    """Return the line that describes a user in ACL LIST."""
    words = [b"user", encoded(user.name), *_flags(user)]
    words += [b"#" + each.encode() for each in user.hashes]
    words.append(_selector_line(user.root))
    words += [b"(" + _selector_line(selector) + b")" for selector in user.selectors[1:]]
    return b" ".join(words)


def _selector_details(selector: Selector) -> list[Any]:
    return [
        b"commands", " ".join(_command_rules(selector)).encode(),
        b"keys", b" ".join(_keys(selector)),
        b"channels", b" ".join(_channels(selector)),
    ]  # fmt: skip


def user_details(user: AclUser) -> Map:
    """Return the reply of ACL GETUSER."""
    return Map([
        b"flags", SetReply(_flags(user)),
        b"passwords", [each.encode() for each in user.hashes],
        *_selector_details(user.root),
        b"selectors", [Map(_selector_details(each)) for each in user.selectors[1:]],
    ])  # fmt: skip
