"""Commands that control a running server, such as ``pytest-fakecloud advance 24h``."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
import webbrowser
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from ..core.errors import ContractError, ServiceError
from ..core.wording import unknown_name
from ..files import read_file
from ..reporting.private_files import write_private
from ..services import named
from .control.requests import PREFIX
from .development import CONTROL_URL, TOKEN_VARIABLE, URL_VARIABLE, control_token
from .hosts import is_loopback
from .remote import RemoteCloud

EXIT_REFUSED = 1
SHOWN = 10
"""Maximum number of events that the clock commands print one by one."""
_PLAIN = re.compile(r"[\w.:/@+=%-]*")
_NOT_IN_SINGLE_QUOTES = re.compile(r"['\n\r]|\\\\|\\$")
"""Some programs read two backslashes as one, and one at the end as an escaped quote."""
_NOT_IN_DOUBLE_QUOTES = re.compile(r'["$`\\\n\r]')
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?(\w+)\s*=")
EPILOG = (
    f"The address of the server is --url, {URL_VARIABLE} or {CONTROL_URL}; its token is --token, "
    f"{TOKEN_VARIABLE} or the token that serve stores in your state folder. "
    "Exit code: 0 for success, 1 if the server rejects the command or does not respond, 2 for "
    "invalid options."
)


@dataclass(frozen=True)
class Answer:
    """The result of a command as data (``--json``) and as text, and whether it succeeded."""

    data: Any
    text: str
    well: bool = True


@dataclass(frozen=True)
class Command:
    """A command: its description, arguments and implementation.

    ``act`` is None for ``health``, because it does not connect to the control API.
    """

    words: str
    arguments: Callable[[argparse.ArgumentParser], object]
    act: Callable[[RemoteCloud, argparse.Namespace], Answer] | None


def add_parsers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    for name, command in COMMANDS.items():
        parser = commands.add_parser(
            name,
            help=f"{command.words[0].lower()}{command.words[1:]}",
            description=f"{command.words}.",
            epilog=EPILOG,
        )
        parser.add_argument("--url", help="address of the running server")
        parser.add_argument("--token", help="its control token")
        parser.add_argument("--json", action="store_true", help="print the result as JSON")
        command.arguments(parser)


def run(given: argparse.Namespace) -> int:
    url = given.url or os.environ.get(URL_VARIABLE) or CONTROL_URL
    try:
        act = COMMANDS[given.command].act
        if act is None:
            answer = _health(url, given)
        else:
            with RemoteCloud(url, given.token or _kept_token(url)) as cloud:
                answer = act(cloud, given)
    except (ContractError, ServiceError) as error:
        complain(str(error))
        return EXIT_REFUSED
    if given.json:
        print(json.dumps(answer.data, ensure_ascii=False, default=str))
    elif answer.text:
        print(answer.text)
    return 0 if answer.well else EXIT_REFUSED


def _kept_token(url: str) -> str | None:
    """Return this user's stored token if the server is on this machine and the environment sets no
    token; otherwise None.
    """
    if os.environ.get(TOKEN_VARIABLE):
        return None
    host = urlsplit(url if "://" in url else f"http://{url}").hostname
    return control_token() if is_loopback(host or "") else None


def complain(text: str) -> None:
    print(f"pytest-fakecloud: {text}", file=sys.stderr)


def _ask(cloud: RemoteCloud, method: str, path: str, body: Any = None) -> Any:
    return cloud._connection.ask(method, path, body)


def _value(text: str) -> Any:
    """Return an argument parsed as JSON, or unchanged if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _handle(cloud: RemoteCloud, name: str) -> Any:
    """Return the fake with this name, or the first fake of the service with this name."""
    known = [one.name for one in cloud.handles]
    service = named(name)
    for one in cloud.handles:
        if name == one.name or (service is not None and service.fixture == one.fixture):
            return one
    raise ContractError(unknown_name("fake", name, known))


# -- the clock -------------------------------------------------------------------------------------


