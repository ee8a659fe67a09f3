"""Only the owner can read recordings; report pages have the mode that the umask gives."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.output_files import write_private, write_public
from pytest_fakecloud.recordings import archives
from pytest_fakecloud.reporting.render import as_json
from pytest_fakecloud.reporting.render import page as timeline
from pytest_fakecloud.reporting.report import report_of

from ..harness import apart

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no modes of this kind")


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_recordings(tmp_path: Path) -> None:
    with Cloud(seed=1) as cloud:
        cloud.kv_server()
        assert mode(archives.write(cloud, tmp_path / "a" / "x.har")) == 0o600


@pytest.mark.parametrize("umask", [0, 0o002, 0o022, 0o027, 0o077])
def test_report_pages_their_index_and_data(tmp_path: Path, umask: int) -> None:
    os.umask(umask)
    folder = tmp_path / "new" / "pages"
    with Cloud(seed=1) as cloud:
        cloud.kv_server()
        report = report_of(cloud, test="it")
        for _ in range(2):
            page = write_public(folder / "a.html", timeline.page(cloud, report))
            data, index = as_json.write(report, page.with_suffix(".json")), folder / "index.html"
            assert timeline.write_index(folder) == index
            for path in (page, data, index):
                assert mode(path) == 0o666 & ~umask
                path.chmod(0o640)  # of a file that the next run replaces
    assert mode(folder) == 0o777 & ~umask


def test_a_file_that_was_there_is_closed_too(tmp_path: Path) -> None:
    file = tmp_path / "x.har"
    file.write_text("of before, and longer than what comes", encoding="utf-8")
    file.chmod(0o644)
    assert write_private(file, "new \ud800").read_text(encoding="utf-8") == "new \\ud800"
    assert mode(file) == 0o600


def test_what_is_no_file_keeps_its_mode(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o644)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_private(pipe, "said")
        assert os.read(reader, 100) == b"said"
    finally:
        os.close(reader)
    assert mode(pipe) == 0o644


def test_the_journal_of_run(tmp_path: Path) -> None:
    journal = tmp_path / "journal.har"
    words = [sys.executable, "-m", "pytest_fakecloud", "run", "--services", "kv", "--journal"]
    # Only the owner can read the file while the command is running, too.
    look = f"import os; print(oct(os.stat({str(journal)!r}).st_mode & 0o777))"
    done = subprocess.run(
        [*words, str(journal), "--", sys.executable, "-c", look],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "0o600"), done.stderr
    assert mode(journal) == 0o600


@pytest.mark.slow
def test_what_the_plugin_records(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(kv_server): assert kv_server.client().set('a', '1') == 5")
    apart(pytester, "--fakecloud-record=har", "--fakecloud-report=html")
    modes = {
        name: {mode(path) for path in (pytester.path / name).iterdir()} for name in ("har", "html")
    }
    assert modes == {"har": {0o600}, "html": {0o666}}
