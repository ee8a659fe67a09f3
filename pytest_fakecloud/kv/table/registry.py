"""The command table as objects, for dispatch, arity checks, key positions and ACL rules.

Modules of ``kv/commands`` bind their functions with ``@command("NAME")``. ``rows.py`` defines
everything else about a command.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import CommandError, unknown_command, unknown_subcommand
from .rows import NOT_OVER_REST, ROWS, Row
from .syntax import integer_at_start
from .versions import ARITIES, LATER, MODULES, OWN, is_later

if TYPE_CHECKING:
    from ..reply import Reply

Args = list[bytes]
"""The arguments of a command, without its name and the name of its subcommand."""
Function = Callable[[Any, Args], "Reply"]
"""A function that runs a command. The session is untyped: the table must not import it."""
F = TypeVar("F", bound=Function)

_CATEGORIES = {"sorted-set": "sortedset", "generic": "keyspace", "transactions": "transaction"}
_FLAG_CATEGORIES = {
    "write": ("@write",),
    "admin": ("@admin", "@dangerous"),
    "pubsub": ("@pubsub",),
    "blocking": ("@blocking",),
}


class KeySpec:
    """The positions of a command's keys, and how the command accesses them.

    A spec is written as flags and a position:

    - ``RW access update 1``: argument 1.
    - ``RO access 1..-1/2``: every second argument up to the end.
    - ``RO access 1..1``: argument 1 and the next one. A non-negative end counts from the first key.
    - ``RO access numkeys@2``: argument 2 is the number of keys, which follow it.
    - ``OW update STORE@5``: the argument after the word STORE, which is searched for from argument
      5.
    - ``RO access STREAMS@1..-1%2``: the first half of the arguments after the word STREAMS.
    - ``RO access unknown``: the positions cannot be determined.
    """

    __slots__ = ("first", "flags", "keyword", "last", "limit", "numkeys", "step", "unknown")

    def __init__(self, text: str) -> None:
        *flags, place = text.split()
        self.flags = tuple(flags)
        self.unknown = place == "unknown"
        self.numkeys = place.startswith("numkeys@")
        place = place.removeprefix("numkeys@")
        place, _, limit = place.partition("%")
        place, _, step = place.partition("/")
        place, _, last = place.partition("..")
        keyword, at, first = place.rpartition("@")
        self.keyword = keyword.encode() if at else None
        self.first = 0 if self.unknown else int(first)
        self.last = int(last or 0)
        self.step = int(step or 1)
        self.limit = int(limit or 0)

    @property
    def reads(self) -> bool:
        """Whether the command may return the key's data."""
        return "access" in self.flags

    @property
    def writes(self) -> bool:
        """Whether the command may change the key's data."""
        return bool({"update", "insert", "delete"} & set(self.flags))

    @property
    def is_sought(self) -> bool:
        """Whether the positions depend on the arguments, not only on their number."""
        return self.unknown or self.numkeys or self.keyword is not None

    def positions(self, argv: list[bytes]) -> range | None:
        """Return the positions of the keys in ``argv``, or None if they are unknown."""
        if self.unknown:
            return None
        first = self.first
        if self.keyword is not None:
            found = self._after_keyword(argv)
            if found is None:
                return range(0)
            first = found
        if self.numkeys:
            return self._counted(argv, first)
        if self.last >= 0:
            last = first + self.last
        else:
            last = len(argv) + self.last
            if self.limit > 1:
                last = first + (len(argv) - first) // self.limit - 1
        last = min(last, len(argv) - 1)
        return range(first, last + 1, self.step)

    def _after_keyword(self, argv: list[bytes]) -> int | None:
        step = 1 if self.first > 0 else -1
        at = self.first if self.first > 0 else len(argv) + self.first
        while 0 < at < len(argv):
            if argv[at].upper() == self.keyword:
                return at + 1
            at += step
        return None

    def _counted(self, argv: list[bytes], at: int) -> range | None:
        if at >= len(argv):
            return None
        count = integer_at_start(argv[at])
        stop = at + 1 + count * self.step
        if count < 0 or stop > len(argv):
            return None
        return range(at + 1, stop, self.step)


_READING_WRITERS = frozenset(
    {
        *("SET", "GETDEL", "GETEX", "GETSET", "SORT", "PFMERGE", "BITOP", "COPY", "XACK"),
        *("SUNIONSTORE", "SINTERSTORE", "SDIFFSTORE", "ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"),
        *("ZRANGESTORE", "GEOSEARCHSTORE", "GEORADIUS", "GEORADIUSBYMEMBER"),
    }
)
"""Write commands whose key look-ups count as reads in statistics and for key-miss events."""


