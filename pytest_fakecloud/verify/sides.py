"""The two sides of a comparison, a service and the fake that has the service's settings, and how they
are sent requests: within the limits of a run, which are its duration, the size of responses, a signal.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import requests
import urllib3

from ..cloud.cloud import Cloud
from ..core.characters import map_strings
from ..core.errors import ContractError, ServiceError, unknown_name
from ..core.json_schema import check_nesting
from ..core.threads import DaemonThread
from ..reporting.mask import Mask
from . import RUN_SECONDS
from .catalogue.scenarios import Scenario, ScenarioStep

PAUSE = 0.25
"""Seconds between two checks whether an index has pending changes."""
SECONDS = 30.0
"""Time limit in seconds of a request, and of waiting until an index has processed a write."""
ANSWER_BYTES = 4 << 20
"""Maximum size of a response in bytes."""
RUN_BYTES = 64 << 20
"""Maximum total size of a run's responses in bytes. A report keeps all of them in memory."""
GRACE_SECONDS = 0.4
"""Seconds that the current request may still take after an interruption."""
CLEAN_SECONDS = 10.0
"""Time limit in seconds of a scenario's clean-up."""
INTERRUPTED_CLEAN_SECONDS = 1.1
"""Time limit in seconds of the clean-up after an interruption."""
DEEPEST = 100
"""Maximum nesting depth of a response; a deeper one is compared as a string."""
_CHUNK = 1 << 16
_POLL = 0.05
"""Seconds between two checks whether the run has to end during a request."""


# -- requests --------------------------------------------------------------------------------------


class ServiceUnreachable(Exception):
    """Raised if a service returns no usable response. The message says what to do."""


class Interrupted(Exception):
    """Raised in a run that was interrupted by a signal."""


class Bounds:
    """The limits of a run, which all of its requests share."""

    def __init__(self, seconds: float = RUN_SECONDS) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._bytes = RUN_BYTES
        self._interrupted_at: float | None = None
        self._clean_until: float | None = None

    def interrupt(self) -> None:
        """End the run soon. Can be called from a signal handler."""
        self._interrupted_at = time.monotonic()

    @contextmanager
    def cleaning(self) -> Iterator[None]:
        """Apply the time limit of a clean-up, because the limit of the run may have passed."""
        self._clean_until = time.monotonic() + CLEAN_SECONDS
        try:
            yield
        finally:
            self._clean_until = None

    def check(self, when: str = "") -> None:
        """Raise ``Interrupted`` or ``ServiceUnreachable`` if no more requests may be sent."""
        if self._interrupted_at is not None and self._clean_until is None:
            raise Interrupted(f"interrupted{when}")
        if self.until() <= time.monotonic():
            if self._clean_until is None:
                raise ServiceUnreachable(
                    f"the run did not end within {self._seconds:g} s: pass a longer --timeout SECONDS"
                )
            raise ServiceUnreachable("the clean-up did not end in time")

    def until(self) -> float:
        """Return the time, on the monotonic clock, by which the current request must end."""
        ends = [self._until if self._clean_until is None else self._clean_until]
        if self._interrupted_at is not None:
            cleaning = self._clean_until is not None
            after = INTERRUPTED_CLEAN_SECONDS if cleaning else GRACE_SECONDS
            ends.append(self._interrupted_at + after)
        return min(ends)

    def count(self, size: int) -> None:
        """Count the bytes of a response; raise ``ServiceUnreachable`` if the total is too large."""
        self._bytes -= size
        if self._bytes < 0:
            raise ServiceUnreachable(
                f"its responses are larger than {RUN_BYTES >> 20} MiB in total"
            )


@dataclass(frozen=True)
class Reply:
    """A response: status, content type and body (parsed if it is JSON)."""

    status: int
    kind: str
    body: Any

    def __str__(self) -> str:
        body = self.body
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        return f"{self.status} {text}"


