"""The table of commands, and the functions that run them.

Modules of ``kv/commands`` define the functions with ``@command("NAME")``. ``rows.py`` defines
everything else about a command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import TypeVar

from ..errors import CommandError, unknown_command, unknown_subcommand
from .command_spec import GROUP_CATEGORIES, Args, CommandSpec, Function, KeySpec
from .rows import ROWS, Row
from .versions import ARITIES, LATER, MODULES, OWN, is_later

__all__ = [
    "COMMANDS", "EVERYTHING", "LOOKUP", "Args", "CommandSpec", "KeySpec", "Table", "command",
    "find_family", "function_of", "import_with", "specs", "table_of",
]  # fmt: skip

F = TypeVar("F", bound=Function)


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
            spec = CommandSpec(*row)
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
                    own = GROUP_CATEGORIES.get(container.group, container.group)
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
        if spec is None:
            raise CommandError(unknown_command(argv))
        if spec.subcommands is not None and len(argv) > 1:
            subcommand = spec.subcommands.get(argv[1].upper())
            if subcommand is None:
                raise CommandError(unknown_subcommand(argv[1], spec.name))
            return subcommand
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


# -- functions -----------------------------------------------------------------------------------

_functions: dict[str, Function] = {}
_importers: list[Callable[[CommandSpec], None]] = []


def import_with(importer: Callable[[CommandSpec], None]) -> None:
    """Register a function that imports the module of a command when the command first runs."""
    _importers.append(importer)


def command(*names: str) -> Callable[[F], F]:
    """Return a decorator for the function of commands; ``KeyError`` for an unknown name."""

    def register(function: F) -> F:
        for name in names:
            if name not in COMMANDS:
                raise KeyError(f"there is no command {name}")
            if name in _functions:
                raise KeyError(f"the command {name} has two functions")
            _functions[name] = function
        return function

    return register


def function_of(spec: CommandSpec) -> Function | None:
    """Return the function of a command, after importing its module; None for a container."""
    if spec.function is None:
        if spec.name not in _functions:
            for importer in _importers:
                importer(spec)
        spec.function = _functions.get(spec.name)
    return spec.function
