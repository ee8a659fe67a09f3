"""What all handles have in common: address, credentials, baseline, journal, faults, assertions."""

from __future__ import annotations

import functools
import itertools
import re
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeVar, Unpack, cast

from .core.auth import new_token
from .core.calls import Call, CallFields
from .core.clock import Clock, timekeeper_of
from .core.errors import ContractError, check_function, shown
from .core.found import Found
from .core.ids import Ids
from .core.journal import Journal, Recorder, is_own, recorder_of
from .core.problems import Problem, Problems, ends_the_test
from .core.settings import HandleConfig, read_some
from .core.timekeeper import Mode, Timekeeper
from .core.timeparse import Instant
from .core.wording import brief
from .faults.plan import FaultPlan, table_of
from .faults.table import FaultTable
from .http.app import App
from .http.hub import default_hub

if TYPE_CHECKING:
    from .any_cloud import AnyCloud
    from .http.hub import Hub
    from .http.mount import Mount

Delivery = Literal["driven", "background"]
C = TypeVar("C", bound=HandleConfig)
Method = TypeVar("Method", bound=Callable[..., Any])
Interceptor = Callable[["Handle", str], AbstractContextManager[object]]
_GIVEN: deque[str] = deque(maxlen=1000)
"""The tokens of the last handles of this process, by which a report knows a client of another test."""
SECRETS = (
    "token", "read_only_token", "password", "_password", "current_signing_key", "next_signing_key",
)  # fmt: skip
"""The properties of handles that no report may show."""
_making_stacks = threading.Lock()
_changing_handles = threading.Lock()