def _reply(request: Callable[[], requests.Response], began: float, bounds: Bounds) -> Reply:
    with request() as answer:
        content = bytearray()
        for piece in answer.iter_content(_CHUNK):
            content += piece
            if len(content) > ANSWER_BYTES:
                raise ServiceUnreachable(f"a response is larger than {ANSWER_BYTES >> 20} MiB")
            if time.monotonic() > began + SECONDS:
                raise _late()
        bounds.count(len(content))
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return Reply(answer.status_code, kind, _parsed(content.decode("utf-8", "replace")))


def _parsed(text: str) -> Any:
    """Return the JSON value of a response, or the text if it is no JSON or nested too deeply."""
    try:
        return check_nesting(json.loads(text), DEEPEST)
    except (ValueError, RecursionError):
        return text


def _late() -> ServiceUnreachable:
    return ServiceUnreachable(f"no complete response within {SECONDS:g} s")


# -- the sides -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A service to compare with: its name on the command line, its URL, its credentials."""

    service: str
    url: str
    token: str = field(repr=False, default="")
    topic: str | None = None
    """The topic of the broker that the run may write to."""

    @property
    def is_redis(self) -> bool:
        """Whether the URL belongs to a Redis server, not to a REST API."""
        return urlsplit(self.url).scheme in ("redis", "rediss", "unix")

    @property
    def secrets(self) -> set[str]:
        """The token and the credentials in the URL, both with and without the user name."""
        parts = urlsplit(self.url)
        secrets = {self.token, self.token.partition(":")[2], unquote(parts.password or "")}
        if self.service != "broker" and not self.is_redis:
            secrets.add(unquote(parts.username or ""))
        return secrets - {""}


def mask_of(*targets: Target) -> Mask:
    """Return a mask for the credentials of the given services."""
    return Mask(secrets=set().union(*(target.secrets for target in targets)))


