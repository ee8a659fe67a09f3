"""A service in the one list is known everywhere: the plugin and clouds offer all of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud, ContractError, cli
from pytest_fakecloud.cloud.base import fixture_fake
from pytest_fakecloud.cloud.services import SERVICES, Service, fake_class, find
from pytest_fakecloud.kv.rdb.payloads import MAGIC
from pytest_fakecloud.standalone.api import ControlApp

from ..harness import Run, run

__all__ = ["run"]

TOY = '''
"""A service of two endpoints: it stores the last three notes until they are taken."""

from collections.abc import Callable, Iterator
from typing import Any

from pytest_fakecloud.cloud.actions import look
from pytest_fakecloud.core.calls import Arguments, Call
from pytest_fakecloud.core.clock import Timekeeper
from pytest_fakecloud.core.errors import ServiceError
from pytest_fakecloud.core.matching import Field
from pytest_fakecloud.core.settings import FakeConfig, setting, text
from pytest_fakecloud.core.signals import Signal
from pytest_fakecloud.cloud.fake import Fake, Snapshot
from pytest_fakecloud.http.app import App, Instruments, Request
from pytest_fakecloud.http.routing import Route
from pytest_fakecloud.reporting.calls import has_full_answer, success_of
from pytest_fakecloud.reporting.contract import CallFunctions, EventFunctions, ReportFunctions
from pytest_fakecloud.reporting.lookups import Lookups
from pytest_fakecloud.reporting.model import MaskedCall, MaskedEvent
from pytest_fakecloud.reporting.accesses import DataAccess, ReportSubject, Sought, SubjectKind
from pytest_fakecloud.reporting.model import Summary


class Notes:
    def __init__(self, clock: Timekeeper, add_event: Callable[..., object]) -> None:
        self.notes: list[str] = []
        self._clock, self._add_event, self.signal = clock, add_event, Signal()

    def add(self, note: str, call: Call) -> None:
        self.notes.append(note)
        if len(self.notes) > 3:
            oldest = self.notes.pop(0)
            self._add_event("drop", f"dropped {oldest}", caused_by=call, note=oldest)
        self.signal.notify()

    def take(self, wait_us: int, call: Call | None) -> str | None:
        """Wait for a note, and record when it is taken."""

        def poll() -> str | None:
            if not self.notes:
                return None
            note = self.notes.pop(0)
            self._add_event("taken", f"took {note}", caused_by=call, note=note)
            return note

        return self._clock.wait(self.signal, poll, self._clock.now_us() + wait_us)

    def snapshot(self) -> Any:
        return list(self.notes)

    def restore(self, snapshot: Any) -> None:
        self.notes[:] = snapshot


class NotesApp(App):
    service = "toy"
    event_kinds = frozenset({"drop", "taken"})
    event_fields = {"note": Field()}

    def __init__(self, instruments: Instruments, engine: Notes) -> None:
        super().__init__(instruments)
        self.engine = engine

    @classmethod
    def routes(cls) -> list[Route]:
        return [
            Route("POST", "/notes", "add", cls.add),
            Route("POST", "/notes/take", "take", cls.take, lingers=True),
        ]

    def authenticate(self, request: Request) -> object:
        return None

    def add(self, request: Request) -> object:
        self.engine.add(request.body.decode(), request.call)
        return {"notes": len(self.engine.notes)}

    def take(self, request: Request) -> object:
        return {"note": self.engine.take(int(request.body) * 1000, request.call)}


class ToyConfig(FakeConfig):
    first: str = setting("", text())


class Toy(Fake):
    """A keeper of notes."""

    service = "toy"
    fixture = "toy"
    _config_class = ToyConfig

    def _make_app(self) -> NotesApp:
        self._engine = Notes(self._timekeeper, self._recorder.add_event)
        self._exits.callback(self._engine.signal.close)
        if self._config.first:
            self._engine.notes.append(self._config.first)
        return NotesApp(self._instruments, self._engine)

    @property
    def env(self) -> dict[str, str]:
        return {"TOY_URL": self.url}

    @look
    def notes(self) -> list[str]:
        """The notes it holds."""
        return list(self._engine.notes)


LIST = SubjectKind("list", has_value=True, links_accesses=True)


def accesses(call: MaskedCall, lookups: Lookups) -> Iterator[DataAccess]:
    # The event of a take writes, because the take may have waited until then.
    found = call.route == "add" or b":null" not in call.response_body
    if call.route == "add" or not found:
        notes = ReportSubject(LIST, "notes", call.fake)
        yield DataAccess(notes, writes=True, succeeded=success_of(call, found))


def summary(call: MaskedCall, lookups: Lookups) -> Summary | None:
    if not call.route:
        return None
    done = {"add": "added", "take": call.response_body.decode()}
    return Summary(
        f"{call.route} {call.request_body.decode()}",
        done[call.route] if has_full_answer(call) else "",
    )


def removed(event: MaskedEvent, lookups: Lookups) -> Iterator[DataAccess]:
    notes = ReportSubject(LIST, "notes", event.fake)
    yield DataAccess(notes, writes=True, returns_value=event.kind == "taken")


def effect(event: MaskedEvent, call: MaskedCall | None, lookups: Lookups) -> str:
    return f"dropped {event.data['note']}" if event.kind == "drop" else ""


def sought(fake: "Toy", method: str, arguments: Arguments) -> Iterator[Sought]:
    yield Sought(ReportSubject(LIST, "notes", fake.name))


REPORT = ReportFunctions(
    calls=CallFunctions(summary=summary, accesses=accesses),
    events=EventFunctions(accesses=removed, effect=effect),
    sought=sought,
)


def view(fake: Toy) -> dict[str, Any]:
    return {"count": len(fake.notes()), "notes": [{"text": note} for note in fake.notes()]}
'''
CONFTEST = """
import pytest
from pytest_fakecloud.cloud.base import fixture_fake

