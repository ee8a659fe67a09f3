"""Lifespans of ASGI applications that the queue runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias

Event: TypeAlias = MutableMapping[str, Any]
AsgiApp: TypeAlias = Callable[..., Awaitable[None]]


class Lifespan:
    """A lifespan that the queue runs in the running loop. ``state`` is the application's state."""

    def __init__(self, app: AsgiApp) -> None:
        self.app = app
        self.state: dict[str, Any] = {}
        self._startup = asyncio.Event()
        self._shutdown = asyncio.Event()
        self._done = asyncio.Event()
        self._startup_sent = False
        self._error: BaseException | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def started(self) -> Mapping[str, Any]:
        """Wait until the application has started, and return its state; raise its error if it
        failed.
        """
        await self._startup.wait()
        if self._error is not None:
            raise self._error
        return self.state

    async def stop(self) -> None:
        """Start the shutdown of the application and wait until it has ended."""
        self._shutdown.set()
        await self._done.wait()

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": self.state}
        try:
            await self.app(scope, self._receive, self._send)
        except Exception as error:
            # Ignore the exception, unless the start-up failed: the protocol allows an application
            # without lifespan support to raise one.
            if self._error is not None:
                self._error.__cause__ = error
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._error = error
        finally:
            self._startup.set()
            self._done.set()

    async def _receive(self) -> Event:
        if not self._startup_sent:
            self._startup_sent = True
            return {"type": "lifespan.startup"}
        await self._shutdown.wait()
        return {"type": "lifespan.shutdown"}

    async def _send(self, event: Event) -> None:
        if event["type"] == "lifespan.startup.failed":
            text = event.get("message") or "no reason given"
            self._error = RuntimeError(f"the application's lifespan did not start: {text}")
        if event["type"].startswith("lifespan.startup"):
            self._startup.set()
        else:
            self._done.set()
