"""Node and curl use the stand-alone server."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Server

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
JS = ROOT / "tests" / "clients" / "js"
NODE = shutil.which("node")
CURL = shutil.which("curl")
PACKAGES = ("kafka", "qstash", "redis", "vector")
MISSING = [name for name in PACKAGES if not (JS / "node_modules" / "@upstash" / name).is_dir()]


def node(folder: Path, *words: str) -> str:
    """Run a command in a folder of JavaScript; return its output."""
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, encoding="utf-8", timeout=120,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-4_000:]
    return done.stdout


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}; run npm ci in {JS.name}")
def test_the_npm_clients_run_against_it() -> None:
    words = [sys.executable, "-m", "pytest_fakecloud", "run"]
    words += ["--broker", 'topics={"orders": 1}', "--vector", "dimension=2"]
    out = node(JS, *words, "--", str(NODE), "--test-reporter=spec", "standalone.test.mjs")
    passed = re.search(r"pass (\d+)", out)
    assert passed is not None
    assert int(passed[1]) == 5


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_rows_of_the_page() -> None:
    assert "pass 7" in node(Path(__file__).parent / "js", str(NODE), "rows.test.mjs")


def curl(*words: str) -> str:
    line = [str(CURL), "-sS", "--max-time", "20", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=30, check=True).stdout


@pytest.mark.skipif(CURL is None, reason="curl is not installed")
def test_curl_alone_follows_the_guide(server: Server) -> None:
    guide = (ROOT / "docs" / "guides" / "other-languages.md").read_text(encoding="utf-8")
    command = re.search(r"\$ (curl [^`]*/clock)\n```", guide)
    assert command is not None
    # The shell would join the lines and fill in the variables the server's summary gives.
    line = command[1].replace("\\\n", " ")
    line = line.replace("$PYTEST_FAKECLOUD_TOKEN", server.token)
    line = line.replace("$PYTEST_FAKECLOUD_URL", server.url)
    secret = f"Authorization: Bearer {server.token}"
    before = json.loads(curl("-H", secret, f"{server.url}/__control__/clock"))
    assert before["now"] == "2026-01-01T00:00:00+00:00"
    assert json.loads(curl(*shlex.split(line)[1:]))["now"] == "2026-01-02T00:00:00+00:00"
    assert json.loads(curl(f"{server.url}/__control__/ready")) == {"ready": True}
    kv = server.summary["fakes"][0]
    token = kv["headers"]["Authorization"]
    assert curl("-H", f"Authorization: {token}", f"{kv['url']}/set/a/1") == '{"result":"OK"}'
    assert curl("-H", f"Authorization: {token}", f"{kv['url']}/get/a") == '{"result":"1"}'
