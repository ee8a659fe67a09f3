"""The table of commands: the facts derived from their rows, and their functions.

Modules of ``kv/commands`` define the functions with ``@command("NAME")``, ``commands.txt`` everything
else; its head says what other modules have about single commands.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy as shallow_copy
from difflib import get_close_matches
from functools import cache, cached_property, partial, update_wrapper
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from ..errors import CommandError, not_available, unknown_command, unknown_subcommand
from ..reply import Reply
from . import effects, flags, over_rest, synopsis
from .arguments import ROLES, UNITS, ArgumentRole, Unit
from .exceptions import ARITIES, KEYS, OTHER_TTLS, PROTECTIONS, REMOVES_TTLS
from .groups import GROUPS
from .keys import KeySpec
from .rows import ROWS, Row, error_in_row
from .synopsis import Argument, BoundLine, all_arguments
from .ttl import TTL_OPTIONS
from .versions import (
    BUILT_IN_MODULE,
    EARLIER,
    LATER_BEHAVIOURS,
    LATER_OPTIONS,
    MODULES,
    ONLY_STOCK,
    is_later,
)

Args: TypeAlias = list[bytes]
"""The arguments of a command, without its name and the name of its subcommand."""
Function: TypeAlias = Callable[[Any, Args], Reply]
"""A function that runs a command. The session is untyped: the table must not import it."""

_TIMED = frozenset(word.encode() for word in (*TTL_OPTIONS, "BLOCK"))
"""The options that make a command depend on the time."""


class CommandSpec:
    """A command or subcommand in the table: the columns of its row, and what follows from them."""

    def __init__(self, row: Row, *, is_container: bool = False) -> None:
        self.name = row.name
        """In upper case, with a space before the subcommand: ``XGROUP CREATE``."""
        self.documented = row.documented
        self.group = row.group
        self.only_in = row.only_in
        self.since = row.since
        self.container: CommandSpec | None = None
        """The command of a subcommand."""
        self.subcommands: dict[bytes, CommandSpec] | None = {} if is_container else None
        """The subcommands of a container, by name; None for other commands."""
        self.flags, self.categories = flags.parse(row.flags, row.group)
        if is_container:  # It does not access the data of its group itself.
            self.categories -= {GROUPS[row.group].category}
        self.write = "write" in self.flags
        self.readonly = "readonly" in self.flags
        self.keys = tuple(KeySpec(text) for text in row.keys.split(";") if row.keys)
        self.has_sources = not all(key.writes for key in self.keys)
        """Whether the command only reads some of its keys."""
        self.synopsis = row.arguments
        self._later = row.later
        self.effects = effects.parse(row.effects)
        self.repetition = self.effects.repetition
        self._check()

    def _check(self) -> None:
        """Raise ``ValueError`` if the columns contradict each other."""
        if self.readonly and (self.write or any(key.writes for key in self.keys)):
            raise ValueError(
                "it has the flag readonly, but also the flag write, or a key with update, insert or "
                "delete; remove one of them"
            )
        if self.repetition and not self.changes_keys:
            raise ValueError(
                f"it changes no keys, so {self.repetition!r} says nothing; remove it, or add the flag "
                "write and update, insert or delete to a key"
            )

    @cached_property
    def arguments(self) -> Sequence[Argument]:
        """The arguments of its synopsis, which most tests need of no command."""
        try:
            return synopsis.parse(self.synopsis, self._later)
        except ValueError as error:
            raise error_in_row(self.name, error) from None

    # -- the name ---------------------------------------------------------------------------------

    @cached_property
    def full_name(self) -> str:
        """The name in errors: in lower case, with ``|`` before the subcommand."""
        return self.name.lower().replace(" ", "|")

    @cached_property
    def event(self) -> str:
        """The keyspace event of a change for which the function names none."""
        return self.full_name.replace("|", "-")

    @cached_property
    def protection(self) -> str | None:
        """The parameter that has to allow the command, or None."""
        return PROTECTIONS.get(self.name)

    @cached_property
    def rest(self) -> bool:
        """Whether the command is available over REST, at least without BLOCK."""
        return over_rest.is_available(self)

    @cached_property
    def hidden(self) -> bool:
        """Whether MONITOR does not show the command when it has run. It shows scripts, which have the
        flag ``skip_monitor``, before the commands that they call.
        """
        return "skip_monitor" in self.flags or "admin" in self.flags

    # -- the keys ---------------------------------------------------------------------------------

    @cached_property
    def only_key(self) -> int:
        """The position of the key, or 0 unless there is exactly one at a fixed position."""
        return self.keys[0].only_position if len(self.keys) == 1 else 0

    @cached_property
    def changes_keys(self) -> bool:
        """Whether the command changes the data of the user in a key."""
        return self.write and any(key.writes for key in self.keys)

    @cached_property
    def counts_reads(self) -> bool:
        """Whether looking up a key counts as a hit or a miss. BITFIELD and XAUTOCLAIM decide themselves
        (``Session.count_reads()``).
        """
        reads_key = self.write and any("RO" in key.flags for key in self.keys)
        return self.readonly or reads_key or self.effects.hits

    @cached_property
    def changes_any_key(self) -> bool:
        """Whether the command changes keys that it does not name: it has the flag ``write``, no keys,
        and the ACL category ``@keyspace``.
        """
        return self.write and not self.keys and "@keyspace" in self.categories

    @cached_property
    def keeps_key(self) -> bool:
        """Whether a write changes its only key in place, so that the key exists and keeps its TTL: the
        key has the flag ``RW``, and not ``delete``.
        """
        # The flags do not show that a new value, the path of a whole document, MOVE, the TTL of a field
        # or a script can remove or replace the key.
        if len(self.keys) != 1 or self.value_at or "path" in self.roles or self.other_ttl:
            return False
        if self.sets_ttl_of_fields or "no_mandatory_keys" in self.flags:
            return False
        flags = self.keys[0].flags
        return "RW" in flags and "delete" not in flags

    # -- the arguments ----------------------------------------------------------------------------

    @cached_property
    def argument_words(self) -> slice:
        """All words of a command line except the name."""
        return slice(2 if " " in self.name else 1, None)

    @cached_property
    def arity(self) -> int:
        """The arity of ``COMMAND INFO``."""
        if self.subcommands is not None:
            return ARITIES.get(self.name, -2)
        return ARITIES.get(self.name, synopsis.arity(self.arguments, self.argument_words.start))

    @cached_property
    def least(self) -> int:
        """The lowest number of words of a command line."""
        return abs(self.arity)

    @cached_property
    def most(self) -> int:
        """The highest number of words of a command line, as far as the server checks it."""
        return self.arity if self.arity > 0 else sys.maxsize

    @cached_property
    def options(self) -> tuple[str, ...]:
        """The literal words of the synopsis."""
        # The token `""` of MIGRATE stands for an empty string.
        return tuple(
            dict.fromkeys(word for word in synopsis.tokens_of(self.arguments) if word != '""')
        )

    @cached_property
    def option_words(self) -> frozenset[bytes]:
        """The literal words of the synopsis, as bytes."""
        return frozenset(map(str.encode, self.options))

    @cached_property
    def option_sizes(self) -> dict[bytes, int]:
        """The number of arguments of each option, or ``TO_THE_END``."""
        return {word.encode(): size for word, size in synopsis.option_sizes(self.arguments).items()}

    @cached_property
    def may_wait(self) -> bool:
        """Whether the command has the option BLOCK."""
        return "BLOCK" in self.options

    @cached_property
    def _shortest_names(self) -> list[str]:
        """The names of the words of the shortest command line, up to a literal word."""
        start = self.argument_words.start
        return [""] * start + BoundLine(self.arguments, [""] * (self.least - start)).names

    @cached_property
    def roles(self) -> frozenset[ArgumentRole]:
        """The roles of all arguments."""
        roles = (argument.role for argument in all_arguments(self.arguments))
        return frozenset(role for role in roles if role is not None)

    @cached_property
    def value_at(self) -> int:
        """The position of a new value that replaces the whole value of ``only_key``, or 0."""
        is_of_part = self.has_fields or "path" in self.roles
        overwrites_whole = self.repetition == "overwrites" and not is_of_part
        if not self.only_key or not (overwrites_whole or "OW" in self.keys[0].flags):
            return 0
        names = enumerate(self._shortest_names)
        return next((at for at, name in names if ROLES.get(name) == "value"), 0)

    # -- the time ---------------------------------------------------------------------------------

    @cached_property
    def ttl_unit(self) -> Unit | None:
        """The unit of the argument that is a TTL, or None if there is no such argument."""
        return next((UNITS[name] for name in self._shortest_names if name in UNITS), None)

    @cached_property
    def sets_ttl(self) -> bool:
        """Whether an argument or options are a TTL."""
        return self.ttl_unit is not None or not TTL_OPTIONS.keys().isdisjoint(self.options)

    @cached_property
    def sets_ttl_of_fields(self) -> bool:
        """Whether an argument or options are a TTL of fields, and not of the key."""
        return self.sets_ttl and GROUPS[self.group].expires_fields

    @cached_property
    def changes_only_ttl(self) -> bool:
        """Whether the command changes the TTL of its key, and not the value: a write without the flag
        ``denyoom`` that sets a TTL of the key, or an exception.
        """
        if not self.write or "denyoom" in self.flags or self.sets_ttl_of_fields:
            return False
        return self.sets_ttl or self.name in REMOVES_TTLS

    @cached_property
    def other_ttl(self) -> bool:
        """Whether the command sets a TTL that is neither an argument nor an option."""
        return self.name in OTHER_TTLS

    @cached_property
    def always_timed(self) -> bool:
        """Whether the effect or the reply of each line depends on the time."""
        always_blocks = "blocking" in self.flags and not self.may_wait
        return always_blocks or self.effects.time or self.ttl_unit is not None

    @cached_property
    def _timed_words(self) -> frozenset[bytes]:
        return self.option_words & _TIMED

    def depends_on_time(self, line: list[bytes]) -> bool:
        """Return whether the effect or the reply of a command line may depend on the time."""
        if self.always_timed:
            return True
        words = self._timed_words
        return bool(words) and not words.isdisjoint(map(bytes.upper, line[1:]))

    # -- the function -----------------------------------------------------------------------------

    @property
    def function(self) -> Function | None:
        """The function that runs the command; None for a container."""
        return FUNCTIONS.get(self.name)

    def call(self, session: Any, line: list[bytes]) -> Reply:
        """Call the function with the words after the command's name."""
        return FUNCTIONS[self.name](session, line[self.argument_words])

    # -- a command line ---------------------------------------------------------------------------

    @cached_property
    def has_fields(self) -> bool:
        """Whether arguments that belong to no option are fields, members or indexes."""
        return GROUPS[self.group].has_fields and any(
            argument.role == "field" and not argument.token
            for argument in all_arguments(self.arguments)
        )

    def bound(self, line: Sequence[str]) -> BoundLine:
        """Return the arguments of a command line with their names, which are ``key``, ``value``, ``EX``
        and ``seconds`` for ``SET k v EX 5``. It is for reports and explorations, because it takes about
        as long as to run a command.
        """
        return BoundLine(self.arguments, line[self.argument_words])

    def fields_of(self, line: Sequence[str]) -> tuple[str, ...]:
        """Return the fields, members or indexes that are arguments of a command line."""
        return self.bound(line).with_role("field") if self.has_fields else ()

    def lacks_keys(self, line: list[bytes]) -> bool:
        """Return whether the keys of a part of the line cannot be found, as in ``ZUNIONSTORE a 0``."""
        return any(
            (key.numkeys or key.keyword is None) and not key.unknown and not key.positions(line)
            for key in self.keys
        )

    def key_positions(self, line: list[bytes]) -> list[tuple[int, KeySpec]]:
        """Return the position of each key in ``line``, which includes the name, and what the line does
        to the key. Channels of shards are among the keys, as on a real server.
        """
        if find_keys := KEYS.get(self.name):
            return [(at, spec) for at, spec in find_keys(line) if at < len(line)]
        return [(at, spec) for spec in self.keys for at in spec.positions(line) or ()]

    def keys_of(self, line: Sequence[str]) -> list[tuple[str, KeySpec]]:
        """Return each key in a command line of strings, and what the line does to it; no channels."""
        if self.only_key and self.name not in KEYS:  # There is no need to encode the line.
            keys = [(key, self.keys[0]) for key in line[self.only_key : self.only_key + 1]]
        else:
            words = [word.encode("utf-8", "surrogatepass") for word in line]
            keys = [(line[at], spec) for at, spec in self.key_positions(words)]
        return [(key, spec) for key, spec in keys if not spec.is_channel]

    def keys_not_found(self, line: list[bytes]) -> list[KeySpec]:
        """Return the specs of keys that the command may access and that cannot be found in ``line``, as
        those in the patterns of SORT.
        """
        unknown = [spec for spec in self.keys if spec.positions(line) is None]
        # A function in KEYS finds all keys that its command writes.
        return [spec for spec in unknown if not (spec.writes and self.name in KEYS)]


