"""The function libraries of one engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..errors import BAD_DUMP, CommandError
from ..table.config import Config
from ..table.versions import rdb_version
from . import errors


class LibraryFunction(NamedTuple):
    """A function of a library. ``callback`` is the Lua function."""

    name: bytes
    callback: Any
    description: bytes | None
    flags: tuple[bytes, ...]


class Library(NamedTuple):
    """A function library."""

    name: bytes
    source: bytes
    functions: dict[bytes, LibraryFunction]


class Libraries:
    """The loaded function libraries. ``read`` runs the source of a library and returns the library."""

    def __init__(self, read: Callable[[bytes], Library]) -> None:
        self._read = read
        self._libraries: dict[bytes, Library] = {}
        self.functions: dict[bytes, LibraryFunction] = {}
        """All functions, keyed by their names in lower case, because calls are case-insensitive."""

    def __len__(self) -> int:
        return len(self._libraries)

    def __iter__(self) -> Iterator[Library]:
        """Iterate over the libraries in the order in which they were loaded."""
        return iter(self._libraries.values())

    def load(self, source: bytes, replace: bool) -> bytes:
        """Load a library and return its name. If loading raises ``CommandError``, nothing changes."""
        library = self._read(source)
        if not replace and library.name in self._libraries:
            raise CommandError(errors.library_exists(library.name))
        self._replace_all([each for each in self if each.name != library.name] + [library])
        return library.name

    def _replace_all(self, libraries: list[Library]) -> None:
        """Replace the libraries, or raise ``CommandError`` if two functions have the same name."""
        functions: dict[bytes, LibraryFunction] = {}
        for library in libraries:
            for name, function in library.functions.items():
                if functions.setdefault(name.lower(), function) is not function:
                    raise CommandError(errors.function_exists(name))
        self._libraries = {library.name: library for library in libraries}
        self.functions = functions

    def delete(self, name: bytes) -> bool:
        if name not in self._libraries:
            return False
        self._replace_all([each for each in self if each.name != name])
        return True

    def flush(self) -> None:
        self._replace_all([])

    def dump(self, config: Config, version: str) -> bytes:
        """Return all libraries as a FUNCTION DUMP payload, in the format of a server version."""
        from ..rdb.dumps import dump_libraries

        return dump_libraries(list(self.sources()), config, rdb_version(version))

    def restore(self, payload: bytes, policy: bytes, version: str) -> None:
        """Load the libraries of a payload, or none if one of them is invalid."""
        from ..rdb.dumps import is_sealed, load_libraries

        if not is_sealed(payload, rdb_version(version)):
            raise CommandError(BAD_DUMP)
        try:
            sources = load_libraries(payload)
        except TypeError:
            raise CommandError(errors.NOT_A_FUNCTION) from None
        except ValueError:
            raise CommandError(errors.BAD_LIBRARIES) from None
        self.add_all(sources, policy)

    def add_all(self, sources: list[bytes], policy: bytes) -> None:
        """Load libraries, or none if one is invalid. ``policy`` is that of FUNCTION RESTORE."""
        added: dict[bytes, Library] = {}
        for source in sources:
            library = self._read(source)
            if library.name in added:
                raise CommandError(errors.library_exists(library.name))
            added[library.name] = library
        present = [] if policy == b"FLUSH" else list(self)
        for library in present:
            if library.name in added and policy == b"APPEND":
                raise CommandError(errors.library_collides(library.name))
        kept = [library for library in present if library.name not in added]
        self._replace_all([*kept, *added.values()])

    def sources(self) -> tuple[bytes, ...]:
        return tuple(library.source for library in self)

    def reload(self, sources: tuple[bytes, ...]) -> None:
        """Replace all libraries with those from these sources, whose global variables are reset.

        If a source raises ``CommandError``, nothing changes.
        """
        self._replace_all([self._read(source) for source in sources])
