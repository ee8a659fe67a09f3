"""Parts that the rest of the package does without: each can be deleted, and one module imports it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from .harness import PACKAGE, QUIET, UNMEASURED, quiet_but
from .test_architecture import module, modules

REGISTRATIONS = {
    "explore": "cloud.cloud",
    "recordings": "cloud.cloud",
    "kv.real_redis": "kv.fake",
    "broker.real_kafka": "broker.fake",
    "standalone": "cli",
    "verify": "cli",
    "hints": "pytest_run.outcomes",
    "last_pass": "pytest_run.outcomes",
    "replay": "reporting.render.replayed",
}
"""For each of these folders, the only module outside it that imports it."""
OF_EXPLORE = {
    "explore.guests.inputs": "explore.explore",
    "explore.guests.isolation": "",
    "explore.guests.ahead": "explore.explore",
    "explore.guests.trust": "explore.explore",
    "explore.guests.every_failure": "cloud.cloud",
    "explore.guests.trio_runs": "explore.world.patches",
    "explore.guests.celery_workers": "explore.world.patches",
    "explore.guests.polling": "explore.world.patches",
}
"""The same for the guests of ``explore()``. No module imports one that is only a public name."""
GUESTS = REGISTRATIONS | OF_EXPLORE
TOGETHER = [
    [folder for folder, owner in REGISTRATIONS.items() if (owner == "cli") == has_commands]
    for has_commands in (False, True)
] + [[*OF_EXPLORE]]
"""Guests that are left out together. A command of `recordings` needs `standalone`."""

SUITE = """
import os

import freezegun
import pytest

import pytest_fakecloud

def test_the_package_is_the_copy():
    assert os.path.samefile(os.path.dirname(pytest_fakecloud.__file__), os.environ["COPY"])

def test_kv(kv_server):
    client = kv_server.client()
    client.set("key", "value")
    assert client.get("key") == kv_server.value("key") == "value"

def test_vector(vector_index):
    client = vector_index.client()
    client.upsert([("a", [0.1, 0.2])])
    assert [found.id for found in client.query([0.1, 0.2], top_k=1)] == ["a"]

def test_broker(broker):
    broker.create_topic("orders", partitions=1)
    assert broker.client().get("/produce/orders/hello").json()["offset"] == 0

def test_queue(queue, callback_capture, destination):
    destination.server.expect_request("/work").respond_with_data("done")
    url = destination.url.rstrip("/") + "/work"
    queue.client().message.publish(url=url, body="b", callback=callback_capture.callback_url)
    queue.run_until_idle()
    callback_capture.wait_for_callback()

def test_cloud(fakecloud):
    kv_server = fakecloud.kv_server()
    kv_server.client().set("key", "value", ex=60)
    fakecloud.clock.advance("1h")
    assert kv_server.client().get("key") is None

def test_freezegun_reads_all_attributes_of_all_modules(kv_server):
    with freezegun.freeze_time("2026-01-01"):
        kv_server.client().ping()

def test_fails(kv_server):
    kv_server.client().get("no-such-key")
    raise AssertionError
"""

EXPLORED = """
def test_explore(fakecloud, kv_server):
    def visit():
        client = kv_server.client()
        client.set("visits", int(client.get("visits") or 0) + 1)

    def check():
        assert kv_server.value("visits") == "2"

    with pytest.raises(pytest_fakecloud.BrokenPromiseError, match="came between"):
        fakecloud.explore([visit, visit], check)
"""
"""What ``explore()`` does without its guests."""
CALLS = {
    "explore": ["fakecloud.explore(print)"],
    "recordings": ["fakecloud.replay({})"],
    "kv.real_redis": ["fakecloud.kv_server(engine='redis://127.0.0.1:1')"],
    "broker.real_kafka": ["fakecloud.broker(engine='kafka://127.0.0.1:1')"],
    "explore.guests.inputs": ["fakecloud.explore(print, inputs={})"],
    "explore.guests.ahead": ["fakecloud.explore(print, processes=2)"],
    "explore.guests.trust": ["fakecloud.explore(print, trust=True)"],
    "explore.guests.every_failure": ["fakecloud.every_failure(print)"],
}
"""Expressions that need each folder."""
NAMES = {
    "explore": ["always", "BrokenPromiseError"],
    "recordings": ["Difference"],
    "explore.guests.inputs": ["drawn", "operations", "transactions"],
    "explore.guests.isolation": ["isolated"],
}
"""Public names that are defined in a folder."""
NOTHING = [sys.executable, "-Sc", ""]
COMMANDS = {
    "recordings": [
        ["pytest", "--fakecloud-record", "folder"],
        ["pytest_fakecloud", "run", "--journal", "file.har", "--", *NOTHING],
    ],
    "standalone": [["pytest_fakecloud", "serve"], ["pytest_fakecloud", "advance", "24h"]],
    "verify": [["pytest_fakecloud", "verify", "--kv", "http://127.0.0.1:1"]],
}
"""Commands that need each folder."""
OTHER_COMMANDS = {
    "standalone": ["run", "--services", "kv,broker", "--", *NOTHING],
    "verify": ["verify", "--kv", "http://127.0.0.1:1", "--kv-token", "t", "--dry-run"],
}
"""For each folder with commands, one that must work without all the others."""


def inside(name: str, folder: str) -> bool:
    return name == folder or name.startswith(f"{folder}.")


@pytest.mark.parametrize("folder", GUESTS)
def test_one_module_imports_it(folder: str) -> None:
    importers = {
        name
        for name in modules()
        if not inside(name, folder)
        and any(
            inside(imported.removeprefix("pytest_fakecloud."), folder) for imported in imports(name)
        )
    }
    assert importers == ({GUESTS[folder]} if GUESTS[folder] else set())


def imports(name: str) -> frozenset[str]:
    """Return what a module imports; without types for the package, which lists its public names."""
    module_imports = module(name)
    return module_imports.imports if name else module_imports.imports - module_imports.for_types


@pytest.mark.parametrize("folder", [guest for guest, owner in GUESTS.items() if owner])
def test_its_import_is_late(folder: str) -> None:
    imports_of_guest = module(GUESTS[folder])
    late = imports_of_guest.imports - imports_of_guest.at_import - imports_of_guest.for_types
    assert [
        imported for imported in late if inside(imported.removeprefix("pytest_fakecloud."), folder)
    ]
    assert not [
        imported
        for imported in imports_of_guest.at_import
        if inside(imported, f"pytest_fakecloud.{folder}")
    ]


@pytest.mark.parametrize("folder", GUESTS)
def test_no_other_module_names_it_in_a_string(folder: str) -> None:
    path = re.compile(rf"pytest_fakecloud\.{re.escape(folder)}\b")
    naming = [
        name
        for name, file in modules().items()
        if not inside(name, folder) and path.search(file.read_text("utf-8"))
    ]
    assert naming == []


def without(folders: Iterable[str], place: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a module of Python with a copy of the package without folders."""
    copy = place / "site" / "pytest_fakecloud"
    shutil.copytree(PACKAGE, copy)
    for folder in folders:
        path = copy.joinpath(*folder.split("."))
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.with_suffix(".py").unlink()

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            capture_output=True,
            text=True,
            cwd=place,
            env={**UNMEASURED, "PYTHONPATH": str(copy.parent), "COPY": str(copy)},
            timeout=120,
        )

    return python


