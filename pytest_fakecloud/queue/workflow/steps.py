"""Messages that the queue publishes as steps of workflow runs."""

from __future__ import annotations

from typing import Any

from ..errors import bad_request
from ..model import HeaderList
from ..wire.headers import read_given
from ..wire.text import first_setting, json_headers
from ..wire.values import check_url


def with_run_id(pairs: HeaderList, run_id: str) -> HeaderList:
    """Return headers with the id of a run, unless they have one already."""
    if first_setting(pairs, "workflow-runid") is not None:
        return pairs
    return [*pairs, ("Upstash-Workflow-RunId", run_id)]


def wire_pairs(headers: dict[str, Any]) -> HeaderList:
    """Return the headers in a JSON body, where a value is a string or a list of strings."""
    return json_headers(headers, first_spelling=True)


def check_step(url: str, pairs: HeaderList) -> None:
    """Check that a message can be published as one step of a run.

    Raises a 400 error for a URL group and for a schedule.
    """
    check_url(url, "workflow")
    if "cron" in read_given(pairs):
        raise bad_request("invalid headers: a step of a workflow run cannot be scheduled")
