"""Requests of the control API, which were made by hand in the console, as code that makes them again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from string import Template
from typing import Any, NamedTuple
from urllib.parse import unquote

from .literals import javascript, python, quoted


class ControlRequest(NamedTuple):
    """A request of the control API: its path is the part behind ``/__control__``."""

    method: str
    path: str
    body: dict[str, Any] | None = None


def copies(request: ControlRequest) -> dict[str, str]:
    """Return the code by the name of its language; with pytest, only if a method does the same.

    All but that for pytest read the variables of ``pytest-fakecloud env``.
    """
    test = _pytest(request)
    return {
        **({} if test is None else {"pytest": test}),
        "JavaScript": _javascript(request),
        "Go": _go(request),
        "curl": _curl(request),
    }


# -- pytest ----------------------------------------------------------------------------------------


def _pytest(request: ControlRequest) -> str | None:
    """Return the call of a fake or of the cloud that does the same; None without one."""
    body = request.body or {}
    if request.method != "POST":
        return None
    if request.path == "/clock":
        arguments = [body[name] for name in ("by", "to") if body.get(name) is not None]
        return _call(f"fakecloud.clock.{body['action']}", arguments)
    if request.path == "/call":
        name = f"{body['object']}.{body['name']}"
        return _call(name, body.get("args", ()), body.get("kwargs", {}))
    if request.path == "/snapshots":
        return "snapshot = fakecloud.snapshot()\n"
    match = re.fullmatch(r"/fakes/([^/]+)/(faults|requests|destinations)", request.path)
    if match is None:
        return None
    fake = re.sub(r"\W", "_", unquote(match[1]), flags=re.ASCII)
    if match[2] == "faults":
        options = {name: value for name, value in body.items() if name not in ("kind", "args")}
        return _call(f"{fake}.faults.{body['kind']}", body.get("args", ()), options)
    return _sent(fake, body) if match[2] == "requests" else _destination(fake, body)


def _call(function: str, arguments: Any = (), options: Mapping[str, Any] | None = None) -> str:
    written = [
        *map(python, arguments),
        *(
            f"{name}={python(value)}"
            for name, value in (options or {}).items()
            if value is not None
        ),
    ]
    return f"{function}({', '.join(written)})\n"


def _sent(fake: str, request: Mapping[str, Any]) -> str:
    body, target = request.get("body"), request.get("target", "/")
    if isinstance(body, list) and target == "/":
        return _call(f"{fake}.execute", body)
    headers = request.get("headers", {}).items()
    fields = [f"**{fake}.headers", *(f"{python(name)}: {python(value)}" for name, value in headers)]
    content = body if isinstance(body, str) else javascript(body)
    return "\n".join(
        [
            "import requests",
            "",
            "answer = requests.request(",
            f"    {quoted(request.get('method', 'POST'))},",
            f"    {fake}.url + {quoted(target)},",
            f"    headers={{{', '.join(fields)}}},",
            *([f"    data={quoted(content)}.encode(),"] if body else []),
            ")\n",
        ]
    )


def _destination(fake: str, given: Mapping[str, Any]) -> str:
    url, answer = given["url"], given["answer"]
    if isinstance(answer, str):
        return _call(f"{fake}.destinations.{answer}", [url])
    if isinstance(answer, dict) and "forward" in answer:
        return _call(f"{fake}.destinations.forward", [url, answer["forward"]])
    if isinstance(answer, dict):
        status, body = python(answer["status"]), answer.get("body")
        written = f"({status}, {python(body)})" if body else status
    else:
        written = python(answer)
    return f"{fake}.destinations.respond({python(url)}, {written})\n"


# -- other languages -------------------------------------------------------------------------------

_JAVASCRIPT = Template("""\
const answer = await fetch(process.env.PYTEST_FAKECLOUD_URL + $path, {
  method: $method,
  headers: { Authorization: `Bearer $${process.env.PYTEST_FAKECLOUD_TOKEN}` },
$body});
if (!answer.ok) throw new Error(await answer.text());
""")
_GO = Template("""\
package copied

import (
	"net/http"
	"os"
	"strings"
	"testing"
)

func TestCopied(t *testing.T) {
	body := strings.NewReader($body)
	request, err := http.NewRequest($method, os.Getenv("PYTEST_FAKECLOUD_URL")+$path, body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("PYTEST_FAKECLOUD_TOKEN"))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 400 {
		t.Fatal(answer.Status)
	}
}
""")


def _javascript(request: ControlRequest) -> str:
    body = request.body
    return _JAVASCRIPT.substitute(
        path=quoted(f"/__control__{request.path}"),
        method=quoted(request.method),
        body="" if body is None else f"  body: JSON.stringify({javascript(body)}),\n",
    )


def _go(request: ControlRequest) -> str:
    return _GO.substitute(
        path=quoted(f"/__control__{request.path}"),
        method=quoted(request.method),
        body=quoted("" if request.body is None else javascript(request.body)),
    )


def _curl(request: ControlRequest) -> str:
    path = re.sub(r'(["$`\\])', r"\\\1", f"/__control__{request.path}")
    lines = [
        f'curl -g -X {request.method} "$PYTEST_FAKECLOUD_URL{path}"',
        '-H "Authorization: Bearer $PYTEST_FAKECLOUD_TOKEN"',
    ]
    if request.body is not None:
        lines.append(f"--data-raw {shlex.quote(javascript(request.body))}")
    return " \\\n  ".join(lines)
