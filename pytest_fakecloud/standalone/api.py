"""The control API under ``/__control__/``, through which other processes control a cloud, and the
files of the console page, which are served without the control token.
"""

from __future__ import annotations

import gzip
import re
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, cached_property
from pkgutil import get_data
from typing import TYPE_CHECKING, Any, TypeVar

from ..cloud.base import context_of, start_over
from ..cloud.cloud import Cloud
from ..cloud.services import services_by_word
from ..core.errors import ContractError, ServiceError
from ..core.ids import new_token
from ..core.recorder import Recorder
from ..core.violations import Violation, Violations, shortened
from ..faults.fault import setting_over
from ..http.app import App, Instruments
from ..http.messages import Answer, AnyResponse, ConnectionEffect, Json, Request, bearer_token, same
from ..http.routing import Match, Route, RouteTable
from .addresses import TOKEN_VARIABLE, URL_VARIABLE, Hosts
from .control import problems, shapes
from .control.clouds import (
    CloudRoutes,
    IsolatedClouds,
    changed_by_restore,
    clock_view,
    record_restore,
    states_of,
)
from .control.data import DataRoutes
from .control.endpoints import PREFIX, Part, Refused, compressed, contract, fake_named, fields
from .control.fakes import FakeRoutes, describe
from .control.history import HistoryRoutes
from .control.moves import MoveRoutes
from .control.sending import SendingRoutes

if TYPE_CHECKING:
    from .saving import StateKeeper

T = TypeVar("T", bound=AnyResponse)
P = TypeVar("P", bound=Part)
_MOST_CODES = 100
"""Maximum number of unused sign-in codes; a newer one replaces the oldest."""
_LONGEST_WITHOUT_TOKEN = 4096
"""Maximum bytes of a body that is read without the token: of a sign-in code in JSON."""
_GUARDS = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
"""Headers of every response. They prevent pages of other sites from reading or embedding it."""


class _Bugs(Violations):
    """Violations of the control app. Bugs are logged and added to the cloud's violations.

    Others are dropped: an unknown path of the control API is no mistake of the application.
    """

    def __init__(self, cloud: Cloud, log_bug: Callable[[str], object]) -> None:
        super().__init__()
        self._cloud = cloud
        self._log_bug = log_bug

    def report(
        self, kind: str, text: str, *, exception: BaseException | None = None, **facts: Any
    ) -> Violation:
        """Add a bug to the cloud's violations and log it."""
        if kind != "bug":
            return Violation(kind, text, facts, exception)
        violation = context_of(self._cloud).violations.report(
            kind, text, exception=exception, **facts
        )
        self._log_bug(violation.text)
        return violation


