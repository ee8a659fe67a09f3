"""Interceptors of the fakes, which pass each call, command and delivery to the simulation."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...cloud.fake import core_of
from ...core.calls import set_faults_end
from ...core.clock import checkpoint, in_thread
from ...core.errors import ServiceError
from ...core.exits import Exits
from ...core.registry import Registry
from ...core.threads import step_aside
from ...http.app import EXPLORATION
from ...http.messages import AnyResponse, Proceed, Request
from ...kv.touches import touch_of_key
from ...process.inprocess import origins
from ...process.shortcut import Shortcut
from ...queue.delivery.destinations import route_context_of, route_to
from ...queue.model import DeliveryInterceptor, FaultDecisions
from ..simulation.stacks import carried_call_site
from .world import World

if TYPE_CHECKING:
    from ...cloud.fake import Fake
    from ...queue.delivery.route_context import RunWork
    from ...queue.model import Deliver, Delivery, Exchange, Message, Outcome

T = TypeVar("T")


def watch(world: World, fake: Fake, exits: Exits) -> None:
    """Connect a fake to the simulations of a world until the exits are closed."""
    core = core_of(fake)
    app: Any = core.app
    _listen(app.rejection_listeners, partial(_see_rejection, world, fake), exits)
    in_turn = partial(_serve_in_simulation, world, fake)
    exits.callback(app.chain.remove, in_turn)
    app.chain.add(EXPLORATION, in_turn)
    if hasattr(app, "interruptions"):
        _listen(app.interruptions.listeners, partial(_yield_in_pipeline, world, fake), exits)
    if fake.fixture == "kv_server":
        _listen(core.engine.listeners, partial(_record_command, world, fake.name), exits)
    origin = core.mount.origin
    shortcut = Shortcut(core.mount, lingers=True, around=partial(_around, world, fake))
    exits.callback(origins.remove, origin, shortcut)
    exits.callback(origins.leave, shortcut)
    origins.add(origin, shortcut)
    origins.enter(shortcut)
    if fake.fixture == "queue":
        queue: Any = fake
        deliveries = _ExploredDeliveries(world, queue)
        exits.callback(core.engine.deliveries.stop_intercepting, deliveries)
        core.engine.deliveries.intercept(deliveries)
        exits.callback(core.engine.interceptors.faults.remove, deliveries)
        core.engine.interceptors.faults.add(deliveries)
        _listen(route_context_of(queue.destinations).around_work, partial(_run_work, world), exits)


def _listen(listeners: Registry[Any], listener: Callable[..., object], exits: Exits) -> None:
    """Register a listener until the exits are closed."""
    exits.callback(listeners.remove, listener)
    listeners.add(listener)


def _see_rejection(world: World, fake: Fake, request: Request, error: ServiceError) -> None:
    simulation = world.simulation
    if error.status == 401 and simulation is not None:
        with world.fakes.lasting_events.old_tokens(), contextlib.suppress(ServiceError):
            core_of(fake).app.authenticate(request)
            request.call.faults = ({"kind": "rotate_token", "description": "rotate_token"},)
        simulation.calls.rejected(request)


def _serve_in_simulation(
    world: World, fake: Fake, request: Request, proceed: Proceed
) -> AnyResponse:
    """Have the simulation serve a call at its turn, with the disturbances of the schedule."""
    simulation = world.simulation
    if simulation is None:
        return proceed()
    # A connection over a socket of the system is served by a thread that serves others, too.
    step_aside()
    try:
        return simulation.calls.at_call(fake, request, proceed)
    finally:
        if request.call.faults:
            set_faults_end(request.call, core_of(fake).recorder.reserve())


def _yield_in_pipeline(world: World, fake: Fake) -> None:
    """Let other strands run between two commands of a pipeline; before the first is a call's point."""
    if world.simulation is not None:
        world.simulation.calls.at_gap(fake)


def _record_command(world: World, fake: str, session: Any, spec: Any, argv: list[bytes]) -> None:
    """Record the data and the idle time of a command that an engine is about to run."""
    simulation, database = world.simulation, session.db.index
    if simulation is None:
        return
    line = world.command_line(fake, database, len(session.engine.databases), spec, tuple(argv))
    touches = line.touches
    if spec.name == "EXEC":
        watched = (touch_of_key(fake, database, key, False) for _, key, _ in session.watched)
        touches = (*touches, *watched)
    simulation.access_log.touch(touches)
    if session.interface == "local":
        simulation.calls.add_command_of_test(argv)
    simulation.access_log.note_access(session, line)
    simulation.known_times.note_data(line.times_us)
    if line.claims is not None:
        simulation.known_times.note_idle_time(session.db, line.claims)


def _run_work(world: World, where: str, proceed: RunWork, work: Awaitable[Any]) -> Any:
    """Run a coroutine function of the test in its strand, and an application in the fakes' thread."""
    if where == "call" and inspect.iscoroutine(work) and world.current_thread.role().is_explored:
        return world.awaited(work)
    strand = world.current_thread.cooperating()
    with contextlib.nullcontext() if strand is None else strand.waits_for_real():
        return proceed(work)


async def _around(world: World, fake: Fake, exchange: Callable[[], T]) -> T:
    simulation = world.simulation
    if simulation is None:
        await checkpoint()
        return exchange()
    if world.current_thread.role().is_explored:
        return await simulation.calls.exchange(fake, exchange)
    # The loop is not explored, and several strands may share it. The request would block it.
    carried_call_site.set(simulation.call_sites.current())
    library = world.async_library()
    return await (in_thread if library is None else library.in_thread)(exchange)


class _ExploredDeliveries(DeliveryInterceptor, FaultDecisions):
    """The innermost interceptor of deliveries, which adds faults and losses of the schedule."""

    def __init__(self, world: World, queue: Any) -> None:
        self._world = world
        self._queue = queue

    def before(self, message: Message, delivery: Delivery) -> tuple[str, ...]:
        simulation = self._world.simulation
        if simulation is None:
            return ()
        return simulation.delivery_strands.planned_faults.pop(message.id, ())

    async def deliver(self, exchange: Exchange, proceed: Deliver) -> Outcome:
        simulation = self._world.simulation
        if simulation is None:
            return await proceed(exchange)
        route = route_to(self._queue.destinations, exchange.delivery.url)
        return await simulation.delivery_strands.deliver(exchange, proceed, route)
