"""One pytest run: its settings, the current test, and the cloud that outlives the tests.

Imports only pytest. It is imported when a test first uses a fake, or to check a setting.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property, partial
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from time import process_time
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

from .services import SERVICES, by_word, named

try:
    import resource
except ImportError:  # Windows has no such counters.
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from .any_cloud import AnyCloud
    from .cloud import Cloud
    from .reporting.applications import Listener, Served
    from .standalone.remote import RemoteCloud
    from .transport.patches import Changes

T = TypeVar("T")
PER_TEST_SETTINGS = ("strict", "env")
SERVERS_OWN_SETTINGS = ("process_time", "tls", "transport")
BECAUSE_OF_SESSION = (
    "the fakes live for the whole session (fakecloud_scope or fakecloud_early): set them in the "
    "session fixture fakecloud_session_settings"
)
BECAUSE_OF_SERVER = (
    "the fakes run in a stand-alone server (--fakecloud-url): start it with --tls, "
    "and run tests that need process_time or transport with fakes in the test process"
)
BECAUSE_OF_WORKERS = (
    "tests of several workers (pytest -n) cannot share one stand-alone server (--fakecloud-url): "
    "each test resets the whole server, also for the other workers. Leave out -n, run with "
    "fakes in the test process, or give each worker its own server (config.option.fakecloud_url)"
)
SETTINGS = "fakecloud_settings"
BECAUSE_OF_INI = (
    "process_time is not possible with fakecloud_clock = running: a clock cannot follow the time that "
    "follows it. Remove that line, because running is the default, or pass clock='frozen'"
)
CHOICES = {
    "fakecloud_call_sites": ("auto", "true", "false"),
    "fakecloud_clock": ("running", "frozen"),
    "fakecloud_scope": ("function", "session"),
    "fakecloud_transport": ("socket", "inprocess"),
}
SWITCHES = ("fakecloud_env", "fakecloud_share_tls_context")
FOLDERS = ("--fakecloud-record", "--fakecloud-report")
_FRAMEWORKS = ("flask", "django.core.signals", "starlette.testclient", "httpx")
"""Modules of frameworks that announce the requests they serve (see reporting.applications)."""
_RUN = pytest.StashKey["Run"]()
_OVERRIDDEN = pytest.StashKey[bool]()


def run_of(config: pytest.Config) -> Run:
    """Return the run of a configuration. Creating it starts nothing."""
    run = config.stash.get(_RUN, None)
    if run is None:
        run = config.stash[_RUN] = Run(config)
    return run


def check_settings(config: pytest.Config) -> None:
    """Reject invalid ini settings, whether or not a test uses fakes."""
    for name, known in CHOICES.items():
        value = config.getini(name)
        if value not in known:
            raise pytest.UsageError(f"{name} = {value} is unknown: pass {' or '.join(known)}")
    if config.getini("fakecloud_early") and _says(config, "fakecloud_scope", "function"):
        raise pytest.UsageError(
            "fakecloud_early and fakecloud_scope = function contradict each other: fakes that start "
            "before the first test last for the whole run. Remove one of the two settings"
        )
    if config.getoption("--fakecloud-url", None) and (
        config.getini("fakecloud_transport") == "inprocess"
    ):
        raise pytest.UsageError(
            "fakecloud_transport = inprocess and --fakecloud-url contradict each other: the fakes run "
            "in another process. Add -o fakecloud_transport=socket"
        )
    for name in SWITCHES:
        try:
            config.getini(name)
        except (ValueError, pytest.UsageError) as error:
            raise pytest.UsageError(f"{name}: {error}; pass true or false") from None
    strict = config.getini("fakecloud_strict")
    # Look them up only if necessary: the valid kinds are defined in modules that a run without
    # fakes never imports.
    if _switch_of(strict) is None:
        try:
            _kinds_of_text(strict)
        except pytest.fail.Exception as error:
            raise pytest.UsageError(f"fakecloud_strict: {error.msg}") from None
    for option in FOLDERS:
        folder = _folder(config, option)
        if folder is None:
            continue
        try:
            place = _nearest(folder)
        except (OSError, ValueError) as error:
            raise pytest.UsageError(f"{option}={folder} cannot be a folder: {error}") from None
        if not place.is_dir():
            raise pytest.UsageError(f"{option}={folder} cannot be a folder: {place} is a file")


def _says(config: pytest.Config, name: str, value: str) -> bool:
    """Return whether the user set a setting to this value; False if it only has the value by
    default.
    """
    found = config.getini(name)
    return found == value and type(found) is str


def _nearest(place: Path) -> Path:
    """Return the path, or its nearest existing parent. Does not use Path.exists(), which would hide
    other errors.
    """
    while True:
        try:
            place.stat()
        except (FileNotFoundError, NotADirectoryError):
            if place == place.parent:
                return place
            place = place.parent
        else:
            return place


def _folder(config: pytest.Config, option: str) -> Path | None:
    folder = config.getoption(option, None)
    return config.invocation_params.dir / folder if folder else None


def begin_early(config: pytest.Config, names: list[str]) -> None:
    """Start fakes and set their variables before conftests are imported."""
    known = [service.fixture for service in by_word().values()]
    names = [_fixture_of(name) for name in names]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise pytest.UsageError(
            f"fakecloud_early: {', '.join(unknown)} is not a service; "
            f"the services are: {', '.join(known)}"
        )
    # Close the fakes here: nothing else would if a conftest cannot be imported.
    config.add_cleanup(partial(end, config))
    check_settings(config)
    from .core.errors import ContractError

    try:
        run_of(config).start_early(names)
    except (ContractError, OSError) as error:
        raise pytest.UsageError(f"fakecloud_early: {error}") from error


def end(config: pytest.Config) -> None:
    """Close the fakes that a run keeps open."""
    run = config.stash.get(_RUN, None)
    if run is not None:
        run.close()


NOT_OF_A_TEST = ("__main__", "cli", "kafka", "redis", "standalone", "support", "tls", "verify")
"""Modules that ``import_fakes()`` leaves out: tests only need them with a library or a server."""


IMPORTED_LATER = (
    "decimal",
    "difflib",
    "email.utils",
    "fractions",
    "jwt",
    "ssl",
    "sysconfig",
    "zoneinfo",
)
"""Modules that functions of this package import when they are first called."""


def import_fakes() -> None:
    """Import every module that fakes may need.

    For tests that fake the file system: a module imported while files are faked would keep the
    faked objects and be forgotten afterwards, and some modules cannot be imported twice.
    """
    from . import __path__

    for found in walk_packages(__path__, f"{__package__}."):
        if not any(word in NOT_OF_A_TEST for word in found.name.split(".")):
            import_module(found.name)
    for name in IMPORTED_LATER:
        import_module(name)


def misuse(text: str) -> BaseException:
    """Return the failure of a test with an invalid setting, which pytest shows without a traceback."""
    return pytest.fail.Exception(f"fakecloud: {text}", pytrace=False)


_A_SLEEP_S = 0.04
"""Average wait in seconds from which waits count as sleeping; shorter ones are for other processes."""


_pread = getattr(os, "pread", None)


@cache
def _schedule() -> int | None:
    """Open the file in which Linux counts how long this thread waited for the CPU; None elsewhere."""
    try:
        return os.open("/proc/thread-self/schedstat", os.O_RDONLY) if _pread else None
    except OSError:
        return None


def _turns() -> tuple[int, float]:
    """Return how often this thread or process was given the CPU, and how many seconds it waited for
    it.

    The system may lack one or both figures; a missing figure is 0.
    """
    file = _schedule()
    if file is not None and _pread is not None:
        try:
            _, queued_ns, times = _pread(file, 100, 0).split()
            return int(times), int(queued_ns) / 1e9
        except (OSError, ValueError):
            pass
    if resource is None:
        return 0, 0.0
    usage = resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF))
    return usage.ru_nvcsw + usage.ru_nivcsw, 0.0


class Run:
    """The state that the hooks and fixtures of one pytest run share.

    ``item`` is the current test and ``cloud`` its cloud, if created. ``told`` is True after the
    journal was added to a report. ``strict`` are the kinds of strict-mode violations that fail the
    test. Besides the clouds of tests, a run may have one that lasts until its end and returns to
    its baseline before each test.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.item: pytest.Item | None = None
        self.cloud: AnyCloud | None = None
        self.told = False
        self._busy_s = self._began_s = self._queued_s = 0.0
        self._times = 0
        self.strict: tuple[str, ...] = ()
        self.early: tuple[str, ...] = ()
        self._long: AnyCloud | None = None
        self._environment = pytest.MonkeyPatch()
        self._known: list[Any] | None = None
        self._seed: Any = "session"
        self._seed_is_given = False
        self._kept: Changes | None = None
        self._listener: Listener | None = None

    # -- options ---------------------------------------------------------------------------------

    @cached_property
    def fixtures(self) -> frozenset[str]:
        """The names of all fixtures that return fakes."""
        aliases = (service.alias for service in SERVICES.values() if service.alias is not None)
        return frozenset((*SERVICES, *aliases, "fakecloud", "fakecloud_env"))

    @cached_property
    def journal_when(self) -> str:
        """When a test's report shows the journal: failed, always or never."""
        return str(self.config.getoption("--fakecloud-journal"))

    @cached_property
    def recordings(self) -> Path | None:
        """The folder for HTTP archives of the tests' calls, or None."""
        return self._folder("--fakecloud-record")

    @cached_property
    def timelines(self) -> Path | None:
        """The folder for timelines of failing tests, or None."""
        return self._folder("--fakecloud-report")

    def _folder(self, option: str) -> Path | None:
        return _folder(self.config, option)

    @cached_property
    def _url(self) -> str | None:
        url: str | None = self.config.getoption("--fakecloud-url", None)
        return url

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        config = self.config
        return {
            "clock": "frozen" if config.getini("fakecloud_clock") == "frozen" else None,
            "strict": config.getini("fakecloud_strict"),
            "env": config.getini("fakecloud_env"),
            "seed": config.getoption("--fakecloud-seed", None),
            "transport": config.getini("fakecloud_transport"),
            "share_tls_context": config.getini("fakecloud_share_tls_context"),
        }

    @cached_property
    def _outlives_tests(self) -> bool:
        """Whether the fixtures' fakes belong to the cloud that lasts for the whole run."""
        return (
            bool(self.early)
            or self._url is not None
            or self.config.getini("fakecloud_scope") == "session"
        )

    def settings_of(
        self, item: pytest.Item, overrides: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return a test's settings: function > class > module > fakecloud_settings > options > ini.

        Settings of a service are merged key by key. An unknown key fails the test.
        """
        markers = list(item.iter_markers("fakecloud"))
        for marker in markers:
            if marker.args:
                raise misuse(f"the fakecloud marker takes keywords only, got {marker.args!r}")
        layers: list[Mapping[str, Any]] = [overrides] if overrides else []
        layers += [marker.kwargs for marker in reversed(markers)]
        return self._merged(item.nodeid, layers)

    def _merged(self, seed: Any, layers: list[Mapping[str, Any]]) -> dict[str, Any]:
        from .core.settings import settings_of
        from .marker import MarkerConfig

        known = settings_of(MarkerConfig)
        defaults = {name: each.default for name, each in known.items()} | self._defaults
        defaults["seed"] = defaults["seed"] or seed
        settings = dict(defaults)
        for layer in layers:
            for name, value in layer.items():
                if name in known:
                    self.given(partial(known[name].kind.read, name, value))
                    settings[name] = defaults[name] if value is None else value
                else:
                    _merge(settings, _fixture_of(name), value, known)
        if settings["process_time"]:
            self._check_process_time(settings)
        return settings

    def _check_process_time(self, settings: Mapping[str, Any]) -> None:
        from .core.timekeeper import STANDS

        if settings["clock"] == "running":
            raise misuse(f"clock='running' is not possible: {STANDS}")
        if settings["clock"] is None and _says(self.config, "fakecloud_clock", "running"):
            raise misuse(BECAUSE_OF_INI)

    # -- the test's cloud ------------------------------------------------------------------------

    def test_cloud(self) -> AnyCloud:
        """Return the current test's cloud. If it cannot be created, fail with one line, no
        traceback.
        """
        return self.given(self._test_cloud)

    def test_handle(self, fixture: str) -> Any:
        """Return the fake of a fixture. If it cannot be created, fail with one line, no traceback."""
        return self.given(lambda: self._test_cloud().fixture_handle(fixture))

    def given(self, make: Callable[[], T]) -> T:
        """Call a function; turn its ``ContractError`` into a failure without a traceback."""
        try:
            return make()
        except Exception as error:
            from .core.errors import ContractError

            if not isinstance(error, ContractError):
                raise
            # Fail without a traceback: for a missing extra or an invalid setting, the plugin's
            # frames do not help.
            raise misuse(str(error)) from None

    def _test_cloud(self) -> AnyCloud:
        """Return the current test's cloud, which is created when the first fixture needs it.

        It is not the value of the fixture ``fakecloud``, because each additional fixture takes 40
        us per test.
        """
        found, item = self.cloud, self.item
        if found is not None and not found.closed:
            return found
        assert item is not None, "fixtures of fakes are for tests"
        settings, own = self._settings(item)
        self.strict = _kinds_of(settings)
        if self._outlives_tests:
            given = _given_to(item, own)
            if self._url is None:
                _refuse(given - {*PER_TEST_SETTINGS}, BECAUSE_OF_SESSION)
            cloud: AnyCloud = _fixture_value(item, "fakecloud_session")
            if self._url is not None:
                _refuse(given & {*SERVERS_OWN_SETTINGS}, BECAUSE_OF_SERVER)
                cast("RemoteCloud", cloud)._adapt({name: settings[name] for name in given})
        else:
            self._keep_changes(settings)
            cloud = _new_cloud(settings, "driven")
            item.addfinalizer(cloud.close)
        self.cloud = cloud
        self._listen(cloud)
        if settings["env"]:
            item.addfinalizer(publish_env(cloud, _fixture_value(item, "monkeypatch")))
        return cloud

    def _settings(self, item: pytest.Item) -> tuple[dict[str, Any], Mapping[str, Any]]:
        if not _is_overridden(item):
            return self.settings_of(item), {}
        own = _fixture_value(item, SETTINGS)
        if not isinstance(own, Mapping):
            raise misuse(f"the fixture {SETTINGS} must return a dict of settings, got {own!r}")
        return self.settings_of(item, own), own

    @cached_property
    def tells_of_passing(self) -> bool:
        """Whether passing tests are also reported or recorded."""
        return self.journal_when == "always" or self.recordings is not None

    @property
    def has_fakes(self) -> bool:
        """Whether there are fakes that a report could show."""
        return self.cloud is not None or self._long is not None

    def clouds(self) -> list[AnyCloud]:
        """Return the clouds of the test: its own, and the run's if it was used.

        The run's is included because an application that reads its settings at import calls fakes
        that its tests never request.
        """
        found = [] if self.cloud is None else [self.cloud]
        long = self._long
        # Leave out a stand-alone server, because other clients may be using it.
        if long is not None and long is not self.cloud and self._url is None:
            if self.cloud is None and self.item is not None and long.problems:
                self.strict = _kinds_of(self._settings(self.item)[0])
            if long.journal.entries or long.problems:
                found.append(long)
        return found

    def _keep_changes(self, settings: Mapping[str, Any]) -> None:
        # Keep a cloud's process-wide patches between tests: undoing and reapplying them for each
        # test would be a large part of a fake's cost.
        if self._kept is None:
            from .transport.patches import changes

            self._kept = changes(
                shares_tls_context=settings["share_tls_context"],
                in_process=settings["transport"] == "inprocess",
            )

    def _take_changes_back(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    # -- the cloud that outlives tests -----------------------------------------------------------

    def long_cloud(self, settings: Mapping[str, Any] | None = None) -> AnyCloud:
        """Return the cloud that lasts for the whole run, created on first use."""
        if self._long is None and self._url is not None:
            from .cloud import Cloud

            if self._is_shared(self._url):
                raise misuse(BECAUSE_OF_WORKERS)
            self._long = Cloud.connect(self._url)
        elif self._long is None:
            layers = [settings] if settings else []
            self._seed_is_given = any("seed" in layer for layer in layers)
            merged = self._merged(self._seed, layers)
            self._seed = merged["seed"]
            self._long = _new_cloud(merged, "background")
        elif settings:
            given = {_fixture_of(name): value for name, value in settings.items()}
            self._long._fixture_settings = {**self._long._fixture_settings, **given}
        return self._long

    def start_early(self, names: list[str]) -> None:
        """Start fakes and set their variables for the whole run."""
        self.early = tuple(names)
        cloud = self.long_cloud()
        for name in names:
            handle = cloud.fixture_handle(name)
            for variable, value in handle.env.items():
                self._environment.setenv(variable, value)

    def _is_shared(self, url: str) -> bool:
        """Return whether all pytest-xdist workers use the same server. A conftest may start one per
        worker.
        """
        config = self.config
        worker = getattr(config, "workerinput", {})
        words = (
            *worker.get("mainargv", ()),
            *map(str, config.invocation_params.args),
            *config.getini("addopts"),
        )
        return worker.get("workercount", 1) > 1 and any(url in word for word in words)

    # -- between tests ---------------------------------------------------------------------------

    def begin_test(self, item: pytest.Item) -> None:
        """Return every fake to its baseline and remove all traces of earlier tests.

        Random values start over from the test's own seed. For a test without fakes, the changes to
        the process are undone.
        """
        self.item = item
        self.cloud = None
        self.told = False
        if self._kept is not None and self.fixtures.isdisjoint(getattr(item, "fixturenames", ())):
            self._take_changes_back()
        if not self._seed_is_given:
            self._seed = self._defaults["seed"] or item.nodeid
        if self._long is not None:
            if self._known is not None:
                self._long._keep_only(self._known)
            self._known = None
            # Keep the clock mode that the server was started with, unless the suite sets one.
            self._long.begin(clock=self._defaults["clock"] if self._url is not None else None)
            self._long.reseed(self._seed)

    def _listen(self, cloud: AnyCloud | None) -> None:
        """Record the requests that the application under test serves, if its framework announces
        them.
        """
        if cloud is not None and self._url is None:
            from .core.journal import recorder_of

            recorder = recorder_of(cloud.journal)
            recorder.find_site = self._call_site
            if self.timelines is not None:
                from .reporting.replay import record_times

                record_times(cloud)
        if (
            cloud is None
            or sys.modules.keys().isdisjoint(_FRAMEWORKS)
            or self._url is not None
            or (self.journal_when == "never" and self.timelines is None)
        ):
            return
        if self._listener is None:
            from .reporting.applications import Listener

            self._listener = Listener()
        self._listener.listen(cloud)

    @property
    def _call_site(self) -> Callable[[], Any] | None:
        """A function that returns the source line of a call, for tests that record call sites; else
        None.
        """
        wanted = self.config.getini("fakecloud_call_sites")
        failed = (
            wanted == "auto" and self.item is not None and self.item.nodeid in self._last_failed
        )
        if wanted != "true" and not failed:
            return None
        from .transport.call_sites import call_site

        return call_site

    @cached_property
    def _last_failed(self) -> frozenset[str]:
        """The tests that failed in the last run, from pytest's cache."""
        cache = getattr(self.config, "cache", None)
        return frozenset(cache.get("cache/lastfailed", {}) if cache is not None else ())

    def served(self, cloud: AnyCloud) -> list[Served]:
        """Return the requests that the application under test served during a cloud's test."""
        listener = self._listener
        return list(listener.served) if listener is not None and listener.cloud is cloud else []

    @cached_property
    def _real_s(self) -> Callable[[], float]:
        """A function that returns real seconds, even if tools change the process's time."""
        from .core.timeparse import monotonic

        return monotonic

    def begin_call(self) -> None:
        """Mark calls recorded after the reset but before the test's own code, and start measuring
        how long that code sleeps.
        """
        self._busy_s, self._began_s = process_time(), self._real_s()
        self._times, self._queued_s = _turns()
        self._listen(self.cloud or self._long)
        if self._long is not None:
            # Remember the fakes that exist already: those that the test's own code starts end with
            # the test.
            self._known = list(self._long.handles)
            for call in self._long.journal.calls():
                call.note = call.note or "made before the test's own code, maybe by an earlier test"

    def idle_s(self) -> float:
        """Return how many seconds the test's own code has slept so far; 0 if unknown.

        On a busy machine a process also waits for the CPU. Linux measures those waits. On other
        systems they are frequent and short, so only a long average wait counts as sleep.
        """
        times, queued_s = _turns()
        times, queued_s = times - self._times, queued_s - self._queued_s
        idle_s = self._real_s() - self._began_s - (process_time() - self._busy_s) - queued_s
        return idle_s if times > 0 and idle_s / times >= _A_SLEEP_S else 0.0

    def end_test(self) -> None:
        """Release the test's cloud; otherwise its data would be kept in memory until the run ends."""
        self.item = self.cloud = None
        if self._listener is not None:
            self._listener.listen(None)

    def close(self) -> None:
        """Close the fakes that outlive tests and restore the environment."""
        self.end_test()
        self._environment.undo()
        self._take_changes_back()
        if self._long is not None:
            self._long.close()


def publish_env(cloud: AnyCloud, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Set the variables of a cloud's fakes, and of later fakes until the returned function is
    called.

    That function must be called at the end of the test, because the cloud may outlive it and
    nothing else would undo variables set later.
    """
    seen: set[str] = set()

    def publish(handle: Any) -> None:
        variables = dict(handle.env)
        if cloud.authority is not None:
            variables.update(cloud.authority.variables)
        for name, value in variables.items():
            if name not in seen:
                seen.add(name)
                monkeypatch.setenv(name, value)

    for handle in cloud.handles:
        publish(handle)
    return cloud._on_start(publish)


def _fixture_of(name: str) -> str:
    """Return the fixture's name for a service's word (``kv``); any other name stays."""
    service = named(name)
    return name if service is None else service.fixture


def _merge(settings: dict[str, Any], name: str, value: Any, general: Iterable[str]) -> None:
    """Merge the settings of a fake key by key."""
    if name not in SERVICES:
        from .core.wording import nearest

        known = (*general, *SERVICES)
        raise misuse(
            f"fakecloud has no setting {name!r}{nearest(name, known)}; "
            f"the settings are: {', '.join(known)}"
        )
    if isinstance(value, Mapping):
        _check_service_settings(name, value)
        settings[name] = {**settings.get(name, {}), **value}
    else:
        raise misuse(f"the setting {name} must be a dict of that service's settings, got {value!r}")


def _check_service_settings(name: str, settings: Mapping[str, Any]) -> None:
    """Reject unknown settings of a service, even if no fixture of the test starts a fake of it."""
    if not settings:
        return
    from .core.errors import ContractError
    from .core.settings import read
    from .services import handle_class

    try:
        read(handle_class(SERVICES[name])._settings, settings, name)
    except ContractError as error:
        raise misuse(str(error)) from None


def _kinds_of(settings: Mapping[str, Any]) -> tuple[str, ...]:
    strict = settings["strict"]
    return _kinds_of_text(strict) if isinstance(strict, str) else _kinds(strict)


def _switch_of(text: str) -> bool | None:
    word = text.strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    return False if word in ("false", "0", "no", "off", "") else None


@cache
def _kinds_of_text(text: str) -> tuple[str, ...]:
    switch = _switch_of(text)
    return _kinds(text.lower().replace(",", " ").split() if switch is None else switch)


def _kinds(value: object) -> tuple[str, ...]:
    """Return the kinds of violations that fail a test, given a boolean or names."""
    from .core.allowed import NAMED_KINDS, PROBLEM_KINDS

    if isinstance(value, bool):
        return tuple(PROBLEM_KINDS) if value else ()
    kinds = tuple(value) if isinstance(value, list | tuple | set | frozenset) else (str(value),)
    known = (*PROBLEM_KINDS, *NAMED_KINDS)
    unknown = [kind for kind in kinds if kind not in known]
    if unknown:
        raise misuse(
            f"strict={value!r}: {', '.join(map(repr, unknown))} is not a kind of problem; "
            f"pass True, False, or some of: {', '.join(known)}"
        )
    return kinds


def _new_cloud(settings: Mapping[str, Any], delivery: Any) -> Cloud:
    from .cloud import Cloud

    cloud = Cloud(
        settings["seed"],
        settings["now"],
        settings["clock"],
        settings["process_time"],
        delivery=delivery,
        transport=settings["transport"],
        tls=settings["tls"],
        share_tls_context=settings["share_tls_context"],
    )
    cloud._fixture_settings = settings
    return cloud


def _fixture_value(item: pytest.Item, name: str) -> Any:
    """Return the value of a fixture, as ``request.getfixturevalue()`` does."""
    found: Any = item
    return found._request.getfixturevalue(name)


def ask_for_settings(metafunc: pytest.Metafunc) -> None:
    """Let ``fakecloud_settings`` parametrize tests with fakes that do not request it themselves.

    pytest accepts parameters only for fixtures that a test requests at collection. Requesting it
    for every test would take 20 us each, so only tests that need it get it.
    """
    fixtures = run_of(metafunc.config).fixtures
    if SETTINGS in metafunc.fixturenames or fixtures.isdisjoint(metafunc.fixturenames):
        return
    definition = metafunc.definition
    if not (_is_overridden(definition) or _is_parametrized(definition)):
        return
    definition.add_marker(pytest.mark.usefixtures(SETTINGS))
    found: Any = metafunc
    manager = definition.session._fixturemanager
    asked = manager.getfixtureinfo(definition, metafunc.function, metafunc.cls)
    found.fixturenames[:] = asked.names_closure
    found._arg2fixturedefs.update(asked.name2fixturedefs)


def _is_parametrized(item: pytest.Item) -> bool:
    for marker in item.iter_markers("parametrize"):
        names = marker.args[0] if marker.args else marker.kwargs.get("argnames", ())
        if isinstance(names, str):
            names = [name.strip() for name in names.split(",")]
        if SETTINGS in names:
            return True
    return False


def _is_overridden(item: pytest.Item) -> bool:
    """Return whether a test overrides the plugin's empty ``fakecloud_settings``.

    Computed once for all tests of a module or class, because reading the fixture takes 20 us per
    test.
    """
    parent = item.parent
    if parent is None or SETTINGS in getattr(item, "fixturenames", ()):
        return True
    if SETTINGS in getattr(getattr(item, "callspec", None), "params", ()):
        return True
    found = parent.stash.get(_OVERRIDDEN, None)
    if found is None:
        try:
            known = item.session._fixturemanager.getfixturedefs(SETTINGS, item)
            found = known is None or len(known) != 1
        except Exception:
            # Assume that it is overridden: this API of pytest is private and may have changed.
            found = True
        parent.stash[_OVERRIDDEN] = found
    return found


def _given_to(item: pytest.Item, own: Mapping[str, Any]) -> set[str]:
    """Return the names of settings given by the test, its class or module, or its settings fixture."""
    given = {name for marker in item.iter_markers("fakecloud") for name in marker.kwargs}
    return {_fixture_of(name) for name in given.union(own)}


def _refuse(names: set[str], reason: str) -> None:
    if names:
        raise misuse(f"{', '.join(sorted(names))} cannot be set for one test, because {reason}")
