"""Functions that the search commands share: a parser for arguments, and the conversion of errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...engine.session import Session
from ...errors import CommandError, one_line
from ...search.index import Indexes, SearchIndex
from ...search.schema import SearchError
from ...table.registry import Args
from ...table.syntax import decoded, encoded, try_int


@contextmanager
def as_command_errors() -> Iterator[None]:
    """Context manager that converts a ``SearchError`` to a ``CommandError``."""
    try:
        yield
    except SearchError as error:
        raise CommandError(one_line(f"ERR {error}".encode("utf-8", "replace"))) from None


def indexes_of(session: Session) -> Indexes:
    """Return the search indexes of the database; from the first call on, they follow all changes."""
    keyspace, settings = session.db, session.engine.settings
    if not isinstance(keyspace.indexes, Indexes):
        keyspace.indexes = indexes = Indexes(
            settings.search_ready_after_ms, settings.search_ready_after_reads
        )
        # The database may already contain indexes that were moved here from another database.
        indexes.adopt(keyspace.values)
        session.engine.changes.start_or_stop()
        return indexes
    return keyspace.indexes


def find_index(session: Session, name: bytes) -> SearchIndex | None:
    """Return the index with a name or an alias, or None."""
    found = indexes_of(session).find(name)
    return None if found is None else found[1]


class Words:
    """Reads a command's arguments from left to right.

    The methods other than `peek()` consume what they return. ``what`` names it in error messages.
    """

    def __init__(self, args: Args, at: int) -> None:
        self._args = args
        self._at = at

    def __bool__(self) -> bool:
        return self._at < len(self._args)

    def peek(self) -> str:
        """Return the next argument in upper case without consuming it; an empty string at the end."""
        return decoded(self._args[self._at]).upper() if self else ""

    def take(self, what: str) -> str:
        if not self:
            raise SearchError(f"syntax error: {what} is missing")
        self._at += 1
        return decoded(self._args[self._at - 1])

    def take_upper(self, what: str) -> str:
        return self.take(what).upper()

    def one_of(self, what: str, known: tuple[str, ...]) -> str:
        """Return the next argument in upper case; raise an error unless it is in ``known``."""
        word = self.take_upper(what)
        if word not in known:
            raise SearchError(
                f"syntax error: unknown {what} '{word}', expected one of {', '.join(known)}"
            )
        return word

    def number(self, what: str) -> int:
        """Return the next argument, which must be a non-negative integer."""
        word = self.take(what)
        value = try_int(encoded(word))
        if value is None or value < 0:
            raise SearchError(f"syntax error: {what} takes a non-negative integer; got '{word}'")
        return value

    def counted(self, what: str) -> list[str]:
        """Read a count, and return that many further arguments."""
        count = self.number(f"the count of {what}")
        if count > len(self._args) - self._at:
            raise SearchError(f"syntax error: expected {count} {what}, but fewer words follow")
        return [self.take(what) for _ in range(count)]
