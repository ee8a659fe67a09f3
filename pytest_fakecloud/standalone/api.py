"""The control API: a cloud from outside its process, under ``/__control__/``."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import operator
import traceback
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from time import sleep
from typing import TYPE_CHECKING, Any

from ..core.auth import bearer_token, new_token, same
from ..core.calls import Call, Entry
from ..core.clock import timekeeper_of
from ..core.errors import ContractError, ServiceError
from ..core.journal import Recorder, recorder_of
from ..core.matching import nearest
from ..core.problems import Problem, Problems
from ..core.timeparse import monotonic
from ..core.timers import Signal
from ..faults.fault import setting_over
from ..faults.plan import FaultPlan, fault_words
from ..faults.table import FaultTable
from ..handle import Handle
from ..http.app import App
from ..http.messages import Answer, Effect, Request, Response, Stream
from ..http.readers import decode_segment, json_value
from ..http.routing import Route, RouteMatch
from ..reporting.rows import rows
from .codec import (
    Objects,
    Unreadable,
    decode,
    encode,
    encode_error,
)
from .environment import environment
from .hosts import Hosts
from .openapi import WITHOUT_TOKEN
from .views import (
    attempt_view,
    dead_letter,
    describe,
    message_view,
    told,
    view,
)
from .wire import surface_of

if TYPE_CHECKING:
    from ..cloud import Cloud

__all__ = ["PREFIX", "ControlApp"]

PREFIX = "/__control__"
HEARTBEAT_SECONDS = 15.0
GRACE_SECONDS = 0.1
"""How long the stream waits for a call's answer before it tells of the call without."""
LOOK_SECONDS = 0.002
_MOST_DUE = 200
_MOST_DIGITS = 18
_LONGEST_WORD = 100
_LONGEST_MESSAGE = 2000
_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_GUARDS = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
"""What tells a browser to keep other sites away from every answer."""
_PAGE_POLICY = f"{_POLICY}; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'"


class Refused(ServiceError):
    """A request the control API cannot perform."""


class _Bugs(Problems):
    """The problems of the control app itself: its bugs are the cloud's, and told at once.

    Nothing else is: a request it has no route for is no mistake of the application under test.
    """

    def __init__(self, cloud: Cloud, tell: Callable[[str], object]) -> None:
        super().__init__()
        self._cloud = cloud
        self._tell = tell

    def report(
        self, kind: str, text: str, *, exception: BaseException | None = None, **facts: Any
    ) -> Problem:
        """Hand a bug on to the cloud."""
        if kind != "bug":
            return Problem(kind, text, facts, exception)
        self._tell(text)
        return self._cloud._context.problems.report(kind, text, exception=exception, **facts)


