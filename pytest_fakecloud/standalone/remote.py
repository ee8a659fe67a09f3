"""Clouds in a stand-alone server, with the same handles as local clouds: ``Cloud.connect(url)``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Unpack, cast
from urllib.parse import parse_qs, urlsplit

from ..any_cloud import AnyCloud
from ..core.clock import Clock, Mode
from ..core.errors import ContractError
from ..core.results import Results
from ..core.timeparse import Instant, instant_us, to_datetime
from ..core.timers import Registry
from ..handle import ClosedFakes, Handle, found_handles
from ..services import SERVICES, find
from .development import TOKEN_VARIABLE
from .remote_objects import Connection, remote_handle

if TYPE_CHECKING:
    from ..core.journal import Journal
    from ..core.problems import Problem
    from ..core.where import ProblemFields


class RemoteCloud(AnyCloud):
    """A cloud in a stand-alone server. Its handles have the classes of a local cloud's handles.

    Functions, applications, predicates and embedders cannot be sent to another process and raise
    ``ContractError``. Leaving the with-block closes only the fakes that this connection started.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self._connection = Connection(_checked_url(url), _checked_token(url, token))
        super().__init__()
        self._started: list[Handle] = []
        """Fakes that this connection started and must close, including those in ``_own``."""
        self._own: dict[str, Handle] = {}
        """Fakes started because the current test has settings for them."""
        try:
            self._connection.state()
        except BaseException:
            self._connection.close()
            raise

    @property
    def seed(self) -> int | str:
        return cast("int | str", self._connection.state()["seed"])

    def reseed(self, seed: int | str) -> None:
        self._connection.request(
            "PUT", "/seed", {"seed": self._connection.encoded(seed, "the seed")}
        )

    @property
    def clock(self) -> Clock:
        return cast("Clock", self._connection.read(None, "clock"))

    @property
    def journal(self) -> Journal:
        return cast("Journal", self._connection.read(None, "journal"))

    @property
    def authority(self) -> None:
        """Always None: the authority is on the server, and ``env`` has the path of its certificate."""

    @property
    def _closed_fakes(self) -> ClosedFakes:
        """Always empty, because the server keeps the data that its reports need."""
        return ClosedFakes()

    @property
    def handles(self) -> Results[Handle]:
        """All fakes of the server; the current test's own fakes come first."""
        own = {handle.name for handle in self._own.values()}
        known = [one for one in self._connection.state()["handles"] if one["fixture"] in SERVICES]
        known.sort(key=lambda one: one["name"] not in own)
        return found_handles(
            remote_handle(self._connection, one["fixture"], one["name"]) for one in known
        )

    @property
    def env(self) -> dict[str, str]:
        return cast("dict[str, str]", self._connection.read(None, "env"))

    @property
    def problems(self) -> Results[Problem]:
        return cast("Results[Problem]", self._connection.read(None, "problems"))

    def start(self, fixture: str, settings: Mapping[str, Any]) -> Handle:
        fixture = find(fixture).fixture
        sent = {
            key: self._connection.encoded(value, f"{key}= of {fixture}()")
            for key, value in settings.items()
        }
        made = self._connection.request("POST", "/handles", {"fixture": fixture, "settings": sent})
        handle = remote_handle(self._connection, fixture, str(made.get("name")))
        self._started.append(handle)
        for listener in self._listeners.items:
            listener(handle)
        return handle

    def fixture_handle(self, fixture: str) -> Any:
        """Return the test's own fake of this kind, or the server's first one, or a new one."""
        fixture = find(fixture).fixture
        handle = self._own.get(fixture) or self._fixture_handles.get(fixture)
        if handle is None or handle.closed:
            found = [one for one in self.handles if type(one).fixture == fixture]
            handle = found[0] if found else self.start(fixture, {})
            self._fixture_handles[fixture] = handle
        return handle

    def allow(self, kind: str, **where: Unpack[ProblemFields]) -> None:
        if kind == "refused":
            # This process, not the server, warns about rejected credentials.
            self._allowed.add(kind, where)
        else:
            self._connection.call(None, "allow", (kind,), where)

    def snapshot(self) -> Any:
        """Return a snapshot of the data of all handles; the data stays on the server."""
        return self._connection.call(None, "snapshot")

    def restore(self, snapshot: Any) -> None:
        self._connection.call(None, "restore", (snapshot,))

    def reset(self) -> None:
        self._connection.request("POST", "/reset", {})

    def begin(self, now: Instant | None = None, clock: Mode | None = None) -> None:
        """Start over for another test, with the server's own settings until ``_adapt()`` is called."""
        while self._own:
            self._close_started(self._own.popitem()[1])
        instant = None if now is None else to_datetime(instant_us(now)).isoformat()
        mode = self._connection.encoded(clock, "clock= of begin()")
        self._connection.request("POST", "/begin", {"now": instant, "clock": mode})
        self._allowed.clear()
        self._listeners = Registry()
        # Forget fakes that were closed elsewhere, so that their next use starts new ones.
        known = {one["name"] for one in self._connection.state()["handles"]}
        for fixture, handle in list(self._fixture_handles.items()):
            if handle.name not in known:
                del self._fixture_handles[fixture]

    def _adapt(self, settings: Mapping[str, Any]) -> None:
        """Apply the settings of one test until the next ``begin()``.

        ``now``, ``clock`` and ``seed`` apply to the whole server. For each service with settings, a
        separate fake is started for the test's fixtures.
        """
        if settings.get("now") is not None or settings.get("clock") is not None:
            self.begin(settings.get("now"), settings.get("clock"))
        if settings.get("seed") is not None:
            self.reseed(settings["seed"])
        for fixture in SERVICES:
            if settings.get(fixture):
                self._own[fixture] = self.start(fixture, settings[fixture])

    def _close_started(self, handle: Handle) -> None:
        handle.close()
        self._started.remove(handle)

    def _require_local(self, method: str) -> NoReturn:
        raise ContractError(
            f"{method} does not work over a stand-alone server, because it controls the fakes' calls "
            "and clock from this process. Use fakes in the test's own process for it"
        )

    def _keep_only(self, known: Any) -> None:
        """Close the fakes that were started through this connection, except those in ``known``."""
        kept = {handle.name for handle in (*known, *self._fixture_handles.values())}
        for handle in list(self._started):
            if handle.name not in kept:
                self._close_started(handle)

    def close(self) -> None:
        """Close the fakes that were started through this connection, then the connection.

        A server that no longer responds is ignored.
        """
        if self.closed:
            return
        self.closed = True
        for handle in self._started:
            with suppress(ContractError):
                handle.close()
        self._connection.close()

    def __repr__(self) -> str:
        return f"<Cloud at {self._connection.url}>"


def _checked_url(url: str) -> str:
    if not isinstance(url, str):
        raise ContractError(f"url={url!r} is not a string: pass the address that the server prints")
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
    except ValueError as error:
        raise ContractError(f"{url!r} is not a URL: {error}") from error
    if "token" in parse_qs(parts.query):
        raise ContractError(
            "a URL must not contain the control token, because URLs end up in logs; pass token=… "
            f"or set {TOKEN_VARIABLE}"
        )
    return f"{parts.scheme}://{parts.netloc}"


def _checked_token(url: str, token: str | None) -> str:
    """Return the given control token or that of the environment; raise ``ContractError`` if invalid."""
    given = token or os.environ.get(TOKEN_VARIABLE, "")
    if not isinstance(given, str) or not (given.isascii() and given.isprintable()):
        raise ContractError(
            f"{given!r} is not a control token: pass the string of printable ASCII characters "
            "that the server prints when it starts"
        )
    if not given:
        raise ContractError(
            f"{url} needs its control token: Cloud.connect(url, token=…), or the variable "
            f"{TOKEN_VARIABLE}"
        )
    return given
