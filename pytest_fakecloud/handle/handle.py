"""The base class of all fakes: address, credentials, baseline, journal, faults, assertions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar, Unpack

from ..core.calls import Call
from ..core.clock import Clock
from ..core.errors import ContractError, ends_the_test, shown
from ..core.field_types import FLAG, TEXT, URL, OneOf, check_function
from ..core.ids import new_token
from ..core.journal import Journal, Results, recorder_of, results_of
from ..core.matching import Field
from ..core.problems import Problem, new_problem
from ..core.recorder import Recorder
from ..core.settings import HandleConfig, read_some
from ..faults.fault import rule_of
from ..faults.plan import FaultPlan, table_of
from ..faults.table import FaultTable
from ..http.app import App
from .action import action
from .context import Context, note_token

if TYPE_CHECKING:
    from ..core.typed import CallFields
    from ..http.mount import Mount

C = TypeVar("C", bound=HandleConfig)
Client = TypeVar("Client")
HANDLE_FIELDS: Mapping[str, Field] = {
    **dict.fromkeys(("name", "fixture", "service", "token"), Field(TEXT)),
    "url": Field(URL),
    "closed": Field(FLAG),
}


class Snapshot(NamedTuple):
    """The data of a fake, or of all fakes of a cloud, at a point in time, for their ``restore()``."""

    fixture: str
    data: Any


class Handle:
    """One fake: its address, credentials, data, journal and faults.

    A context manager that closes the fake. Methods that a test calls on this object bypass faults
    and are not recorded as calls of clients.
    """

    service: ClassVar[str] = ""
    fixture: ClassVar[str] = ""

    _settings: ClassVar[type[HandleConfig]] = HandleConfig
    """The dataclass that declares the settings of this fake."""

    _engine: Any
    _exits: ExitStack
    _given_settings: Mapping[str, Any] | None = None
    """The settings that a cloud started the fake with, for reports that replay its journal."""
    _rewound = 0
    """The journal number at which data was last restored."""

    def __init__(
        self,
        context: Context,
        app: App,
        config: HandleConfig | None = None,
        *,
        faults: FaultPlan | None = None,
    ) -> None:
        config = config or HandleConfig()
        self._context = context
        self._exits = ExitStack()
        self.name = config.name or context.name_for(self.fixture, None)
        self.clock: Clock = context.public_clock
        self._time = context.clock
        self._app = app
        self.token = config.token or self._new_token()
        note_token(self.token)
        self._recorder = Recorder(
            self._time.now_us, self.service, self.name, recorder_of(context.journal)
        )
        self.journal = Journal(self._recorder)
        # Compare with None: an empty plan is falsy, but rules may be added to it later.
        if faults is None:
            faults = FaultPlan(FaultTable(context.ids.stream(self.name, "faults"), self._time))
        self.faults = faults
        self._fault_table = table_of(self.faults)
        app.attach(
            clock=self._time,
            recorder=self._recorder,
            faults=self._fault_table,
            problems=context.problems,
            name=self.name,
        )
        self._mount = self._mounted(config)
        # Called in reverse order, after the callbacks of ``on_close()`` and even if one of them raises.
        self._exits.callback(self._forget)
        self._exits.callback(self._mount.close)
        self._baseline = self._first_baseline()
        self.closed = False
        self._leave = context.entered.add(self)

    def _mounted(self, config: HandleConfig) -> Mount:
        mount = self._context.mount(
            self._app, host=config.host or "127.0.0.1", port=config.port or 0
        )
        mount.on_close.append(self._fault_table.close)
        mount.on_error.append(self._server_failed)
        self._fault_table.gate = mount.gate
        return mount

    @classmethod
    def _configure(cls, context: Context, declared: type[C], given: Mapping[str, Any]) -> C:
        """Parse the constructor's keywords and choose a name if none is given."""
        values = read_some(declared, given, cls.fixture)
        values["name"] = context.name_for(cls.fixture, values.get("name"))
        return declared(**values)

    # -- identity --------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The base address, without a trailing slash."""
        return str(self._mount.url)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that authenticate a request."""
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def env(self) -> dict[str, str]:
        """The environment variables that official clients read, with this fake's values."""
        return self._env_variables()

    def _env_variables(self) -> dict[str, str]:
        """Return the environment variables of the service's clients. Subclasses override this."""
        return {}

    @action
    def rotate_token(self) -> str:
        """Replace the credentials; return the new token. Requests with the old ones are rejected."""
        self._context.closed_fakes.add_secrets(self)
        self.token = self._new_token()
        return self.token

    def _tokens(self) -> tuple[str, ...]:
        """Return the credentials that ``rotate_token()`` replaces."""
        return (self.token,)

    def _set_tokens(self, *tokens: str) -> None:
        """Restore credentials that ``_tokens()`` returned."""
        (self.token,) = tokens

    def _mounts(self) -> list[Mount]:
        """Return the addresses that this fake serves."""
        return [self._mount]

    def _take_over(self, former: Any) -> None:
        """Use the credentials of the fake that served this address before and is closed now."""
        self._set_tokens(*former._tokens())

    def _new_token(self) -> str:
        """Return a new random token, in the form of the service's own tokens."""
        return new_token()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.url}{' closed' if self.closed else ''}>"

    # -- clients ---------------------------------------------------------------------------------

    def _official(self, make: Callable[..., Client], options: Mapping[str, Any]) -> Client:
        """Create an official client, which is closed with the fake."""
        try:
            client = make(**options)
        except ModuleNotFoundError as error:
            raise ContractError(
                f"the official client is not installed: {error.name} is missing. "
                f"Install it with: pip install {(error.name or '').replace('_', '-')}"
            ) from error
        self._exits.callback(_close_client, client)
        return client

    def intercept(self, origin: str) -> AbstractContextManager[object]:
        """Also answer requests for a hard-coded origin (``"https://kv.example.com"``).

        Works for requests that this process sends through ``requests``, ``httpx`` or ``urllib3``,
        as official clients do. Other clients (aiohttp, ``http.client``, a Redis client) need the
        fake's own address. Active until the returned context manager exits or the fake closes.
        """
        if self._context.interceptor is None:
            raise ContractError("intercept() needs a fake that was started by a Cloud")
        if self.closed:
            # Check first: a fake that is already closed would never remove the interception.
            raise ContractError(f"{self.name} is closed and cannot answer for {shown(origin)}")
        interception = self._context.interceptor(self, origin)
        self._exits.push(interception)
        return interception

    # -- data ------------------------------------------------------------------------------------

    def load(self, data: Any) -> None:
        """Add data. Each subclass accepts its own formats."""
        raise NotImplementedError

    def snapshot(self) -> Snapshot:
        """Return the current data, for a later ``restore()``."""
        return Snapshot(self.fixture, self._engine.snapshot())

    @action
    def restore(self, snapshot: Snapshot) -> None:
        """Restore the data of a snapshot. Journal, faults, credentials and clock do not change."""
        if not isinstance(snapshot, Snapshot) or snapshot.fixture != self.fixture:
            raise ContractError(
                f"{shown(snapshot)} is not a snapshot of a {self.fixture}: "
                "pass a return value of its snapshot()"
            )
        self._engine.restore(snapshot.data)
        self._rewound = self._recorder.reserve()

    def _first_baseline(self) -> Snapshot | None:
        """Return a new fake's baseline, or None if ``_new_snapshot()`` creates it on demand."""
        return self.snapshot()

    def _new_snapshot(self) -> Snapshot:
        """Return the data of an unused fake with the same settings."""
        raise NotImplementedError

    def set_baseline(self) -> None:
        """Make the current data the baseline that ``reset()`` returns to."""
        self._baseline = self.snapshot()

    @action
    def reset(self) -> None:
        """Return to the baseline: restore its data, remove all faults, clear the journal.

        Address, credentials and clock do not change.
        """
        self.restore(self._baseline or self._new_snapshot())
        self.faults.clear()
        self._forget_plans()
        self.journal.clear()

    def _forget_plans(self) -> None:
        """Stop requiring what was planned before a reset (see ``_unmet()``)."""

    def on_close(self, callback: Callable[[], object]) -> None:
        """Call a function when the fake closes."""
        check_function(callback, "without arguments")
        self._exits.callback(callback)

    def _left_behind(self) -> list[Problem]:
        """Return the strict-mode violations that are known only at the end of a test."""
        found = [
            ("unused_fault", f"the fault {shown(fault)} {rule_of(fault).shortfall}; remove it")
            for fault in self.faults.unused()
        ]
        found += [("unmet", text) for text in self._unmet()]
        return [
            new_problem(kind, f"{self.name}: {text}", {"handle": self.name}) for kind, text in found
        ]

    def _undelivered(self) -> str | None:
        """Describe published messages that were never delivered, if the fake delivers any."""
        return None

    def _unmet(self) -> list[str]:
        """Describe expectations and other plans of the test that were not met. Subclasses override
        this.
        """
        return []

    def _end_connections(self) -> None:
        """Abort requests in progress and close every open connection. The address does not change."""
        self._mount.reset_connections()

    def close(self) -> None:
        """Stop the fake: refuse connections, close open ones, wake waiting calls.

        Can be called repeatedly.
        """
        if not self.closed:
            self.closed = True
            self._exits.close()

    def _forget(self) -> None:
        self._leave()
        closed_fakes = self._context.closed_fakes
        if self not in closed_fakes.last:
            closed_fakes.add(self)
            self._context.problems += self._left_behind()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _server_failed(self, error: BaseException) -> None:
        ending = ends_the_test(error)
        if ending is not None:
            self._context.problems.report_raised(ending, self.name, handle=self.name)
        else:
            what = f"{self.name}: the server of the fake failed"
            self._context.problems.report_bug(error, what, handle=self.name)

    # -- assertions ------------------------------------------------------------------------------

    def assert_called(
        self,
        what: str | re.Pattern[str] | None = None,
        *,
        times: int | None = None,
        **where: Unpack[CallFields],
    ) -> Results[Call]:
        """Like ``Journal.assert_called()``, for the calls of this fake's clients."""
        __tracebackhide__ = True
        return self.journal.assert_called(what, times=times, **where)

    def assert_not_called(
        self, what: str | re.Pattern[str] | None = None, **where: Unpack[CallFields]
    ) -> None:
        """Fail if any client's call matches."""
        __tracebackhide__ = True
        self.journal.assert_not_called(what, **where)


