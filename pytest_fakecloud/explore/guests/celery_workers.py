"""The worker of Celery, which waits in a way that ``explore()`` does not control."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from ...process.replace import Patch

_ADVICE = (
    "it waits with epoll, which explore() does not control. Make a client that takes messages with "
    "`channel.basic_get('celery')` of `app.connection()`, calls `app.tasks[...]` and acknowledges them"
)


def celery_patches(
    refuses: Callable[[str, str, Callable[..., Any]], Callable[..., Any]],
) -> Iterator[Patch]:
    """Yield the functions of Celery that ``refuses(name, advice, original)`` replaces."""
    celery = sys.modules.get("celery.worker")
    if celery is not None:
        owner = celery.WorkController
        yield owner, "start", refuses("Worker.start of Celery", _ADVICE, owner.start)
