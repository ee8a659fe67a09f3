"""The base class of all fakes, and the context that the fakes of one cloud share."""

from __future__ import annotations

import re
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    Unpack,
)

from ..core.calls import Call
from ..core.clock import Clock, Mode, Timekeeper
from ..core.errors import ContractError, ends_the_test, shown
from ..core.exits import Exits, Once, call_all
from ..core.field_types import FLAG, TEXT, URL, check_function
from ..core.ids import Ids, new_token
from ..core.journal import Journal, Results
from ..core.matching import Field
from ..core.recorder import Recorder
from ..core.registry import Registry
from ..core.settings import DeliveryMode, FakeConfig, read
from ..core.timers import Instant
from ..core.violations import Violation, Violations, new_violation
from ..faults.plan import FaultPlan, injector_of
from ..http.app import App, Instruments
from ..http.hub import default_hub
from .actions import action

if TYPE_CHECKING:
    import ssl

    from .._typing.core import CallFields
    from ..http.hub import Hub, Mount


_recent_tokens: deque[str] = deque(maxlen=1000)
"""The first tokens of the latest fakes of this process."""


class Context:
    """The objects that the fakes of one cloud share.

    ``timekeeper`` and ``recorder`` (for tests ``clock`` and ``journal``) and ``ids`` are the
    cloud's, ``violations`` collects strict-mode violations, ``delivery`` determines how the queue's
    messages are delivered, ``tls`` and ``ca_file`` are for HTTPS, and ``fakes`` are the open fakes.
    """

    def __init__(self, timekeeper: Timekeeper, ids: Ids, delivery: DeliveryMode) -> None:
        self.timekeeper = timekeeper
        self.clock = Clock(timekeeper)
        self.ids = ids
        self.now_us = timekeeper.now_us
        self.recorder = Recorder(self.now_us)
        self.journal = Journal(self.recorder)
        self.violations = Violations()
        self.delivery = delivery
        self.tls: ssl.SSLContext | None = None
        self.ca_file: str | None = None
        self.hub: Hub | None = None
        """The hub of the first mount."""
        self.fakes: Registry[Fake] = Registry()
        self.closed_fakes: dict[str, ClosedFake] = {}
        """What remains of each closed fake, by name."""
        self.former_secrets: Set[str] = frozenset()
        """Credentials of closed fakes, and replaced ones, which reports must hide."""
        self._numbers: dict[str, int] = {}

    @classmethod
    def alone(
        cls, *, now: Instant | None = None, clock: Mode | None = None, seed: int | str = 0
    ) -> Context:
        """Return a context without a cloud, for a single fake."""
        return cls(Timekeeper(now, clock), Ids(seed), "driven")

    def name_for(self, fixture: str, requested: str | None) -> str:
        """Return the fake's name: the given one, the fixture's, or the fixture's with a number.

        Raises ``ContractError`` if an open fake has the given name.
        """
        taken = {*map(attrgetter("name"), self.fakes.items)}
        if requested is not None:
            if requested in taken:
                raise ContractError(
                    f"a fake named {shown(requested)} is open already: pass another name"
                )
            return requested
        name = ""
        while not name or name in taken:
            number = self._numbers[fixture] = self._numbers.get(fixture, 0) + 1
            name = fixture if number == 1 else f"{fixture}_{number}"
        return name

    def mount(self, app: Any, **options: Any) -> Mount:
        """Like ``Hub.mount()``, with the TLS of the cloud."""
        if self.hub is None:
            self.hub = default_hub()
        if self.tls is not None:
            options.setdefault("tls", self.tls)
        return self.hub.mount(app, **options)


def was_given(token: str) -> bool:
    """Return whether a recent fake of this process, maybe of another test, started with a token."""
    return token in _recent_tokens


def secrets_of(fake: Fake) -> set[str]:
    """Return the credentials that a fake currently accepts, which no report may show."""
    derived = [getattr(fake, name) for name in fake._derived_credential_names]
    secrets: set[str] = set()
    for value in (*fake._credentials().values(), *derived):
        secrets.update((value,) if isinstance(value, str) else value)
    return secrets - {""}