@pytest.mark.slow
@pytest.mark.parametrize("owner", OTHER_COMMANDS)
def test_a_folder_works_without_all_the_others(owner: str, tmp_path: Path) -> None:
    python = without(REGISTRATIONS.keys() - {owner}, tmp_path)
    done = python("pytest_fakecloud", *OTHER_COMMANDS[owner])
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("folders", TOGETHER, ids=",".join)
def test_the_package_works_without_them(folders: Sequence[str], tmp_path: Path) -> None:
    """That one does not need another is shown by ``test_one_module_imports_it``."""
    missing = {
        folder: f"needs pytest_fakecloud.{folder}, a part of pytest-fakecloud that is not installed"
        for folder in folders
    }
    python = without(folders, tmp_path)
    calls = "".join(
        f"\ndef test_call_{folder.replace('.', '_')}_{number}(fakecloud):\n"
        f"    with pytest.raises(pytest_fakecloud.ContractError, match={missing[folder]!r}):\n"
        f"        {call}\n"
        for folder in folders
        for number, call in enumerate(CALLS.get(folder, ()))
    )
    names = "".join(
        f"\ndef test_name_{name}():\n"
        f"    with pytest.raises(ImportError, match='pytest_fakecloud.{folder}'):\n"
        f"        from pytest_fakecloud import {name}\n"
        for folder in folders
        for name in NAMES.get(folder, ())
    )
    suite = SUITE + calls + names + ("" if "explore" in folders else EXPLORED)
    (tmp_path / "test_suite.py").write_text(suite)
    done = python("pytest", *QUIET, "-Werror", "-q", "test_suite.py")
    passed = len(re.findall(r"^def test_", suite, re.M)) - 1
    assert f"1 failed, {passed} passed" in done.stdout, done.stdout
    assert re.search(r"^-+ fakecloud -+$(\n.*)*GET no-such-key", done.stdout, re.M), done.stdout

    for folder in folders:
        for command in COMMANDS.get(folder, ()):
            done = python(*command)
            assert done.returncode == (4 if command[0] == "pytest" else 2), done.stderr
            assert missing[folder] in done.stderr


REPORTED = """
import os

def test_sold(kv_server):
    client = kv_server.client()
    client.set("sold", 1)
    client.eval("return redis.call('incr', KEYS[1])", keys=["sold"])
    if "BROKEN" in os.environ:
        client.get("other")
        kv_server.values("sold")
    assert kv_server.value("sold") == "2"
"""
ADDITIONS = {
    "hints": "KVServer has no values; did you mean 'value'?",
    "last_pass": "the last passing run of this test had ended before this row",
}
"""A line that each of these folders adds to the report of this test; ``replay`` adds to its page."""


@pytest.mark.slow
@pytest.mark.parametrize("folder", [*ADDITIONS, "replay"])
def test_a_report_lacks_only_what_a_missing_folder_adds(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = without([folder], tmp_path)
    (tmp_path / "test_suite.py").write_text(REPORTED)
    command = ("pytest", *quiet_but("cacheprovider"), "-Werror", "--fakecloud-report=pages")
    passed = python(*command)
    assert passed.returncode == 0, passed.stdout
    monkeypatch.setitem(UNMEASURED, "BROKEN", "1")
    failed = python(*command)
    assert "1 failed" in failed.stdout, failed.stderr
    assert {name for name, line in ADDITIONS.items() if line not in failed.stdout} == {
        *ADDITIONS.keys() & {folder}
    }
    assert "GET other" in failed.stdout
    assert "could not" not in failed.stdout
    page = (tmp_path / "pages" / "test_suite.py-test_sold.html").read_text("utf-8")
    assert ("replay/ is not installed" in page) == (folder == "replay")