def action(method: Method) -> Method:
    """Record calls of a method in reports, as something that the test did on the fake.

    Calls from inside this package are not the test's.
    """

    @functools.wraps(method)
    def recorded(self: Handle, *given: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        caller = sys._getframe(1)
        if is_own(caller):
            return method(self, *given, **named)
        number = self._recorder.reserve()
        result = method(self, *given, **named)
        # The values of headers may be secret.
        shown = {name: [*it] if name == "headers" and it else it for name, it in named.items()}
        told = [*map(_argument, given), *(f"{name}={_argument(it)}" for name, it in shown.items())]
        # To read a message's public id counts as looking at it.
        message = getattr(result, "_id", None)
        about = {"message_id": message} if isinstance(message, str) else {}
        call = given, named
        self._recorder.act(method.__name__, caller, number, call, arguments=told, **about)
        return result

    return cast("Method", recorded)


def _argument(value: object) -> str:
    """An argument in a few characters, without the repr of anything large."""
    if value is None or isinstance(value, str | bytes | int | float):
        return brief(value, 60)
    if isinstance(value, dict | list | tuple | set):
        return brief(value) if len(value) <= 10 else f"{type(value).__name__} of {len(value)}"
    return type(value).__name__


class Engine(Protocol):
    """What a handle asks of any engine."""

    def snapshot(self) -> Any:
        """A cheap copy of all data, opaque to everybody else."""

    def restore(self, snapshot: Any) -> None:
        """Put the data of a snapshot back, timers included."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The data of one handle at one moment; give it to ``restore()`` of the same handle."""

    fixture: str
    data: Any


class Gone:
    """What reports need of fakes and credentials that are no more.

    ``last`` are the handles that were open when all were closed: they are asked when a report is
    made, because most tests have none. Of a handle that closes alone only this is kept.
    """

    def __init__(self) -> None:
        self.last: Sequence[Handle] = ()
        self._homes: dict[str, tuple[str, str]] = {}
        self._secrets: set[str] = set()

    def add(self, handle: Handle) -> None:
        """Keep a handle's address and credentials."""
        self._homes[handle.name] = handle.fixture, handle.url
        self.add_secrets(handle)

    def add_secrets(self, handle: Handle) -> None:
        """Keep a handle's credentials."""
        self._secrets.update(secrets_of(handle))

    @property
    def homes(self) -> dict[str, tuple[str, str]]:
        """The fixture and the address of each closed handle, by its name."""
        return self._homes | {each.name: (each.fixture, each.url) for each in self.last}

    @property
    def secrets(self) -> set[str]:
        """Credentials that once let somebody in."""
        return self._secrets.union(*map(secrets_of, self.last))

    def clear(self) -> None:
        """Forget them, with the journal they are in."""
        self.last = ()
        self._homes.clear()
        self._secrets.clear()


def gone_of(cloud: AnyCloud) -> Gone:
    """Return what is kept of the closed handles of a cloud: for reports, not for tests."""
    return cloud._gone


def was_given(token: str) -> bool:
    """Whether it is the token that a handle of this process began with, of the last thousand."""
    return token in _GIVEN


def secrets_of(handle: Handle) -> set[str]:
    """The credentials that let somebody in now."""
    return {value for name in SECRETS if isinstance(value := getattr(handle, name, None), str)}


class Context:
    """What the handles of one cloud share.

    ``clock``, ``ids`` and ``journal`` are the cloud's, ``time`` is what the clock shows and moves;
    ``problems`` collects what a strict test fails for; ``delivery`` says who delivers the queue's
    messages; ``interceptor`` answers requests to a hard-coded origin; ``handles`` are the open handles
    made in this context, ``gone`` tells of the others.
    """

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        journal: Journal,
        problems: Problems | None = None,
        delivery: Delivery = "driven",
    ) -> None:
        self.clock = clock
        self.time = timekeeper_of(clock)
        self.ids = ids
        self.journal = journal
        self.problems = Problems() if problems is None else problems
        self.delivery = delivery
        self.hub: Hub | None = None
        self.tls: Any = None
        self.interceptor: Interceptor | None = None
        self.handles: list[Handle] = []
        self.gone = Gone()
        self._numbers: dict[str, itertools.count[int]] = {}

    @classmethod
    def alone(
        cls,
        *,
        now: Instant | None = None,
        clock: Mode | None = None,
        seed: int | str = 0,
        delivery: Delivery = "driven",
    ) -> Context:
        """A context without a cloud, for a handle on its own."""
        time = Timekeeper(now, clock)
        return cls(Clock(time), Ids(seed), Journal(Recorder(time.now_us)), delivery=delivery)

    def enter(self, handle: Handle) -> None:
        """Count a handle among the open ones."""
        # A new list each time: other threads may be going through the old one.
        with _changing_handles:
            self.handles = [*self.handles, handle]

    def leave(self, handle: Handle) -> None:
        """Count it no more; any number of calls."""
        with _changing_handles:
            self.handles = [each for each in self.handles if each is not handle]

    def name_for(self, fixture: str, given: str | None) -> str:
        """The handle's name: the given one, the fixture's, or the fixture's with a number.

        Raises ``ContractError`` when an open handle has the given one.
        """
        taken = [handle.name for handle in self.handles] if self.handles else ()
        if given is not None:
            if given in taken:
                raise ContractError(
                    f"there is a handle named {shown(given)} already: give another name"
                )
            return given
        for number in self._numbers.setdefault(fixture, itertools.count(1)):
            name = fixture if number == 1 else f"{fixture}_{number}"
            if name not in taken:
                break
        return name

    def mount(self, app: Any, **options: Any) -> Mount:
        """Put an app on an address of its own."""
        if self.hub is None:
            self.hub = default_hub()
        if self.tls is not None:
            options.setdefault("tls", self.tls)
        return self.hub.mount(app, held=False, **options)


