"""``KVServer``: the fake of a key-value server."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, Unpack, cast
from urllib.parse import quote

from ..cloud.actions import action, look, perform
from ..cloud.fake import Aio, Snapshot, secrets_of
from ..core.errors import ContractError, did_you_mean, importing, listed
from ..core.field_types import check_function
from ..core.frames import code_place
from ..core.ids import new_token
from ..core.matching import Condition
from .acl import tester
from .algorithms.glob import matcher
from .engine.engine import KVEngine
from .engine.replication import Node
from .engine.sentinel import MASTER_NAME, Sentinel
from .errors import CommandError
from .faults import KVFaults, nodes_of
from .interruptions import Between, Place
from .reply import (
    Blocked,
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
from .resp.port import PortHandler, SentinelHandler, tell_free_ports
from .routes import KVApp, read_only_token
from .scripting.records import record_command, record_cut
from .settings import KVConfig

if TYPE_CHECKING:
    from upstash_redis import Redis
    from upstash_redis.asyncio import Redis as AsyncRedis

    from .._typing.kv import CommandFields, SearchFields
    from .._typing.kv import KVFake as Fake
    from .._typing.kv import KVSettings as KVSettings
    from ..core.clock import Timekeeper
    from ..core.ids import Ids
    from ..core.journal import Results
    from ..http.app import App
    from ..http.hub import Mount
    from .real_redis.engine import RedisEngine
    from .search.index import Search
    from .search.views import SearchIndexView
else:
    # For type checkers, ``_typing/kv.pyi`` declares this base class with the keywords of filters.
    from ..cloud.fake import Fake
    from ..core.settings import keywords_of

    KVSettings = keywords_of(KVConfig, "``Cloud.kv_server()`` and of the marker")

T = TypeVar("T")
_COMPARED = 1000
"""Maximum number of keys that are compared with a missing key's name."""


