"""Run the code of the documentation pages about other languages.

Skipped if Node, its packages (`npm ci` in `tests/clients/js`) or Go are missing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.kv.backing import BINARIES, MISSING, started

from .node import HERE, need

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"
SECONDS = 300
GLUE = 30


def files(page: str) -> dict[str, str]:
    """Return the blocks of a page that begin with a file name, by name."""
    text = (GUIDES / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w+\n// ([\w.]+)\n(.*?)^```$", text, re.M | re.S)
    assert blocks
    return dict(blocks)


def written(page: str, folder: Path) -> Path:
    for name, content in files(page).items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def run(*command: str, cwd: Path, **environment: str) -> str:
    """Run a command that must succeed; return its output."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, encoding="utf-8", timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def with_fakes(*command: str, cwd: Path, options: tuple[str, ...] = (), **environment: str) -> str:
    module = (sys.executable, "-m", "pytest_fakecloud", "run", "--services", "kv,queue")
    fakes = (*module, *options, "--")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return run(*fakes, *command, cwd=cwd, PYTHONPATH=path, **environment)


@pytest.mark.parametrize(
    ("page", "glue"), [("vitest.md", "fakecloud.js"), ("go.md", "fakecloud_test.go")]
)
def test_the_glue_is_short(page: str, glue: str) -> None:
    lines = [line for line in files(page)[glue].splitlines() if line.strip()]
    assert len(lines) <= GLUE, len(lines)


@pytest.fixture
def node_folder(tmp_path: Path) -> Path:
    """Return a folder in which modules can import the packages of the JavaScript clients."""
    (tmp_path / "node_modules").symlink_to(HERE / "node_modules", target_is_directory=True)
    (tmp_path / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    return tmp_path


def test_vitest(node_folder: Path) -> None:
    need("vitest", "@upstash/redis", "@upstash/qstash")
    folder = written("vitest.md", node_folder)
    # A second file runs in parallel with the first, in its own cloud.
    shutil.copy(folder / "session.test.js", folder / "again.test.js")
    # A third one expects another key.
    calls = (folder / "calls.test.js").read_text("utf-8")
    (folder / "wrong.test.js").write_text(calls.replace('"session:*"', '"cart:*"'), "utf-8")
    # The session of a fourth one has not expired.
    session = (folder / "session.test.js").read_text("utf-8")
    (folder / "early.test.js").write_text(session.replace('by: "1m"', 'by: "1s"'), "utf-8")
    program = folder / "node_modules" / "vitest" / "vitest.mjs"
    with pytest.raises(AssertionError) as caught:
        with_fakes(
            "node", str(program), "run", "--no-color", cwd=folder,
            PYTEST_FAKECLOUD_REPORT="pages",
        )  # fmt: skip
    output = str(caught.value)
    assert re.search(r"Tests\s+2 failed \| 8 passed \(10\)", output), output
    assert "Unhandled" not in output, output
    texts = re.findall(r"^```text\n(.*?)^```$", (GUIDES / "vitest.md").read_text(), re.M | re.S)
    report, message = texts
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
        ("wrong.test.js > a session is written once", "last_call"),
    ]
    index = (folder / "pages" / "index.html").read_text("utf-8")
    assert "AssertionError: expected &#x27;ada&#x27; to be null<" in index


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


def test_a_typescript_client_of_the_control_api_compiles(node_folder: Path) -> None:
    need("openapi-typescript", "openapi-fetch", "typescript", "@types/node")
    folder = written("vitest.md", node_folder)
    programs = folder / "node_modules"
    generator = programs / "openapi-typescript" / "bin" / "cli.js"
    document = ROOT / "docs" / "control-api.json"
    run("node", str(generator), str(document), "-o", "control-api.d.ts", cwd=folder)
    # The types must be useful: an action that the clock does not have is a type error.
    client = (folder / "client.ts").read_text("utf-8")
    (folder / "wrong.ts").write_text(client.replace('"advance", by', '"leap", by'), "utf-8")
    compiler = ["node", str(programs / "typescript" / "bin" / "tsc"), "--noEmit", "--strict",
                "--target", "es2022", "--lib", "es2022", "--types", "node",
                "--module", "nodenext", "--skipLibCheck"]  # fmt: skip
    with pytest.raises(AssertionError, match='"leap"') as caught:
        run(*compiler, "client.ts", "wrong.ts", cwd=folder)
    assert "client.ts(" not in str(caught.value)


def test_go(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    folder = written("go.md", tmp_path)
    (folder / "go.mod").write_text("module shop\n\ngo 1.19\n", encoding="utf-8")
    output = with_fakes(
        "go", "test", "-v", "./...", cwd=folder, GOFLAGS="-mod=mod", GOTOOLCHAIN="local"
    )
    assert output.count("--- PASS") == 2, output