F = TypeVar("F", bound=Callable[..., Reply])


def _specs_of(rows: Iterable[Row]) -> dict[str, CommandSpec]:
    """Return the specs of rows by their upper-case names. The rows of subcommands follow that of their
    container.
    """
    rows = list(rows)
    containers = {row.name.partition(" ")[0] for row in rows if " " in row.name}
    specs: dict[str, CommandSpec] = {}
    for row in rows:
        try:
            spec = specs[row.name] = CommandSpec(row, is_container=row.name in containers)
        except ValueError as error:
            raise error_in_row(row.name, error) from None
        parent, _, child = row.name.partition(" ")
        if child:
            spec.container = specs[parent]
            assert spec.container.subcommands is not None
            spec.container.subcommands[child.encode()] = spec
    return specs


def _without(row: Row, options: Iterable[str]) -> Row:
    """Return a row for servers that lack options, each of which is after the name of its command."""
    start = f"{row.name} "
    later = {option.removeprefix(start) for option in options if option.startswith(start)}
    return row._replace(later=frozenset(later))


def _by_word(commands: dict[str, CommandSpec]) -> dict[bytes, CommandSpec]:
    """Return the commands by the first word of their lines, without the subcommands."""
    return {name.encode(): spec for name, spec in commands.items() if " " not in name}


