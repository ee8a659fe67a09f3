"""``KVServer``: the fake of a key-value server."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, cast
from urllib.parse import quote

from ..core.auth import new_token
from ..core.errors import ContractError
from ..core.matching import Asked
from ..handle import Context, Handle, Snapshot, action
from .acl.users import tester
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
from .races import Between, Place
from .reply import Blocked
from .rest.routes import Credentials, KVApp
from .settings import KVConfig, KVSettings

if TYPE_CHECKING:
    from upstash_redis import Redis
    from upstash_redis.asyncio import Redis as AsyncRedis

    from ..core.found import Found
    from .engine.keyspace import Keyspace
    from .redis.engine import RedisEngine
    from .resp.port import DatabasePort
    from .search.indexes import Search
    from .search.views import SearchFields, SearchIndexView


class KVServer(Handle):
    """A fake key-value server with a REST interface and, on demand, a Redis protocol port.

    ``settings`` are the keywords of ``KVSettings``; ``KVConfig`` explains each of them.
    """

    service: ClassVar[str] = "kv"
    fixture: ClassVar[str] = "kv_server"

    _settings = KVConfig
    _app: KVApp

    def __init__(
        self,
        context: Context,
        **settings: Unpack[KVSettings],
    ) -> None:
        config = self._configure(context, KVConfig, settings)
        if config.database_password is not None:
            self._password = config.database_password
        self._search_delay = config.search_ready_after_ms, config.search_ready_after_reads
        self._making = threading.Lock()
        self._made: AnyEngine | None = None
        real: RedisEngine | None = None
        if config.engine is None:
            self._new_engine = partial(
                Engine,
                context.clock,
                context.ids,
                config.dialect,
                config,
                context.clock.now_us(),
                documented_only=config.documented_only,
                debug_command=config.debug_command,
                version=config.version,
                modules=tuple(config.modules),
            )
        else:
            self._made = real = _real_engine(context, config.engine, config)
        self.dialect = config.dialect
        self._credentials = Credentials()
        if config.token is not None:
            # Derive the read-only token from the token, so that it stays the same after a restart
            # and a .env file stays valid.
            derived = sha256(f"read-only {config.token}".encode()).hexdigest()
            self._credentials.read_only = derived
        self._port: DatabasePort | None = None
        app = KVApp(self._find_engine, context.clock, self._credentials, config, config.int_text)
        super().__init__(context, app, config)
        self._credentials.standard = self.token
        if real is not None:
            self._mount.on_close.append(real.close)
        if config.database_port is not None:
            try:
                self._port = self._open_port(self._find_engine(), config.database_port)
            except BaseException:
                self.close()
                raise

    @cached_property
    def _password(self) -> str:
        made: str = vars(self).setdefault("_password", new_token(32))
        return made

    def _find_engine(self) -> AnyEngine:
        with self._making:
            if self._made is None:
                # Create the engine on first use only: suites often give each test all fakes, and
                # most tests use only one of them.
                self._made = self._new_engine()
                self._made.search_delay = self._search_delay
                self._apply_password()
            return self._made

    @property
    def _engine(self) -> AnyEngine:
        return self._made or self._find_engine()

    @cached_property
    def _session(self) -> AnySession:
        return self._new_session()

    def _new_session(self) -> AnySession:
        return self._engine.session(tester(self.dialect))

    def _end_session(self) -> None:
        session = self.__dict__.pop("_session", None)
        if session is not None:
            self._engine.abandon(session)

    # -- identity --------------------------------------------------------------------------------

    @property
    def read_only_token(self) -> str:
        """The token that permits only read commands. The vendor documents it as safe to publish."""
        return self._credentials.read_only

    @action
    def rotate_token(self) -> str:
        """Replace the token and the read-only token; return the new token.

        Requests with the old tokens are rejected.
        """
        self._credentials.standard = super().rotate_token()
        self._credentials.read_only = new_token()
        return self.token

    def reset_password(self) -> str:
        """Reset the database password, the token and the read-only token; return the new token.

        As documented by the vendor, the tokens are replaced too. Connections to the database port
        that have already logged in stay open, as after any password change.
        """
        self._password = new_token(32)
        self._apply_password()
        return self.rotate_token()

    @property
    def database_url(self) -> str:
        """The URL for Redis clients: ``redis://default:<password>@127.0.0.1:<port>``.

        The port opens on first use, unless ``database_port`` is set. As documented by the vendor,
        the port also serves REST over plain HTTP. Raises ``ContractError`` if the commands run on a
        real server, which has a port of its own.
        """
        engine = self._engine
        if not isinstance(engine, Engine):
            raise ContractError(
                "this fake runs its commands on a real server and has no database port: connect to "
                "that server (engine=) instead"
            )
        port = self._opened(engine)
        if port is None:
            raise ContractError(
                f"{self.name} is closed and never opened its database port: read database_url "
                "before the fake is closed"
            )
        return self._address_of(port)

    def _opened(self, engine: Engine) -> DatabasePort | None:
        """Return the database port, opening it on first use; None if the fake was closed before
        that.
        """
        with self._making:
            if self._port is None and not self.closed:
                self._port = self._open_port(engine)
                if self.closed:
                    # A thread that has just closed the fake may not have seen this port, so close
                    # the port here.
                    self._port.mount.close()
            return self._port

    def _address_of(self, port: DatabasePort) -> str:
        scheme = "redis" if port.mount.tls is None else "rediss"
        place = port.mount.url.partition("://")[2]
        return f"{scheme}://default:{quote(self._password, safe='')}@{place}"

    def _open_port(self, engine: AnyEngine, port: int = 0) -> DatabasePort:
        from .resp.port import DatabasePort

        assert isinstance(engine, Engine)
        opened = DatabasePort(engine, self._app)
        opened.mount = mount = self._context.mount(
            self._app, host=self._mount.host, port=port, protocol=opened.serve
        )
        mount.on_close.append(opened.wake)
        mount.on_reset.append(opened.wake)
        mount.on_error.append(self._server_failed)
        self.on_close(mount.close)
        first = self._mount.gate

        def gate(shut: bool) -> None:
            first(shut)
            mount.gate(shut)

        self._fault_table.gate = gate
        if self.faults.is_down:
            mount.refuse()
        return opened

    def end_connections(self) -> None:
        """End requests in progress and close every open connection; the addresses stay the same."""
        super().end_connections()
        if self._port is not None:
            self._port.mount.reset_connections()

    def _apply_password(self) -> None:
        if isinstance(self._made, Engine):
            self._made.users["default"].set_password(self._password.encode())

    def _first_baseline(self) -> Snapshot | None:
        """Return None if there is no engine yet: an empty baseline needs no copy, and most tests
        never reset.
        """
        return None if self._made is None else super()._first_baseline()

    def _new_snapshot(self) -> Snapshot:
        """Return a snapshot of a server that was never used."""
        return Snapshot(self.fixture, self._new_engine().snapshot())

    @action
    def restore(self, snapshot: Snapshot) -> None:
        """Restore the data of a snapshot. The journal, faults, credentials and the clock are not
        affected.
        """
        super().restore(snapshot)
        self._apply_password()

    @property
    def env(self) -> dict[str, str]:
        """The environment variables of the official clients, plus ``KV_URL`` and ``REDIS_URL``.

        The last two contain ``database_url``, for any Redis client, so reading this property opens
        that port. They are missing if the commands run on a real server.
        """
        variables = self._env_variables()
        engine = self._engine
        port = self._opened(engine) if isinstance(engine, Engine) else None
        if port is not None:
            variables["KV_URL"] = variables["REDIS_URL"] = self._address_of(port)
        return variables

    def _env_variables(self) -> dict[str, str]:
        return {
            "UPSTASH_REDIS_REST_URL": self.url,
            "UPSTASH_REDIS_REST_TOKEN": self.token,
            "KV_REST_API_URL": self.url,
            "KV_REST_API_TOKEN": self.token,
            "KV_REST_API_READ_ONLY_TOKEN": self.read_only_token,
        }

    # -- clients ---------------------------------------------------------------------------------

    def client(self, **options: Any) -> Redis:
        """Create an ``upstash_redis.Redis`` for this server; ``options`` are passed to it.

        The client is closed with the fake. Raises ``ContractError`` if the package is not
        installed.
        """
        __tracebackhide__ = True
        return cast("Redis", super().client(**options))

    def async_client(self, **options: Any) -> AsyncRedis:
        """Create an ``upstash_redis.asyncio.Redis``; otherwise like ``client()``."""
        __tracebackhide__ = True
        return cast("AsyncRedis", super().async_client(**options))

    def _make_client(self, **options: Any) -> Redis:
        from upstash_redis import Redis

        return Redis(**{**self._client_defaults(), **options})

    def _make_async_client(self, **options: Any) -> AsyncRedis:
        from upstash_redis.asyncio import Redis

        return Redis(**{**self._client_defaults(), **options})

    def _client_defaults(self) -> dict[str, Any]:
        return {"url": self.url, "token": self.token, "allow_telemetry": False}

    # -- commands and contents -------------------------------------------------------------------

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
            # RESET has logged the session out, so end the session; the next command opens a new
            # one.
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
        """Return the string stored at a key.

        Raises ``ContractError`` if the key is missing or has another type.
        """
        text: Word = self._read(key, "string")
        return text

    def integer(self, key: str | bytes) -> int:
        """Return the integer stored as a string at a key, such as a counter.

        Raises ``ContractError`` if the key is missing or has another type, or if the string is not
        an integer.
        """
        return integer_of(key, self.string(key))

    def hash(self, key: str | bytes) -> dict[Word, Word]:
        """Return the hash stored at a key; empty if the key is missing.

        Raises ``ContractError`` if the key has another type.
        """
        fields: dict[Word, Word] = self._read(key, "hash", {})
        return fields

    def elements(self, key: str | bytes) -> list[Word]:
        """Return the list stored at a key; empty if the key is missing.

        Raises ``ContractError`` if the key has another type.
        """
        elements: list[Word] = self._read(key, "list", [])
        return elements

    def members(self, key: str | bytes) -> set[Word]:
        """Return the set stored at a key; empty if the key is missing.

        Raises ``ContractError`` if the key has another type.
        """
        members: set[Word] = self._read(key, "set", set())
        return members

    def scores(self, key: str | bytes) -> dict[Word, float]:
        """Return the scores of a sorted set by member, in ascending order of scores.

        The result is empty if the key is missing. Raises ``ContractError`` if the key has another
        type.
        """
        return dict(self._read(key, "zset", []))

    def entries(self, key: str | bytes) -> list[tuple[str, dict[Word, Word]]]:
        """Return the entries of a stream as ``(id, fields)``.

        The list is empty if the key is missing. Raises ``ContractError`` if the key has another
        type.
        """
        entries: list[tuple[str, dict[Word, Word]]]
        entries = self._read(key, "stream", [])
        return entries

    def _read(self, key: str | bytes, wanted: str, empty: Any = None) -> Any:
        with self._engine.reading() as keyspace:
            return value_of_type(key, keyspace.peek(encode(key)), wanted, empty)

    def values(self) -> dict[Word, KVValue]:
        """Return the values of all keys, in the same form as ``value()``."""
        with self._engine.reading() as keyspace:
            return {word(key): python_value(keyspace.peek(key)) for key in keyspace}

    def keys(self, pattern: str | bytes = "*") -> list[Word]:
        """Return the keys that match a glob pattern of the server (``user:[0-9]*``), oldest key
        first.
        """
        matches = matcher(encode(pattern))
        with self._engine.reading() as keyspace:
            return [word(key) for key in keyspace if matches(key)]

    def ttl(self, key: str | bytes) -> int:
        """Return a key's TTL in seconds, like the command TTL: -1 without an expiry, -2 for a
        missing key.
        """
        return cast("int", self._engine.execute(self._new_session(), [b"TTL", encode(key)]))

    @action
    def load(
        self,
        data: Mapping[Any, object] | Iterable[Sequence[Scalar]] | str | os.PathLike[str],
    ) -> None:
        """Load data: a mapping of keys to plain values, commands to run, or an ``.rdb`` file.

        An existing key is replaced, other keys stay, and nothing changes if ``ContractError`` is
        raised.

        - A mapping: strings, bytes and numbers become strings, dicts become hashes, lists of scalars
          become lists, sets become sets, lists of ``(member, score)`` become sorted sets, and lists of
          ``(id, fields)`` become streams. The result of ``values()`` can be loaded again, except for
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
        commands run on a real server, which has ``SAVE``. A fake in another process
        (``Cloud.connect``) does not offer this method, so that clients cannot write files there.
        """
        __tracebackhide__ = True
        from .dump_files import dump_to_file

        if not isinstance(self._engine, Engine):
            raise ContractError(
                "dump_rdb() needs the in-memory engine, but this fake runs its commands on a real "
                "server: use the SAVE command of that server"
            )
        dump_to_file(self._engine, path)

    @action
    def reset(self) -> None:
        """Return to the baseline: restore its data, remove faults and interruptions, and reset the
        count of the daily limit.

        Transactions and subscriptions of ``execute()`` end, and so does CLIENT PAUSE. Logs (ACL
        LOG, SLOWLOG, LATENCY) and the statistics of INFO are reset.
        """
        self._end_session()
        super().reset()
        if isinstance(self._made, Engine):
            self._made.forget_past()
        self._app.interruptions.clear()
        self._app.quota.reset()

    # -- search ----------------------------------------------------------------------------------

    def search_index(self, name: str) -> SearchIndexView:
        """Return a view of a search index: its schema, documents and pending changes.

        ``name`` is the name of the index or an alias. The view's ``explain(key, filter)`` returns
        the reason why a filter does not find a key. Raises ``ContractError`` if there is no such
        index.
        """
        from .search.views import SearchIndexView

        return SearchIndexView(self._reading, name)

    @property
    def searches(self) -> Found[Search]:
        """Return the searches that clients made, oldest first, with their results."""
        from .search.views import searches_of

        return searches_of(self._memory().searches)

    def assert_searched(
        self,
        index: Asked[str] = None,
        *,
        times: int | None = None,
        **where: Unpack[SearchFields],
    ) -> Found[Search]:
        """Assert that at least one search matches, or exactly ``times`` searches; return these
        searches.

        ``where`` are conditions on fields of a search: ``command`` (``"query"``, ``"count"`` or
        ``"aggregate"``), ``filter``, ``keys`` (any of the returned keys), ``total``, ``pending``.
        If a key was not found, the failure message shows the clause that excluded the key, and the
        terms of its text.
        """
        __tracebackhide__ = True
        from .search.views import expect_search

        given: dict[str, object] = {} if index is None else {"index": index}
        given |= where
        return expect_search(self._reading, self._memory().searches, times, given)

    def assert_not_searched(self, index: Asked[str] = None, **where: Unpack[SearchFields]) -> None:
        """Assert that no search matches."""
        __tracebackhide__ = True
        self.assert_searched(index, times=0, **where)

    def _reading(self) -> AbstractContextManager[Keyspace]:
        return self._memory().reading()

    def _memory(self) -> Engine:
        if not isinstance(self._engine, Engine):
            raise ContractError(
                "search needs the in-memory engine, but this fake runs its commands on a real server: "
                "leave out engine="
            )
        return self._engine

    # -- races -----------------------------------------------------------------------------------

    def between(
        self, commands: Place = None, *, run: Callable[[], object] | Sequence[Scalar]
    ) -> Between:
        """Run another client's command between two commands of a pipeline.

        ``commands`` selects the position: the number of commands before it, or the names of its two
        neighbours (``("GET", "SET")``). If it is omitted, all positions are used in turn. ``run``
        is a function to call at that position, or a command to execute. Returns the interruption, a
        context manager; iterating over it covers every position. Names of commands match as in
        ``assert_called(command=…)``.
        """
        __tracebackhide__ = True
        if callable(run):
            return Between(self._app.interruptions, commands, run)
        if not isinstance(run, list | tuple) or not run:
            raise ContractError(
                f"run={run!r} is not a function or a command: pass a function to call, or a command "
                "such as ['SET', 'k', 'v']"
            )
        line = tuple(map(encode, run))
        return Between(self._app.interruptions, commands, lambda: self.execute(*line))


def _real_engine(context: Context, url: str, config: KVConfig) -> RedisEngine:
    try:
        from .redis.engine import RedisEngine
    except ModuleNotFoundError as error:
        raise ContractError(
            f"engine={url.partition('://')[0]!r} needs redis-py: "
            "pip install 'pytest-fakecloud[redis]'"
        ) from error
    return RedisEngine(
        context.clock,
        context.ids,
        url,
        isolation=config.isolation,
        dialect=config.dialect,
        max_key_size=config.max_key_size,
        documented_only=config.documented_only,
    )
