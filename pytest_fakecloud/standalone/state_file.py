"""State files: JSON files with the initial data, destinations and faults of fakes.

The format is the JSON Schema in ``state.schema.json``. A file is validated completely before any
fake is changed. The data of each service is then passed to ``load()`` of its fake.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from ..cloud.files import DATA_BYTES, open_file, read_file
from ..cloud.services import SERVICES, part_of, saved_part, split_part
from ..core.assets import asset
from ..core.errors import ContractError, ServiceError, brief, one_line, unknown_name
from ..core.json_schema import violations
from ..core.plain_data import bytes_from_plain
from ..faults.fault import Fault, setting_over
from ..faults.plan import FaultPlan, fault_kinds, without_effect

if TYPE_CHECKING:
    from ..cloud.cloud import Cloud
    from ..cloud.fake import Snapshot


AT_ONCE = 2_000
"""Number of keys, records or messages loaded between two progress reports."""
SCHEMA: dict[str, Any] = orjson.loads(asset(__file__, "state.schema.json"))


def read_state(file: Path) -> dict[str, Any]:
    """Return the content of a state file; raise ``ContractError`` for its first error.

    For an ``.rdb`` file of a real server, return the content of a state file that refers to it.
    """
    try:
        with open_file(file, DATA_BYTES) as opened:
            head = opened.read(16)
        for service in SERVICES.values():
            for field, beginnings in service.files.items():
                if head.startswith(beginnings):
                    return {str(service.word): {field: file.name}}
        content = orjson.loads(read_file(file))
    except orjson.JSONDecodeError as error:
        raise ContractError(
            f"{file!s:.200} is not JSON: {error.msg}, line {error.lineno} column {error.colno}"
        ) from None
    return checked_state(content, file)


def checked_state(content: Any, name: object) -> dict[str, Any]:
    """Return the content of a state file; raise ``ContractError``, which begins with its name."""
    try:
        violation = next(violations(content, SCHEMA, "the state file"), None)
    except RecursionError:
        violation = "its values are nested too deeply"
    if violation is not None:
        raise ContractError(f"{name}: {violation}")
    state: dict[str, Any] = content
    return state


def load_state(
    cloud: Cloud,
    content: Mapping[str, Any],
    folder: Path,
    progress: Callable[[str, int, int], None] = lambda name, done, whole: None,
) -> None:
    """Load a state file into the open fakes of a cloud, including destinations and faults.

    Paths in the file are relative to ``folder``. ``progress`` receives the service, the number of
    items loaded so far, and their total number. Raises ``ContractError``, which names the location
    in the file, for data that a fake rejects and for a service without an open fake. Then nothing
    changes, except in a real server (``engine=``).
    """
    saved, faults = content.get("saved", {}), content.get("faults", {})
    fakes: dict[str, Any] = {}
    for part in parts_in(content):
        fake = fakes[part] = _open(cloud, part)
        if same := [other for other in fakes if other != part and fakes[other] is fake]:
            raise ContractError(
                f"the file has data for {same[0]} and for {part}, and both would be loaded into "
                f"{fake.name}, the only open fake of the two: start the other one too"
            )
    # A fault such as down() cannot be undone for clients, so check all faults first.
    for part, listed in faults.items():
        _inject_all(without_effect(_open(cloud, part).faults), part, listed)
    before: list[tuple[Any, Snapshot]] = []
    injected: list[Fault] = []
    try:
        for part, fake in fakes.items():
            before.append((fake, fake.snapshot()))
            word, colon, name = part.partition(":")
            # A queue delivers its messages immediately, so queues are the last.
            routes = f"destinations{colon}{name}" if word == "queue" else ""
            for url, answers in content.get(routes, {}).items():
                with _at(f"{routes}.{brief(url)}"):
                    stub(fake.destinations, url, answers)
            if part in saved:
                with _at("saved"):
                    saved_part(word).load_saved(fake, saved[part], part)
                progress(part, 1, 1)
            data = content.get(part)
            for load in _LOADERS[word](fake, data, folder) if data else ():
                with _at(f"{part}{load.place}"):
                    load.put()
                progress(part, load.done, load.whole)
        for part, listed in faults.items():
            injected += _inject_all(_open(cloud, part).faults, part, listed)
    except BaseException:
        for fault in injected:
            fault.remove()
        for fake, snapshot in before:
            fake._undo(snapshot)
        raise


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Add the location in the file to the message of an error."""
    try:
        yield
    except (ContractError, ServiceError, TypeError) as error:
        raise ContractError(one_line(f"{place}: {error}")) from error
    except RecursionError:
        raise ContractError(f"{place}: it is nested too deeply") from None


def _inject_all(plan: FaultPlan, part: str, faults: Iterable[Mapping[str, Any]]) -> list[Fault]:
    injected = []
    token = setting_over.set("a state file")
    try:
        for number, fault in enumerate(faults):
            with _at(f"faults.{part}[{number}]"):
                injected.append(inject(plan, fault_kinds(FaultPlan), fault))
    finally:
        setting_over.reset(token)
    return injected


def inject(plan: FaultPlan, kinds: Iterable[str], fault: Mapping[str, Any]) -> Fault:
    """Inject a fault, given as JSON: its ``kind``, its ``args``, and its other arguments by name.

    Raises ``ContractError`` for another kind than ``kinds`` and for invalid arguments.
    """
    fields = {name: value for name, value in fault.items() if name not in ("kind", "args")}
    kind, args = fault["kind"], fault.get("args", ())
    if kind not in kinds:
        raise ContractError(unknown_name("fault", kind, kinds))
    method = getattr(plan, kind)
    try:
        inspect.signature(method).bind(*args, **fields)
    except TypeError as error:
        raise ContractError(f"{kind}: {error}. {_form(method)}") from None
    injected: Fault = method(*args, **fields)
    injected._set_source({"args": [], **fault})
    return injected


