"""The function libraries of one engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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


@dataclass(eq=False, frozen=True)
class Library:
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
        self._check_functions(library, self.functions, self._libraries.get(library.name))
        self.delete(library.name)
        self._add(library)
        return library.name

    @staticmethod
    def _check_functions(
        library: Library, present: dict[bytes, LibraryFunction], replaced: Library | None
    ) -> None:
        for name in library.functions:
            kept = present.get(name.lower())
            if kept is not None and (replaced is None or kept not in replaced.functions.values()):
                raise CommandError(errors.function_exists(name))

    def _add(self, library: Library) -> None:
        self._libraries[library.name] = library
        self.functions.update((name.lower(), one) for name, one in library.functions.items())

    def delete(self, name: bytes) -> bool:
        library = self._libraries.pop(name, None)
        if library is None:
            return False
        for function_name in library.functions:
            del self.functions[function_name.lower()]
        return True

    def flush(self) -> None:
        self._libraries.clear()
        self.functions.clear()

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
        libraries: dict[bytes, Library] = {}
        for source in sources:
            library = self._read(source)
            if library.name in libraries:
                raise CommandError(errors.library_exists(library.name))
            libraries[library.name] = library
        kept = {} if policy == b"FLUSH" else dict(self._libraries)
        for library in libraries.values():
            if library.name in kept and policy == b"APPEND":
                raise CommandError(errors.library_collides(library.name))
            kept.pop(library.name, None)
            functions = {
                name.lower(): one
                for other in kept.values()
                for name, one in other.functions.items()
            }
            self._check_functions(library, functions, None)
            kept[library.name] = library
        self.flush()
        for library in kept.values():
            self._add(library)

    def sources(self) -> tuple[bytes, ...]:
        """Return the sources of all libraries."""
        return tuple(library.source for library in self)

    def reload(self, sources: tuple[bytes, ...]) -> None:
        """Replace all libraries with those from these sources, whose global variables are reset.

        If a source raises ``CommandError``, nothing changes.
        """
        libraries = [self._read(source) for source in sources]
        self.flush()
        for library in libraries:
            self._add(library)