class ControlApp(App):
    """Routes of the control API and of the console page.

    Every request must carry the control token as ``Authorization: Bearer``, except requests for
    readiness, the OpenAPI document, the page itself and the exchange of a sign-in code. A request
    whose ``Host`` is not one of ``hosts`` is rejected with 421. Errors are ``{"error": {"type",
    "message"}}``: 400 for a body that cannot be parsed and for a move that the clock rejects, 422
    for an invalid value. ``log_bug`` is called with the text of every bug of this app. ``clouds``
    starts isolated clouds, which cannot start others. ``begins`` is called with the cloud before it
    begins another test. Requests to this app are not recorded.
    """

    service = "control"

    def __init__(
        self,
        cloud: Cloud,
        token: str | None = None,
        *,
        hosts: Hosts | None = None,
        log_bug: Callable[[str], object] = lambda text: None,
        clouds: IsolatedClouds | None = None,
        begins: Callable[[Cloud], object] = lambda cloud: None,
    ) -> None:
        recorder = Recorder(cloud.clock.now_us, service="control", fake="control")
        # Keep no entries: an open console sends requests every two seconds, possibly for weeks.
        recorder.keep = 0
        super().__init__(Instruments(context_of(cloud).timekeeper, recorder, _Bugs(cloud, log_bug)))
        self.cloud = cloud
        self._begins = begins
        self.token = token or new_token()
        self._hosts = hosts or Hosts()
        self.loading = ""
        """The progress of the initial load as a string; empty when nothing is being loaded."""
        self.url = ""
        """The URL of this API, set when the API is mounted."""
        self.keeper: StateKeeper | None = None
        """What keeps the state of the server in a file, if anything does."""
        self._codes: deque[str] = deque(maxlen=_MOST_CODES)
        self.data = DataRoutes(cloud)
        self._clouds = clouds
        # Tests have isolated clouds, which their reports are about.
        fakes = FakeRoutes(cloud, self._hosts, records=clouds is None)
        self.history = HistoryRoutes(cloud)
        parts: list[Part] = [
            CloudRoutes(cloud),
            MoveRoutes(cloud, self.history),
            fakes,
            SendingRoutes(cloud),
            self.history,
        ]
        parts.append(self.data)
        if clouds is not None:
            parts.append(clouds)
        self._parts = {type(part): part for part in parts}

    def part(self, kind: type[P]) -> P:
        """Return the part of a class."""
        part = self._parts[kind]
        assert isinstance(part, kind)
        return part

    # -- the dialect -----------------------------------------------------------------------------

    @cached_property
    def table(self) -> RouteTable:
        """All routes. The OpenAPI document is generated from them."""
        return _table_with(tuple(self._parts))

    @classmethod
    def routes(cls) -> list[Route]:
        """Return the routes that belong to no part."""
        return [
            Route("GET", "/", "console", page),
            Route("GET", "/console/{name}", "console_file", file),
            Route("GET", "/favicon.ico", "icon", icon),
            Route("GET", f"{PREFIX}/live", "live", cls.live),
            Route("GET", f"{PREFIX}/ready", "ready", cls.ready),
            Route("GET", f"{PREFIX}/openapi.json", "openapi", cls.openapi),
            Route("GET", f"{PREFIX}/state", "state", cls.state),
            Route("GET", f"{PREFIX}/env", "env", cls.env),
            Route("POST", f"{PREFIX}/codes", "code", cls.make_code),
            Route("POST", f"{PREFIX}/session", "session", cls.session),
            Route("POST", f"{PREFIX}/reset", "reset", cls.reset),
            Route("POST", f"{PREFIX}/begin", "begin", cls.begin),
        ]

    def respond(self, request: Request, *, in_client: bool = False) -> AnyResponse:
        """Answer a request, and protect the response from pages of other sites with headers."""
        return _guarded(super().respond(request, in_client=in_client))

    def reject_head(self, request: Request) -> Answer | None:
        """Reject a request before its body has arrived, with the same headers."""
        rejection = super().reject_head(request)
        return None if rejection is None else _guarded(rejection)

    def route_request(self, request: Request) -> Match:
        # Scripts may still have the paths from the time when fakes were called handles.
        request.path = request.path.replace(f"{PREFIX}/handles", f"{PREFIX}/fakes", 1)
        return super().route_request(request)

    def unknown_method(self, request: Request) -> Answer:
        """Answer a request whose method no path accepts, with the same headers."""
        return _guarded(super().unknown_method(request))

    def call_endpoint(self, request: Request, match: Match) -> AnyResponse:
        """As for every app, but arguments of a request also cause errors of Python and of the cloud."""
        token = setting_over.set("the control API")
        try:
            if request.route in _RESTORES:
                self.history.copy_now()
            return super().call_endpoint(request, match)
        except ContractError as error:
            refused = Refused(422, str(error))
        except RecursionError:
            refused = Refused(400, "the request is nested too deeply")
        except OverflowError as error:
            refused = Refused(400, f"a number is out of range: {error}")
        finally:
            setting_over.reset(token)
            if request.method != "GET" and request.route not in _WITHOUT_CHANGE:
                self.history.note_change()
        return self.rendered(refused)

    def server_failed(self, error: BaseException) -> None:
        """Report an error of the HTTP server below the app."""
        self.violations.report_bug(error, f"{self.name}: the server failed", fake=self.name)

    def authenticate(self, request: Request) -> object:
        """Check the Host, and the control token for routes that need it. Without it, a body may only
        have the size of a sign-in code.
        """
        self._hosts.check(request.fields.get("host"))
        if request.route in shapes.WITHOUT_TOKEN:
            length = int(request.fields.get("content-length", "0"))
            if length > _LONGEST_WITHOUT_TOKEN or "transfer-encoding" in request.fields:
                raise Refused(
                    413, f"without the token, a body is limited to {_LONGEST_WITHOUT_TOKEN} bytes"
                )
            return None
        if not same(bearer_token(request.fields.get("authorization")), self.token):
            raise Refused(401, "the control API needs its token: Authorization: Bearer <token>")
        return None

    def render_error(self, error: ServiceError) -> Json:
        """Return an error as ``{"error": {"type", "message"}}``."""
        body = {"type": type(error).__name__, "message": shortened(error.message)}
        return Json({"error": body}, error.status, error.headers)

    # -- the server itself -----------------------------------------------------------------------

    def live(self, request: Request) -> shapes.Live:
        """Return 200 as soon as the server runs."""
        return {"live": True}

    def ready(self, request: Request) -> object:
        """Return 200 when all data is loaded; before that 503, with the progress in ``"loading"``."""
        readiness: shapes.Ready = {"ready": not self.loading and not self.cloud.closed}
        if self.loading:
            readiness["loading"] = self.loading
        return Json(readiness, 200 if readiness["ready"] else 503)

    def openapi(self, request: Request) -> dict[str, Any]:
        """Return the OpenAPI 3.1 document of this API."""
        return shapes.document(self.table.routes)

    def state(self, request: Request) -> shapes.State:
        """Return a summary of the cloud: fakes with addresses and variables, clock, seed.

        ``latest`` is the number of the newest journal entry, 0 when the journal is empty.
        """
        entries = self.cloud.journal.entries
        clouds, failed_clouds = (0, 0) if self._clouds is None else self._clouds.numbers()
        return {
            "seed": self.cloud.seed,
            "clock": clock_view(self.cloud),
            "fakes": [describe(self.cloud, fake) for fake in self.cloud.fakes()],
            "violations": len(problems.violations(self.cloud)),
            "problems": problems.count(self.cloud),
            "latest": entries[-1].number if entries else 0,
            "clouds": clouds,
            "failed_clouds": failed_clouds,
            "kept": None if self.keeper is None else _kept(self.keeper),
        }

    def environment(self) -> dict[str, str]:
        """Return the variables of all fakes and of this API."""
        return {**self.cloud.env, URL_VARIABLE: self.url, TOKEN_VARIABLE: self.token}

    def env(self, request: Request) -> dict[str, str]:
        """Return the environment variables for the application under test, by name."""
        return self.environment()

    def console_url(self) -> str:
        """Return a URL with a new sign-in code, which signs one browser in to the console.

        The code is in the URL's fragment, which browsers do not send to servers. It works only
        once, and expires when the server stops or when 100 newer codes exist.
        """
        code = new_token()
        self._codes.append(code)
        return f"{self.url}/#code={code}"

    def make_code(self, request: Request) -> shapes.ConsoleAddress:
        """Return a URL that signs one browser in to the console."""
        return {"url": self.console_url()}

    def session(self, request: Request) -> shapes.SessionData:
        """Exchange a sign-in code, ``{"code": ...}``, for the control token. Each code works once."""
        code_sent = fields(request)["code"]
        for code in tuple(self._codes):
            # Another request may remove the code at the same time; only one of them may use it.
            with suppress(ValueError):
                if same(code_sent, code):
                    self._codes.remove(code)
                    return {"token": self.token}
        raise Refused(
            403,
            "this sign-in code is unknown or already used: "
            "`pytest-fakecloud console` prints a new one",
        )

    def reset(self, request: Request) -> shapes.ResetData:
        """Return one fake (``{"fake": name}``) or all fakes to their baseline.

        With ``"record": true``, ``row`` is the number of a row of the reset: to restore the data to
        just before it undoes the reset, but not what happens to faults and to the journal.
        """
        body, row = fields(request), None
        name, records = body.get("fake"), body.get("record", False)
        fakes = list(self.cloud.fakes()) if name is None else [fake_named(self.cloud, name)]
        before = states_of(self.cloud) if records else {}
        if records:
            self.history.copy_now()
        if name is None:
            self.cloud.reset()
        else:
            fakes[0].reset()
        if records:
            changed = changed_by_restore(before, states_of(self.cloud))
            row = record_restore(fakes, "", "the baseline", changed)
        return {**clock_view(self.cloud), "row": row}

    def begin(self, request: Request) -> shapes.ClockData:
        """Start over as for a new test: restore baselines, close connections, reset the clock.

        ``{"now": a time, "clock": "running"|"frozen"}`` overrides the start time or the mode.
        """
        body = fields(request)
        self._begins(self.cloud)
        self.part(MoveRoutes).forget_moves()
        with contract():
            start_over(self.cloud, body.get("now"), body.get("clock"))
        return clock_view(self.cloud)

    def end_clouds(self) -> None:
        """Close every isolated cloud. Called before the server closes."""
        if self._clouds is not None:
            self._clouds.close()