def _clock(action: str, field: str = "") -> Callable[[RemoteCloud, argparse.Namespace], Answer]:
    def act(cloud: RemoteCloud, given: argparse.Namespace) -> Answer:
        body = {"action": action, **({field: given.value} if field else {})}
        clock = _ask(cloud, "POST", "/clock", body)
        fired = clock["fired"]
        lines = [f"{clock['now']}, {clock['mode']}", *(f"  {one}" for one in fired[:SHOWN])]
        if len(fired) > SHOWN:
            lines.append(f"  ... and {len(fired) - SHOWN} more, all of them with --json:")
            # Count events by label. In each line, the label follows the time.
            counts = Counter(one.partition(" ")[2] for one in fired)
            lines += [f"  {count} x {label}" for label, count in counts.most_common(SHOWN)]
        return Answer(clock, "\n".join(lines))

    return act


def _one(name: str, words: str) -> Callable[[argparse.ArgumentParser], object]:
    return lambda parser: parser.add_argument("value", metavar=name, help=words)


def _nothing(parser: argparse.ArgumentParser) -> None:
    pass


# -- looking ---------------------------------------------------------------------------------------


def _state(cloud: RemoteCloud, given: argparse.Namespace) -> Answer:
    state = _ask(cloud, "GET", "/state")
    problems = _ask(cloud, "GET", "/problems")
    clock = state["clock"]
    lines = [f"clock     {clock['now']}, {clock['mode']}, next due {clock['next_due'] or 'never'}"]
    lines.append(f"seed      {state['seed']!r}")
    lines += [f"{one['name']:<9} {one['url']}" for one in state["handles"]]
    lines.append(f"problems  {len(problems)}")
    lines += [f"  [{one['kind']}] {one['text']}" for one in problems]
    return Answer({**state, "problems": problems}, "\n".join(lines))


def _env_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dotenv",
        metavar="FILE",
        help="write the variables to a .env file, keeping its other lines",
    )


def _env(cloud: RemoteCloud, given: argparse.Namespace) -> Answer:
    variables = _ask(cloud, "GET", "/env")
    if given.dotenv is None:
        exports = (f"export {name}={shlex.quote(value)}" for name, value in variables.items())
        return Answer(variables, "\n".join(exports))
    write_dotenv(Path(given.dotenv), variables)
    return Answer(variables, "")


def write_dotenv(path: Path, variables: Mapping[str, str]) -> None:
    """Write the variables to a ``.env`` file that only its owner can read; keep its other lines.

    Raises ``ContractError`` if the file cannot be read or written, or if it cannot represent a
    value.
    """
    try:
        lines = read_file(path).decode("utf-8").splitlines() if path.exists() else []
    except ValueError:
        raise ContractError(f"{path} is not UTF-8: pass another file") from None
    missing = dict(variables)
    kept = []
    for line in lines:
        found = _ASSIGNMENT.match(line)
        if found is None or found[1] not in variables:
            kept.append(line)
        elif found[1] in missing:
            kept.append(_assignment(found[1], missing.pop(found[1])))
    kept += [_assignment(name, value) for name, value in missing.items()]
    try:
        write_private(path, "\n".join([*kept, ""]))
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


def _console_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--print", action="store_true", help="only print a URL that signs in once")


def _console(cloud: RemoteCloud, given: argparse.Namespace) -> Answer:
    found = _ask(cloud, "POST", "/codes", {})
    if given.print or given.json or not webbrowser.open(found["url"]):
        return Answer(found, found["url"])
    return Answer(found, "")


def _health_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--live",
        action="store_true",
        help="report whether the server runs, not whether it is ready",
    )


def _health(url: str, given: argparse.Namespace) -> Answer:
    """Return whether a server is ready. The request needs no token."""
    import urllib3

    path = "live" if given.live else "ready"
    place = f"{url.partition('?')[0].rstrip('/')}{PREFIX}/{path}"
    try:
        with urllib3.PoolManager(retries=False, timeout=5, cert_reqs="CERT_NONE") as pool:
            answer = pool.request("GET", place)
            found = json.loads(answer.data)
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise ContractError(f"{url} is not {path}: {error}") from None
    if not isinstance(found, dict):
        raise ContractError(f"{url} is not {path}: it is another kind of server")
    well = answer.status == 200
    words = path if well else f"not {path}: {found.get('loading') or answer.status}"
    return Answer(found, words, well)


# -- faults ----------------------------------------------------------------------------------------


