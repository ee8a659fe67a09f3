"""Commands that control a running server, such as ``pytest-fakecloud advance 24h``, and their client
of its control API.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import webbrowser
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, quote, urlsplit

from ..cloud.files import read_file, read_json, replace_file
from ..cloud.services import named
from ..core.command_line import Subparsers, complain
from ..core.errors import ContractError, ServiceError, brief, unknown_name
from ..core.hosts import is_loopback
from .addresses import CONTROL_URL, TOKEN_VARIABLE, URL_VARIABLE, control_token
from .control.endpoints import PREFIX

EXIT_REFUSED = 1
CONNECTS_WITHIN = 10.0
"""Time limit in real seconds for a connection."""
ANSWERS_WITHIN = 60.0
"""Time limit in real seconds for a response; then the server is assumed to hang."""
LASTS_AT_MOST = 600.0
"""The same for loading data, replaying a recording and calling a method of a fake."""
_SHOWN = 10
"""Maximum number of events that the clock commands print one by one."""
EPILOG = (
    f"The address of the server is --url, {URL_VARIABLE} or {CONTROL_URL}; its token is --token, "
    f"{TOKEN_VARIABLE} or the token that serve stores in your state folder. "
    "Exit code: 0 for success, 1 if the server rejects the command or does not respond, 2 for "
    "invalid options."
)


class CommandResult(NamedTuple):
    """The result of a command as data (``--json``) and as text, and whether it succeeded."""

    data: Any
    text: str = ""
    ok: bool = True


Argument = tuple[tuple[str, ...], Mapping[str, Any]]
"""The arguments of ``add_argument()``."""
Act = Callable[[Any, argparse.Namespace], CommandResult]
"""The implementation of a command. The first argument is the client of the server."""


class CliCommand(NamedTuple):
    """A command: its description, arguments and implementation.

    A command that does not connect to the control API receives the server's URL, not a client.
    """

    words: str
    arguments: tuple[Argument, ...]
    act: Act
    connects: bool


COMMANDS: dict[str, CliCommand] = {}


def _command(
    name: str, words: str, *arguments: Argument, connects: bool = True
) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        COMMANDS[name] = CliCommand(words, arguments, act, connects)
        return act

    return add


def _argument(*names: str, **options: Any) -> Argument:
    return names, options


def add_parsers(subparsers: Subparsers) -> None:
    for name, command in COMMANDS.items():
        parser = subparsers.add_parser(
            name,
            help=f"{command.words[0].lower()}{command.words[1:]}",
            description=f"{command.words}.",
            epilog=EPILOG,
        )
        parser.add_argument("--url", help="address of the running server")
        parser.add_argument("--token", help="its control token")
        parser.add_argument("--json", action="store_true", help="print the result as JSON")
        for names, options in command.arguments:
            parser.add_argument(*names, **options)
        parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    url = options.url or os.environ.get(URL_VARIABLE) or CONTROL_URL
    try:
        command = COMMANDS[options.command]
        if command.connects:
            with ControlClient(url, options.token or _kept_token(url)) as client:
                answer = command.act(client, options)
        else:
            answer = command.act(url, options)
    except (ContractError, ServiceError) as error:
        complain(str(error))
        return EXIT_REFUSED
    if options.json:
        print(json.dumps(answer.data, ensure_ascii=False, default=str))
    elif answer.text:
        print(answer.text)
    return 0 if answer.ok else EXIT_REFUSED


def _kept_token(url: str) -> str | None:
    """Return this user's stored token for a server on this machine, unless a variable sets one."""
    if os.environ.get(TOKEN_VARIABLE):
        return None
    host = urlsplit(url if "://" in url else f"http://{url}").hostname
    return control_token() if is_loopback(host or "") else None


# -- the client ------------------------------------------------------------------------------------


