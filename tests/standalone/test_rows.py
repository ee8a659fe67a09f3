"""The rows of the timeline: the page's logic, and the journal's cursor."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.journal import recorder_of
from pytest_fakecloud.standalone.api import ControlApp

from .test_codec import ask

NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_rows_of_the_page() -> None:
    done = subprocess.run(
        [str(NODE), "rows.test.mjs"],
        cwd=Path(__file__).parent / "js",
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-4_000:]
    assert "pass 6" in done.stdout


def test_a_cursor_leads_over_each_entry_once_while_they_are_written() -> None:
    """Requests after the highest known number return every entry once, in order."""
    with Cloud(seed=1, delivery="driven") as cloud:
        kv = cloud.kv_server()
        app = ControlApp(cloud, "token")

        def write() -> None:
            for number in range(150):
                recorder_of(kv.journal).add_event("x", str(number))

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        seen: list[dict[str, Any]] = []
        while True:
            ended = not any(thread.is_alive() for thread in threads)
            after = seen[-1]["number"] if seen else 0
            found = ask(app, "GET", f"/journal?after={after}")[1]
            assert all(row["number"] > after for row in found)
            seen += found
            if ended and not found:
                break
        numbers = [row["number"] for row in seen]
        assert numbers == sorted(set(numbers))
        assert numbers == [entry.number for entry in cloud.journal.entries]
        assert len(numbers) == 600