class Side:
    """One side of a comparison, which sends steps and stores values for later steps.

    ``mask`` hides the credentials of both sides in everything that is compared and shown.
    """

    def __init__(
        self, target: Target, prefix: str, bounds: Bounds, mask: Mask | None = None
    ) -> None:
        self.target = target
        self.requests = 0
        """Number of requests sent."""
        self._prefix = prefix
        self._bounds = bounds
        self._mask = mask or mask_of(target)
        self._stored: dict[str, str] = {}
        self._undeleted: list[str] = []
        self._http = requests.Session()
        # Do not use the machine's proxies and .netrc for the fake.
        local = ("127.0.0.1", "localhost", "::1")
        self._http.trust_env = urlsplit(target.url).hostname not in local

    def send(self, step: ScenarioStep) -> Reply:
        """Send a step and read its reply.

        Raises ``ServiceUnreachable`` if no reply arrives, ``Interrupted`` if the run must end.
        """
        reply = self._exchange(step)
        for name, path in step.keep.items():
            value = _member(reply.body, path)
            if isinstance(value, str):
                self._stored[name] = value
        if step.method == "POST" and reply.status < 300:
            self._undeleted += _paths_to_delete(reply.body)
        if step.settle and reply.status < 300:
            self._settle()
        return reply

    def send_for_display(self, step: ScenarioStep) -> Reply:
        """Send a step, and return its reply without credentials, prefix and stored values."""
        reply = self.send(step)
        return Reply(reply.status, self._shown(reply.kind), self._shown(reply.body))

    def clean(self, scenario: Scenario) -> None:
        """Delete a scenario's data, and every message and schedule whose ID was in a response. Forget
        the values that it stored.

        Raises ``ServiceUnreachable`` if this does not succeed in time.
        """
        paths, self._undeleted = self._undeleted, []
        try:
            with self._bounds.cleaning():
                for step in (*(ScenarioStep("DELETE", path) for path in paths), *scenario.cleanup):
                    self._exchange(step)
        except ServiceUnreachable as error:
            raise ServiceUnreachable(
                f"Data with names that begin with {self._prefix} may be left: {error}"
            ) from None
        self._stored.clear()

    def close(self) -> None:
        self._http.close()

    def _exchange(self, step: ScenarioStep) -> Reply:
        headers = {name: self._filled(value) for name, value in step.headers.items()}
        body: bytes | None = None
        if step.json is not None:
            body = json.dumps(self._filled(step.json)).encode()
            headers.setdefault("Content-Type", "application/json")
        elif step.body is not None:
            body = self._filled(step.body).encode()
        self._authorize(step, headers)
        url = self.target.url.rstrip("/") + self._filled(step.path)
        self.requests += 1
        try:
            reply = self._request(step.method, url, body, headers)
        except ServiceUnreachable as error:
            raise ServiceUnreachable(
                f"{self.target.service}: no response from {self.target.url}: {error}"
            ) from None
        if reply.status == 429:
            raise ServiceUnreachable(
                f"{self.target.service}: {self.target.url} returned 429: the plan's rate limit or "
                "quota is used up. The run ends here; try again later"
            )
        return reply

    def _request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Reply:
        """Send a request and read its response within the limits of the run.

        Raises ``ServiceUnreachable`` if no response arrives in time or the response is too long, and
        ``Interrupted`` if a signal interrupted the run.
        """
        bounds = self._bounds
        bounds.check()
        began = time.monotonic()
        request = partial(
            self._http.request,
            method,
            url,
            data=body,
            headers=headers,
            timeout=2 * SECONDS,  # only to end this thread; the run stops waiting for it earlier
            allow_redirects=False,
            stream=True,
        )
        reply: Future[Reply] = Future()

        def ask() -> None:
            try:
                reply.set_result(_reply(request, began, bounds))
            except BaseException as error:
                reply.set_exception(error)

        # Send the request in another thread and wait for that thread with a time limit. A socket
        # timeout limits each read, but not name resolution, nor the total time of a response that
        # arrives byte by byte.
        DaemonThread("verify", ask).start()
        while not wait([reply], _POLL).done:
            if time.monotonic() > min(began + SECONDS, bounds.until()):
                bounds.check(" while a request was under way, which may still have an effect")
                raise _late()
        try:
            return reply.result()
        except (OSError, ValueError) as error:  # All errors of requests are OSErrors.
            raise ServiceUnreachable(str(error)) from None

    def _authorize(self, step: ScenarioStep, headers: dict[str, str]) -> None:
        if step.token is None:
            return
        token = self.target.token if step.token == "right" else "wrong-credentials"
        if self.target.service == "broker":
            headers["Authorization"] = urllib3.make_headers(basic_auth=token)["authorization"]
        else:
            headers["Authorization"] = f"Bearer {token}"

    def _filled(self, value: Any) -> Any:
        """Return a value in which placeholders are replaced by the prefix and by stored values."""
        texts = {"p": self._prefix, **self._stored}
        return _replaced(value, {f"{{{name}}}": text for name, text in texts.items()})

    def _settle(self) -> None:
        until = time.monotonic() + SECONDS
        while True:
            info = self._exchange(ScenarioStep("GET", "/info"))
            if not _member(info.body, "result.pendingVectorCount"):
                return
            if time.monotonic() > until:
                raise ServiceUnreachable(
                    f"{self.target.url} still has pending vectors after {SECONDS:.0f} s: try again later"
                )
            time.sleep(PAUSE)

    def _shown(self, value: Any) -> Any:
        """Return a value without credentials, and with placeholders for the prefix and stored values."""
        # The prefix is the last, because stored values may contain it.
        texts = {**self._stored, "p": self._prefix}
        hidden = self._mask.value(value)
        return _replaced(hidden, {text: f"{{{name}}}" for name, text in texts.items() if text})


def _replaced(value: Any, texts: Mapping[str, str]) -> Any:
    """Return a JSON value in which each given string is replaced, one string after another."""

    def change(text: str) -> str:
        for before, after in texts.items():
            text = text.replace(before, after)
        return text

    return map_strings(value, change)