def _form(method: Callable[..., Any]) -> str:
    """Return a description of the arguments of a method that injects a fault."""
    parameters = inspect.signature(method).parameters.values()
    args = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    keywords += ["times", "skip", "route", "command", "topic"]
    taken = f"It takes args [{', '.join(args)}] and" if args else "It takes no args, but"
    return f"{taken} the fields {', '.join(keywords)}"


def parts_in(content: Mapping[str, Any]) -> list[str]:
    """Return the fakes that a state file has data or destinations for, in the order of loading."""
    names = [name for name, data in content.items() if data]
    names += [*content.get("saved", {})]
    parts = dict.fromkeys(re.sub("^destinations(:|$)", r"queue\1", name) for name in names)
    order = list(_LOADERS)
    loadable = [part for part in parts if part.partition(":")[0] in order]
    return sorted(loadable, key=lambda part: (order.index(part.partition(":")[0]), ":" in part))


def _open(cloud: Cloud, part: str) -> Any:
    """Return the open fake of a part: that with its name, or without one, the first of the service
    unless a fake has the name of its fixture.
    """
    service, name = split_part(part)
    fakes = [fake for fake in cloud.fakes() if fake.fixture == service.fixture]
    for fake in fakes:
        if part_of(service, fake.name) == part_of(service, name):
            return fake
    if name is None and fakes:
        return fakes[0]
    raise ContractError(f"the file has data for {part}, but no such fake is open: start it too")


# -- the data of each service ----------------------------------------------------------------------


class _Load(NamedTuple):
    """A call that loads a part of the data; ``done`` of the ``whole`` items are loaded after it."""

    place: str
    done: int
    whole: int
    put: Callable[[], object]


def _sliced(place: str, items: list[Any], put: Callable[[list[Any]], object]) -> Iterator[_Load]:
    for start in range(0, len(items), AT_ONCE):
        piece = items[start : start + AT_ONCE]
        yield _Load(place, start + len(piece), len(items), partial(put, piece))


def _kv(fake: Any, data: Mapping[str, Any], folder: Path) -> Iterator[_Load]:
    if "rdb" in data:
        # Make the path absolute, because the server may have another working directory.
        yield _Load(".rdb", 1, 1, partial(fake.load, (folder / data["rdb"]).resolve()))
    values = []
    for key, value in data.get("values", {}).items():
        # ``KVServer.load()`` takes pairs, which are arrays in JSON, as tuples.
        is_pairs = isinstance(value, list) and all(isinstance(pair, list) for pair in value)
        values.append((key, list(map(tuple, value)) if is_pairs else value))
    yield from _sliced(".values", values, lambda piece: fake.load(dict(piece)))
    yield from _sliced(".commands", data.get("commands", []), fake.load)


def _vector(fake: Any, data: Mapping[str, Any], folder: Path) -> Iterator[_Load]:
    for namespace, records in data.items():
        place, put = f".{brief(namespace)}", partial(fake.load, namespace=namespace)
        if isinstance(records, str):
            yield _Load(place, 1, 1, partial(put, folder / records))
        else:
            yield from _sliced(place, records, put)


def _broker(fake: Any, data: Mapping[str, Any], folder: Path) -> Iterator[_Load]:
    def load(topic: str, messages: list[Any]) -> None:
        fake.load({topic: messages})

    for topic, source in data.items():
        place, put = f".{brief(topic)}", partial(load, topic)
        with _at(f"broker{place}"):
            messages = list(_lines(folder / source)) if isinstance(source, str) else source
        if not messages:  # Load the topic nevertheless, so that it is created.
            yield _Load(place, 0, 0, partial(put, []))
        yield from _sliced(place, messages, put)


def _lines(path: Path) -> Iterator[Any]:
    for number, line in enumerate(read_file(path, DATA_BYTES).splitlines(), 1):
        try:
            if line.strip():
                yield orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise ContractError(f"{path!s:.200}, line {number} is not JSON: {error.msg}") from None


def _queue(fake: Any, data: Mapping[str, Any], folder: Path) -> Iterator[_Load]:
    settings = {name: part for name, part in data.items() if name != "messages"}
    if settings:
        yield _Load("", 1, 1, partial(fake.load, settings))
    # The queue checks all messages before it delivers the first, so do not pass them in pieces.
    if messages := data.get("messages"):
        count = len(messages)
        yield _Load(".messages", count, count, partial(fake.load, {"messages": messages}))


_LOADERS: Mapping[str, Callable[[Any, Any, Path], Iterator[_Load]]] = {
    "kv": _kv, "vector": _vector, "broker": _broker, "queue": _queue,
}  # fmt: skip


def stub(destinations: Any, url: str, answers: Any) -> None:
    """Answer the deliveries to a URL as a state file describes it, or forward them."""
    if isinstance(answers, dict) and "forward" in answers:
        destinations.forward(url, answers["forward"])
        return
    replies = answers if isinstance(answers, list) else [answers]
    if replies in (["hang"], ["refuse"]):
        getattr(destinations, replies[0])(url)
    else:
        destinations.respond(url, *map(_reply, replies))


def _reply(answer: Any) -> Any:
    from ..faults.answers import Response

    if answer in ("hang", "refuse"):
        return getattr(Response, answer)()
    if isinstance(answer, int):
        return answer
    return Response(
        answer["status"], _body_of(answer), answer.get("headers", ()), answer.get("after", 0)
    )


def _body_of(answer: Mapping[str, Any]) -> Any:
    if "body_base64" in answer:
        return bytes_from_plain({"base64": answer["body_base64"]}, "body_base64")
    return answer.get("body", b"")
