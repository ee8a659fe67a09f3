"""``KVServer``: the fake of a key-value server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from ..core.errors import ContractError, importing
from ..core.ids import new_token
from ..core.recorder import code_place
from ..handle import Aio, Context, Snapshot, action, perform
from .contents import KVContents
from .engine.engine import Engine
from .model import AnyEngine
from .python_values import Scalar, encode
from .races import Between, Place
from .rest.routes import KVApp, read_only_token
from .settings import KVConfig, KVSettings

if TYPE_CHECKING:
    from upstash_redis import Redis
    from upstash_redis.asyncio import Redis as AsyncRedis

    from ..http.hub import Mount
    from .command_fields import CommandFields
    from .redis import RedisEngine
    from .resp.port import DatabasePort
    from .typed import KVHandle as Handle
else:
    from ..handle import Handle


class KVServer(KVContents, Handle):
    """A fake key-value server with a REST interface and, on demand, a Redis protocol port.

    ``settings`` are the keyword arguments in ``KVSettings``.
    """

    service: ClassVar[str] = "kv"
    fixture: ClassVar[str] = "kv_server"

    _settings = KVConfig
    _app: KVApp

    def __init__(self, context: Context, **settings: Unpack[KVSettings]) -> None:
        config = self._configure(context, KVConfig, settings)
        self._dialect = config.dialect
        clock = context.clock
        app = KVApp(partial(Engine, clock, context.ids, config, clock.now_us()), clock, config)
        real = None if config.engine is None else _real_engine(context, config.engine, config)
        app.created_engine = real
        self._port: DatabasePort | None = None
        super().__init__(context, app, config)
        if real is not None:
            self._mount.on_close.append(real.close)
        if config.database_port is not None:
            try:
                self._port = self._open_port(self._engine, config.database_port)
            except BaseException:
                self.close()
                raise

    @property
    def _password(self) -> str:
        return self._app.password

    @property
    def _engine(self) -> AnyEngine:
        return self._app.engine

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
        self._set_password(new_token(32))
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
        port = self._port_unless_closed(engine)
        if port is None:
            raise ContractError(
                f"{self.name} is closed and never opened its database port: read database_url "
                "before the fake is closed"
            )
        return self._address_of(port)

    def _port_unless_closed(self, engine: Engine) -> DatabasePort | None:
        """Return the database port, opening it on first use; None if the fake is closed."""
        with self._app.creating:
            if self._port is None and not self.closed:
                self._port = self._open_port(engine)
                if self.closed:
                    # A thread that has just closed the fake may not have seen this port.
                    self._port.mount.close()
            return self._port

    def _address_of(self, port: DatabasePort) -> str:
        scheme = "redis" if port.mount.tls is None else "rediss"
        place = port.mount.url.partition("://")[2]
        # Imported here, because few tests use the Redis protocol.
        from urllib.parse import quote

        return f"{scheme}://default:{quote(self._password, safe='')}@{place}"

    def _open_port(self, engine: AnyEngine, port: int = 0) -> DatabasePort:
        from .resp.port import DatabasePort

        assert isinstance(engine, Engine)
        open_mount = partial(self._context.mount, self._app, host=self._mount.host, port=port)
        opened = DatabasePort(engine, self._app, open_mount)
        mount = opened.mount
        mount.on_error.append(self._reports_failure())
        self.on_close(mount.close)
        gate_of_rest = self._mount.gate

        def gate(shut: bool) -> None:
            gate_of_rest(shut)
            mount.gate(shut)

        self._fault_table.gate = gate
        if self.faults.is_down:
            mount.refuse()
        return opened

    def _end_connections(self) -> None:
        """End requests in progress and close every open connection; the addresses stay the same."""
        super()._end_connections()
        if self._port is not None:
            self._port.mount.reset_connections()

    def _mounts(self) -> list[Mount]:
        return [self._mount] if self._port is None else [self._mount, self._port.mount]

    def _take_over(self, former: KVServer) -> None:
        """Also use the database port and its password, unless the commands run on a real server."""
        super()._take_over(former)
        self._set_password(former._password)
        engine = self._engine
        if former._port is not None and isinstance(engine, Engine):
            self._port = self._open_port(engine, former._port.mount.port)

    def _set_password(self, password: str) -> None:
        with self._app.creating:
            self._app.password = password
            self._app.apply_password(self._app.created_engine)

    @property
    def env(self) -> dict[str, str]:
        """The environment variables of the official clients, plus ``KV_URL`` and ``REDIS_URL``.

        The last two contain ``database_url``, for any Redis client, so reading this property opens
        that port. They are missing if the commands run on a real server.
        """
        variables = self._env_variables()
        engine = self._engine
        port = self._port_unless_closed(engine) if isinstance(engine, Engine) else None
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

        The client is closed with the fake. Raises ``ContractError`` if the package is missing.
        """
        __tracebackhide__ = True
        return self._official(self._make_client, options)

    @property
    def aio(self) -> Aio[AsyncRedis]:
        """The asynchronous client: ``aio.client()`` creates an ``upstash_redis.asyncio.Redis``."""
        return Aio(self, self._make_async_client)

    def _make_client(self, **options: Any) -> Redis:
        from upstash_redis import Redis

        return Redis(**{**self._client_defaults(), **options})

    def _make_async_client(self, **options: Any) -> AsyncRedis:
        from upstash_redis.asyncio import Redis

        return Redis(**{**self._client_defaults(), **options})

    def _client_defaults(self) -> dict[str, Any]:
        return {"url": self.url, "token": self.token, "allow_telemetry": False}

    # -- data --------------------------------------------------------------------------------------

    def _first_baseline(self) -> Snapshot | None:
        """Return None if there is no engine yet: an empty baseline needs no copy."""
        return None if self._app.created_engine is None else super()._first_baseline()

    def _new_snapshot(self) -> Snapshot:
        """Return a snapshot of a server that was never used."""
        return Snapshot(self.fixture, self._app.new_engine().snapshot())

    @action
    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot's data, but not the journal, faults, credentials and the clock."""
        super().restore(snapshot)
        self._set_password(self._password)
        self._app.interruptions.start_over()

    @action
    def reset(self) -> None:
        """Restore the baseline, remove faults and interruptions, and reset the daily count.

        Transactions and subscriptions of ``execute()`` end, and so does CLIENT PAUSE. Logs (ACL
        LOG, SLOWLOG, LATENCY) and the statistics of INFO are reset.
        """
        self._end_session()
        super().reset()
        if isinstance(self._app.created_engine, Engine):
            self._app.created_engine.forget_past()
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
            return Between(self._app.interruptions, commands, run, where)
        if not isinstance(run, list | tuple) or not run:
            raise ContractError(
                f"run={run!r} is not a function or a command: pass a function to call, or a command "
                "such as ['SET', 'k', 'v']"
            )
        for word in run:
            encode(word)
        # Record the caller's line now: another thread runs the command.
        place = code_place(sys._getframe(1))
        execute = partial(perform, self, KVServer.execute, place, tuple(run), {})
        return Between(self._app.interruptions, commands, execute, where)

    def _forget_plans(self) -> None:
        self._app.interruptions.clear()

    def _unmet(self) -> list[str]:
        return [between._why_unused() for between in self._app.interruptions.unused()]


def _real_engine(context: Context, url: str, config: KVConfig) -> RedisEngine:
    with importing(f"engine={url.partition('://')[0]!r}", extra="redis"):
        from .redis import RedisEngine
    return RedisEngine(context.clock, context.ids, url, config)
