"""Describes users by rules, as ACL LIST and ACL GETUSER do."""

from __future__ import annotations

from typing import Any

from ..reply import Map, SetReply
from ..table.registry import CommandSpec
from ..table.syntax import encoded
from .rules import categories_of
from .users import AclUser, Selector


class _CommandRules:
    """Finds rules for the commands of a selector: the best-fitting categories, then commands.

    As in Redis 7.0, a category is rated lower for each of its commands that an earlier category
    covers. Single commands are in the order of the table; Redis orders them by a hash that changes
    with each start.
    """

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self._everything = list(selector.table.specs())
        adds = not selector.future
        self._sign, self._inverse = ("+", "-") if adds else ("-", "+")
        self._rules = ["+@all" if selector.future else "-@all"]
        self._wanted = {spec for spec in self._everything if (spec in selector.commands) == adds}
        """Commands to which rules with the selector's usual sign must apply."""
        self._covered: set[CommandSpec] = set()
        """Commands to which the rules found so far apply."""

    def rules(self) -> list[str]:
        self._choose_categories()
        self._choose_commands()
        for spec in self._everything:
            self._rules += [
                f"+{spec.full_name}|{word.decode('utf-8', 'replace')}"
                for word in self._selector.first_words.get(spec, ())
            ]
        return self._rules

    def _choose_categories(self) -> None:
        table = self._selector.table
        members = {name: set(table.members_of(f"@{name}")) for name in categories_of(table)}
        uncovered = set(self._wanted)
        while True:
            ratings = {
                name: (len(commands - uncovered), -len(commands & uncovered))
                for name, commands in members.items()
                if len(commands & uncovered) > len(commands - uncovered)
            }
            if not ratings:
                return
            best = min(ratings, key=ratings.__getitem__)
            commands = members.pop(best)
            self._rules.append(f"{self._sign}@{best}")
            self._covered |= commands
            uncovered -= commands

    def _choose_commands(self) -> None:
        for spec in self._everything:
            if spec.container is not None:
                continue
            children = list((spec.subcommands or {}).values())
            if (spec in self._wanted) != (spec in self._covered):
                self._choose(spec)
                if spec in self._wanted:
                    self._covered.update((spec, *children))
                else:
                    self._covered.difference_update((spec, *children))
            for child in children:
                if (child in self._wanted) != (child in self._covered):
                    self._choose(child)

    def _choose(self, spec: CommandSpec) -> None:
        sign = self._sign if spec in self._wanted else self._inverse
        self._rules.append(f"{sign}{spec.full_name}")


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
    return b" ".join(
        [*_keys(selector), *channels, " ".join(_CommandRules(selector).rules()).encode()]
    )


def describe_user(user: AclUser) -> bytes:
    """Return the line that describes a user in ACL LIST."""
    words = [b"user", encoded(user.name), *_flags(user)]
    words += [b"#" + each.encode() for each in user.hashes]
    words.append(_selector_line(user.root))
    words += [b"(" + _selector_line(selector) + b")" for selector in user.selectors[1:]]
    return b" ".join(words)


def _selector_details(selector: Selector) -> list[Any]:
    return [
        *(b"commands", " ".join(_CommandRules(selector).rules()).encode()),
        *(b"keys", b" ".join(_keys(selector))),
        *(b"channels", b" ".join(_channels(selector))),
    ]


def user_details(user: AclUser) -> Map:
    """Return the reply of ACL GETUSER."""
    return Map(
        [
            *(b"flags", SetReply(_flags(user))),
            *(b"passwords", [each.encode() for each in user.hashes]),
            *_selector_details(user.root),
            *(b"selectors", [Map(_selector_details(each)) for each in user.selectors[1:]]),
        ]
    )