class ControlClient:
    """A connection to a control API. A context manager that closes it.

    ``token`` is the server's control token; by default the variable ``PYTEST_FAKECLOUD_TOKEN``.
    Every method raises ``ContractError`` if the server does not respond, rejects the request, or is
    another kind of server.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        import urllib3

        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
        except ValueError as error:
            raise ContractError(f"{url!r} is not a URL: {error}") from error
        if "token" in parse_qs(parts.query):
            raise ContractError(
                "a URL must not contain the control token, because URLs end up in logs; pass token=… "
                f"or set {TOKEN_VARIABLE}"
            )
        bearer_token = token or os.environ.get(TOKEN_VARIABLE, "")
        if not (bearer_token.isascii() and bearer_token.isprintable()):
            raise ContractError(
                f"{bearer_token!r} is not a control token: pass the string of printable ASCII "
                "characters that the server prints when it starts"
            )
        if not bearer_token:
            raise ContractError(
                f"{url} needs its control token: pass --token, or set {TOKEN_VARIABLE}"
            )
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._headers = {
            "Authorization": f"Bearer {bearer_token}",
            "Content-Type": "application/json",
        }
        self._pool = urllib3.PoolManager(retries=False, maxsize=1)

    def ask(self, method: str, path: str, body: Any = None, within: float = ANSWERS_WITHIN) -> Any:
        """Send a request and return the JSON of its response."""
        import urllib3

        try:
            answer = self._pool.request(
                method,
                f"{self.url}{PREFIX}{path}",
                body=None if body is None else json.dumps(body).encode(),
                headers=self._headers,
                timeout=urllib3.Timeout(connect=CONNECTS_WITHIN, read=within),
            )
        except urllib3.exceptions.ReadTimeoutError as error:
            raise ContractError(
                f"{self.url} did not answer {method} {path} within {within:g} s: "
                "it hangs, or is another kind of server"
            ) from error
        except urllib3.exceptions.SSLError as error:
            raise ContractError(
                f"the TLS connection to {self.url} failed ({error}): set SSL_CERT_FILE to the file "
                "in the variables that the server prints, or pass its URL with http:// if it was "
                "started without --tls"
            ) from error
        except urllib3.exceptions.HTTPError as error:
            raise ContractError(
                f"no stand-alone server responds at {self.url} ({_reason(error)}); "
                "start one with: pytest-fakecloud serve"
            ) from error
        try:
            content = json.loads(answer.data)
        except (ValueError, RecursionError):
            raise ContractError(
                f"{self.url} is not a control API: its response is not JSON"
            ) from None
        if answer.status >= 400:
            raise ContractError(f"{self.url} rejected {method} {path}: {_message(content)}")
        return content

    def fakes(self) -> list[dict[str, Any]]:
        """Return the fakes of the server, each with its ``name``, ``fixture`` and ``url``."""
        state = self.ask("GET", "/state")
        fakes = state.get("fakes") if isinstance(state, dict) else None
        if not isinstance(fakes, list) or not all(
            isinstance(fake, dict) and {"name", "fixture"} <= fake.keys() for fake in fakes
        ):
            raise ContractError(f"{self.url} is not a control API: it returned {state!r:.100}")
        return fakes

    def fake(self, name: str) -> str:
        """Return the name of a fake, given its name or that of its service or fixture."""
        fakes, service = self.fakes(), named(name)
        fixture = None if service is None else service.fixture
        # Prefer a fake with this name to the first one of its service.
        for field, wanted in (("name", name), ("name", fixture), ("fixture", fixture)):
            for fake in fakes:
                if fake[field] == wanted:
                    return str(fake["name"])
        raise ContractError(unknown_name("fake", name, [fake["name"] for fake in fakes]))

    def call(self, fake: str, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of a fake; an exception that it raises becomes a ``ContractError``."""
        body = {"object": fake, "name": method, "args": args, "kwargs": kwargs}
        answer = self.ask("POST", "/call", body, LASTS_AT_MOST)
        match answer:
            case {"value": value}:
                return value
            case {"raise": {"text": text}}:
                raise ContractError(str(text))
        raise ContractError(f"{self.url} is not a control API: it returned {answer!r:.100}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.clear()


def in_path(name: str) -> str:
    return quote(name, safe="")


def _message(content: Any) -> object:
    error = content.get("error", content) if isinstance(content, dict) else content
    return error.get("message", error) if isinstance(error, dict) else error


def _reason(error: Exception) -> str:
    """Return why a connection failed, without the objects that urllib3 names in its errors."""
    cause = error.__cause__ or error.__context__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    if cause is None:  # The URL is wrong.
        return str(error)
    return "it did not connect in time" if isinstance(cause, TimeoutError) else "connection lost"


# -- the server ------------------------------------------------------------------------------------


_ADVICE = {
    "unstubbed": " Forward its origin to your application with pytest-fakecloud serve --forward "
    'ORIGIN=http://127.0.0.1:3000, answer it under "destinations" of a state file, or do either on the '
    "page Violations of the console",
    "unused_fault": ": pytest-fakecloud faults --clear",
}
"""What to do about violations of a server, by kind."""


@_command("state", "Show the fakes, the clock and the violations of a server")
def _state(client: ControlClient, options: argparse.Namespace) -> CommandResult:
    state = client.ask("GET", "/state")
    violations = client.ask("GET", "/violations")
    clock = state["clock"]
    lines = [
        f"clock     {clock['now']}, {clock['mode']}, next due {clock['next_due'] or 'never'}",
        f"seed      {state['seed']!r}",
        *(f"{fake['name']:<9} {fake['url']}" for fake in state["fakes"]),
        f"violations  {len(violations)}",
        *(
            f"  [{violation['kind']}] {violation['what']}{_ADVICE.get(violation['kind'], '')}"
            for violation in violations
        ),
    ]
    return CommandResult({**state, "violations": violations}, "\n".join(lines))


@_command(
    "env",
    "Print the environment variables of a server's fakes as export lines for a shell",
    _argument(
        "--dotenv",
        metavar="FILE",
        help="write the variables to a .env file, keeping its other lines",
    ),
)
def _env(client: ControlClient, options: argparse.Namespace) -> CommandResult:
    variables = client.ask("GET", "/env")
    if options.dotenv is None:
        exports = (f"export {name}={shlex.quote(value)}" for name, value in variables.items())
        return CommandResult(variables, "\n".join(exports))
    write_dotenv(Path(options.dotenv), variables)
    return CommandResult(variables)


@_command(
    "console",
    "Open the console of a server in the browser, signed in",
    _argument("--print", action="store_true", help="only print a URL that signs in once"),
)
def _console(client: ControlClient, options: argparse.Namespace) -> CommandResult:
    address = client.ask("POST", "/codes", {})
    if options.print or options.json or not webbrowser.open(address["url"]):
        return CommandResult(address, address["url"])
    return CommandResult(address)


@_command(
    "health",
    "Report whether a server is ready; needs no token",
    _argument(
        "--live",
        action="store_true",
        help="report whether the server runs, not whether it is ready",
    ),
    connects=False,
)
def _health(url: str, options: argparse.Namespace) -> CommandResult:
    import urllib3

    # The certificate is not checked: the request has no secrets, and the server signs its own.
    path = "live" if options.live else "ready"
    place = f"{url.partition('?')[0].rstrip('/')}{PREFIX}/{path}"
    try:
        with urllib3.PoolManager(retries=False, timeout=5, cert_reqs="CERT_NONE") as pool:
            answer = pool.request("GET", place)
    except urllib3.exceptions.HTTPError as error:
        raise ContractError(f"{url} is not {path}: {error}") from None
    try:
        body = json.loads(answer.data)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict) or path not in body:
        raise ContractError(
            f"{url} is not a stand-alone server: its response to GET {PREFIX}/{path} is "
            f"{brief(answer.data, 60)} instead of a JSON object with {path!r}. Pass the URL that "
            f"'pytest-fakecloud serve' prints, as --url or in {URL_VARIABLE}"
        )
    ok = answer.status == 200
    words = path if ok else f"not {path}: {body.get('loading') or answer.status}"
    return CommandResult(body, words, ok)