class Handle:
    """One fake: where it is, how to get in, what it holds, what happened to it.

    A with-block; leaving it closes the fake. What a tester does through a handle skips faults and
    does not count as a client's call.
    """

    service: ClassVar[str] = ""
    fixture: ClassVar[str] = ""

    _settings: ClassVar[type[HandleConfig]] = HandleConfig
    """The dataclass that declares the settings of this fake."""

    _engine: Any
    _exits: ExitStack | None = None
    _started_with: Mapping[str, Any] | None = None
    """The settings that a cloud started the fake with, for reports that replay its journal."""
    _rewound = 0
    """The journal's number when data was last put back."""

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
        self.name = config.name or context.name_for(self.fixture, None)
        self.clock = context.clock
        self._time = context.time
        self._app = app
        self.token = config.token or self._new_token()
        _GIVEN.append(self.token)
        self._recorder = Recorder(
            self._time.now_us, self.service, self.name, recorder_of(context.journal)
        )
        self.journal = Journal(self._recorder)
        # An empty plan is false, and still the one the service asks.
        if faults is None:
            table = FaultTable(partial(context.ids.stream, self.name, "faults"), self._time)
            faults = FaultPlan(table)
        else:
            table = table_of(faults)
        self.faults = faults
        self._fault_table = table
        app.attach(
            clock=self._time,
            recorder=self._recorder,
            faults=table,
            problems=context.problems,
            name=self.name,
        )
        place = {"host": config.host, "port": config.port}
        wanted = {key: value for key, value in place.items() if value is not None}
        self._mount = mount = context.mount(app, **wanted)
        mount.on_close.append(table.close)
        mount.on_error.append(self._server_failed)
        table.gate = mount.gate
        self._baseline = self._first_baseline()
        self.closed = False
        context.enter(self)

    @classmethod
    def _configure(cls, context: Context, declared: type[C], given: Mapping[str, Any]) -> C:
        """Read the keywords of the constructor, and choose a name where they have none."""
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
        """The headers that let a request in."""
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def env(self) -> dict[str, str]:
        """The environment variables the official clients read, with this fake's values."""
        return self._env_variables()

    def _env_variables(self) -> dict[str, str]:
        """Subclasses name their clients' variables here."""
        return {}

    @action
    def rotate_token(self) -> str:
        """Replace the credentials; the old ones are refused from now on."""
        self._context.gone.add_secrets(self)
        self.token = self._new_token()
        return self.token

    def _new_token(self) -> str:
        """Return a new random token, in the form of the service's own tokens."""
        return new_token()

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<{type(self).__name__} {self.name} {self.url}{state}>"

    # -- clients ---------------------------------------------------------------------------------

    def client(self, **options: Any) -> Any:
        """The official client, ready-made; ``ContractError`` where it is not installed."""
        return self._official(self._make_client, options)

    def async_client(self, **options: Any) -> Any:
        """The official asynchronous client, ready-made."""
        return self._official(self._make_async_client, options)

    def _make_client(self, **options: Any) -> Any:
        """Subclasses build their official client here."""
        raise ContractError(f"{self.service} has no official client")

    def _make_async_client(self, **options: Any) -> Any:
        """Subclasses build their official asynchronous client here."""
        raise ContractError(f"{self.service} has no official asynchronous client")

    def _official(self, make: Callable[..., Any], options: Mapping[str, Any]) -> Any:
        try:
            client = make(**options)
        except ModuleNotFoundError as error:
            package = (error.name or "").replace("_", "-")
            raise ContractError(
                f"the official client is not installed: {error.name} is missing. "
                f"Install it with: pip install {package}"
            ) from error
        self._at_close(partial(_close_client, client))
        return client

    def intercept(self, origin: str) -> AbstractContextManager[object]:
        """Answer requests to a hard-coded origin (``"https://kv.example.com"``) too.

        Those of this process that go through ``requests``, ``httpx`` or ``urllib3``, as the official
        clients' do; others (aiohttp, ``http.client``, a Redis client) need the fake's own address.
        Active until the returned context manager is left or the handle closes.
        """
        if self._context.interceptor is None:
            raise ContractError("intercept() needs a handle that was made by a Cloud")
        if self.closed:
            # Nothing would ever take it back.
            raise ContractError(f"{self.name} is closed and cannot answer for {shown(origin)}")
        interception = self._context.interceptor(self, origin)
        self._stack().push(interception)
        return interception

    # -- data ------------------------------------------------------------------------------------

    def load(self, data: Any) -> None:
        """Put data in; subclasses say which shapes."""
        raise NotImplementedError

    def snapshot(self) -> Snapshot:
        """The present data, to ``restore()`` later."""
        return Snapshot(self.fixture, self._engine.snapshot())

    @action
    def restore(self, snapshot: Snapshot) -> None:
        """Put the data of a snapshot back; journal, faults, credentials and clock stay."""
        if not isinstance(snapshot, Snapshot) or snapshot.fixture != self.fixture:
            raise ContractError(
                f"{shown(snapshot)} is not a snapshot of a {self.fixture}: "
                "give what its snapshot() returned"
            )
        self._engine.restore(snapshot.data)
        self._rewound = self._recorder.reserve()

    def _first_baseline(self) -> Snapshot | None:
        """What a new handle returns to; None, for ``_new_snapshot()`` when it is asked for."""
        return self.snapshot()

    def _new_snapshot(self) -> Snapshot:
        """The data of a handle like this one that nobody has used."""
        raise NotImplementedError

    def set_baseline(self) -> None:
        """Make the present data what ``reset()`` returns to."""
        self._baseline = self.snapshot()

    @action
    def reset(self) -> None:
        """Go back to the baseline: its data, no faults, an empty journal.

        Address, credentials and clock stay.
        """
        self.restore(self._baseline or self._new_snapshot())
        self.faults.clear()
        self.journal.clear()

    def on_close(self, callback: Callable[[], object]) -> None:
        """Call this when the handle closes."""
        check_function(callback, "without arguments")
        self._at_close(callback)

    def _at_close(self, callback: Callable[[], object]) -> None:
        self._stack().callback(callback)

    def _stack(self) -> ExitStack:
        # Most handles have nothing to end but their mount.
        with _making_stacks:
            if self._exits is None:
                self._exits = ExitStack()
            return self._exits

    def _left_behind(self) -> list[Problem]:
        """What a strict test fails for that shows only when nothing more is to come."""
        found = [
            Problem(
                "unused_fault",
                f"{self.name}: the fault {shown(fault)} never fired; remove it, or allow it with "
                'fakecloud.allow("unused_fault")',
                {"handle": self.name},
            )
            for fault in self.faults.unused()
        ]
        found += [
            Problem("unmet", f"{self.name}: {text}", {"handle": self.name})
            for text in self._unmet()
        ]
        return found

    def _undelivered(self) -> str | None:
        """What was published and never delivered, in words; for the fakes that deliver."""
        return None

    def _unmet(self) -> list[str]:
        """What was expected of the fake and has not come, in words; subclasses say what."""
        return []

    def end_connections(self) -> None:
        """End requests in flight and close every open connection; the address stays."""
        self._mount.reset_connections()

    def close(self) -> None:
        """End the fake: refuse connections, end those that are open, wake who waits.

        May be called any number of times.
        """
        if self.closed:
            return
        self.closed = True
        # Whatever a tester's on_close raises, nobody may find the fake still there.
        try:
            try:
                if self._exits is not None:
                    self._exits.close()
            finally:
                self._mount.close()
        finally:
            self._forget()

    def _forget(self) -> None:
        self._context.leave(self)
        gone = self._context.gone
        if self not in gone.last:
            gone.add(self)
            self._context.problems += self._left_behind()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _server_failed(self, error: BaseException) -> None:
        ending = ends_the_test(error)
        if ending is not None:
            self._context.problems.report_raised(ending, self.name, handle=self.name)
            return
        self._context.problems.report(
            "bug",
            f"{self.name}: the server of the fake failed: {shown(error)}\n"
            "This is a bug of pytest-fakecloud, please report it with the traceback:\n"
            + "".join(traceback.format_exception(error)),
            exception=error,
            handle=self.name,
        )

    # -- assertions ------------------------------------------------------------------------------

    def assert_called(
        self,
        what: str | re.Pattern[str] | None = None,
        *,
        times: int | None = None,
        **where: Unpack[CallFields],
    ) -> Found[Call]:
        """Return the clients' calls that match; fail unless one does, or exactly ``times``.

        See ``Journal.assert_called`` for what can be asked.
        """
        __tracebackhide__ = True
        return self.journal.assert_called(what, times=times, **where)

    def assert_not_called(
        self, what: str | re.Pattern[str] | None = None, **where: Unpack[CallFields]
    ) -> None:
        """Fail when any client's call matches."""
        __tracebackhide__ = True
        self.journal.assert_not_called(what, **where)


def _close_client(client: Any) -> None:
    """Close what an official client keeps open; not all of them have a way to say so."""
    for owner in (client, *vars(client).values()):
        connections = getattr(owner, "_client", None)
        close = getattr(connections, "close", None)
        # Asynchronous clients have aclose() instead, and a loop of their own to call it in.
        if close is not None and not hasattr(connections, "aclose"):
            close()