def _paths_to_delete(body: Any) -> Iterator[str]:
    """Yield the request paths that delete the messages and schedules whose IDs are in a response."""
    for item in body if isinstance(body, list) else [body]:
        if isinstance(item, dict):
            for name, folder in (("messageId", "messages"), ("scheduleId", "schedules")):
                if isinstance(item.get(name), str):
                    yield f"/v2/{folder}/{quote(item[name], safe='')}"


def _member(value: Any, path: str) -> Any:
    for name in path.split("."):
        if isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict):
            value = value.get(name)
        else:
            return None
    return value


@contextmanager
def fake_of(target: Target, facts: Mapping[str, Any]) -> Iterator[tuple[Target, Target]]:
    """Yield two targets: the real service over REST, and a fake with the same settings.

    For a Redis server (``redis://``), the first target is the REST interface of a fake that uses
    this server as its engine. ``facts`` is the result of ``facts_of()``. Raises
    ``ServiceUnreachable`` for a service that cannot be used, or whose settings no fake supports.
    """
    with Cloud() as cloud:
        try:
            both = _real_and_fake(cloud, target, facts)
        except (ContractError, ServiceError, LookupError, TypeError, ValueError) as error:
            raise ServiceUnreachable(
                f"{target.service}: {target.url} cannot be used: {error}"
            ) from None
        yield both


def _real_and_fake(cloud: Cloud, target: Target, facts: Mapping[str, Any]) -> tuple[Target, Target]:
    real = target
    fake: Any
    if target.is_redis:
        front = cloud.kv_server(name="real", dialect="redis", engine=target.url)
        real = Target("kv", front.url, front.token)
        has_json = front.execute("COMMAND", "INFO", "JSON.SET") != [None]
        fake = cloud.kv_server(
            dialect="redis", version=_version_of(front), modules=["ReJSON"] if has_json else []
        )
    elif target.service == "kv":
        fake = cloud.kv_server()
    elif target.service == "vector":
        fake = cloud.vector_index(
            dimension=facts["dimension"], similarity=facts["similarityFunction"]
        )
    elif target.service == "queue":
        fake = cloud.queue(delivery="driven")
    else:
        assert target.service == "broker", f"no fake is compared with {target.service}"
        fake = cloud.broker(topics=dict(facts))
        return real, replace(target, url=fake.url, token=f"{fake.username}:{fake.password}")
    return real, Target(target.service, fake.url, fake.token)


_OLDEST = "7.0"
"""The oldest version that a fake supports."""


def _version_of(server: Any) -> str:
    """Return the version of a real server, but at least the oldest version that a fake supports."""
    text = str(server.execute("INFO", "server"))
    facts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    numbers = re.findall(r"[0-9]+", facts.get("valkey_version") or facts["redis_version"])[:3]
    return _OLDEST if [*map(int, numbers)] < [7, 1] else ".".join(numbers)


def facts_of(side: Side) -> Mapping[str, Any]:
    """Return the settings that a fake needs: dimension and similarity of an index, topic of a
    broker.

    Raises ``ServiceUnreachable`` for a service that does not return them or that the scenarios do
    not fit.
    """
    target = side.target
    if target.service == "vector":
        info = _fetched(side, "/info").get("result")
        if not isinstance(info, dict):
            raise ServiceUnreachable(
                f"{target.url}/info does not describe an index: is it a vector index?"
            )
        if info.get("indexType", "DENSE") != "DENSE":
            raise ServiceUnreachable(
                f"{target.url} is an index of {info['indexType']} vectors; the scenarios need "
                "dense vectors"
            )
        return dict(info)
    if target.service == "broker":
        topics = _fetched(side, "/topics")
        if target.topic not in topics:
            raise ServiceUnreachable(
                f"{target.url}: {unknown_name('topic', target.topic, sorted(topics))}"
            )
        return {target.topic: topics[target.topic]}
    return {}


def _fetched(side: Side, path: str) -> dict[str, Any]:
    reply = side.send(ScenarioStep("GET", path))
    if reply.status != 200 or not isinstance(reply.body, dict):
        raise ServiceUnreachable(
            f"{side.target.url}{path} returned {reply}: check the address and the credentials"
        )
    return reply.body
