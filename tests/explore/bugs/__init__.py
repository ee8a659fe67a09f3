"""Small applications with a bug that occurs in practice, each with a corrected version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_fakecloud import Cloud

if TYPE_CHECKING:
    from upstash_workflow import WorkflowContext


@dataclass(frozen=True)
class Scenario:
    """The arguments of ``explore``: clients, workers, promise and setup."""

    run: Mapping[str, Callable[[], object]]
    check: Callable[..., object]
    workers: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    setup: Callable[[], object] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


Make: TypeAlias = Callable[[Cloud, bool], Scenario]
"""A function that returns a scenario in a cloud, with the bug or corrected."""


def workflow(
    queue: Any, qstash: Any, run: Callable[[WorkflowContext[Any]], None]
) -> Callable[[], None]:
    """Serve a workflow, and return a function that starts a run of it."""
    import flask
    import requests
    from qstash import Receiver
    from upstash_workflow.flask import Serve

    app = flask.Flask("app")
    receiver = Receiver(queue.current_signing_key, queue.next_signing_key)
    url = "https://app.example.com/run"
    queue.destinations.wsgi("https://app.example.com", app)
    Serve(app).route("/run", qstash_client=qstash, receiver=receiver, url=url)(run)

    def start() -> None:
        requests.post(f"{queue.url}/v2/publish/{url}", headers=queue.headers, timeout=5)

    return start
