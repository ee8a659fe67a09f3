"""The results of a run: the machine, every figure with its limit, and JSON."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

LIBRARIES = (
    "pytest", "pytest-httpserver", "responses", "respx", "werkzeug", "httpx", "requests", "numpy",
    "redis", "fakeredis", "moto", "qdrant-client", "chromadb", "faiss-cpu", "testcontainers",
)  # fmt: skip
"""Libraries whose versions influence the figures."""


def machine() -> dict[str, Any]:
    """Return a description of the machine."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": {name: _version(name) for name in LIBRARIES},
    }


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip() + _cache()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _cache() -> str:
    try:
        size = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text("utf-8")
    except OSError:
        return ""
    return f" ({size.strip()} of L2 cache)"


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def described(machine_facts: Mapping[str, Any]) -> str:
    """Return the description of the machine as text."""
    versions = ", ".join(
        f"{name} {version or '-'}" for name, version in machine_facts["versions"].items()
    )
    return (
        f"{machine_facts['cpu']}, {machine_facts['cores']} cores, load {machine_facts['load']}\n"
        f"{machine_facts['python']} on {machine_facts['system']}\n{versions}"
    )


def run_part(
    name: str,
    *,
    quick: bool = False,
    folder: Path | None = None,
    path: Path | None = None,
    quiet: bool = False,
    into: IO[str] | None = None,
) -> tuple[int, dict[str, Any] | None]:
    """Run one part in its own process; return its exit code and its results, None if it failed.

    ``folder`` contains ``benchmarks``, ``path`` contains another ``pytest_fakecloud``. The output
    is written ``into`` a file if one is given, and discarded if ``quiet``.
    """
    import json

    environment = dict(os.environ)
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out.json"
        words = [sys.executable, "-m", "benchmarks.part", name, "--json", str(out)]
        done = subprocess.run(
            words + ["--quick"] * quick,
            check=False,
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL if quiet else into,
            stderr=subprocess.PIPE if quiet else into,
            text=True,
        )
        if not out.exists():
            if quiet:
                print(f"{name} ended: {(done.stderr or '').strip().splitlines()[-1:]}")
            return done.returncode or 1, None
        return done.returncode, json.loads(out.read_text("utf-8"))


def figures(parts: Iterable[Mapping[str, Any]]) -> str:
    """Return every figure of every part with its limit, as one table."""
    rows = [
        (part["part"], figure["label"], f"{figure['value']:,.2f}{figure['unit']}", figure["limit"],
         {None: "", True: "ok", False: "MISS"}[figure["holds"]])
        for part in parts
        for figure in part["figures"]
    ]  # fmt: skip
    widest = max((len(row[1]) for row in rows), default=0)
    return "\n".join(
        f"{part:8} {label:{widest}} {value:>14}  {limit:16} {holds}".rstrip()
        for part, label, value, limit, holds in rows
    )
