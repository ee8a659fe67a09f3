"""Run the tests of the JavaScript clients with Node, using the packages that `npm ci` installs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud.http.hub import default_hub
from pytest_fakecloud.http.messages import Answer, Request

from ..demo import FunctionApp

HERE = Path(__file__).parent / "js"
NPM = Path(__file__).parents[2] / "npm"
SECONDS = 120


def need(*packages: str, folder: Path = HERE) -> None:
    """Skip the calling test if Node or a package of a folder is missing."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    for package in packages:
        if not (folder / "node_modules" / package).is_dir():
            pytest.skip(f"{package} is not installed in tests/clients/{folder.name}")


def install(folder: Path) -> None:
    """Let modules in a folder import the packages of the JavaScript clients, and the project's own."""
    modules = folder / "node_modules"
    modules.mkdir(parents=True)
    for package in (HERE / "node_modules").glob("*"):  # none without `npm ci`
        (modules / package.name).symlink_to(package, target_is_directory=True)
    # A copy, because Node.js resolves the imports of a linked package from its own folder.
    own = modules / "pytest-fakecloud"
    for part in ("bin", "lib"):
        shutil.copytree(NPM / part, own / part)
    shutil.copy(NPM / "package.json", own)


@dataclass
class Outcome:
    """The results of a test file: the number of passed tests, and each skipped one with its reason."""

    output: str
    passed: int
    skipped: dict[str, str]


def run(file: str, environment: Mapping[str, str], folder: Path = HERE) -> Outcome:
    """Run a test file of a folder. Fails unless all of its tests pass in time, or are skipped."""
    # Connections of the developer's own would be found before those of the fakes.
    own = ("QSTASH_", "UPSTASH_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    process = subprocess.Popen(
        # The option --test would run the file in another interpreter.
        [str(shutil.which("node")), "--test-reporter=tap", file],
        cwd=folder,
        env={**inherited, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        pytest.fail(f"{file} did not end in {SECONDS} s:\n{output[-20_000:]}")
    assert process.returncode == 0, output[-20_000:]
    passed = re.search(r"^# pass (\d+)", output, re.MULTILINE)
    assert passed is not None, output
    skipped = re.findall(r"^ *ok \d+ - (.+?) # SKIP *(.*)", output, re.MULTILINE)
    return Outcome(output, int(passed[1]), dict(skipped))


@contextmanager
def control(words: Mapping[str, Callable[..., Any]]) -> Iterator[dict[str, str]]:
    """Let a test file call functions with ``control()``; yields its environment variables."""
    # Only one thread may move the clock at a time.
    lock = threading.Lock()

    def respond_to(request: Request) -> Answer:
        word, *arguments = json.loads(request.body)
        try:
            with lock:
                answer, status = words[word](*arguments), 200
        except Exception as error:
            answer, status = repr(error), 500
        return Answer(json.dumps(answer).encode(), status)

    with closing(default_hub().mount(FunctionApp(respond_to))) as mount:
        yield {"FAKE_CONTROL": mount.url}
