from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from _pytest.outcomes import OutcomeException
from _pytest.runner import runtestprotocol
from hypothesis import settings

from pytest_fakecloud.http.hub import Hub

from .budget import EXAMPLES
from .demo import Demo, Raw
from .harness import changing_clouds
from .harness import impatient as impatient
from .harness import pytester as pytester
from .harness import run as run
from .harness import what_runs_need as what_runs_need

# No deadline, because the time of an example depends on the machine. The examples are always the
# same.
settings.register_profile("fakecloud", max_examples=EXAMPLES, deadline=None, derandomize=True)
settings.load_profile("fakecloud")

# Objects from collection live until the end; searching them for garbage repeatedly takes a third of
# it.
gc.disable()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let each worker of xdist import another share of the test modules before it collects all.

    It finds the other shares compiled. Otherwise all workers would compile the same modules at the same
    time.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    here = Path(__file__).parent
    selected = [session.config.invocation_params.dir / arg for arg in session.config.args]
    modules = [
        module
        for module in sorted(here.rglob("test_*.py"))
        if any(module.is_relative_to(folder) for folder in selected)
    ]
    for module in modules[int(worker["workerid"][2:]) :: worker["workercount"]]:
        # Collection repeats a failed import, e.g. of a module whose markers its conftest registers.
        with suppress(Exception, OutcomeException):
            importlib.import_module(".".join(module.relative_to(here.parent).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Exclude modules and tests, which live until the end, from garbage collection.

    Their garbage, too: to collect it takes each worker as long as hundreds of tests, and frees little.
    """
    gc.freeze()
    # Tests allocate much and keep little: collecting garbage at the usual rate takes a tenth of the
    # suite's time.
    gc.set_threshold(25_000, 20, 30)
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect long runs unless their marker is selected."""
    if "long" in (config.option.markexpr or ""):
        return
    skip = pytest.mark.skip("a long run: ask for it with -m long")
    for item in items:
        if item.get_closest_marker("long") is not None:
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Collect no garbage while a test parses what is nested too deeply. Before Python 3.12, collections
    begin at any allocation, and finalizers of other tests' garbage would fail at the greatest depth.
    """
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    if not any(map(_nests_deeply, parameters.values())):
        return (yield)
    gc.collect()
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def _nests_deeply(value: object) -> bool:
    brackets = b"[" * 900 if isinstance(value, bytes) else "[" * 900
    return isinstance(value, str | bytes) and brackets in value  # type: ignore[operator]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Let a worker of xdist send only one report of a test that passes.

    A report takes both processes half a millisecond, and a message that a test starts or ends an eighth.
    With three reports and two messages per test, that was a fifteenth of the suite. All of them are sent
    for ``--durations`` and XML.
    """
    options = item.config.option
    if not hasattr(item.config, "workerinput") or options.durations is not None or options.xmlpath:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed or report.sections:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.fixture(autouse=True)
def _no_cloud_is_left_open() -> Iterator[None]:
    """Fail a test that leaves its cloud's changes of the process to later tests."""
    before = changing_clouds()
    yield
    if (after := changing_clouds()) != before:
        pytest.fail(f"a cloud was left open: there were {before} before, and {after} after")


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A separate hub for the test."""
    hub = Hub()
    yield hub
    hub.stop()
    hub.workers.close()


@pytest.fixture
def demo() -> Iterator[Demo]:
    """The demo service on the process's hub."""
    with Demo() as demo:
        yield demo


@pytest.fixture
def raw(demo: Demo) -> Iterator[Raw]:
    """A raw connection to the demo service."""
    with Raw(demo.mount.address) as raw:
        yield raw