Client = TypeVar("Client")
FAKE_FIELDS: Mapping[str, Field] = {
    **dict.fromkeys(("name", "fixture", "service", "token"), Field(TEXT)),
    "url": Field(URL),
    "closed": Field(FLAG),
}


class ClosedFake(NamedTuple):
    """What reports and HTTP archives show of a closed fake."""

    name: str
    fixture: str
    service: str
    url: str


class Snapshot(NamedTuple):
    """The data of a fake, or of all fakes of a cloud, at a point in time, for their ``restore()``."""

    fixture: str
    data: Any


@dataclass(eq=False)
class Baseline:
    """The data that ``reset()`` of a fake returns to."""

    make: Callable[[], Snapshot]
    """Returns the data when it is first needed. It does not refer to the fake."""
    number: int
    """The journal number at which a test has set it; 0 if none has."""

    @cached_property
    def snapshot(self) -> Snapshot:
        return self.make()


Engine_co = TypeVar("Engine_co", covariant=True)
App_co = TypeVar("App_co", bound=App, covariant=True)


class Core(NamedTuple, Generic[Engine_co, App_co]):
    """The parts of a fake, for the other modules of this package: ``dir()`` of a fake shows only what a
    test may use. See ``core_of()``.
    """

    context: Context
    timekeeper: Timekeeper
    recorder: Recorder
    engine: Engine_co
    """None if the fake has none."""
    app: App_co
    mounts: Sequence[Mount]
    """All mounts of the fake, that at ``url`` first."""
    settings: Mapping[str, Any]
    """The keyword arguments that the fake was started with."""
    baseline: Baseline
    rewound: int
    """The journal number at which data was last restored."""

    @property
    def mount(self) -> Mount:
        """The mount at ``url``."""
        return self.mounts[0]


class _Parts(Protocol[Engine_co, App_co]):
    """A fake of any service, for the types of its engine and its app."""

    _context: Context
    _timekeeper: Timekeeper
    _recorder: Recorder
    _mounts: list[Mount]
    _given_settings: Mapping[str, Any]
    _baseline: Baseline
    _rewound: int

    @property
    def _engine(self) -> Engine_co: ...

    @property
    def _app(self) -> App_co: ...


def core_of(fake: _Parts[Engine_co, App_co]) -> Core[Engine_co, App_co]:
    """Return the current parts of a fake that has started."""
    return Core(
        fake._context,
        fake._timekeeper,
        fake._recorder,
        fake._engine,
        fake._app,
        fake._mounts,
        fake._given_settings,
        fake._baseline,
        fake._rewound,
    )


class Takeover(NamedTuple):
    """What a fake has from a server that was at its addresses before, or from an earlier fake."""

    listeners: Mapping[tuple[str, int], socket.socket] = {}
    """Sockets that listen at its addresses."""
    credentials: Mapping[str, Any] = {}


