"""Tests that fake the file system (pyfakefs) and also use the fakes, which read real files."""

from __future__ import annotations

import io
import os
import pathlib
import subprocess
import sys
import zoneinfo
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.kv.scripting import host
from pytest_fakecloud.pytest_run.faked_files import import_fakes

from ..harness import QUIET, Run

__all__: list[str] = []


@pytest.fixture
def no_files(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Disable the usual ways to open or stat a file, after the imports that the plugin makes then."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise FileNotFoundError(2, "No such file or directory")

    import_fakes()
    host._chunk.cache_clear()
    zoneinfo.ZoneInfo.clear_cache()
    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", refuse)
        patch.setattr(io, "open", refuse)
        patch.setattr(os.path, "isfile", lambda path: False)
        patch.setattr(pathlib.Path, "open", refuse)
        patch.setattr(pathlib.Path, "stat", refuse)
        yield
    zoneinfo.ZoneInfo.clear_cache()


def test_scripts_run_and_schedules_have_zones(no_files: None) -> None:
    with Cloud(1, now="2026-01-01T00:00:00Z", delivery="driven", transport="inprocess") as cloud:
        kv, queue = cloud.kv_server(), cloud.queue()
        assert kv.execute("EVAL", "return redis.call('INCR', KEYS[1])", 1, "n") == 1
        with pytest.raises(zoneinfo.ZoneInfoNotFoundError):
            zoneinfo.ZoneInfo("Europe/Berlin")
        queue.destinations.accept("https://app.test")
        queue.schedule("https://app.test/hook", cron="CRON_TZ=Europe/Berlin 30 2 * * *")
        queue.clock.advance("24h")
        assert [str(attempt.at.time()) for attempt in queue.attempts()] == ["01:30:00"]


SUITE = """
    import pytest

    @pytest.mark.parametrize("turn", range(2))
    def test_before(fs, kv_server, queue, turn):
        fs.create_file("/data/a.txt", contents="a")
        assert kv_server.client().eval("return redis.call('incr', KEYS[1])", keys=["n"]) == 1
        assert queue.publish("https://app.test/hook").id
        assert open("/data/a.txt").read() == "a"

    def test_after(vector_index, kv_server, fs):
        kv_server.client().set("k", "v")
        assert kv_server.value("k") == "v"
        assert vector_index.vectors() == []

    def test_without(vector_index, broker, kv_server):
        broker.create_topic("orders")
        assert kv_server.client().incr("n") == 1
"""


def test_the_fixture_of_pyfakefs_beside_the_fakes(run: Run, pytester: pytest.Pytester) -> None:
    pytest.importorskip("pyfakefs")
    pytester.makepyfile(SUITE)
    # Use a separate process, in which nothing has been imported before.
    pytester.runpytest_subprocess(*QUIET).assert_outcomes(passed=4)


def test_nothing_is_left_to_be_imported_from_faked_files() -> None:
    code = (
        "import sys\n"
        "from pytest_fakecloud.pytest_run.faked_files import IMPORTED_LATER, import_fakes\n"
        "import_fakes()\n"
        "print({*IMPORTED_LATER} - {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