class Table:
    """The commands and behaviours of servers that announce a certain version.

    If the version is None, the table has those of all versions, and the vendor's if `of_vendor()`
    returned it. The argument ``modules`` are the modules that a server with a version has loaded, by
    their names in ``versions.MODULES``, and the attribute is these and the one that is built in from 8.0
    on.

    ``commands`` maps the upper-case names of all commands and subcommands (``"XGROUP CREATE"``) to
    their specs. ``knows`` maps each of ``LATER_BEHAVIOURS`` to whether the version has it.
    """

    def __init__(self, version: str | None = None, modules: tuple[str, ...] = ()) -> None:
        self.version = version
        self.knows = {behaviour: self.has(since) for behaviour, since in LATER_BEHAVIOURS.items()}
        self._members: dict[str, frozenset[CommandSpec]] = {}
        self.modules = modules
        if version is not None and self.has("8.0.0"):
            self.modules += (BUILT_IN_MODULE,)
        rows = ROWS.values() if version is None else self._rows_of(modules)
        self.commands = _specs_of(rows)
        self._by_word = _by_word(self.commands)

    def of_vendor(self) -> Table:
        """Return the table of the vendor, which lacks what only stock servers have. Most of its specs
        are those of this table.
        """
        table = shallow_copy(self)
        table.knows = {name: known and name not in ONLY_STOCK for name, known in self.knows.items()}
        table._members = {}
        shorter = {option.rpartition(" ")[0] for option in ONLY_STOCK}
        table.commands = {
            name: CommandSpec(_without(ROWS[name], ONLY_STOCK)) if name in shorter else spec
            for name, spec in self.commands.items()
            if spec.only_in != "stock"
        }
        table._by_word = _by_word(table.commands)
        return table

    def has(self, since: str) -> bool:
        """Return whether servers with this table have what a version added."""
        return self.version is None or not is_later(since, self.version)

    def _rows_of(self, modules: tuple[str, ...]) -> Iterator[Row]:
        loaded = {MODULES[module] for module in modules}
        missing = [option for option, since in LATER_OPTIONS.items() if not self.has(since)]
        for row in ROWS.values():
            if row.group in MODULES.values():
                if row.group not in loaded:
                    continue
            elif row.only_in == "vendor" or not self.has(row.since):
                continue
            if earlier := EARLIER.get(row.name):
                since, flags, effects = earlier
                if not self.has(since):
                    row = row._replace(flags=flags, effects=effects)
            yield _without(row, missing)

    def find(self, line: Sequence[bytes]) -> CommandSpec | None:
        """Return the command or subcommand that ``line`` calls, or None if it is unknown. The name of a
        container alone is that of the container.
        """
        spec = self._by_word.get(line[0].upper())
        if spec is not None and spec.subcommands is not None and len(line) > 1:
            return spec.subcommands.get(line[1].upper())
        return spec

    def resolve(self, line: list[bytes]) -> CommandSpec:
        """Return the command that ``line`` calls; raise ``CommandError`` if it is unknown."""
        spec = self.find(line)
        if spec is None:
            raise self.unknown(line)
        return spec

    def unknown(self, line: list[bytes]) -> CommandError:
        """Return the error for a line whose command is unknown."""
        container = self.find(line[:1])
        if self.version is None:
            words = line[:2] if container else line[:1]
            return CommandError(not_available(b" ".join(words).upper()))
        if container is None:
            return CommandError(unknown_command(line))
        return CommandError(unknown_subcommand(line[1], container.name))

    def members_of(self, category: str) -> frozenset[CommandSpec]:
        """Return the commands and subcommands of a category such as ``@read``."""
        if category not in self._members:
            members = (spec for spec in self.commands.values() if category in spec.categories)
            self._members[category] = frozenset(members)
        return self._members[category]