class ControlApp(App):
    """Routes of the control API and of the console page.

    Every request carries the control token, as ``Authorization: Bearer`` or as query ``token``,
    except for readiness, the OpenAPI file and the page itself; and a Host that is one of ``hosts``,
    else it is answered 421. Errors are ``{"error": {"type", "message"}}``: 400 for what cannot be
    read and for a move the clock refuses, 422 for what has no meaning. ``tell`` is given the text
    of every bug of this app. Its own requests are in no journal.
    """

    service = "control"

    def __init__(
        self,
        cloud: Cloud,
        token: str | None = None,
        *,
        hosts: Hosts | None = None,
        tell: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.cloud = cloud
        self.token = token or new_token()
        self._hosts = hosts or Hosts()
        recorder = Recorder(cloud.clock.now_us, service="control", handle="control")
        # A console that is open asks twice a second, for weeks.
        recorder.keep = 0
        self.attach(
            clock=cloud._context.time,
            recorder=recorder,
            faults=FaultTable(partial(cloud._context.ids.stream, "control"), cloud._context.time),
            problems=_Bugs(cloud, tell),
            name="control",
        )
        self.loading = ""
        """How far a load is that has to end before the server is ready, in words."""
        self.url = ""
        """The address of this API, known when it is mounted."""
        self._objects = Objects()
        self._snapshots: dict[str, Any] = {}
        self._snapshot_numbers = itertools.count(1)
        self._streams: set[Signal] = set()

    # -- the dialect -----------------------------------------------------------------------------

    def routes(self) -> list[Route]:
        """All endpoints; the OpenAPI file is generated from this list."""
        handle = f"{PREFIX}/handles/{{name}}"
        return [
            Route("GET", "/", "console", self.console),
            Route("GET", "/console/{name}", "console_file", self.console_file),
            Route("GET", "/favicon.ico", "icon", self.icon),
            Route("GET", f"{PREFIX}/live", "live", self.live),
            Route("GET", f"{PREFIX}/ready", "ready", self.ready),
            Route("GET", f"{PREFIX}/openapi.json", "openapi", self.openapi),
            Route("GET", f"{PREFIX}/state", "state", self.state),
            Route("GET", f"{PREFIX}/env", "env", self.env),
            Route("POST", f"{PREFIX}/reset", "reset", self.reset),
            Route("POST", f"{PREFIX}/begin", "begin", self.begin),
            Route("GET", f"{PREFIX}/clock", "clock", self.get_clock),
            Route("POST", f"{PREFIX}/clock", "move_clock", self.move_clock),
            Route("GET", f"{PREFIX}/due", "due", self.get_due),
            Route("GET", f"{PREFIX}/seed", "seed", self.get_seed),
            Route("PUT", f"{PREFIX}/seed", "set_seed", self.set_seed),
            Route("GET", f"{PREFIX}/journal", "journal", self.journal_rows),
            Route("GET", f"{PREFIX}/journal/stream", "journal_stream", self.stream, lingers=True),
            Route("GET", f"{PREFIX}/problems", "problems", self.get_problems),
            Route("POST", f"{PREFIX}/handles", "start_handle", self.start_handle),
            Route("GET", handle, "handle", self.get_handle),
            Route("DELETE", handle, "close_handle", self.close_handle),
            Route("GET", f"{handle}/view", "view", self.get_view),
            Route("POST", f"{handle}/requests", "send", self.send_request, lingers=True),
            Route("GET", f"{handle}/faults", "faults", self.get_faults),
            Route("POST", f"{handle}/faults", "add_fault", self.add_fault),
            Route("DELETE", f"{handle}/faults", "clear_faults", self.clear_faults),
            Route("DELETE", f"{handle}/faults/{{id}}", "remove_fault", self.remove_fault),
            Route("GET", f"{handle}/attempts", "attempts", self.get_attempts),
            Route("GET", f"{handle}/dead-letters", "dead_letters", self.get_dead_letters),
            Route("POST", f"{handle}/dead-letters/{{id}}", "retry", self.retry_dead_letter),
            Route("GET", f"{PREFIX}/snapshots", "snapshots", self.get_snapshots),
            Route("POST", f"{PREFIX}/snapshots", "take_snapshot", self.take_snapshot),
            Route("POST", f"{PREFIX}/snapshots/{{id}}", "restore_snapshot", self.restore_snapshot),
            Route("DELETE", f"{PREFIX}/snapshots/{{id}}", "drop_snapshot", self.drop_snapshot),
            Route("POST", f"{PREFIX}/call", "call", self.call, lingers=True),
        ]

    def answer(self, request: Request) -> Response:
        """Take one request through the pipeline; what goes out is kept from other sites."""
        return _guarded(super().answer(request))

    def foreign(self, request: Request) -> Answer:
        """The answer to a method no path takes, guarded like any other."""
        answer = super().foreign(request)
        _guarded(answer)
        return answer

    def _serve(self, request: Request, found: RouteMatch) -> Response:
        token = setting_over.set("the control API")
        try:
            return super()._serve(request, found)
        except ContractError as error:
            refused = Refused(422, str(error))
        except RecursionError:
            refused = Refused(400, "the request is nested too deeply")
        except OverflowError as error:
            refused = Refused(400, f"a number is out of all range: {error}")
        finally:
            setting_over.reset(token)
        return self._finished(self.render_error(refused))

    def server_failed(self, error: BaseException) -> None:
        """Report what broke below the pipeline."""
        self.problems.report(
            "bug",
            f"{self.name}: the server failed: {error!r}\n"
            "This is a bug of pytest-fakecloud, please report it with the traceback:\n"
            + "".join(traceback.format_exception(error)),
            exception=error,
            handle=self.name,
        )

    def authenticate(self, request: Request) -> object:
        """The right Host; and the control token, except where no secret is shown."""
        host = request.header("host")
        if not self._hosts.takes(host):
            raise Refused(
                421,
                f"this server is not known as {host!r:.200}: ask for it by a loopback name or by the "
                "host it is bound to, or start it with --allow-host NAME",
            )
        if request.route in WITHOUT_TOKEN:
            return None
        if not same(
            bearer_token(request.header("authorization")) or request.query("token"), self.token
        ):
            raise Refused(401, "the control API needs its token: Authorization: Bearer <token>")
        return None

    def render_error(self, error: ServiceError) -> Answer:
        """``{"error": {"type", "message"}}``."""
        text = error.message
        if len(text) > _LONGEST_MESSAGE:
            text = f"{text[:_LONGEST_MESSAGE]}… ({len(text)} characters)"
        return Answer(
            {"error": {"type": type(error).__name__, "message": text}},
            error.status,
            error.headers,
        )

    # -- the server itself -----------------------------------------------------------------------

    def console(self, request: Request) -> Answer:
        """The console page."""
        from .console import page

        policy = [("Content-Security-Policy", _PAGE_POLICY)]
        return Answer(page(), headers=policy, content_type="text/html; charset=utf-8")

    def console_file(self, request: Request) -> Answer:
        """A script or the style of the console page."""
        from .console import FILES, file

        name = request.params["name"]
        if name not in FILES:
            raise Refused(404, f"the console has no file {name!r}")
        return Answer(file(name), content_type=FILES[name])

    def icon(self, request: Request) -> Answer:
        """No icon; browsers ask for one."""
        return Answer(status=204, content_type=None)

    def live(self, request: Request) -> object:
        """Whether the server runs."""
        return {"live": True}

    def ready(self, request: Request) -> object:
        """Whether the fakes are as they are to be: 503 with ``"loading"`` until all is loaded."""
        ready = not self.loading and not self.cloud.closed
        found = {"ready": ready, **({"loading": self.loading} if self.loading else {})}
        return Answer(found, 200 if ready else 503)

    def openapi(self, request: Request) -> object:
        """This API as an OpenAPI 3.1 file."""
        from .openapi import document

        return document(self.table.routes)

    def state(self, request: Request) -> object:
        """The cloud at a glance: handles with addresses and variables, clock, seed."""
        return {
            "seed": self.cloud.seed,
            "clock": self._clock(),
            "handles": [describe(handle) for handle in self.cloud.handles],
            "problems": len(self.cloud.problems),
        }

    def environment(self) -> dict[str, str]:
        """Return the variables of all fakes and of this API; opens their database ports."""
        return environment(self.cloud, self.url, self.token)

    def env(self, request: Request) -> object:
        """The environment variables for the application under test, by name."""
        return self.environment()

    def reset(self, request: Request) -> object:
        """Return one handle (``{"handle": name}``) or all to their baseline."""
        name = _object(request, "handle").get("handle")
        if name is None:
            self.cloud.reset()
        else:
            self._handle(name).reset()
        return self._clock()

    def begin(self, request: Request) -> object:
        """Start over as for a new test: baselines, connections ended, clock at its start.

        Or at another, for this once: ``{"now": an instant, "clock": "running"|"frozen"}``.
        """
        body = _object(request, "now", "clock")
        self._objects.forget()
        with _contract():
            self.cloud.begin(body.get("now"), body.get("clock"))
        return self._clock()

    # -- clock and seed --------------------------------------------------------------------------

    def _clock(self) -> dict[str, Any]:
        clock = self.cloud.clock
        due = timekeeper_of(clock).next_due_us()
        return {
            "now": told(clock.now_us()),
            "mode": clock.mode,
            "next_due": None if due is None else told(due),
        }

    def get_clock(self, request: Request) -> object:
        """The clock: now, mode, when something falls due next."""
        return self._clock()

    def move_clock(self, request: Request) -> object:
        """Freeze, resume or move the clock.

        ``{"action": "freeze"|"resume"|"advance"|"move_to"|"advance_to_next"}`` with ``"by"`` (a
        duration) or ``"to"`` (an instant).
        """
        body = _object(request, "action", "by", "to")
        clock = self.cloud.clock
        action = body.get("action")
        if not isinstance(action, str) or action not in _MOVES:
            near = _near(action, _MOVES)
            raise Refused(
                422, f"{action!r} is not an action{near}: give one of {', '.join(_MOVES)}"
            )
        wanted = _MOVES[action]
        if body.keys() - {"action"} != ({wanted} if wanted else set()):
            form = {"action": action, **({wanted: "…"} if wanted else {})}
            raise Refused(422, f"give {json.dumps(form, ensure_ascii=False)}, not {body!r}")
        with _contract(400):
            fired = getattr(clock, action)(*([body[wanted]] if wanted else []))
        fired = fired or []
        return {**self._clock(), "fired": [f"{one.at.isoformat()} {one.label}" for one in fired]}

    def get_due(self, request: Request) -> object:
        """What is planned on the clock: how many timers, and the soonest of them, in their order."""
        count, soonest = timekeeper_of(self.cloud.clock).timers.planned(_MOST_DUE)
        return {
            "now": told(self.cloud.clock.now_us()),
            "count": count,
            "due": [{"at": told(one.due_us), "what": one.label} for one in soonest],
        }

    def get_seed(self, request: Request) -> object:
        """The random seed."""
        return {"seed": self.cloud.seed}

    def set_seed(self, request: Request) -> object:
        """Start all randomness over from another seed."""
        seed = _object(request, "seed").get("seed")
        if isinstance(seed, bool) or not isinstance(seed, int | str) or not _is_unicode(seed):
            raise Refused(422, f"a seed is a whole number or a text, not {seed!r}")
        self.cloud.reseed(seed)
        return {"seed": self.cloud.seed}

    # -- journal ---------------------------------------------------------------------------------

    def journal_rows(self, request: Request) -> object:
        """What happened, oldest first; ``?after=N`` leaves out entries up to that number."""
        after = _number(request.query("after"))
        return [_row_of(self.cloud, entry) for entry in self._entries(after)]

    def _entries(self, after: int) -> list[Entry]:
        entries = self.cloud.journal.entries
        return entries[bisect_right(entries, after, key=attrgetter("number")) :]

    def stream(self, request: Request) -> Stream:
        """The journal as server-sent events, from ``?after=N`` on, as it is written.

        A call that is still under way comes with ``"done": false``, and once more, under the same
        number, when it has its answer. A client that comes back with ``Last-Event-ID`` goes on there.
        """
        after = max(_number(request.query("after")), _number(request.header("last-event-id")))
        # Only woken, never handed entries: of a client that does not read, nothing piles up here.
        signal = Signal()
        self._streams.add(signal)
        unwatch = recorder_of(self.cloud.journal).watch(lambda entry: signal.notify())

        def end() -> None:
            unwatch()
            self._streams.discard(signal)
            signal.close()

        return Stream(self._events(signal, after), on_close=end)

    def _events(self, signal: Signal, after: int) -> Iterator[bytes]:
        sent = after
        under_way: list[Entry] = []
        while not signal.closed:
            seen = signal.version
            for entry in self._entries(sent):
                sent = entry.number
                # Most calls are answered a moment after they are written down; where one is
                # not, those behind it are told of at once.
                patience = monotonic() + (0 if under_way else GRACE_SECONDS)
                while not (done := _is_done(entry)) and monotonic() < patience:
                    sleep(LOOK_SECONDS)
                if not done:
                    under_way.append(entry)
                yield self._event(entry)
            for entry in [entry for entry in under_way if _is_done(entry)]:
                under_way.remove(entry)
                yield self._event(entry)
            signal.sleep(seen, GRACE_SECONDS if under_way else HEARTBEAT_SECONDS)
            if signal.version == seen and not under_way:
                yield b": still here\n\n"

    def _event(self, entry: Entry) -> bytes:
        data = json.dumps(_row_of(self.cloud, entry), ensure_ascii=False)
        return f"id: {entry.number}\ndata: {data}\n\n".encode()

    def end_streams(self) -> None:
        """End every open journal stream; the server is closing."""
        for signal in list(self._streams):
            signal.close()

    def get_problems(self, request: Request) -> object:
        """What a strict test would fail for."""
        return [{"kind": p.kind, "text": p.text} for p in self.cloud.problems]

    # -- handles ---------------------------------------------------------------------------------

    def _handle(self, name: str) -> Handle:
        for handle in self.cloud.handles:
            if handle.name == name:
                return handle
        names = [handle.name for handle in self.cloud.handles]
        known = ", ".join(names) or "none"
        raise Refused(404, f"there is no handle {name!r}{_near(name, names)}; there are: {known}")

    def _named(self, request: Request) -> Handle:
        return self._handle(decode_segment(request.params["name"]))

    def start_handle(self, request: Request) -> object:
        """Start another fake: ``{"fixture": "kv_server", "settings": {…}}``."""
        body = _object(request, "fixture", "settings")
        settings = {} if body.get("settings") is None else body["settings"]
        if not isinstance(settings, dict):
            raise Refused(422, f"settings is an object, not {settings!r}")
        settings = {key: self._decoded(value, "settings") for key, value in settings.items()}
        fixture = body.get("fixture")
        if not isinstance(fixture, str):
            raise Refused(422, f"fixture is the name of a fixture, not {fixture!r:.200}")
        with _contract():
            try:
                return describe(self.cloud.start(fixture, settings))
            except OSError as error:
                raise Refused(422, f"{fixture} cannot stand at that place: {error}") from error

    def get_handle(self, request: Request) -> object:
        """One handle: address, credentials, variables."""
        return describe(self._named(request))

    def close_handle(self, request: Request) -> object:
        """Close a fake."""
        self._named(request).close()
        return {"closed": True}

    def get_view(self, request: Request) -> object:
        """What a fake holds, for looking at."""
        return view(self._named(request))

    def send_request(self, request: Request) -> object:
        """A request to a fake, as a client sends one: ``{"method", "target", "headers", "body"}``.

        It carries the fake's credentials unless ``headers`` has others, meets its faults and is in
        the journal. A ``body`` that is a text goes as it is, anything else as JSON. Answers
        ``{"status", "headers", "body"}``, or ``{"broken"}`` where a fault broke the connection.
        """
        from .console import send

        body = _object(request, "method", "target", "headers", "body")
        with _contract():
            return send(self._named(request), **body)

    # -- faults ----------------------------------------------------------------------------------

    def get_faults(self, request: Request) -> object:
        """The faults of a handle."""
        return [self._fault(fault) for fault in self._named(request).faults]

    def _fault(self, fault: Any) -> dict[str, Any]:
        return {
            "id": self._objects.keep(fault),
            "kind": fault.kind,
            "text": repr(fault),
            "hits": fault.hits,
            "active": fault.active,
        }

    def add_fault(self, request: Request) -> object:
        """Prepare a fault: ``{"kind": "answer", "args": [503], "times": 1, "route": "publish"}``."""
        body = _object(request)
        plan = self._named(request).faults
        kind = body.pop("kind", None)
        arguments = body.pop("args", [])
        kinds = _fault_kinds(type(plan))
        if not isinstance(kind, str) or kind not in kinds:
            near = _near(kind, kinds)
            raise Refused(422, f"{kind!r} is not a fault{near}: give one of {', '.join(kinds)}")
        if not isinstance(arguments, list):
            raise Refused(422, f"args is a list, not {arguments!r}")
        prepare = getattr(plan, kind)
        try:
            inspect.signature(prepare).bind(*arguments, **body)
        except TypeError as error:
            raise Refused(422, f"{kind}: {error}. {_form(prepare)}") from None
        with _contract():
            return self._fault(prepare(*arguments, **body))

    def clear_faults(self, request: Request) -> object:
        """Take all faults of a handle back."""
        self._named(request).faults.clear()
        return []

    def remove_fault(self, request: Request) -> object:
        """Take one fault back."""
        wanted = _number(request.params["id"])
        for fault in self._named(request).faults:
            if self._objects.keep(fault) == wanted:
                fault.remove()
                return self._fault(fault)
        raise Refused(404, f"there is no fault {wanted}")

    # -- the queue's own -------------------------------------------------------------------------

    def _queue(self, request: Request) -> Any:
        handle = self._named(request)
        if handle.service != "queue" or not hasattr(handle, "dead_letters"):
            raise Refused(422, f"{handle.name} is not a queue")
        return handle

    def get_attempts(self, request: Request) -> object:
        """The attempts of a queue, of all messages or of ``?id=``."""
        wanted = request.query("id")
        attempts = self._queue(request).attempts(**({"id": wanted} if wanted else {}))
        return [attempt_view(attempt) for attempt in attempts]

    def get_dead_letters(self, request: Request) -> object:
        """The dead letters of a queue."""
        return [dead_letter(letter) for letter in self._queue(request).dead_letters()]

    def retry_dead_letter(self, request: Request) -> object:
        """Give a dead letter another life."""
        handle = self._queue(request)
        with _contract():
            return message_view(handle.retry_dead_letter(decode_segment(request.params["id"])))

    # -- snapshots -------------------------------------------------------------------------------

    def get_snapshots(self, request: Request) -> object:
        """The snapshots the server keeps."""
        return [{"id": name} for name in self._snapshots]

    def take_snapshot(self, request: Request) -> object:
        """Keep the present data of all handles, under ``{"id": name}`` or a number."""
        wanted = _object(request, "id").get("id")
        if wanted is not None and (type(wanted) not in (int, str) or wanted == ""):
            raise Refused(422, f"the id of a snapshot is a text or a whole number, not {wanted!r}")
        name = str(next(self._snapshot_numbers) if wanted is None else wanted)
        self._snapshots[name] = self.cloud.snapshot()
        return {"id": name}

    def _snapshot(self, request: Request) -> str:
        name = decode_segment(request.params["id"])
        if name not in self._snapshots:
            near, known = _near(name, self._snapshots), ", ".join(self._snapshots) or "none"
            raise Refused(404, f"there is no snapshot {name!r}{near}; there are: {known}")
        return name

    def restore_snapshot(self, request: Request) -> object:
        """Put the data of a snapshot back."""
        name = self._snapshot(request)
        self.cloud.restore(self._snapshots[name])
        return {"id": name}

    def drop_snapshot(self, request: Request) -> object:
        """Forget a snapshot."""
        name = self._snapshot(request)
        del self._snapshots[name]
        return {"id": name}

    # -- remote handles --------------------------------------------------------------------------

    def call(self, request: Request) -> object:
        """One use of a remote handle: get a field or call a method of an object.

        ``{"object": number|handle name|null, "name": …, "args": […], "kwargs": {…}, "get": bool}``
        in the codec's form; answers ``{"value": …}`` or ``{"raise": …}``. The names are those the
        handles offer from afar, and no others.
        """
        body = _object(request, "object", "name", "args", "kwargs", "get")
        name, get = body.get("name"), body.get("get", False)
        arguments, keywords = body.get("args", []), body.get("kwargs", {})
        if not isinstance(name, str):
            raise Refused(422, f"name is the name of a field or a method, not {name!r}")
        if not isinstance(arguments, list) or not isinstance(keywords, dict):
            raise Refused(422, "args is a list, and kwargs an object")
        if not isinstance(get, bool):
            raise Refused(422, f"get is true or false, not {get!r}")
        arguments = self._decoded(arguments, "args")
        keywords = {key: self._decoded(item, "kwargs") for key, item in keywords.items()}
        try:
            target = self._target(body.get("object"))
        except (Refused, ContractError) as error:
            return {"raise": encode_error(ContractError(str(error)))}
        use = _use(target, name, get)
        try:
            # Also what an object does when it is looked at may fail.
            return {"value": encode(use(*arguments, **keywords), self._objects)}
        except Exception as error:
            return {"raise": encode_error(error)}

    def _target(self, wanted: object) -> Any:
        if wanted is None:
            return self.cloud
        if type(wanted) is int:
            return self._objects.get(wanted)
        if isinstance(wanted, str):
            return self._handle(wanted)
        raise Refused(422, f"object is a number, the name of a handle or null, not {wanted!r}")

    def _decoded(self, value: Any, where: str) -> Any:
        try:
            return decode(value, self._referred)
        except Unreadable as error:
            raise Refused(400, f"{where} is not in the codec's form ({error})") from None
        except ContractError as error:
            raise Refused(422, f"{where}: {error}") from None

    def _referred(self, number: int, *_: str) -> Any:
        return self._objects.get(number)


_MOVES = {
    "freeze": None,
    "resume": None,
    "advance": "by",
    "move_to": "to",
    "advance_to_next": None,
}
"""The actions of the clock, each with the field it needs."""
_PROTOCOLS: Mapping[str, Callable[..., Any]] = {
    "__len__": len,
    "__bool__": bool,
    "__iter__": list,
    "__getitem__": operator.getitem,
    "__enter__": lambda target: target.__enter__(),
    "__exit__": lambda target, *error: target.__exit__(*error),
}


def _use(target: Any, name: str, get: bool) -> Callable[..., Any]:
    """What is to be done with an object: a field read, a method called, a protocol followed."""
    kind, surface = surface_of(type(target))
    if surface is not None:
        if name in surface.protocols:
            return partial(_PROTOCOLS[name], target)
        if name in surface.fields and get:
            return lambda *_, **__: getattr(target, name)
        if name in surface.methods and not get:
            # Looked at with the call, because that may fail too.
            return lambda *args, **kwargs: getattr(target, name)(*args, **kwargs)
    shown = kind.rpartition(":")[2]
    if surface is None or name not in surface.names:
        offered = "nothing" if surface is None else ", ".join(surface.names)
        raise Refused(422, f"{name!r:.100} is private, or unknown: {shown} offers {offered}")
    told = 'a field: give "get": true' if not get else 'a method: leave "get" out'
    raise Refused(422, f"{name!r} of {shown} is {told}")


def _fault_kinds(plan: type[FaultPlan]) -> list[str]:
    """The methods that prepare a fault, but for the one that wants a function."""
    return [name for name in fault_words(plan) if name != "call"]


@contextlib.contextmanager
def _contract(status: int = 422) -> Iterator[None]:
    try:
        yield
    except (ContractError, TypeError) as error:
        raise Refused(status, str(error)) from error


def _guarded(response: Response) -> Response:
    if not isinstance(response, Effect):
        headers = list(response.headers)
        if not any(name == "Content-Security-Policy" for name, _ in headers):
            headers.append(("Content-Security-Policy", _POLICY))
        if isinstance(response, Answer):
            headers.append(("Cache-Control", "no-store"))
        response.headers = [*headers, *_GUARDS]
    return response


def _form(method: Callable[..., Any]) -> str:
    """How a method is called, in the words of the control API."""
    parameters = inspect.signature(method).parameters.values()
    args = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    fields = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    fields += ["times", "skip", "route", "command", "topic"]
    taken = f"It takes args [{', '.join(args)}] and" if args else "It takes no args, but"
    return f"{taken} the fields {', '.join(fields)}"


def _is_unicode(value: object) -> bool:
    return not isinstance(value, str) or not any("\ud800" <= one <= "\udfff" for one in value)


def _object(request: Request, *known: str) -> dict[str, Any]:
    """The body's fields, which are all among the ``known`` ones if there are any."""
    if not request.body:
        return {}
    try:
        body = json_value(request.body)
    except ValueError as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise Refused(422, f"the body is a JSON object, not {body!r}")
    unknown = [name for name in body if known and name not in known]
    if unknown:
        names, near = ", ".join(map(repr, unknown)), _near(unknown[0], known)
        raise Refused(422, f"there is no field {names} here{near}; there are: {', '.join(known)}")
    return body


def _near(word: object, known: Iterable[str]) -> str:
    """``", did you mean …?"`` where one of the known words is near."""
    return nearest(word, known) if isinstance(word, str) and len(word) < _LONGEST_WORD else ""


def _number(text: str | None) -> int:
    if text is None or text == "":
        return 0
    if not (text.isascii() and text.isdigit()) or len(text) > _MOST_DIGITS:
        raise Refused(422, f"a whole number is expected, not {text!r}")
    return int(text)


def _is_done(entry: Entry) -> bool:
    return not isinstance(entry, Call) or entry.outcome != "open"


def _row_of(cloud: Cloud, entry: Entry) -> dict[str, Any]:
    row = rows(cloud, [entry])[0]
    return {
        "number": row.number,
        "at": told(entry.at_us),
        "kind": "call" if isinstance(entry, Call) else entry.kind,
        "handle": entry.handle,
        "source": row.source,
        "target": row.target,
        "what": row.what,
        "answer": row.answer,
        "ok": row.ok,
        "done": _is_done(entry),
        "fault": row.fault,
        "note": row.note,
        "sent": row.sent,
        "got": row.got,
    }