# -- the clock -------------------------------------------------------------------------------------


def _clock_command(name: str, words: str, action: str, field: str = "", **value: str) -> None:
    """Add a command for an action of the clock, whose argument is sent as ``field``."""
    arguments = [_argument("value", **value)] if field else []

    @_command(name, words, *arguments)
    def act(client: ControlClient, options: argparse.Namespace) -> CommandResult:
        body = {"action": action, **({field: options.value} if field else {})}
        clock = client.ask("POST", "/clock", body)
        fired = clock["fired"]
        lines = [f"{clock['now']}, {clock['mode']}", *(f"  {event}" for event in fired[:_SHOWN])]
        if len(fired) > _SHOWN:
            lines.append(f"  ... and {len(fired) - _SHOWN} more, all of them with --json:")
            # Count events by label. In each line, the label follows the time.
            counts = Counter(event.partition(" ")[2] for event in fired)
            lines += [f"  {count} x {label}" for label, count in counts.most_common(_SHOWN)]
        return CommandResult(clock, "\n".join(lines))


_clock_command(
    "advance", "Advance the clock and run everything that becomes due", "advance", "by",
    metavar="DURATION", help="such as 24h, 1d2h or 200ms",
)  # fmt: skip
_clock_command(
    "move-to", "Move the clock to a time", "move_to", "to",
    metavar="TIME", help="ISO 8601 with an offset",
)  # fmt: skip
_clock_command(
    "next", "Move the clock to the next due time and run everything that is due", "advance_to_next"
)
_clock_command("freeze", "Freeze the clock", "freeze")
_clock_command("resume", "Let the clock run again", "resume")