@cache
def _table_with(parts: tuple[type[Part], ...]) -> RouteTable:
    """Return the route table of the control apps that have parts of these classes."""
    return RouteTable([*ControlApp.routes(), *(route for part in parts for route in part.routes())])


_RESTORES = frozenset({"restore_before", "restore_snapshot", "undo_move"})
"""Routes that restore data: the data before it is copied, so that the restore can be undone."""
_WITHOUT_CHANGE = frozenset(
    {"send", "send_again", "copy_request", "session", "code", "cloud_code", "move_clock"}
    | {"take_snapshot", "drop_snapshot", "dismiss", "new_cloud", "end_cloud", "keep_cloud"}
)
"""Endpoints that change no data, or only by a recorded call or by the clock."""


def _kept(keeper: StateKeeper) -> shapes.KeptData:
    saved_at = keeper.saved_at
    return {
        "file": str(keeper.file.absolute()),
        "saved_at": None if saved_at is None else saved_at.isoformat(timespec="seconds"),
        "failure": keeper.failure,
    }


def _guarded(response: T) -> T:
    if not isinstance(response, ConnectionEffect):
        headers = list(response.headers)
        if not any(name == "Content-Security-Policy" for name, _ in headers):
            headers.append(("Content-Security-Policy", POLICY))
        if isinstance(response, Answer):
            headers.append(("Cache-Control", "no-store"))
        response.headers = [*headers, *_GUARDS]
    return response


