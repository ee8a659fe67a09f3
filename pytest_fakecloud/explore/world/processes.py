"""What explored code does to its process, and with others: exits, child processes and signals."""

from __future__ import annotations

import multiprocessing.process
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ...core.errors import ContractError
from ...core.frames import stack_of
from ...process.replace import Patch
from ..simulation.simulation import Simulation
from ..simulation.stacks import innermost
from ..simulation.strand import Strand
from .world import World

_EXIT_ADVICE = "explore() sees only this process and keeps it alive. Replace that call in the test"


def refusing(
    world: World, what: str, advice: str, original: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that ends the trial with an error if explored code calls it."""

    def refused(simulation: Simulation, strand: Strand, *_: Any, **__: Any) -> None:
        where = innermost(sys._getframe())
        simulation.turns.fail_trial(
            ContractError(f"{strand.name} calls {what} at {where}: {advice}")
        )

    return world.in_strands(original, refused)


def process_patches(world: World) -> Iterator[Patch]:
    def notes_process(original: Callable[..., Any]) -> Callable[..., Any]:
        def started(simulation: Simulation, strand: Strand, *args: Any, **kwargs: Any) -> Any:
            modules = {frame.f_globals.get("__name__") for frame in stack_of(sys._getframe())}
            if "uuid" not in modules:  # which starts a process to find a network address
                where = innermost(sys._getframe())
                note = f"not explored: a child process that {strand.name} started at {where}"
                simulation.log.note(note)
            with strand.waits_for_real():
                return original(*args, **kwargs)

        return world.in_strands(original, started)

    process = multiprocessing.process.BaseProcess
    yield os, "_exit", refusing(world, "os._exit", _EXIT_ADVICE, os._exit)
    yield subprocess.Popen, "__init__", notes_process(subprocess.Popen.__init__)
    yield process, "start", notes_process(process.start)


def signal_patches(world: World) -> Iterator[Patch]:
    """Yield functions that do nothing in a strand, where the originals raise an error."""

    def skips(original: Callable[..., Any], result: object) -> Callable[..., Any]:
        def skipped(simulation: Simulation, strand: Strand, *_: Any, **__: Any) -> object:
            simulation.log.note("not explored: signals, and timeouts that signals end")
            return result

        return world.in_strands(original, skipped)

    results = {
        "signal": signal.SIG_DFL, "alarm": 0, "setitimer": (0.0, 0.0), "set_wakeup_fd": -1,
    }  # fmt: skip
    for name, result in results.items():
        if hasattr(signal, name):
            yield signal, name, skips(getattr(signal, name), result)