def _fault_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("fake", metavar="FAKE", help="kv, vector, broker, queue, or a fake's name")
    parser.add_argument("kind", metavar="KIND", help="answer, drop, lose_answer, delay, down, ...")
    parser.add_argument("args", nargs="*", metavar="ARG", help="arguments of the kind, such as 503")
    parser.add_argument(
        "--times", type=int, metavar="N", help="maximum number of times that the fault fires"
    )
    parser.add_argument(
        "--skip", type=int, metavar="N", help="number of matching calls that pass first"
    )
    parser.add_argument(
        "--route", help="only calls of this endpoint: its name, path or 'POST /path'"
    )
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="only calls with this value of a field, such as command=SET; may be repeated",
    )


def _fault(cloud: RemoteCloud, given: argparse.Namespace) -> Answer:
    fields: dict[str, Any] = {}
    for word in given.where:
        name, sign, text = word.partition("=")
        if not sign or not name:
            raise ContractError(f"{word!r} is not FIELD=VALUE: pass e.g. command=SET")
        fields[name] = _value(text)
    for name in ("times", "skip", "route"):
        if getattr(given, name) is not None:
            fields[name] = getattr(given, name)
    body = {**fields, "kind": given.kind, "args": [_value(one) for one in given.args]}
    fault = _ask(cloud, "POST", f"{_place(cloud, given.fake)}/faults", body)
    return Answer(fault, fault["text"])


def _place(cloud: RemoteCloud, name: str) -> str:
    return f"/handles/{quote(_handle(cloud, name).name, safe='')}"


def _faults_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("fake", nargs="?", metavar="FAKE", help="only the faults of this fake")
    parser.add_argument(
        "--clear", action="store_true", help="remove the faults instead of listing them"
    )


def _faults(cloud: RemoteCloud, given: argparse.Namespace) -> Answer:
    handles = [_handle(cloud, given.fake)] if given.fake else list(cloud.handles)
    found: dict[str, Any] = {}
    for handle in handles:
        place = f"{_place(cloud, handle.name)}/faults"
        found[handle.name] = _ask(cloud, "DELETE" if given.clear else "GET", place)
    lines = [f"{name}: {one['text']}" for name, faults in found.items() for one in faults]
    return Answer(found, "\n".join(lines) or "no faults")


# -- the queue -------------------------------------------------------------------------------------


def _publish_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("destination", metavar="URL", help="the destination")
    parser.add_argument("--body", help="text to deliver")
    parser.add_argument(
        "--body-json", metavar="JSON", help="JSON to deliver, with its content type"
    )
    parser.add_argument(
        "--header", action="append", default=[], metavar="'NAME: VALUE'", help="may be repeated"
    )
    parser.add_argument(
        "--delay", metavar="DURATION", help="delay before the delivery, such as 10s"
    )
    parser.add_argument(
        "--retries", type=int, metavar="N", help="attempts after the first one (default: 3)"
    )
    parser.add_argument("--queue", metavar="NAME", help="the ordered queue to use")
    parser.add_argument(
        "--method", metavar="METHOD", help="HTTP method of the delivery (default: POST)"
    )
    parser.add_argument(
        "--callback", metavar="URL", help="URL that receives the response of each attempt"
    )
    parser.add_argument(
        "--failure-callback",
        metavar="URL",
        help="URL that receives the message if all attempts failed",
    )


def _publish(cloud: RemoteCloud, given: argparse.Namespace) -> Answer:
    options: dict[str, Any] = {}
    for name in ("body", "delay", "retries", "queue", "method", "callback", "failure_callback"):
        if getattr(given, name) is not None:
            options[name] = getattr(given, name)
    if given.body_json is not None:
        if given.body is not None:
            raise ContractError("--body and --body-json cannot be combined: pass one of them")
        try:
            options["json"] = json.loads(given.body_json)
        except ValueError as error:
            raise ContractError(f"--body-json is not JSON: {error}") from None
    headers = {}
    for line in given.header:
        name, sign, text = line.partition(":")
        if not sign:
            raise ContractError(f"{line!r} is not a header: pass 'NAME: VALUE'")
        headers[name.strip()] = text.strip()
    if headers:
        options["headers"] = headers
    message = _handle(cloud, "queue").publish(given.destination, **options)
    return Answer({"id": message.id, "url": message.url}, str(message.id))