# -- the console page ------------------------------------------------------------------------------

POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""The content security policy of every response but the page."""
_PAGE_POLICY = f"{POLICY}; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'"
_PAGE = (
    "activity.js", "api.js", "columns.js", "commands.js", "connect.js", "console.css",
    "destinations.js", "dom.js", "errors.js", "fake.js", "faults.js", "history.js", "journal.js",
    "lists.js", "main.js", "moves.js", "overview.js", "problems.js", "row.js", "rows.js", "search.js",
    "sending.js", "time.js", "words.js",
    *(f"{word}.js" for word in services_by_word()),
)  # fmt: skip
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
_SHARED = (
    "copying.js", "drawing.js", "elements.js", "facts.js", "pane.js", "spans.js", "trace.css",
    "trace.js", "waterfall.js",
)  # fmt: skip
FILES: Mapping[str, tuple[str, str]] = {
    **{name: ("pytest_fakecloud.standalone", f"page/{name}") for name in _PAGE},
    # The console reuses the timeline of test reports.
    **{name: ("pytest_fakecloud.reporting.render", name) for name in _SHARED},
}
"""Package and path of each file of the console. No code is inline or loaded from another origin."""


def page(app: ControlApp, request: Request) -> Answer:
    """Return the console page."""
    plain, packed = _read("pytest_fakecloud.standalone", "page/console.html")
    answer = compressed(request, plain, lambda: packed, "text/html; charset=utf-8")
    answer.headers = [*answer.headers, ("Content-Security-Policy", _PAGE_POLICY)]
    return answer


def file(app: ControlApp, request: Request) -> Answer:
    """Return a script or stylesheet of the console page."""
    name = request.params["name"]
    if name not in FILES:
        raise Refused(404, f"the console has no file {name!r}")
    plain, packed = _read(*FILES[name])
    return compressed(request, plain, lambda: packed, _TYPES[name.rpartition(".")[2]])


def icon(app: ControlApp, request: Request) -> Answer:
    """Return the icon of the console page."""
    plain, packed = _read("pytest_fakecloud.standalone", "page/icon.svg")
    return compressed(request, plain, lambda: packed, "image/svg+xml")


@cache
def _read(package: str, path: str) -> tuple[bytes, bytes]:
    # Served by programs, which fake no files; also finds the files in a zip file.
    data = get_data(package, path)
    assert data is not None
    if path.endswith(".js"):
        data = re.sub(rb"(?m)^ *//.*\n", b"", data)
    return data, gzip.compress(data, mtime=0)