class KVServer(Fake):
    """A fake key-value server with a REST interface and a Redis protocol port.

    ``settings`` are the keyword arguments in ``KVSettings``.
    """

    service: ClassVar[str] = "kv"
    fixture: ClassVar[str] = "kv_server"

    _config_class = KVConfig
    _other_credential_names = ("_password",)
    _derived_credential_names = ("read_only_token",)
    _config: KVConfig
    _app: KVApp
    _engine: KVEngine | RedisEngine
    faults: KVFaults

    def _make_app(self) -> KVApp:
        config, clock, ids = self._config, self._timekeeper, self._context.ids
        self._dialect = config.dialect
        if config.engine is None:
            self._engine = engine = KVEngine(clock, ids, config)
            # The recorder's calls refer to the engine.
            recorder = weakref.proxy(self._recorder)
            engine.scripting.listeners.add(partial(record_command, recorder))
            engine.scripting.cut_listeners.add(partial(record_cut, recorder))
        else:
            with importing(f"engine={config.engine.partition('://')[0]!r}", extra="redis"):
                from .real_redis.engine import RedisEngine
            self._engine = real = RedisEngine(clock, ids, config.engine, config)
            self._exits.callback(real.close)
        app = KVApp(self._instruments, self._engine, config)
        if isinstance(self._engine, KVEngine) and self._engine.topology is not None:
            app.node_faults = faults = nodes_of(self.faults)
            faults.connect(self._engine)
        return app

    def _new_faults(self) -> KVFaults:
        return KVFaults(
            self._context.ids.stream(self.name, "faults"), self._timekeeper, self._config
        )

    def _open(self, app: App) -> None:
        self._port: Mount | None = None
        """The database port; None if the commands run on a real server, which has its own."""
        self._node_ports: list[Mount] = []
        """The ports of the other nodes than the one at ``database_url``."""
        self._sentinel_mount: Mount | None = None
        """The port of the sentinel; None without one."""
        super()._open(app)
        # Also for tests that do not use it: a port takes 20 µs, 0.5 % of a test with a client.
        if isinstance(self._engine, KVEngine):
            nodes = () if self._engine.topology is None else self._engine.topology.nodes
            self._port = self._open_port(self._engine, self._config.database_port, *nodes[:1])
            ports = [*self._config.node_ports, *[None] * len(nodes)]
            self._node_ports = [
                self._open_port(self._engine, port, node)
                for port, node in zip(ports, nodes[1:], strict=False)
            ]
            if self._config.sentinel:
                self._sentinel_mount = self._open_sentinel(self._engine)

    @property
    def _password(self) -> str:
        return self._app.password

    @_password.setter
    def _password(self, password: str) -> None:
        if password != self._app.password:
            self._app.set_password(password)

    # -- identity --------------------------------------------------------------------------------

    @property
    def read_only_token(self) -> str:
        """The token that permits only read commands. The vendor documents it as safe to publish."""
        return read_only_token(self.token)

    def rotate_password(self) -> str:
        """Replace the database password and both tokens; return the new standard token.

        As documented by the vendor, the tokens are replaced too. Connections to the database port
        that have already logged in stay open, as after any password change.
        """
        self._context.former_secrets |= secrets_of(self)
        self._app.set_password(new_token(32))
        return self.rotate_token()

    @property
    def database_url(self) -> str:
        """The URL for Redis clients: ``redis://default:<password>@127.0.0.1:<port>``, or
        ``redis://127.0.0.1:<port>`` for a server without a password.

        As documented by the vendor, the port also serves REST over plain HTTP. Raises
        ``ContractError`` if the commands run on a real server, which has a port of its own.
        """
        if self._port is None:
            raise ContractError(
                "this fake runs its commands on a real server and has no database port: connect to "
                "that server (engine=) instead"
            )
        scheme = "redis" if self._port.tls is None else "rediss"
        address = self._port.url.partition("://")[2]
        user = f"default:{quote(self._password, safe='')}@" if self._password else ""
        return f"{scheme}://{user}{address}"

    def _open_port(self, engine: KVEngine, port: int | None, node: Node | None = None) -> Mount:
        """Serve the Redis protocol at a port, for one node if there are several."""

        def add_mount(mount: Mount) -> None:
            self._add_mount(mount)
            tell_free_ports(engine, mount)
            if node is not None:
                node.host, node.port = mount.host, mount.port
            self._app.hub = mount.hub

        return self._serve(
            self._app,
            self._mount.host,
            port,
            protocol=partial(PortHandler, engine, self._app, node),
            is_in_loop=True,
            prepare=add_mount,
        )

    def _open_sentinel(self, engine: KVEngine) -> Mount:
        name, topology = self._config.sentinel, engine.topology
        assert topology is not None
        own = KVEngine(self._timekeeper, self._context.ids, KVConfig(dialect="redis"))
        sentinel = Sentinel(name if isinstance(name, str) else MASTER_NAME, topology, own, engine)
        # The sentinel refers to the nodes.
        topology.on_promotion = partial(Sentinel.publish_failover, weakref.proxy(sentinel))
        return self._serve(
            self._app,
            self._mount.host,
            self._config.sentinel_port,
            protocol=partial(SentinelHandler, sentinel, self._app),
            is_in_loop=True,
            prepare=self._add_mount,
        )

    @property
    def sentinel_address(self) -> tuple[str, int]:
        """The host and the port of the sentinel, as clients of sentinels take them.

        Raises ``ContractError`` for a server without ``sentinel=True``.
        """
        if self._sentinel_mount is None:
            raise ContractError("this server has no sentinel: start it with sentinel=True")
        return self._sentinel_mount.host, self._sentinel_mount.port

    def _ports(self) -> dict[str, Any]:
        ports: dict[str, Any] = super()._ports()
        if self._port is not None:
            ports["database_port"] = self._port.port
        if self._node_ports:
            ports["node_ports"] = [mount.port for mount in self._node_ports]
        if self._sentinel_mount is not None:
            ports["sentinel_port"] = self._sentinel_mount.port
        return ports

    @property
    def env(self) -> dict[str, str]:
        """The environment variables of the official clients, plus ``KV_URL`` and ``REDIS_URL``.

        The last two contain ``database_url``, for any Redis client. They are missing if the commands
        run on a real server.
        """
        variables = {
            "UPSTASH_REDIS_REST_URL": self.url,
            "UPSTASH_REDIS_REST_TOKEN": self.token,
            "KV_REST_API_URL": self.url,
            "KV_REST_API_TOKEN": self.token,
            "KV_REST_API_READ_ONLY_TOKEN": self.read_only_token,
        }
        if self._port is not None:
            variables["KV_URL"] = variables["REDIS_URL"] = self.database_url
        return variables

    # -- clients ---------------------------------------------------------------------------------

    def client(self, **options: Any) -> Redis:
        """Create an ``upstash_redis.Redis`` for this server; ``options`` are passed to it.

        The client is closed with the fake. Raises ``ContractError`` if the package is missing.
        """
        __tracebackhide__ = True
        client: Redis = self._official(self._make_client, options, close="close")
        return client

    @property
    def aio(self) -> Aio[AsyncRedis]:
        """The asynchronous client: ``aio.client()`` creates an ``upstash_redis.asyncio.Redis``."""
        return Aio(self, partial(self._make_client, True))

    def _make_client(self, is_async: bool = False, /, **options: Any) -> Any:
        if is_async:
            from upstash_redis.asyncio import Redis
        else:
            from upstash_redis import Redis  # type: ignore[assignment]
        defaults = {"url": self.url, "token": self.token, "allow_telemetry": False}
        return Redis(**{**defaults, **options})

    # -- commands and data -------------------------------------------------------------------------

    def _new_session(self) -> Any:
        return self._engine.session(tester(self._dialect))

    _session = cached_property(_new_session)

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

    @look
    def value(self, key: str | bytes) -> KVValue:
        """Return a key's value in plain Python, or None if the key does not exist.

        Strings are ``str`` (``bytes`` if they are not UTF-8); lists, sets and hashes are ``list``,
        ``set`` and ``dict``. A sorted set is a list of ``(member, score)``, a stream is a list of
        ``(id, fields)``, an array is a ``dict`` by index, and JSON is the parsed document.
        """
        with self._engine.lock:
            keyspace = self._engine.current()
            return python_value(keyspace.peek(encode(key)))

    @look
    def string(self, key: str | bytes) -> Word:
        """Return the string at a key, None if missing; raise ``ContractError`` for another type."""
        return self._read(key, "string", None)

    @look
    def integer(self, key: str | bytes) -> int | Any:
        """Return the integer stored as a string at a key, such as a counter; None if missing.

        Raises ``ContractError`` for another type, and for a string that is not an integer.
        """
        text = self.string(key)
        return None if text is None else integer_of(key, text)

    @look
    def hash(self, key: str | bytes) -> dict[Word, Word]:
        """Return the hash at a key, empty if missing; raise ``ContractError`` for another type."""
        return self._read(key, "hash", {})

    @look
    def elements(self, key: str | bytes) -> list[Word]:
        """Return the list at a key, empty if missing; raise ``ContractError`` for another type."""
        return self._read(key, "list", [])

    @look
    def members(self, key: str | bytes) -> set[Word]:
        """Return the set at a key, empty if missing; raise ``ContractError`` for another type."""
        return self._read(key, "set", set())

    @look
    def scores(self, key: str | bytes) -> dict[Word, float]:
        """Return the scores of a sorted set by member, in ascending order; otherwise like ``hash()``."""
        return dict(self._read(key, "zset", []))

    @look
    def entries(self, key: str | bytes) -> list[tuple[str, dict[Word, Word]]]:
        """Return the entries of a stream as ``(id, fields)``; otherwise like ``elements()``."""
        return self._read(key, "stream", [])

    @look
    def array(self, key: str | bytes) -> dict[int, Word]:
        """Return the values of an array by index, in ascending order; otherwise like ``hash()``."""
        return self._read(key, "array", {})

    def _read(self, key: str | bytes, wanted: str, missing: T) -> T:
        with self._engine.lock:
            keyspace = self._engine.current()
            value = keyspace.peek(encode(key))
            return missing if value is None else cast("T", value_of_type(key, value, wanted))

    @look
    def contents(self) -> dict[Word, KVValue]:
        """Return the values of all keys, in the same form as ``value()``."""
        with self._engine.lock:
            keyspace = self._engine.current()
            return {word(key): python_value(keyspace.peek(key)) for key in keyspace}

    @look
    def keys(self, pattern: str | bytes = "*") -> list[Word]:
        """Return the keys that match a glob pattern such as ``user:[0-9]*``, oldest key first."""
        matches = matcher(encode(pattern))
        with self._engine.lock:
            keyspace = self._engine.current()
            return [word(key) for key in keyspace if matches(key)]

    @look
    def ttl(self, key: str | bytes) -> float | Any:
        """Return a key's TTL in seconds, or None if the key has none.

        While the clock runs, the TTL decreases with it: compare it with a range, or freeze the
        clock. Raises ``ContractError`` with the nearest name for a missing key.
        """
        left_ms = self._ttl_ms(key)
        if left_ms == -2:
            with self._engine.lock:
                keyspace = self._engine.current()
                names = [str(word(name)) for name in keyspace]
            nearest = did_you_mean(word(encode(key)), names[:_COMPARED])
            raise ContractError(
                f"the key {key!r} does not exist{nearest or '.'} "
                f"Existing keys: {listed(names) or 'none'}"
            )
        return None if left_ms == -1 else left_ms / 1000

    def _ttl_ms(self, key: str | bytes) -> int:
        """Return the reply of PTTL: milliseconds, -1 without a TTL, or -2 for a missing key."""
        with self._engine.lock:
            return self._engine.current().ttl_ms(encode(key))

    @action
    def load(
        self, data: Mapping[Any, object] | Iterable[Sequence[Scalar]] | str | os.PathLike[str]
    ) -> None:
        """Load data: a mapping of keys to plain values, commands to run, or an ``.rdb`` file.

        An existing key is replaced, and other keys stay. If ``ContractError`` is raised, nothing
        changes, except that a real server keeps the keys it received from a file before the error.

        - A mapping: strings, bytes and numbers become strings, dicts become hashes, lists of scalars
          become lists, sets become sets, lists of ``(member, score)`` become sorted sets, lists of
          ``(id, fields)`` become streams, and dicts whose keys are integers become arrays. The result
          of ``contents()`` can be loaded again, except for JSON documents, which only ``JSON.SET``
          creates.
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
        that module to load them. Search and vector indexes are skipped with a ``UserWarning``. An
        existing file is overwritten. Raises ``ContractError`` if the file cannot be written, or if the
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

        return SearchIndexView(self._memory(), name)

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

        conditions: dict[str, object] = {} if index is None else {"index": index}
        conditions |= where
        engine = self._memory()
        return expect_search(engine, engine.searches, times, conditions)

    def assert_not_searched(
        self, index: Condition[str] = None, **where: Unpack[SearchFields]
    ) -> None:
        """Assert that no search matches."""
        __tracebackhide__ = True
        self.assert_searched(index, times=0, **where)

    def _memory(self, what: str = "search", advice: str = "leave out engine=") -> KVEngine:
        if not isinstance(self._engine, KVEngine):
            raise ContractError(
                f"{what} needs the in-memory engine, but this fake runs its commands on a real "
                f"server: {advice}"
            )
        self._recorder.catch_up()
        return self._engine

    # -- baseline and interruptions ------------------------------------------------------------------

    def _first_snapshot(self) -> Callable[[], Snapshot]:
        engine = self._engine
        if isinstance(engine, KVEngine):
            return partial(_first_snapshot, engine.clock, engine.ids, engine.settings)
        return super()._first_snapshot()

    @action
    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot's data, but not the journal, faults, credentials and the clock."""
        super().restore(snapshot)
        self._app.set_password(self._password)
        self._app.interruptions.start_over()

    @action
    def reset(self) -> None:
        """Restore the baseline, remove faults and interruptions, and reset the daily count.

        Transactions and subscriptions of ``execute()`` end, and so does CLIENT PAUSE. Logs (ACL
        LOG, SLOWLOG, LATENCY) and the statistics of INFO are reset.
        """
        self._end_session()
        super().reset()
        if isinstance(self._engine, KVEngine):
            self._engine.forget_past()
        self._app.command_limits.reset()

    def between(
        self,
        commands: Place = None,
        *,
        run: Callable[[], object] | Sequence[Scalar],
        **where: Unpack[CommandFields],
    ) -> Between:
        """Run another client's command between two commands of a client.

        The two commands are neighbours in a pipeline or separate calls; ``Between`` defines which
        commands belong to one client. ``commands`` selects the position: the number of commands
        before it, or the names of its two neighbours (``("GET", "SET")``). If it is omitted, every
        position is interrupted. ``run`` is a function to call at that position, or a command to
        execute. ``where`` limits the interruption to commands such as ``key="stock:*"``; other
        commands are ignored. Returns the interruption, a context manager that raises
        ``ContractError`` if nothing was interrupted; iterating over it covers one position per turn.
        Names of commands and ``where`` match as in ``assert_called()``.
        """
        __tracebackhide__ = True
        if callable(run):
            check_function(run, "or a command such as ['SET', 'k', 'v']")
            return Between(self._app.interruptions, commands, run, where)
        if not isinstance(run, list | tuple) or not run:
            raise ContractError(
                f"run={run!r} is not a function or a command: pass a function to call, or a command "
                "such as ['SET', 'k', 'v']"
            )
        for argument in run:
            encode(argument)
        # Record the caller's line now: another thread runs the command.
        place = code_place(sys._getframe(1))
        execute = partial(perform, self, KVServer.execute, place, tuple(run), {})
        return Between(self._app.interruptions, commands, execute, where)

    def _forget_expectations(self) -> None:
        self._app.interruptions.clear()

    def _unmet(self) -> list[str]:
        interruptions = self._app.interruptions
        return interruptions.unmet() if interruptions._planned else []


def _first_snapshot(clock: Timekeeper, ids: Ids, settings: KVConfig) -> Snapshot:
    """Return the data of a new server in memory."""
    return Snapshot(KVServer.fixture, KVEngine(clock, ids, settings).snapshot())