class Fake:
    """One fake: its address, credentials, data, journal and faults.

    A context manager that closes the fake. Methods that a test calls on this object bypass faults
    and are not recorded as calls of clients.
    """

    service: ClassVar[str] = ""
    fixture: ClassVar[str] = ""

    _config_class: ClassVar[type[FakeConfig]] = FakeConfig
    """The class that declares the settings of this fake."""
    _token_names: ClassVar[tuple[str, ...]] = ("token",)
    """The properties with the credentials that ``rotate_token()`` replaces."""
    _other_credential_names: ClassVar[tuple[str, ...]] = ()
    """The properties with other credentials that a test can replace: strings, or tuples of them."""
    _derived_credential_names: ClassVar[tuple[str, ...]] = ()
    """The properties with credentials that are computed from these."""

    _config: FakeConfig
    """The settings of this fake, with their defaults."""
    _app: App
    """The routes of this fake, from the moment at which they are connected."""
    _engine: Any = None
    name = ""
    """The name in reports and in the control API."""
    _closed = False
    _given_settings: Mapping[str, Any]
    """The keyword arguments that the fake was started with, for reports that replay its journal."""
    faults: FaultPlan
    """The injected faults."""
    _rewound = 0
    """The journal number at which data was last restored."""
    _baseline: Baseline
    _mount: Mount
    """The mount at ``url``."""

    def __init__(self, context: Context, takeover: Takeover | None = None, **settings: Any) -> None:
        self._context = context
        self._takeover = takeover or Takeover()
        self._given_settings = settings
        self._config = read(self._config_class, settings, self.fixture)
        self.name = context.name_for(self.fixture, self._config.name)
        self.clock: Clock = context.clock
        self._timekeeper = context.timekeeper
        self._recorder = Recorder(context.now_us, self.service, self.name, context.recorder)
        self.journal = Journal(self._recorder)
        self._instruments = Instruments(self._timekeeper, self._recorder, context.violations)
        self.faults = self._new_faults()
        self._injector = injector_of(self.faults)
        self._mounts: list[Mount] = []
        """All mounts of the fake, that at ``url`` first."""
        self._interceptions: dict[AbstractContextManager[object], Callable[[], None]] = {}
        """The interceptions, each with the function that ends it before the fake closes."""
        self._exits = Exits()
        """What ends with the fake, in the order that ``close()`` has."""
        exits = self._exits
        try:
            # What is registered last ends first.
            # Handlers return once the ends below have woken them.
            exits.register(self._forget, self._await_handlers)
            app = self._make_app()  # registers the ends of its parts, in which handlers wait
            # The journal must not record how requests end in a closing part. Handlers also wait in
            # delays.
            exits.register(app.leave_fake, self._injector.close, self._stop_serving)
            self._open(app)
            context.fakes.add(self)
        except BaseException:
            self.close()
            raise

    def _make_app(self) -> App:
        """Create the parts of the fake, such as its ``_engine``, and return its app, still without a
        mount. A part that must be closed is registered in ``_exits``. Subclasses override this.
        """
        raise NotImplementedError

    def _open(self, app: App) -> None:
        """Connect the app, and serve it: clients can connect from the last line on, so what requests
        need exists before. Subclasses can then open more ports.
        """
        config = self._config
        app.token = self._first_token()
        self._app = app
        if self._takeover.credentials:
            self._set_credentials(self._takeover.credentials)
        self._injector.attach(app, partial(_gate, self._mounts))
        self._baseline = Baseline(self._first_snapshot(), 0)
        self._serve(app, config.host or "127.0.0.1", config.port, prepare=self._add_mount)

    def _serve(self, app: App, host: str, port: int | None, **options: Any) -> Mount:
        """Serve the app at an address, like ``Hub.mount()``."""
        listener = self._takeover.listeners.get((host, port or 0))
        return self._context.mount(app, host=host, port=port or 0, listener=listener, **options)

    def _add_mount(self, mount: Mount) -> None:
        """Add a mount that does not accept connections yet, so that the fake also stops it if what
        follows is interrupted. Subclasses also configure it.
        """
        mount.on_error.append(partial(_report_failure, self._context.violations, self.name))
        if not self._mounts:
            self._mount = mount
        self._mounts.append(mount)

    def _new_faults(self) -> FaultPlan:
        """Return the plan for the faults of this service, still without faults."""
        return FaultPlan(self._context.ids.stream(self.name, "faults"), self._timekeeper)

    # -- identity --------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the fake is closed or closing, as the functions of ``on_close()`` see it."""
        return self._closed

    @property
    def token(self) -> str:
        """The token that authenticates a request."""
        return self._app.token

    @token.setter
    def token(self, token: str) -> None:
        self._app.token = token

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
        return {}

    @action
    def rotate_token(self) -> str:
        """Replace the credentials; return the new token. Requests with the old ones are rejected."""
        self._context.former_secrets |= secrets_of(self)
        self._set_credentials({name: self._new_token() for name in self._token_names})
        return self.token

    def _credentials(self) -> dict[str, Any]:
        """Return all credentials that a test can replace, by the names of their properties."""
        names = (*self._token_names, *self._other_credential_names)
        return {name: getattr(self, name) for name in names}

    def _set_credentials(self, credentials: Mapping[str, Any]) -> None:
        """Set some of these credentials."""
        for name, value in credentials.items():
            setattr(self, name, value)

    def _ports(self) -> dict[str, int]:
        """Return the settings with which another fake has the same ports."""
        return {"port": self._mount.port}

    def _first_token(self) -> str:
        """Return the token with which the fake starts."""
        token = self._config.token or self._new_token()
        _recent_tokens.append(token)
        return token

    def _new_token(self) -> str:
        """Return a new random token, in the form of the service's own tokens."""
        return new_token()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.url}{' closed' if self.closed else ''}>"

    # -- clients ---------------------------------------------------------------------------------

    def _official(
        self, make: Callable[..., Client], options: Mapping[str, Any], close: str | None
    ) -> Client:
        """Create an official client. ``close`` is the path of its method (``"http._client.close"``) that
        is called when the fake closes; None for an asynchronous client, which the test closes.
        """
        if self.closed:
            raise ContractError(
                f"{self.name} is closed and cannot answer a client: create the client before it "
                f"closes, or start another {self.fixture}"
            )
        try:
            client = make(**options)
        except ModuleNotFoundError as error:
            raise ContractError(
                f"the official client is not installed: {error.name} is missing. "
                f"Install it with: pip install {(error.name or '').replace('_', '-')}"
            ) from error
        if close is not None:
            self._exits.callback(_close_client, client, close)
        return client

    def intercept(self, origin: str) -> AbstractContextManager[object]:
        """Also answer requests for a hard-coded origin (``"https://kv.example.com"``).

        Works for requests that this process sends through ``requests``, ``httpx``, ``httpx2`` or
        ``urllib3``, as official clients do. Other clients (aiohttp, ``http.client``, a Redis client)
        need the fake's own address. Active until the returned context manager exits or the fake
        closes; if a test begins it, at most until the test ends.
        """
        if self.closed:
            # Check first: a fake that is already closed would never remove the interception.
            raise ContractError(f"{self.name} is closed and cannot answer for {shown(origin)}")
        from ..process.inprocess import Interception

        interception = Interception(self.url, origin, self._context.ca_file)
        self._interceptions[interception] = self._exits.callback(interception.close)
        interception.open()
        return interception

    def _end_interception(self, interception: AbstractContextManager[object]) -> None:
        self._interceptions[interception]()
        del self._interceptions[interception]

    # -- data ------------------------------------------------------------------------------------

    def load(self, data: Any) -> None:
        """Add data. Each subclass accepts its own formats."""
        raise NotImplementedError

    def snapshot(self) -> Snapshot:
        """Return the current data, for a later ``restore()``."""
        self._recorder.catch_up()
        return Snapshot(self.fixture, self._engine.snapshot())

    @action
    def restore(self, snapshot: Snapshot) -> None:
        """Restore the data of a snapshot. Journal, faults, credentials and clock do not change."""
        if not isinstance(snapshot, Snapshot) or snapshot.fixture != self.fixture:
            raise ContractError(
                f"{shown(snapshot)} is not a snapshot of a {self.fixture}: "
                "pass a return value of its snapshot()"
            )
        self._recorder.catch_up()
        self._engine.restore(snapshot.data)
        self._rewound = self._recorder.reserve()

    def _undo(self, snapshot: Snapshot) -> None:
        """Restore a snapshot that was made before a change that failed, as if nothing had changed."""
        self.restore(snapshot)

    def set_baseline(self) -> None:
        """Make the current data the baseline that ``reset()`` returns to."""
        snapshot = self.snapshot()
        self._baseline = Baseline(lambda: snapshot, self._recorder.reserve())

    def _add_missing(self) -> list[str]:
        """Create what the settings name and the data lacks, because it replaced the first data. Return
        the settings that the data contradicts, each in words.
        """
        return []

    def _first_snapshot(self) -> Callable[[], Snapshot]:
        """Return a function that returns the data which the fake has when it opens."""
        snapshot = self.snapshot()
        return lambda: snapshot

    def _restore_baseline(self, baseline: Baseline) -> None:
        """Restore the baseline that ``set_baseline()`` has replaced."""
        self._baseline = baseline

    @action
    def reset(self) -> None:
        """Return to the baseline: restore its data, remove all faults, clear the journal.

        Address, credentials and clock do not change.
        """
        self.restore(self._baseline.snapshot)
        self.faults.clear()
        self._forget_expectations()
        self.journal.clear()

    def _forget_expectations(self) -> None:
        """Stop requiring what was expected before a reset (see ``_unmet()``)."""

    def on_close(self, callback: Callable[[], object]) -> None:
        """Call a function when the fake closes. Raises ``ContractError`` if it is closed or closing."""
        check_function(callback, "without arguments")
        if self.closed:
            raise ContractError(
                f"{self.name} is closed and will not call {shown(callback)}: call on_close() before it "
                "closes"
            )
        # It may not be repeatable, and it may close the fake.
        self._exits.callback(Once(callback))

    def _left_behind(self) -> list[Violation]:
        """Return the strict-mode violations that are known only at the end of a test."""
        name, violations = self.name, []
        for fault in self.faults.unused() if self._injector.all else ():
            text = f"{name}: the fault {shown(fault)} {fault._shortfall}; remove it"
            violations.append(new_violation("unused_fault", text, {"fake": name}))
        for text in self._unmet():
            violations.append(new_violation("unmet", f"{name}: {text}", {"fake": name}))
        return violations

    def _undelivered(self) -> str | None:
        """Describe published messages that were never delivered, if the fake delivers any."""
        return None

    def _ran_in_another_thread(self) -> bool:
        """Return whether the fake has called the application in a thread of its own."""
        return False

    def _forget_looks(self) -> None:
        """Forget that a test has looked at the fake, because the next test begins."""
        self._recorder.was_read = False

    def _unmet(self) -> list[str]:
        """Describe expectations of the test that were not met. Subclasses override this."""
        return []

    def _renew_connections(self) -> None:
        """Abort requests in progress, and end what clients have begun on idle connections."""
        for mount in self._mounts:
            mount.renew_connections()

    def close(self) -> None:
        """Stop the fake: refuse connections, close open ones, wake waiting calls.

        Can be called repeatedly. These end in this order:

        - what the fake has got while it was open: functions of ``on_close()``, clients, interceptions;
        - its addresses and connections;
        - the delays of its faults;
        - the recording of its requests in the journal;
        - its engine, which wakes the calls that wait there;
        - the handlers of its requests, which have one second to return;
        - its place in the cloud. Its violations, address and credentials stay known to the reports.
        """
        self._closed = True
        self._exits.close()

    def _stop_serving(self) -> None:
        call_all(map(attrgetter("stop"), self._mounts))

    def _await_handlers(self) -> None:
        call_all([mount.await_handlers for mount in self._mounts if mount.live])

    def _forget(self) -> None:
        context = self._context
        context.fakes.remove(self)
        if self._mounts:
            closed = ClosedFake(self.name, self.fixture, self.service, self._mount.url)
            context.closed_fakes[self.name] = closed
            context.former_secrets |= secrets_of(self)
            # Last, because a repetition after an interruption must not add them twice.
            context.violations += self._left_behind()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

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

    def __init__(self, fake: Fake, make: Callable[..., Client]) -> None:
        self._fake = fake
        self._make = make

    def client(self, **options: Any) -> Client:
        """Return the official asynchronous client for the fake; ``options`` are passed to it.

        The test closes it, because that must be awaited in its event loop; the guide "Async" shows how.
        Raises ``ContractError`` if the package is missing, and if the fake is closed.
        """
        __tracebackhide__ = True
        return self._fake._official(self._make, options, close=None)


def _gate(mounts: Sequence[Mount], shut: bool) -> None:
    """Make the mounts of a fake refuse connections, or accept them again."""
    for mount in mounts:
        if shut:
            mount.refuse()
        else:
            mount.listen_again()


def _report_failure(violations: Violations, name: str, error: BaseException) -> None:
    ending = ends_the_test(error)
    if ending is not None:
        violations.report_raised(ending, name, fake=name)
    else:
        violations.report_bug(error, f"{name}: the server of the fake failed", fake=name)


def _close_client(client: Any, path: str) -> None:
    try:
        close = attrgetter(path)(client)
    except AttributeError:
        # Another version of the client, whose connections end when it is garbage-collected.
        return
    close()
