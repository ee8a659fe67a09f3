"""Open and close thousands of clouds; memory, threads and descriptors must not grow."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import requests

from pytest_fakecloud import Cloud

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc to count in")


def live(luck: random.Random) -> None:
    """Use some fakes of a cloud, and drop the cloud without closing it."""
    with Cloud(seed=1, delivery=luck.choice(["driven", "background"])) as cloud:
        fixtures = ["kv_server", "vector_index", "broker", "queue"]
        chosen = luck.sample(fixtures, luck.choice([1, 1, 2, 4]))
        settings = {"vector_index": {"dimension": 2}}
        made: list[Any] = [
            getattr(cloud, fixture)(**settings.get(fixture, {})) for fixture in chosen
        ]
        for fake in made:
            answer = requests.get(f"{fake.url}/nothing", headers=fake.headers, timeout=10)
            assert answer.status_code < 500
        if luck.random() < 0.2:
            made[0].faults.drop()
            with pytest.raises(requests.ConnectionError):
                requests.get(made[0].url, headers=made[0].headers, timeout=10)
        if luck.random() < 0.2:
            made[0].close()


def measure() -> tuple[int, int, int]:
    """Return the resident memory in kilobytes, and the numbers of threads and open files."""
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    resident_kb = int(status.partition("VmRSS:")[2].split()[0])
    return resident_kb, threading.active_count(), len(os.listdir("/proc/self/fd"))


def live_many(count: int, warm: int) -> None:
    luck = random.Random(7)
    for _ in range(warm):
        live(luck)
    before = measure()
    for _ in range(count):
        live(luck)
    after = measure()
    grown = after[0] - before[0]
    assert grown < 6_000 + count * 0.2, f"{grown} KB more after {count} clouds"
    assert after[1] <= before[1] + 8, f"{before[1]} threads became {after[1]}"
    assert after[2] <= before[2] + 8, f"{before[2]} descriptors became {after[2]}"


@needs_proc
@pytest.mark.slow
def test_clouds_leave_nothing_behind() -> None:
    live_many(150, 60)


@needs_proc
@pytest.mark.long
def test_ten_thousand_clouds_leave_nothing_behind() -> None:
    live_many(10_000, 300)


@needs_proc
@pytest.mark.slow
def test_what_is_left_behind_is_found() -> None:
    """Check that the measurement can fail."""
    clouds: list[Any] = []
    before = measure()
    try:
        for _ in range(20):
            cloud = Cloud()
            cloud.kv_server().execute("PING")
            clouds.append(cloud)
        assert measure()[2] > before[2] + 8
    finally:
        for cloud in clouds:
            cloud.close()
    assert measure()[2] <= before[2] + 8
    assert sys.getrefcount(clouds) > 0