# Key specs are cached, because many of the 400 commands have equal specs.


@cache
def _key_specs(texts: str) -> tuple[KeySpec, ...]:
    return tuple(KeySpec(text) for text in texts.split(";") if text)


@cache
def _flags_and_categories(text: str, group: str) -> tuple[frozenset[str], frozenset[str]]:
    words = text.split()
    flags = frozenset(word for word in words if "@" not in word)
    found = {"@fast" if "fast" in flags else "@slow"}
    for flag, categories in _FLAG_CATEGORIES.items():
        if flag in flags:
            found.update(categories)
    if "readonly" in flags and group != "scripting":
        found.add("@read")
    if group not in ("server", "cluster"):
        found.add("@" + _CATEGORIES.get(group, group))
    found.update(word for word in words if word.startswith("@"))
    found.difference_update(word[1:] for word in words if word.startswith("-@"))
    return flags, frozenset(found)


class CommandSpec:
    """A command or subcommand in the table.

    ``name`` is in upper case, with a space before the subcommand (``XGROUP CREATE``). ``arity``,
    ``group``, ``since``, ``flags``, ``categories``, ``keys`` and ``options`` come from the row in
    the table. ``subcommands`` is None unless the command is a container. ``function`` runs the
    command, or is None if the command is not implemented.
    """

    function: Function | None

    __slots__ = (
        "arity", "categories", "container", "flags", "full_name", "function", "group", "hidden",
        "keys", "least", "may_wait", "most", "name", "no_multi", "only_key", "options", "over_rest",
        "plain", "readonly", "reads_keys", "shown_first", "since", "skip", "subcommands",
        "unlogged", "write",
    )  # fmt: skip

    def __init__(
        self, name: str, arity: int, group: str, since: str, flags: str, keys: str, options: str
    ) -> None:
        self.name = name
        self.full_name = name.lower().replace(" ", "|")
        self.arity = arity
        self.least = abs(arity)
        self.most = arity if arity > 0 else sys.maxsize
        self.group = group
        self.since = since
        self.flags, self.categories = _flags_and_categories(flags, group)
        self.keys = _key_specs(keys)
        # The position of the key, if the command always has exactly one key at a fixed position.
        # Otherwise 0.
        fixed = len(self.keys) == 1 and not self.keys[0].is_sought and self.keys[0].last == 0
        self.only_key = self.keys[0].first if fixed else 0
        self.options = tuple(options.split())
        self.write = "write" in self.flags
        self.readonly = "readonly" in self.flags
        self.reads_keys = (self.readonly and name != "MEMORY USAGE") or name in _READING_WRITERS
        # MONITOR shows a script before the commands that it calls, and other commands after they
        # have run.
        self.shown_first = "skip_monitor" in self.flags
        self.hidden = self.shown_first or "admin" in self.flags
        self.unlogged = "skip_slowlog" in self.flags or name == "EXEC"
        self.no_multi = "no_multi" in self.flags
        self.container: CommandSpec | None = None
        self.subcommands: dict[bytes, CommandSpec] | None = None
        self.skip = 2 if " " in name else 1
        self.may_wait = "BLOCK" in self.options
        self.over_rest = name.split()[0] not in NOT_OVER_REST or name == "CLIENT SETINFO"
        # True if no argument affects the choice of a subcommand or the availability over REST.
        self.plain = self.over_rest and not self.may_wait

    def key_positions(self, argv: list[bytes]) -> list[tuple[int, KeySpec]]:
        """Return the position and the spec of each key in ``argv``, which includes the name."""
        found: list[tuple[int, KeySpec]] = []
        for spec in self.keys:
            positions = spec.positions(argv)
            found.extend((place, spec) for place in positions or ())
        return found

    def __repr__(self) -> str:
        return f"<CommandSpec {self.name}>"


