"""Passes each call, command and delivery of a cloud's fakes to the simulation first."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..core.calls import end_faults
from ..core.clock import checkpoint, in_thread
from ..core.errors import ServiceError
from ..http.app import EXPLORATION, GUARD
from ..http.messages import AnyResponse, Request, Serve
from ..outside.inprocess import origins
from ..outside.replace import replace
from ..outside.shortcut import Shortcut
from ..queue.delivery.destinations import intercept_work, route_to
from ..queue.model import Interceptor
from .footprint import touches_of_command
from .simulation.strands import carried_source, source_of

if TYPE_CHECKING:
    from ..handle import Handle
    from ..kv.races import Arrival, Sender
    from ..queue.delivery.destinations import RunWork
    from ..queue.model import Delivery, Exchange, Message, Proceed, Sending
    from .world import World

T = TypeVar("T")


def watch(world: World, handle: Handle, exits: contextlib.ExitStack) -> None:
    """Connect a fake to the simulations of a world until the stack is closed."""
    app: Any = handle._app
    exits.callback(app.chain.add(GUARD, partial(_see_rejection, world, handle)))
    exits.callback(app.chain.add(EXPLORATION, partial(_serve_in_turn, world, handle)))
    if hasattr(app, "interruptions"):
        exits.callback(app.interruptions.listen(partial(_pause_in_pipeline, world)))
    if handle.fixture == "kv_server":
        observers = handle._engine.observers
        exits.callback(observers.add(partial(_record_command, world, handle.name)))
    shortcut = Shortcut(handle._mount, lingers=True, around=partial(_around, world, handle))
    exits.callback(origins.add(handle._mount.origin, shortcut))
    origins.enter()
    exits.callback(origins.leave)
    if handle.fixture == "queue":
        queue: Any = handle
        engine, planned = queue._engine, queue._engine.interceptors
        engine.intercept(*planned, _ExploredDeliveries(world, queue))
        exits.callback(engine.intercept, *planned)
        exits.callback(intercept_work(queue.destinations, partial(_run_work, world)))


def swap(exits: contextlib.ExitStack, owner: object, name: str, value: object) -> None:
    """Set an attribute of an object, class or module until the stack is closed."""
    exits.callback(replace(owner, name, value).restore)


def _see_rejection(world: World, handle: Handle, request: Request, proceed: Serve) -> AnyResponse:
    try:
        return proceed()
    except ServiceError as error:
        simulation = world.simulation
        if error.status == 401 and simulation is not None:
            if world.disturbances.is_rotated(handle) and _was_accepted(world, handle, request):
                request.call.fault = "rotate_token"
            simulation.calls.rejected(request)
        raise


def _was_accepted(world: World, handle: Handle, request: Request) -> bool:
    with world.disturbances.old_tokens(), contextlib.suppress(ServiceError):
        handle._app.authenticate(request)
        return True
    return False


def _serve_in_turn(world: World, handle: Handle, request: Request, proceed: Serve) -> AnyResponse:
    """Have the simulation serve a call at its turn, with the events of the schedule."""
    simulation = world.simulation
    if simulation is None:
        return proceed()
    try:
        return simulation.calls.at_call(handle, request, proceed)
    finally:
        end_faults(request.call, handle._recorder.reserve())


def _pause_in_pipeline(world: World, sender: Sender, line: list[bytes], arrival: Arrival) -> None:
    """Let other strands run between two commands of a pipeline; before the first is a call's point."""
    if arrival == "pipelined" and world.simulation is not None:
        world.simulation.calls.at_gap()


def _record_command(world: World, fake: str, session: Any, spec: Any, argv: list[bytes]) -> None:
    """Record the data and the idle time of a command that an engine is about to run."""
    simulation = world.simulation
    touches = list(touches_of_command(fake, session, spec, argv))
    if simulation is None:
        world.reads.add(touches)
        return
    world.note_written(touches)
    simulation.state.touch(touches)
    if session.transport == "local":
        simulation.calls.add_command_of_test(argv)
    simulation.calls.note_access(session, spec, argv, touches)
    world.time.note_data(b" ".join(argv[1:]))
    world.time.note_idle_time(fake, session.db.index, argv)


def _run_work(world: World, where: str, proceed: RunWork, work: Awaitable[Any]) -> Any:
    """Run a coroutine function of the test in its strand, and an application in the fakes' thread."""
    if where == "call" and inspect.iscoroutine(work) and world.is_here():
        return world.awaited(work)
    strand = world.cooperating()
    with contextlib.nullcontext() if strand is None else strand.waits_for_real():
        return proceed(work)


async def _around(world: World, handle: Handle, exchange: Callable[[], T]) -> T:
    simulation = world.simulation
    if simulation is None:
        await checkpoint()
        return exchange()
    if simulation.state.is_here():
        return await simulation.calls.exchange(handle, exchange)
    # Several strands share this event loop, which the request would block: use a thread.
    carried_source.set(source_of(sys._getframe()))
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # trio's loop
        return await in_thread(exchange)
    return await loop.run_in_executor(world.carriers, copy_context().run, exchange)


class _ExploredDeliveries(Interceptor):
    """The innermost interceptor of deliveries, which adds faults and losses of the schedule."""

    active = ("the schedule",)

    def __init__(self, world: World, queue: Any) -> None:
        self._world = world
        self._queue = queue

    def before(self, message: Message, delivery: Delivery) -> tuple[str, ...]:
        simulation = self._world.simulation
        return () if simulation is None else simulation.deliveries.faults_of(message.id)

    def deliver(self, exchange: Exchange, proceed: Proceed) -> Sending:
        simulation = self._world.simulation
        if simulation is None:
            return proceed(exchange)
        route = route_to(self._queue.destinations, exchange.delivery.url)
        return simulation.deliveries.perform(exchange, proceed, route)