EVERYTHING = Table()
"""The table of a server that has all commands and behaviours, which no single server has."""
COMMANDS = EVERYTHING.commands
"""All commands and subcommands, by name."""
FUNCTIONS: dict[str, Function] = {}
"""The functions of commands, by name. The modules of ``kv.commands`` add them when they are imported,
which `command_table()` does before there is an engine. Commands of all versions share them.
"""


def spec_of(line: Sequence[str]) -> CommandSpec | None:
    """Return the command or subcommand that a line of strings calls; None if it is unknown."""
    return EVERYTHING.find([word.encode("utf-8", "replace") for word in line[:2]])


@cache
def command_table(dialect: str, version: str, modules: tuple[str, ...] = ()) -> Table:
    """Return the table of a server. The vendor has more commands than the version it announces."""
    import_module("..commands", __package__)  # fills FUNCTIONS
    return EVERYTHING.of_vendor() if dialect == "vendor" else Table(version, modules)


def command(*names: str) -> Callable[[F], F]:
    """Return a decorator for the function of commands. It raises ``ValueError`` for a name without a
    row, and for a command that already has a function.
    """

    def register(function: F) -> F:
        for name in names:
            if name not in COMMANDS:
                similar = ", ".join(get_close_matches(name.upper(), COMMANDS)) or "none"
                raise ValueError(
                    f"{name!r} has no row in commands.txt; add one, or use the name of a row, in upper "
                    f"case and with a space before a subcommand (similar names: {similar})"
                )
            if (other := FUNCTIONS.get(name)) is not None:
                raise ValueError(
                    f"{name} already has the function {other.__name__} of {other.__module__}; "
                    "remove one of them"
                )
            FUNCTIONS[name] = function
        return function

    return register


def variant(name: str, summary: str, **arguments: object) -> Callable[[F], F]:
    """Return a decorator that adds a command to those that share a function.

    The command ``name`` calls the function with the keyword-only ``arguments``. Its summary in
    ``COMMAND DOCS`` is ``summary``, not the docstring of the function.
    """

    def register(function: F) -> F:
        run = update_wrapper(partial(function, **arguments), function)
        run.__doc__ = summary
        command(name)(run)
        return function

    return register
