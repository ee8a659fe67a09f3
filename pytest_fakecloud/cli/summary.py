"""Output of a starting server: warnings, addresses, and the next step."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from ..serving import Log, Served
from ..standalone.development import CONTROL_URL
from ..standalone.hosts import is_loopback


def warn_of_other_addresses(options: Mapping[str, Any], log: Log) -> None:
    """Log a warning for each address that other machines can reach."""
    places = [options["host"], *(one.get("host") for one in options["services"].values())]
    for host in dict.fromkeys(str(place) for place in places if place):
        if not is_loopback(host):
            log.say(
                "address",
                f"{host} is reachable from other machines; the fakes are for tests and must not "
                "be exposed to a network you do not trust",
                level="warning",
                host=host,
            )


def summary(served: Served, options: Mapping[str, Any]) -> str:
    """Return the summary of a server that is ready, as text or JSON."""
    cloud, app = served.cloud, served.app
    variables = app.environment()
    if options["json"]:
        from ..standalone.control.handles import describe

        return json.dumps(
            {
                "control": {"url": served.url, "token": app.token},
                "console": console(served),
                "seed": cloud.seed,
                "handles": [describe(handle) for handle in cloud.handles],
                "env": variables,
            }
        )
    lines = [f"pytest-fakecloud is ready: seed {cloud.seed!r}, clock {cloud.clock.mode}", ""]
    for handle in cloud.handles:
        database = handle.env.get("REDIS_URL", "")
        lines.append(f"  {handle.name:<14} {handle.url:<26} {database}".rstrip())
    # Show only what differs from the defaults: commands use this address and the stored token.
    place = "" if served.url == CONTROL_URL else f" --url {shlex.quote(served.url)}"
    secret = "" if options.get("token_is_kept") else f" --token {shlex.quote(app.token)}"
    command = f"pytest-fakecloud env{place}{secret}"
    lines += [
        f"  {'console':<14} {console(served)}",
        "",
        f'Next: eval "$({command})" in the shell of your application,',
        f"or {command} --dotenv .env. Stop with Ctrl+C.",
    ]
    return "\n".join(lines)


def console(served: Served) -> str:
    """Return the URL of the console, with its key."""
    return served.app.console_url()
