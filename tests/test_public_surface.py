"""Nothing of the public surface changes unannounced, and its types are checked where they are used."""

from __future__ import annotations

import ast
import difflib
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_fakecloud
from pytest_fakecloud import ServiceError

from .surface import FILE, surface

ROOT = Path(__file__).parent.parent


def test_the_surface_is_as_written() -> None:
    written = FILE.read_text(encoding="utf-8").splitlines()
    changes = list(difflib.unified_diff(written, surface().splitlines(), lineterm="", n=0))
    assert not changes, (
        "the public surface is another one. If it is meant to be, write it anew with\n"
        "    python -m tests.surface\n"
        "and say so in the changelog:\n" + "\n".join(changes[2:200])
    )


def test_type_checkers_are_told_the_same() -> None:
    tree = ast.parse(Path(pytest_fakecloud.__file__).read_text(encoding="utf-8"))
    told = {
        alias.name: node.module
        for block in ast.walk(tree)
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert told == pytest_fakecloud._HOMES
    assert sorted(told) == pytest_fakecloud.__all__


def test_what_a_client_is_refused_has_one_base() -> None:
    for name in ("CommandError", "RestError", "VectorError", "BrokerError", "QueueError"):
        assert issubclass(getattr(pytest_fakecloud, name), ServiceError)


def test_the_names_are_offered_for_completion() -> None:
    assert set(pytest_fakecloud.__all__) <= set(dir(pytest_fakecloud))


def test_importing_the_package_imports_none_of_it() -> None:
    code = (
        "import sys, pytest_fakecloud\n"
        "print([name for name in sys.modules if name.startswith('pytest_fakecloud.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


PLANTED = """
from pytest_fakecloud import Cloud, KVServer, Queue, RemoteCloud

cloud = Cloud(seed=1)
kv: KVServer = cloud.kv_server(daily_limit=5, port=0)
far: RemoteCloud = Cloud.connect("http://127.0.0.1:1")
queue: Queue = far.queue(retries=1)
held: bool = not cloud.every_failure(print, status=500).broken
text: str = str(cloud.replay("x.har", move_clock=False)[0].where)
cloud.kv_server(colour="green")  # wrong
cloud.broker(max_poll_records="x")  # wrong
far.vector_index(dimensions=3)  # wrong
cloud.queue(token=5)  # wrong
cloud.destination(keys={})  # wrong
cloud.callback_capture(key={})  # wrong
cloud.every_failure(print, stauts=500)  # wrong
cloud.replay("x.har", into=5)  # wrong
server: Queue = cloud.kv_server()  # wrong
Cloud(transport="pigeon")  # wrong
"""


def test_settings_are_checked_by_type_checkers(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    file = tmp_path / "planted.py"
    file.write_text(PLANTED)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--no-error-summary", "--follow-imports=silent"),
            *("--config-file", str(ROOT / "pyproject.toml"), str(file)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    found = {int(line.split(":")[1]) for line in errors}
    lines = PLANTED.splitlines()
    assert found == {number for number, line in enumerate(lines, 1) if "# wrong" in line}, (
        done.stdout + done.stderr
    )
