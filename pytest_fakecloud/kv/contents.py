"""The part of ``KVServer`` that runs commands as the test, reads and loads data, and finds searches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from ..core.errors import ContractError, did_you_mean, listed
from ..core.matching import Condition
from ..handle import action
from .acl import tester
from .algorithms.glob import matcher
from .engine.engine import Engine
from .errors import CommandError
from .model import AnyEngine, AnySession
from .python_values import (
    KVReply,
    KVValue,
    Scalar,
    Word,
    commands_for,
    encode,
    integer_of,
    plain,
    python_value,
    value_of_type,
    word,
)
from .reply import Blocked

if TYPE_CHECKING:
    from ..core.journal import Results
    from .search.index import Search
    from .search.views import SearchIndexView
    from .settings import Dialect
    from .typed import SearchFields

T = TypeVar("T")
_COMPARED = 1000
"""Maximum number of keys that are compared with a missing key's name."""


class KVContents:
    """Mixin of ``KVServer`` with its data: commands of the test, values, dump files, searches."""

    _dialect: Dialect

    @property
    def _engine(self) -> AnyEngine:
        raise NotImplementedError

    @cached_property
    def _session(self) -> AnySession:
        return self._new_session()

    def _new_session(self) -> AnySession:
        return self._engine.session(tester(self._dialect))

    def _end_session(self) -> None:
        session = self.__dict__.pop("_session", None)
        if session is not None:
            self._engine.abandon(session)

    @action
    def execute(self, *command: Scalar) -> KVReply:
        """Run a command as the test itself: without an HTTP request, injected faults or limits.

        Returns the reply with strings as ``str`` (``bytes`` if they are not UTF-8). Raises
        ``CommandError`` for an error reply.
        """
        __tracebackhide__ = True
        if not command:
            raise ContractError("execute() needs a command, such as execute('SET', 'key', 'value')")
        line = list(map(encode, command))
        try:
            reply = self._engine.execute(self._session, line)
        except CommandError as error:
            if len(line) == 1 and line[0].split()[1:]:
                words = ", ".join(repr(word(part)) for part in line[0].split())
                error.add_note(f"pass each word as an argument: execute({words})")
            raise
        assert not isinstance(reply, Blocked)
        if line[0].upper() == b"RESET":
            # RESET has logged the session out, so the next command opens a new one.
            self._end_session()
        return plain(reply)

    def value(self, key: str | bytes) -> KVValue:
        """Return a key's value in plain Python, or None if the key does not exist.

        Strings are ``str`` (``bytes`` if they are not UTF-8); lists, sets and hashes are ``list``,
        ``set`` and ``dict``. A sorted set is a list of ``(member, score)``, a stream is a list of
        ``(id, fields)``, and JSON is the parsed document.
        """
        with self._engine.reading() as keyspace:
            return python_value(keyspace.peek(encode(key)))

    def string(self, key: str | bytes) -> Word:
        """Return the string at a key, None if missing; raise ``ContractError`` for another type."""
        return self._read(key, "string", None)

    def integer(self, key: str | bytes) -> int | Any:
        """Return the integer stored as a string at a key, such as a counter; None if missing.

        Raises ``ContractError`` for another type, and for a string that is not an integer.
        """
        text = self.string(key)
        return None if text is None else integer_of(key, text)

    def hash(self, key: str | bytes) -> dict[Word, Word]:
        """Return the hash at a key, empty if missing; raise ``ContractError`` for another type."""
        return self._read(key, "hash", {})

    def elements(self, key: str | bytes) -> list[Word]:
        """Return the list at a key, empty if missing; raise ``ContractError`` for another type."""
        return self._read(key, "list", [])

    def members(self, key: str | bytes) -> set[Word]:
        """Return the set at a key, empty if missing; raise ``ContractError`` for another type."""
        return self._read(key, "set", set())

    def scores(self, key: str | bytes) -> dict[Word, float]:
        """Return the scores of a sorted set by member, in ascending order; otherwise like ``hash()``."""
        return dict(self._read(key, "zset", []))

    def entries(self, key: str | bytes) -> list[tuple[str, dict[Word, Word]]]:
        """Return the entries of a stream as ``(id, fields)``; otherwise like ``elements()``."""
        return self._read(key, "stream", [])

    def _read(self, key: str | bytes, wanted: str, missing: T) -> T:
        with self._engine.reading() as keyspace:
            value = keyspace.peek(encode(key))
            return missing if value is None else cast("T", value_of_type(key, value, wanted))

    def contents(self) -> dict[Word, KVValue]:
        """Return the values of all keys, in the same form as ``value()``."""
        with self._engine.reading() as keyspace:
            return {word(key): python_value(keyspace.peek(key)) for key in keyspace}

    def keys(self, pattern: str | bytes = "*") -> list[Word]:
        """Return the keys that match a glob pattern such as ``user:[0-9]*``, oldest key first."""
        matches = matcher(encode(pattern))
        with self._engine.reading() as keyspace:
            return [word(key) for key in keyspace if matches(key)]

    def ttl(self, key: str | bytes) -> float | Any:
        """Return a key's TTL in seconds, or None if the key has none.

        While the clock runs, the TTL decreases with it: compare it with a range, or freeze the
        clock. Raises ``ContractError`` with the nearest name for a missing key.
        """
        left_ms = self._ttl_ms(key)
        if left_ms == -2:
            with self._engine.reading() as keyspace:
                names = [str(word(each)) for each in keyspace]
            nearest = did_you_mean(word(encode(key)), names[:_COMPARED])
            raise ContractError(
                f"the key {key!r} does not exist{nearest or '.'} "
                f"Existing keys: {listed(names) or 'none'}"
            )
        return None if left_ms == -1 else left_ms / 1000

    def _ttl_ms(self, key: str | bytes) -> int:
        """Return the reply of PTTL: milliseconds, -1 without a TTL, or -2 for a missing key."""
        return cast("int", self._engine.execute(self._new_session(), [b"PTTL", encode(key)]))

    @action
    def load(
        self, data: Mapping[Any, object] | Iterable[Sequence[Scalar]] | str | os.PathLike[str]
    ) -> None:
        """Load data: a mapping of keys to plain values, commands to run, or an ``.rdb`` file.

        An existing key is replaced, and other keys stay. If ``ContractError`` is raised, nothing
        changes, except that a real server keeps the keys it received from a file before the error.

        - A mapping: strings, bytes and numbers become strings, dicts become hashes, lists of scalars
          become lists, sets become sets, lists of ``(member, score)`` become sorted sets, and lists of
          ``(id, fields)`` become streams. The result of ``contents()`` can be loaded again, except for
          JSON documents, which only ``JSON.SET`` creates.
        - An iterable of commands, which run in order: ``[["ZADD", "board", 1, "ann"], …]``. Raises
          ``CommandError`` if one fails; the commands before it have run.
        - The path of a file that ``dump_rdb()`` or a real server wrote (``"dump.rdb"``, by ``SAVE``
          or ``BGSAVE``): Redis up to 8.2, Valkey up to 9.2. Keys keep their expiries. Keys that have
          expired by this fake's clock are skipped, and so are those of modules other than JSON and of
          databases that this server does not have; a ``UserWarning`` reports how many. Function
          libraries are loaded too.
        """
        __tracebackhide__ = True
        if isinstance(data, str | os.PathLike):
            from .dump_files import load_from_file

            load_from_file(self._engine, data, partial(self._engine.execute, self._new_session()))
            return
        lines = list(commands_for(data))
        session = self._new_session()
        for line in lines:
            try:
                self._engine.execute(session, line)
            except CommandError as error:
                shown = " ".join(repr(word(part)) for part in line[:6])
                more = f" and {len(line) - 6} more" if len(line) > 6 else ""
                error.add_note(f"while loading: {shown}{more}")
                raise

    def dump_rdb(self, path: str | os.PathLike[str]) -> None:
        """Write all keys and function libraries to an ``.rdb`` file that a real server can load.

        Redis 7.0 and later, Valkey and ``load()`` read the file; a hash with fields that expire
        needs Redis 7.4. JSON documents are written in the format of RedisJSON, so a server needs
        that module to load them. Search indexes are skipped with a ``UserWarning``. An existing
        file is overwritten. Raises ``ContractError`` if the file cannot be written, or if the
        commands run on a real server, which has ``SAVE``. The control API
        does not offer this method, so that its clients cannot write files on the server.
        """
        __tracebackhide__ = True
        from .dump_files import dump_to_file

        dump_to_file(self._memory("dump_rdb()", "use the SAVE command of that server"), path)

    def search_index(self, name: str) -> SearchIndexView:
        """Return a view of a search index: its schema, documents and pending changes.

        ``name`` is the name of the index or an alias. The view's ``explain(key, filter)`` returns
        the reason why a filter does not find a key. Raises ``ContractError`` for unknown names.
        """
        from .search.views import SearchIndexView

        return SearchIndexView(self._memory().reading, name)

    def searches(self) -> Results[Search]:
        """Return the searches that clients made, oldest first, with their results."""
        from .search.views import searches_of

        return searches_of(self._memory().searches)

    def assert_searched(
        self,
        index: Condition[str] = None,
        *,
        times: int | None = None,
        **where: Unpack[SearchFields],
    ) -> Results[Search]:
        """Assert that at least one search matches, or exactly ``times`` searches; return them.

        ``where`` are conditions on fields of a search: ``command`` (``"query"``, ``"count"`` or
        ``"aggregate"``), ``filter``, ``keys`` (any of the returned keys), ``total``, ``pending``.
        For a key that was not found, the message shows the clause that excluded it, and its terms.
        """
        __tracebackhide__ = True
        from .search.views import expect_search

        given: dict[str, object] = {} if index is None else {"index": index}
        given |= where
        engine = self._memory()
        return expect_search(engine.reading, engine.searches, times, given)

    def assert_not_searched(
        self, index: Condition[str] = None, **where: Unpack[SearchFields]
    ) -> None:
        """Assert that no search matches."""
        __tracebackhide__ = True
        self.assert_searched(index, times=0, **where)

    def _memory(self, what: str = "search", advice: str = "leave out engine=") -> Engine:
        if not isinstance(self._engine, Engine):
            raise ContractError(
                f"{what} needs the in-memory engine, but this fake runs its commands on a real "
                f"server: {advice}"
            )
        return self._engine