# -- data ------------------------------------------------------------------------------------------


def _replay_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="an HTTP archive (HAR)")
    parser.add_argument("--into", metavar="FAKE", help="send all requests to this fake")
    parser.add_argument(
        "--move-clock", action="store_true", help="advance the clock by the recorded pauses"
    )


def _replay(cloud: RemoteCloud, given: argparse.Namespace) -> Answer:
    options: dict[str, Any] = {}
    if given.into:
        options["into"] = _handle(cloud, given.into)
    if given.move_clock:
        options["move_clock"] = True
    differences = cloud.replay(given.file, **options)
    lines = [str(one) for one in differences]
    return Answer(lines, "\n".join(lines) or "all responses are the same", not lines)


def _load(cloud: RemoteCloud, given: argparse.Namespace) -> Answer:
    from .state_file import load_state, read_state

    file = Path(given.value)
    loaded: dict[str, int] = {}

    def progress(name: str, done: int, whole: int) -> None:
        loaded[name] = max(done, loaded.get(name, 0))

    load_state(cloud, read_state(file), file.parent, progress)
    words = ", ".join(f"{count} of {name}" for name, count in loaded.items())
    return Answer(loaded, f"loaded {file}: {words or 'only destinations and faults'}")


def _snapshot(cloud: RemoteCloud, given: argparse.Namespace) -> Answer:
    kept = _ask(cloud, "POST", "/snapshots", {"id": given.name} if given.name else {})
    return Answer(kept, kept["id"])


def _restore(cloud: RemoteCloud, given: argparse.Namespace) -> Answer:
    return Answer(_ask(cloud, "POST", f"/snapshots/{quote(given.value, safe='')}"), "")


def _reset(cloud: RemoteCloud, given: argparse.Namespace) -> Answer:
    body = {"handle": _handle(cloud, given.fake).name} if given.fake else {}
    return Answer(_ask(cloud, "POST", "/reset", body), "")


def _optional(name: str, words: str) -> Callable[[argparse.ArgumentParser], object]:
    return lambda parser: parser.add_argument(name, nargs="?", metavar=name.upper(), help=words)


COMMANDS: Mapping[str, Command] = {
    "state": Command("Show the fakes, the clock and the problems of a server", _nothing, _state),
    "env": Command(
        "Print the environment variables of a server's fakes as export lines for a shell",
        _env_arguments, _env,
    ),
    "console": Command(
        "Open the console of a server in the browser, signed in", _console_arguments, _console
    ),
    "health": Command("Report whether a server is ready; needs no token", _health_arguments, None),
    "advance": Command(
        "Advance the clock and run everything that becomes due",
        _one("DURATION", "such as 24h, 1d2h or 200ms"), _clock("advance", "by"),
    ),
    "move-to": Command(
        "Move the clock to a time",
        _one("TIME", "ISO 8601 with an offset"), _clock("move_to", "to"),
    ),
    "next": Command(
        "Move the clock to the next due time and run everything that is due",
        _nothing, _clock("advance_to_next"),
    ),
    "freeze": Command("Freeze the clock", _nothing, _clock("freeze")),
    "resume": Command("Let the clock run again", _nothing, _clock("resume")),
    "fault": Command("Inject a fault", _fault_arguments, _fault),
    "faults": Command("List the injected faults, or remove them", _faults_arguments, _faults),
    "publish": Command("Publish a message to the queue", _publish_arguments, _publish),
    "replay": Command(
        "Send a recorded session to the fakes and compare the responses", _replay_arguments, _replay
    ),
    "load": Command("Load a state file", _one("FILE", "see docs/guides/server.md"), _load),
    "snapshot": Command(
        "Take a snapshot of all fakes",
        _optional("name", "name of the snapshot (default: a number)"), _snapshot,
    ),
    "restore": Command("Restore a snapshot", _one("NAME", "name of the snapshot"), _restore),
    "reset": Command(
        "Return to the baseline: the data that --load loaded", _optional("fake", "only this fake"),
        _reset,
    ),
}  # fmt: skip
