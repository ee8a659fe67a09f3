"""Run the code of the documentation pages about other languages.

Skipped if Node, its packages (`npm ci` in `tests/clients/js`) or Go are missing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.kv.backing import BINARIES, MISSING, started

from .node import NPM, install, need

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"
SECONDS = 300
BUILD_SECONDS = 900
"""The first build on a machine compiles Go's standard library too."""
GO_SETTINGS = {"GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
GLUE = 30


def files(page: str, folder: Path = GUIDES) -> dict[str, str]:
    """Return the blocks of a page that begin with a file name, by name."""
    text = (folder / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w+\n// ([\w.]+)\n(.*?)^```$", text, re.M | re.S)
    assert blocks
    return dict(blocks)


def written(page: str, folder: Path, *names: str) -> Path:
    """Write the blocks of a page, all or those with these names, into a folder."""
    blocks = files(page)
    for name in names or blocks:
        (folder / name).write_text(blocks[name], encoding="utf-8")
    return folder


def run(*command: str, cwd: Path, seconds: float = SECONDS, **environment: str) -> str:
    """Run a command that must succeed within a time; return its output."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, encoding="utf-8", timeout=seconds,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def build_go(folder: Path) -> None:
    """Compile the tests of a folder, so that a test's time limit is only for running them."""
    build = ("go", "test", "-c", "-o", os.devnull, ".")
    run(*build, cwd=folder, seconds=BUILD_SECONDS, **GO_SETTINGS)


def with_fakes(*command: str, cwd: Path, options: tuple[str, ...] = (), **environment: str) -> str:
    module = (sys.executable, "-m", "pytest_fakecloud", "run", "--services", "kv,queue")
    fakes = (*module, *options, "--")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return run(*fakes, *command, cwd=cwd, PYTHONPATH=path, **environment)


def test_the_glue_is_short() -> None:
    lines = [line for line in files("go.md")["fakecloud_test.go"].splitlines() if line.strip()]
    assert len(lines) <= GLUE, len(lines)


@pytest.fixture
def node_folder(tmp_path: Path) -> Path:
    """Return a folder in which modules can import the npm package and those of the clients."""
    need()
    install(tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    return tmp_path


def test_vitest(node_folder: Path) -> None:
    need("vitest", "@upstash/redis", "@upstash/qstash")
    names = ("vitest.config.js", "session.test.js", "receipts.test.js", "calls.test.js")
    folder = written("javascript.md", node_folder, *names)
    # A second file runs in parallel with the first, in its own cloud.
    shutil.copy(folder / "session.test.js", folder / "again.test.js")
    # A third one expects another key.
    calls = (folder / "calls.test.js").read_text("utf-8")
    (folder / "wrong.test.js").write_text(calls.replace('"session:*"', '"cart:*"'), "utf-8")
    # The session of a fourth one has not expired.
    session = (folder / "session.test.js").read_text("utf-8")
    (folder / "early.test.js").write_text(
        session.replace('advance("1m")', 'advance("1s")'), "utf-8"
    )
    # A fifth one injects a fault that never fires.
    unused = session.replace('command: "SET"', 'command: "GET"').replace(
        ".rejects.toThrow", ".resolves.toBe"
    )
    (folder / "unused.test.js").write_text(unused.replace("toBe()", 'toBe("OK")'), "utf-8")
    program = folder / "node_modules" / "vitest" / "vitest.mjs"
    with pytest.raises(AssertionError) as caught:
        with_fakes(
            "node", str(program), "run", "--no-color", cwd=folder,
            PYTEST_FAKECLOUD_REPORT="pages",
        )  # fmt: skip
    output = str(caught.value)
    assert re.search(r"Tests\s+3 failed \| 9 passed \(12\)", output), output
    assert "Unhandled" not in output, output
    assert re.search(r"Error: kv_server: the fault <respond 503 .* never fired", output), output
    report, message = texts()
    assert _without_numbers(message) in _without_numbers(output)
    report = report.replace("session.test.js", "early.test.js")
    assert _without_numbers(report) in _without_numbers(output)
    assert re.search(
        r"wrong.test.js > a session is written once:\n +What the failing .*\n +> .*SET session:7 ada",
        output,
    )
    data = [json.loads(path.read_text("utf-8")) for path in folder.glob("pages/*.json")]
    assert sorted((page["test"], page["statement"]["kind"]) for page in data) == [
        ("early.test.js > a session expires after an hour", "compared"),
        ("unused.test.js > a failed write is an error", "last_call"),
        ("wrong.test.js > a session is written once", "last_call"),
    ]
    index = (folder / "pages" / "index.html").read_text("utf-8")
    assert "AssertionError: expected &#x27;ada&#x27; to be null<" in index


def test_the_readme_of_the_npm_package(node_folder: Path) -> None:
    need("vitest", "@upstash/redis")
    for name, content in files("README.md", NPM).items():
        (node_folder / name).write_text(content, "utf-8")
    program = node_folder / "node_modules" / "vitest" / "vitest.mjs"
    output = with_fakes("node", str(program), "run", "--no-color", cwd=node_folder)
    assert re.search(r"Tests\s+1 passed \(1\)", output), output


def texts() -> list[str]:
    """Return what the guide to JavaScript shows of reports and messages."""
    return re.findall(r"^```text\n(.*?)^```$", (GUIDES / "javascript.md").read_text(), re.M | re.S)


def _without_numbers(text: str) -> str:
    """Leave out the numbers of calls, which depend on the services of the server, and indentation."""
    return " ".join(re.sub(r"<Call \d+", "<Call", text).split())


@pytest.mark.parametrize("engine", [None, *(BINARIES or [pytest.param("none", marks=MISSING)])])
def test_limits_and_subscriptions_that_another_proxy_lacks(
    node_folder: Path, engine: str | None
) -> None:
    need("@upstash/redis", "@upstash/ratelimit")
    folder = written("../migrating/serverless_redis_http.md", node_folder)
    with ExitStack() as stack:
        options: tuple[str, ...] = ()
        if engine is not None:
            server = stack.enter_context(closing(started(engine)))
            options = ("--kv", f"engine={server.url}")
        output = with_fakes("node", "--test", cwd=folder, options=options)
    assert re.search(r"^# pass 2$", output, re.M), output


def test_jest(node_folder: Path) -> None:
    need("jest", "jest-environment-node", "@upstash/redis")
    names = ("jest.config.js", "environment.js", "cart.test.js")
    folder = written("javascript.md", node_folder, *names)
    (folder / "package.json").write_text("{}", "utf-8")
    program = ["node", str(folder / "node_modules" / "jest" / "bin" / "jest.js"), "--no-watchman"]
    assert "Tests:       1 passed, 1 total" in with_fakes(*program, cwd=folder)
    # The environment of the page's own module, based on one that is installed.
    own = (folder / "environment.js").read_text("utf-8").replace("jsdom", "node")
    (folder / "environment.js").write_text(own, "utf-8")
    config = (folder / "jest.config.js").read_text("utf-8")
    changed = config.replace('"pytest-fakecloud/jest"', '"./environment.js"')
    assert changed != config
    (folder / "jest.config.js").write_text(changed, "utf-8")
    test = (folder / "cart.test.js").read_text("utf-8")
    early = test.replace('advance("1d")', 'advance("1h")')
    unused = test.replace(
        "  await clock.advance",
        '  await require("pytest-fakecloud").faults.inject("kv_server", "drop", { command: "DEL" })\n'
        "  await clock.advance",
    )
    (folder / "early.test.js").write_text(f'describe("the shop", () => {{\n{early}\n}})', "utf-8")
    (folder / "unused.test.js").write_text(unused, "utf-8")
    with pytest.raises(AssertionError) as caught:
        with_fakes(*program, cwd=folder)
    output = str(caught.value)
    assert "Tests:       2 failed, 1 passed, 3 total" in output, output
    assert "the fault <drop" in output
    name = "early.test.js > the shop > a cart expires after a day"
    assert re.search(rf"{name}:\n +The failing statement compared cart:7", output), output
    assert "unused.test.js > a cart expires after a day:" in output


def test_playwright(node_folder: Path) -> None:
    need("@playwright/test", "@upstash/redis", "@upstash/qstash")
    names = ("playwright.config.js", "shop.mjs", "shop.spec.js", "worker.spec.js")
    folder = written("javascript.md", node_folder, *names)
    (folder / "package.json").write_text("{}", "utf-8")
    port = free_port()
    for name in names:
        text = (folder / name).read_text("utf-8")
        (folder / name).write_text(text.replace("3210", str(port)), "utf-8")
    order = (folder / "shop.spec.js").read_text("utf-8")
    nowhere = order.replace(r"{ url: /packed$/", "{ url: /nowhere$/").replace(
        'state: "delivered" })', 'state: "delivered" }, { timeout: 200 })'
    )
    (folder / "wrong.spec.js").write_text(nowhere, "utf-8")
    program = ["node", str(folder / "node_modules" / "@playwright" / "test" / "cli.js"), "test"]
    with pytest.raises(AssertionError) as caught:
        with_fakes(*program, cwd=folder)
    output = str(caught.value)
    assert re.search(r"1 failed\n.*wrong.spec.js:\d+:\d+ .*\n +2 passed", output), output
    assert 'none of the callbacks matches {"url":"/nowhere$/","state":"delivered"}' in output
    assert "calls.har" in output
    with pytest.raises(AssertionError, match="set workers: 1"):
        with_fakes(*program, "--workers", "2", "shop.spec.js", cwd=folder)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_node(node_folder: Path) -> None:
    need("typescript", "@types/node", "@upstash/redis")
    folder = written("javascript.md", node_folder, "session.node.ts", "types.ts")
    programs = folder / "node_modules"
    run("node", str(programs / "typescript" / "bin" / "tsc"), "--strict", "--skipLibCheck",
        "--target", "es2022", "--lib", "es2022,esnext.disposable", "--types", "node",
        "--module", "nodenext", "session.node.ts", "types.ts", cwd=folder)  # fmt: skip
    # Without a server in the environment, the helper starts one, and ends it.
    command = folder / "program"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pytest_fakecloud "$@"\n', "utf-8")
    command.chmod(0o755)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    own = {"PYTEST_FAKECLOUD_PROGRAM": str(command), "PYTHONPATH": path}
    assert re.search(
        r"^\W+pass 1$", run("node", "--test", "session.node.js", cwd=folder, **own), re.M
    )
    output = with_fakes("node", "--test", "session.node.js", cwd=folder)
    assert re.search(r"^\W+pass 1$", output, re.M)
    # The types must be useful: an action that the clock does not have is a type error.
    text = (folder / "types.ts").read_text("utf-8")
    (folder / "wrong.ts").write_text(text.replace('"advance", by', '"leap", by'), "utf-8")
    with pytest.raises(AssertionError, match=r"wrong\.ts\(4,"):
        run("node", str(programs / "typescript" / "bin" / "tsc"), "--noEmit", "--strict",
            "--skipLibCheck", "--target", "es2022", "--lib", "es2022,esnext.disposable",
            "--types", "node", "--module", "nodenext", "wrong.ts", cwd=folder)  # fmt: skip


def test_go(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    folder = written("go.md", tmp_path)
    (folder / "go.mod").write_text("module shop\n\ngo 1.19\n", encoding="utf-8")
    build_go(folder)
    output = with_fakes("go", "test", "-v", "./...", cwd=folder, **GO_SETTINGS)
    assert output.count("--- PASS") == 2, output
