"""Run the tests that the console writes of recorded calls: each must pass on fakes that are empty."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from ..clients.node import need
from ..clients.test_other_languages import GO_SETTINGS, build_go, files, node_folder, run, written
from ..harness import wait_until
from .conftest import Server
from .test_console import CHROMIUM, at, browser, fake, page, sent, window
from .test_console_work import kv

__all__ = ["browser", "node_folder", "page", "window"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]
ROOT = Path(__file__).parents[2]
WRITE = """async ([language, row]) => {
    const {WRITERS, nameOf, testOf} = await import("/console/tests.js");
    const {ask} = await import("/console/api.js");
    const {fakes} = await ask("GET", "/state");
    return WRITERS[language](await testOf(row, fakes), `${nameOf(row)}_${row.number}`);
}"""


@pytest.fixture
def rows(server: Server) -> list[Any]:
    """Rows of calls of every service and protocol, answered and rejected, after other calls."""
    server.ask("POST", "/clock", {"action": "move_to", "to": "2026-01-01T09:30:00Z"})
    kv(server, "HSET", "user:1", "name", "Ada", "city", "Paris")
    kv(server, "SET", "session", 'it\'s "quoted" \n ä', "EX", "600")
    kv(server, "ZADD", "board", "10", "ada", "7", "bob")
    kv(server, "RPUSH", "jobs", "a", "b")
    server.ask("POST", "/clock", {"action": "advance", "by": "1m"})
    kv(server, "HGETALL", "user:1")
    kv(server, "TTL", "session")
    kv(server, "GET", "session")
    kv(server, "ZRANGE", "board", "0", "-1")
    kv(server, "LPOP", "jobs")
    kv(server, "GET", "nothing")
    sent(server, "kv_server", "/pipeline", [["INCR", "n"], ["INCR", "n"]])
    with redis.Redis.from_url(fake(server, "kv_server")["env"]["REDIS_URL"]) as client:
        client.hgetall("user:1")
        client.incr("n")
        with pytest.raises(redis.ResponseError):
            client.incr("user:1")
    vectors = [{"id": "v1", "vector": [1, 0]}, {"id": "v2", "vector": [0, 1]}]
    sent(server, "vector_index", "/upsert", vectors)
    sent(server, "vector_index", "/query", {"vector": [1, 0.5], "topK": 1})
    sent(server, "vector_index", "/fetch", {"ids": ["v2", "none"]})
    for code in (200, 503):
        url = f"https://app.example/{code}"
        server.ask("POST", "/fakes/queue/destinations", {"url": url, "answer": code})
        sent(server, "queue", f"/v2/publish/{url}", "hello", Upstash_Retries="0", X_Trace="7")
    server.ask("POST", "/fakes/queue/requests", {"method": "GET", "target": "/v2/messages/none"})

    def attempts() -> list[Any]:
        return [row for row in server.ask("GET", "/journal")[1] if row["kind"] == "attempt"]

    wait_until(lambda: len(attempts()) == 2)
    return [
        row
        for row in server.ask("GET", "/journal")[1]
        if row["operation"] not in ("HELLO", "CLIENT SETINFO", "CLIENT MAINT_NOTIFICATIONS")
    ]


def texts(page: Any, language: str, rows: list[Any]) -> list[str]:
    at(page, "activity", ".trace-row")
    found = [page.evaluate(WRITE, [language, row]) for row in rows]
    return [text for text in found if text]


def test_with_pytest(page: Any, rows: list[Any], tmp_path: Path) -> None:
    written_texts = texts(page, "pytest", rows)
    for number, text in enumerate(written_texts):
        (tmp_path / f"test_{number}.py").write_text(text, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n\n@pytest.fixture(scope='session')\ndef fakecloud_settings():\n"
        "    return {'vector': {'dimension': 2}}\n",
        encoding="utf-8",
    )
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    output = run(
        sys.executable, "-m", "pytest", "-q",
        "-p", "no:cacheprovider", str(tmp_path),
        cwd=tmp_path, PYTHONPATH=path,
    )  # fmt: skip
    assert f"{len(rows)} passed" in output


def test_with_vitest(page: Any, rows: list[Any], node_folder: Path) -> None:
    need("vitest", "ioredis", "@upstash/vector", "@upstash/qstash")
    config = files("javascript.md")["vitest.config.js"].replace(
        "{ kv: {},", "{ kv: {}, broker: {}, vector: { dimension: 2 },"
    )
    (node_folder / "vitest.config.js").write_text(config, encoding="utf-8")
    written_texts = texts(page, "Vitest", rows)
    # In one file, because each starts a cloud.
    lines = [line for text in written_texts for line in text.splitlines()]
    imports = dict.fromkeys(line for line in lines if line.startswith("import "))
    whole = "\n".join([*imports, *(line for line in lines if line not in imports)])
    (node_folder / "copied.test.js").write_text(whole, encoding="utf-8")
    program = str(node_folder / "node_modules" / "vitest" / "vitest.mjs")
    output = with_all_fakes("node", program, "run", "--no-color", cwd=node_folder)
    assert f"{len(rows)} passed" in output


def with_all_fakes(*command: str, cwd: Path, **environment: str) -> str:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    fakes = (sys.executable, "-m", "pytest_fakecloud", "run", "--vector", "dimension=2", "--")
    return run(*fakes, *command, cwd=cwd, PYTHONPATH=path, **environment)


def test_with_go(page: Any, rows: list[Any], tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    folder = written("go.md", tmp_path)
    for name in ("session.go", "session_test.go"):
        (folder / name).unlink()
    (folder / "go.mod").write_text("module shop\n\ngo 1.19\n", encoding="utf-8")
    written_texts = texts(page, "Go", rows)
    for number, text in enumerate(written_texts):
        (folder / f"copied{number}_test.go").write_text(text, encoding="utf-8")
    build_go(folder)
    output = with_all_fakes("go", "test", "-v", "./...", cwd=folder, **GO_SETTINGS)
    assert output.count("--- PASS") == len(written_texts) == len(rows) - 2