@pytest.fixture
def toy(fakecloud):
    return fixture_fake(fakecloud, "toy")
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Create a fifth service in another package, with its entry in the list."""
    # A new name for each test, because imported modules disappear with its folder.
    package = f"toys_{tmp_path.name}"
    (tmp_path / f"{package}.py").write_text(TOY)
    monkeypatch.syspath_prepend(str(tmp_path))
    service = Service(
        "toy", f"{package}:Toy", word="toy", in_process=True, report=f"{package}:REPORT",
        view=f"{package}:view",
    )  # fmt: skip
    monkeypatch.setitem(SERVICES, "toy", service)  # type: ignore[arg-type]
    __import__(package)
    yield package
    sys.modules.pop(package)


def add(url: str, text: str) -> int:
    return httpx.post(f"{url}/notes", content=text).status_code


@pytest.fixture
def control(toy: str) -> Iterator[tuple[Cloud, str]]:
    """A cloud with the toy service, and the address of its control API, whose token is ``secret``."""
    with Cloud(seed=1, delivery="driven") as cloud:
        cloud._start("toy", {})
        mount = cloud._context.mount(ControlApp(cloud, "secret"))
        yield cloud, mount.url
        mount.close()


# -- a fifth service -------------------------------------------------------------------------------


def test_a_cloud_starts_it(toy: str) -> None:
    with Cloud(delivery="driven", transport="inprocess") as cloud:
        fake: Any = cloud._start("toy", {"first": "hello"})
        assert add(fake.url, "more") == 200
        assert (fake.notes(), cloud.env["TOY_URL"]) == (["hello", "more"], fake.url)
        assert fixture_fake(cloud, "toy").name == "toy_2"
        with pytest.raises(
            ContractError,
            match=r"'fist' is not a setting of toy; did you mean 'first'\? Known settings: ",
        ):
            cloud._start("toy", {"fist": 1})
        with pytest.raises(ContractError, match=r"'toi' is not a service; did you mean 'toy'\?"):
            cloud._start("toi", {})


def test_the_transport_in_process_reaches_it(toy: str) -> None:
    from pytest_fakecloud.process.inprocess import origins

    with Cloud(transport="inprocess") as cloud:
        inside, outside = cloud._start("toy", {}), cloud.destination()
        assert inside._mount.origin in origins.shortcuts
        assert outside._mount.origin not in origins.shortcuts


def test_marker_strictness_and_report_know_it(
    toy: str, run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(CONFTEST)
    result = run(
        """
        import httpx, pytest

        @pytest.mark.fakecloud(toy={"first": "hello"})
        def test_marker(toy):
            assert toy.notes() == ["hello"]
            toy.assert_not_called()

        @pytest.mark.fakecloud(toy={"fist": "hello"})
        def test_wrong_setting():
            pass

        def test_strict(toy):
            httpx.get(f"{toy.url}/nope")

        def test_report(toy):
            httpx.post(f"{toy.url}/notes/take", content="10")
            for note in "xyz!":
                httpx.post(f"{toy.url}/notes", content=note)
            httpx.post(f"{toy.url}/notes/take", content="10")
            assert toy.notes() == ["x", "y"]
        """
    )
    result.assert_outcomes(passed=1, failed=2, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*'fist' is not a setting of toy; did you mean 'first'? Known settings: *",
            "*with 1 strict-mode violation",
            "*[[]unrouted] *GET /nope*",
            "*toy http://*",
            "*toy.notes()*",
            '! * toy take 10 <-- {"note":null}',
            "> * toy add x <-- added",
            "> * toy add ! <-- added  dropped x",
            '> * toy take 10 <-- {"note":"y"} <== read',
        ]
    )


def test_session_scope_and_early_fakes_know_it(
    toy: str, run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\nfakecloud_early = toy kv_server\n")
    result = run(
        """
        import os, httpx
        URL = os.environ["TOY_URL"]

        def test_one(toy):
            assert toy.url == URL
            httpx.post(f"{URL}/notes", content="x")
            assert toy.notes() == ["x"]

        def test_two(toy):
            assert toy.url == URL
            assert toy.notes() == []
        """
    )
    result.assert_outcomes(passed=2)


def test_the_command_starts_it(
    toy: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    program = f"import os; open({str(seen)!r}, 'w').write(os.environ['TOY_URL'])"
    code = cli.main(
        ["run", "--services", "toy", "--toy", "first=hello", "--toy-token", "mine", "--",
         sys.executable, "-c", program]
    )  # fmt: skip
    assert (code, seen.read_text()[:17]) == (0, "http://127.0.0.1:")
    with pytest.raises(SystemExit):
        cli.main(["serve", "--help"])
    assert "--toy name," in capsys.readouterr().out
    file = tmp_path / "fakes.toml"
    file.write_text('services = ["toy"]\n[toy]\nfist = 1\n')
    assert cli.main(["run", "--config", str(file), "--", sys.executable, "-c", ""]) == 2
    assert "'fist' is not a setting of toy" in capsys.readouterr().err


def test_control_api_and_view_tell_of_it(control: tuple[Cloud, str]) -> None:
    _, url = control

    def ask(method: str, path: str, **options: Any) -> Any:
        headers = {"Authorization": "Bearer secret"}
        answer = httpx.request(method, f"{url}/__control__{path}", headers=headers, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    made = ask("POST", "/fakes", json={"fixture": "toy", "settings": {"first": "a"}})
    assert (made["name"], made["service"]) == ("toy_2", "toy")
    add(made["url"], "b")
    shown = ask("GET", "/fakes/toy_2/view")
    assert (shown["count"], shown["notes"]) == (2, [{"text": "a"}, {"text": "b"}])
    assert [fake["fixture"] for fake in ask("GET", "/state")["fakes"]] == ["toy", "toy"]
    assert ask("GET", "/journal")[-1]["fake"] == "toy_2"


# -- names of services -----------------------------------------------------------------------------


def test_a_service_is_known_by_its_fixture_and_by_its_word(run: Run) -> None:
    with Cloud() as cloud:
        assert fixture_fake(cloud, "kv") is fixture_fake(cloud, "kv_server")
        assert cloud._start("vector", {"dimension": 2}).fixture == "vector_index"
    run(
        """
        import pytest

        @pytest.mark.fakecloud(kv={"daily_limit": 7}, kv_server={"max_pipeline_length": 3})
        def test_marker(kv_server):
            assert kv_server._app.settings.daily_limit == 7
            assert kv_server._app.settings.max_pipeline_length == 3
        """
    ).assert_outcomes(passed=1)


# -- those there are -------------------------------------------------------------------------------


@pytest.mark.parametrize("service", SERVICES.values(), ids=lambda service: service.fixture)
def test_what_a_descriptor_says_is_so(service: Service) -> None:
    fake = fake_class(service)
    assert fake.fixture == service.fixture
    assert f"{fake.__module__}:{fake.__qualname__}" == service.fake
    assert find(service.fixture) is service


@pytest.mark.parametrize("service", SERVICES.values(), ids=lambda service: service.fixture)
def test_plugin_and_clouds_offer_it_typed(service: Service) -> None:
    from pytest_fakecloud import plugin

    name = fake_class(service).__name__
    alias = service.word and f"fakecloud_{service.word}"
    for fixture in filter(None, (service.fixture, alias)):
        definition: Any = getattr(plugin, fixture)
        made = definition._get_wrapped_function()
        assert made.__annotations__["return"] == name
        assert made.__doc__
    assert getattr(Cloud, service.fixture).__annotations__["return"] == name


def test_the_list_imports_nothing_heavy() -> None:
    code = (
        "import __future__, sys, dataclasses, functools, typing\n"
        "before = set(sys.modules)\n"
        "import pytest_fakecloud.cloud.services\n"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = ["cloud", "cloud.services"]
    assert done.stdout.strip() == str(
        ["pytest_fakecloud", *(f"pytest_fakecloud.{n}" for n in names)]
    )


def test_a_dump_begins_as_its_reader_expects() -> None:
    # The descriptor repeats the constant, because it imports no service.
    assert find("kv").files["rdb"] == MAGIC