# -- faults ----------------------------------------------------------------------------------------


@_command(
    "fault",
    "Inject a fault",
    _argument("fake", metavar="FAKE", help="kv, vector, broker, queue, or a fake's name"),
    _argument("kind", metavar="KIND", help="answer, drop, lose_response, delay, down, ..."),
    _argument("args", nargs="*", metavar="ARG", help="arguments of the kind, such as 503"),
    _argument(
        "--times", type=int, metavar="N", help="maximum number of times that the fault fires"
    ),
    _argument("--skip", type=int, metavar="N", help="number of matching calls that pass first"),
    _argument("--route", help="only calls of this endpoint: its name, path or 'POST /path'"),
    _argument(
        "--where",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="only calls with this value of a field, such as command=SET; may be repeated",
    ),
)
def _fault(client: ControlClient, options: argparse.Namespace) -> CommandResult:
    fields: dict[str, Any] = {}
    for word in options.where:
        name, sign, text = word.partition("=")
        if not sign or not name:
            raise ContractError(f"{word!r} is not FIELD=VALUE: pass e.g. command=SET")
        fields[name] = _json_or_text(text)
    fields |= _options(options, "times", "skip", "route")
    body = {
        **fields,
        "kind": options.kind,
        "args": [_json_or_text(argument) for argument in options.args],
    }
    fault = client.ask("POST", _faults_of(client, options.fake), body)
    return CommandResult(fault, fault["text"])


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _options(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    return {name: vars(options)[name] for name in names if vars(options)[name] is not None}


def _faults_of(client: ControlClient, name: str) -> str:
    return f"/fakes/{in_path(client.fake(name))}/faults"


@_command(
    "faults",
    "List the injected faults, or remove them",
    _argument("fake", nargs="?", metavar="FAKE", help="only the faults of this fake"),
    _argument("--clear", action="store_true", help="remove the faults instead of listing them"),
)
def _faults(client: ControlClient, options: argparse.Namespace) -> CommandResult:
    names = [options.fake] if options.fake else [fake["name"] for fake in client.fakes()]
    method = "DELETE" if options.clear else "GET"
    faults_by_fake = {name: client.ask(method, _faults_of(client, name)) for name in names}
    lines = [
        f"{name}: {fault['text']}" for name, faults in faults_by_fake.items() for fault in faults
    ]
    return CommandResult(faults_by_fake, "\n".join(lines) or "no faults")


# -- the queue -------------------------------------------------------------------------------------


@_command(
    "publish",
    "Publish a message to the queue",
    _argument("destination", metavar="URL", help="the destination"),
    _argument("--body", help="text to deliver"),
    _argument("--body-json", metavar="JSON", help="JSON to deliver, with its content type"),
    _argument(
        "--header", action="append", default=[], metavar="'NAME: VALUE'", help="may be repeated"
    ),
    _argument("--delay", metavar="DURATION", help="delay before the delivery, such as 10s"),
    _argument("--retries", type=int, metavar="N", help="attempts after the first one (default: 3)"),
    _argument("--queue", metavar="NAME", help="the ordered queue to use"),
    _argument("--method", metavar="METHOD", help="HTTP method of the delivery (default: POST)"),
    _argument("--callback", metavar="URL", help="URL that receives the response of each attempt"),
    _argument(
        "--failure-callback",
        metavar="URL",
        help="URL that receives the message if all attempts failed",
    ),
)
def _publish(client: ControlClient, arguments: argparse.Namespace) -> CommandResult:
    options = _options(
        arguments, "body", "delay", "retries", "queue", "method", "callback", "failure_callback"
    )
    if arguments.body_json is not None:
        if arguments.body is not None:
            raise ContractError("--body and --body-json cannot be combined: pass one of them")
        try:
            options["json"] = json.loads(arguments.body_json)
        except ValueError as error:
            raise ContractError(f"--body-json is not JSON: {error}") from None
    headers = {}
    for line in arguments.header:
        name, sign, text = line.partition(":")
        if not sign:
            raise ContractError(f"{line!r} is not a header: pass 'NAME: VALUE'")
        headers[name.strip()] = text.strip()
    if headers:
        options["headers"] = headers
    message = client.call(client.fake("queue"), "publish", arguments.destination, **options)
    return CommandResult({"id": message["id"], "url": message["url"]}, message["id"])


# -- data ------------------------------------------------------------------------------------------


@_command(
    "replay",
    "Send a recorded session to the fakes and compare the responses",
    _argument("file", metavar="FILE", help="an HTTP archive (HAR)"),
    _argument("--into", metavar="FAKE", help="send all requests to this fake"),
    _argument("--move-clock", action="store_true", help="advance the clock by the recorded pauses"),
)
def _replay(client: ControlClient, options: argparse.Namespace) -> CommandResult:
    archive = read_json(options.file, "an HTTP archive (HAR)")
    into = client.fake(options.into) if options.into else None
    body = {"archive": archive, "move_clock": options.move_clock, "into": into}
    lines = client.ask("POST", "/replay", body, LASTS_AT_MOST)["differences"]
    return CommandResult(lines, "\n".join(lines) or "all responses are the same", not lines)


@_command(
    "load",
    "Load a state file",
    _argument("value", metavar="FILE", help="see docs/guides/server.md"),
)
def _load(client: ControlClient, options: argparse.Namespace) -> CommandResult:
    from .state_file import read_state

    file = Path(options.value)
    # Paths in the file are relative to its folder, which need not be the server's.
    body = {"state": read_state(file), "folder": str(file.parent.resolve())}
    loaded = client.ask("POST", "/load", body, LASTS_AT_MOST)["loaded"]
    words = ", ".join(f"{count} of {name}" for name, count in loaded.items())
    return CommandResult(loaded, f"loaded {file}: {words or 'only destinations and faults'}")


@_command(
    "save",
    "Save the state of a server in a state file",
    _argument("value", metavar="FILE", help="an existing file is replaced"),
)
def _save(client: ControlClient, options: argparse.Namespace) -> CommandResult:
    from .saving import encoded_state

    state = client.ask("GET", "/saved", within=LASTS_AT_MOST)
    data = encoded_state(state)
    try:
        replace_file(Path(options.value), data)
    except OSError as error:
        raise ContractError(f"cannot write {options.value}: {error.strerror}") from None
    return CommandResult({"bytes": len(data)}, f"saved {len(data):,} bytes in {options.value}")


@_command(
    "snapshot",
    "Take a snapshot of all fakes",
    _argument("name", nargs="?", metavar="NAME", help="name of the snapshot (default: a number)"),
)
def _snapshot(client: ControlClient, options: argparse.Namespace) -> CommandResult:
    snapshot = client.ask("POST", "/snapshots", {"id": options.name})
    return CommandResult(snapshot, snapshot["id"])


@_command(
    "restore", "Restore a snapshot", _argument("value", metavar="NAME", help="name of the snapshot")
)
def _restore(client: ControlClient, options: argparse.Namespace) -> CommandResult:
    return CommandResult(client.ask("POST", f"/snapshots/{in_path(options.value)}"))


@_command(
    "reset",
    "Return to the baseline: the data that --load loaded",
    _argument("fake", nargs="?", metavar="FAKE", help="only this fake"),
)
def _reset(client: ControlClient, options: argparse.Namespace) -> CommandResult:
    fake = client.fake(options.fake) if options.fake else None
    return CommandResult(client.ask("POST", "/reset", {"fake": fake}))


# -- files of environment variables ----------------------------------------------------------------

_PLAIN = re.compile(r"[\w.:/@+=%-]*")
_NOT_IN_SINGLE_QUOTES = re.compile(r"['\n\r]|\\\\|\\$")
"""Some programs read two backslashes as one, and one at the end as an escaped quote."""
_NOT_IN_DOUBLE_QUOTES = re.compile(r'["$`\\\n\r]')
_STATEMENT = re.compile(
    r"""(?P<before>\ufeff?[ \t]*(?:export[ \t]+)?)(?P<name>\w+)[ \t]*=[ \t]*
        (?:'[^']*'|"(?:[^"\\]|\\.)*"|`[^`]*`)?[^\n]*|[^\n]*""",
    re.VERBOSE | re.DOTALL,
)
"""An assignment, whose quoted value may have several lines, or another line, without its end.

Only a line feed ends a line: programs that read these files keep all other characters in values.
"""


def write_dotenv(path: Path, variables: Mapping[str, str]) -> None:
    """Write the variables to a ``.env`` file that only its owner can read.

    Keeps every byte of the other lines, and the line endings and ``export`` of the file. The file
    is replaced at once, so that an error loses nothing. Raises ``ContractError`` if the file cannot
    be read or written, or cannot represent a value.
    """
    try:
        text = read_file(path).decode("utf-8") if path.exists() else ""
    except ValueError:
        raise ContractError(f"{path} is not UTF-8: pass another file") from None
    end = "\r\n" if text.partition("\n")[0].endswith("\r") else "\n"
    missing = dict(variables)
    parts: list[str] = []
    at = 0
    while at < len(text):
        statement = _STATEMENT.match(text, at)
        assert statement is not None  # the second alternative matches every line
        at = statement.end() + 1
        name = statement["name"]
        if name is None or name not in variables:
            parts.append(text[statement.start() : at])
        elif name in missing:
            parts.append(statement["before"] + _assignment(name, missing.pop(name)) + end)
    if missing and parts and not parts[-1].endswith("\n"):
        parts.append(end)
    parts += [_assignment(name, value) + end for name, value in missing.items()]
    try:
        replace_file(path.resolve(), "".join(parts).encode("utf-8"))
    except OSError as error:
        raise ContractError(f"cannot write {path}: {error.strerror}") from None


def _assignment(name: str, value: str) -> str:
    if _PLAIN.fullmatch(value):
        return f"{name}={value}"
    if not _NOT_IN_SINGLE_QUOTES.search(value):
        return f"{name}='{value}'"
    if not _NOT_IN_DOUBLE_QUOTES.search(value):
        return f'{name}="{value}"'
    raise ContractError(
        f"{name} cannot be written to a .env file, because programs read quotes, $, ` and backslashes "
        "in its value differently: choose a value without them"
    )