class _Unbound(CommandSpec):
    """A command before its function is loaded. Only this class has ``__getattr__``, which is slow."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        # Only ``function`` can be missing: it is unset until the command's module is imported.
        if name != "function":
            raise AttributeError(f"a CommandSpec has no attribute {name!r}")
        first = COMMANDS[self.name]
        if first is not self:
            _settle(self, first.function)
            return self.function
        for bind in _binders:
            bind(self)
        if self.name not in _bound:
            _settle(self, None)
        return self.function


def _settle(spec: CommandSpec, function: Function | None) -> None:
    """Set the function of a command, and make the command an ordinary `CommandSpec`."""
    spec.function = function
    spec.__class__ = CommandSpec


_binders: list[Callable[[CommandSpec], None]] = []
_bound: set[str] = set()


def bind_with(binder: Callable[[CommandSpec], None]) -> None:
    """Register a function that imports the module of a command when the command first runs."""
    _binders.append(binder)


class Table:
    """The commands and behaviours of servers that announce a certain version.

    If the version is None, the table contains all commands and behaviours. ``modules`` are the
    modules that a server with a version has loaded, by their names in ``versions.MODULES``.

    ``commands`` maps the upper-case names of all commands and subcommands (``"XGROUP CREATE"``) to
    their specs. ``lookup`` maps the upper-case and lower-case names of top-level commands; call
    ``.upper()`` for other spellings. ``knows`` maps each entry of ``versions.LATER`` to whether the
    version has it.
    """

    __slots__ = ("_members", "commands", "knows", "lookup")

    def __init__(self, version: str | None = None, modules: tuple[str, ...] = ()) -> None:
        self.knows = {
            word: version is None or not is_later(since, version) for word, since in LATER.items()
        }
        self._members: dict[str, frozenset[CommandSpec]] = {}
        self.commands: dict[str, CommandSpec] = {}
        self.lookup: dict[bytes, CommandSpec] = {}
        rows = ROWS if version is None else self._rows_of(version, modules)
        for row in rows:
            spec: CommandSpec = _Unbound(*row)
            self.commands[row[0]] = spec
            if " " not in row[0]:
                self.lookup[row[0].encode()] = self.lookup[row[0].lower().encode()] = spec
        for name, spec in self.commands.items():
            parent, _, child = name.partition(" ")
            if child:
                container = spec.container = self.commands[parent]
                if container.subcommands is None:
                    container.subcommands = {}
                    container.plain = False
                    # A container command itself does not access its group's data.
                    own = _CATEGORIES.get(container.group, container.group)
                    container.categories -= {"@" + own}
                container.subcommands[child.encode()] = spec

    def _rows_of(self, version: str, modules: tuple[str, ...]) -> Iterator[Row]:
        loaded = {MODULES[module] for module in modules}
        for name, arity, group, since, flags, keys, options in ROWS:
            if group in MODULES.values():
                if group not in loaded:
                    continue
            elif name.startswith(OWN) or is_later(since, version):
                continue
            words = options.split()
            known = [word for word in words if self.knows.get(f"{name} {word}", True)]
            if len(known) < len(words):
                arity = ARITIES.get(name, arity)
            yield name, arity, group, since, flags, keys, " ".join(known)

    def find_family(self, argv: list[bytes]) -> CommandSpec | None:
        """Return the command or container command that the first word of ``argv`` names."""
        return self.lookup.get(argv[0]) or self.lookup.get(argv[0].upper())

    def resolve(self, argv: list[bytes]) -> CommandSpec:
        """Return the command that ``argv`` calls; raise ``CommandError`` if it is unknown."""
        spec = self.find_family(argv)
        if spec is None or (spec.function is None and spec.subcommands is None):
            raise CommandError(unknown_command(argv))
        if spec.subcommands is not None and len(argv) > 1:
            found = spec.subcommands.get(argv[1].upper())
            if found is None or found.function is None:
                raise CommandError(unknown_subcommand(argv[1], spec.name))
            return found
        return spec

    def specs(self) -> Iterator[CommandSpec]:
        """Iterate over all commands and subcommands in the order of the rows."""
        return iter(self.commands.values())

    def members_of(self, category: str) -> frozenset[CommandSpec]:
        """Return the commands and subcommands of a category such as ``@read``."""
        found = self._members.get(category)
        if found is None:
            found = frozenset(spec for spec in self.specs() if category in spec.categories)
            self._members[category] = found
        return found


EVERYTHING = Table()
"""The table of the vendor's dialect, which contains all commands and behaviours."""
COMMANDS = EVERYTHING.commands
"""All commands and subcommands, by name."""
LOOKUP = EVERYTHING.lookup
find_family = EVERYTHING.find_family
specs = EVERYTHING.specs


@cache
def table_of(dialect: str, version: str, modules: tuple[str, ...] = ()) -> Table:
    """Return the table of a server. The vendor has more commands than the version it announces."""
    return EVERYTHING if dialect == "vendor" else Table(version, modules)


def command(*names: str) -> Callable[[F], F]:
    """Return a decorator that binds a function to commands; ``KeyError`` for an unknown name."""

    def bind(function: F) -> F:
        for name in names:
            spec = COMMANDS[name]
            if name in _bound:
                raise KeyError(f"the command {name} is bound to two functions")
            _bound.add(name)
            _settle(spec, function)
        return function

    return bind
