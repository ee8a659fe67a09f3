"""All figures in one command: ``python -m benchmarks [kernel start plugin kv … load week]``."""

from __future__ import annotations

import subprocess
import sys

MODULES = (
    "kernel",
    "start",
    "plugin",
    "kv",
    "search",
    "vector",
    "broker",
    "queue",
    "explore",
    "load",
    "week",
)


def main() -> int:
    """Run the named modules, or all, each in a process of its own; 1 when a limit is missed."""
    wanted = sys.argv[1:] or list(MODULES)
    unknown = [name for name in wanted if name not in MODULES]
    if unknown:
        print(f"{', '.join(unknown)} is unknown; known are: {', '.join(MODULES)}", file=sys.stderr)
        return 2
    missed = []
    for name in wanted:
        print(f"\n== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode:
            missed.append(name)
    print(f"\nlimits missed in: {', '.join(missed)}" if missed else "\nall limits hold")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