class Aio(Generic[Client]):
    """The asynchronous forms of a fake's methods, which have the same names.

    A fake with methods that wait has a subclass with their awaitable versions. ``make`` creates the
    asynchronous client.
    """

    def __init__(self, handle: Handle, make: Callable[..., Client]) -> None:
        self._handle = handle
        self._make = make

    def client(self, **options: Any) -> Client:
        """Return the official asynchronous client for the fake; ``options`` are passed to it.

        The test closes it, because that must be awaited. Raises ``ContractError`` if the package is
        missing.
        """
        __tracebackhide__ = True
        return self._handle._official(self._make, options)


def found_handles(handles: Iterable[Handle]) -> Results[Handle]:
    """Return a list of fakes whose ``where()`` rejects unknown names and services."""
    found = list(handles)
    names = {
        name: Field(
            OneOf(f"{name} of a fake here", sorted({getattr(each, name) for each in found}))
        )
        for name in ("name", "fixture", "service")
        if found
    }
    return results_of(found, {**HANDLE_FIELDS, **names}, "handle")


def _close_client(client: Any) -> None:
    attributes = getattr(client, "__dict__", {})  # a class with __slots__ has none
    for owner in (client, *attributes.values()):
        connections = getattr(owner, "_client", None)
        close = getattr(connections, "close", None)
        # Skip asynchronous clients: they have aclose() instead, which needs their event loop.
        if close is not None and not hasattr(connections, "aclose"):
            close()
