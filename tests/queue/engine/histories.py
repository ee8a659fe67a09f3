"""Random publishing to slow destinations, and a checker for the recorded history.

A ``World`` publishes over HTTP from several clients, pauses, resumes and cancels, and records what
its destinations receive. ``check()`` compares that with the requests: how often each message was
delivered, in which order, and how many deliveries overlapped. It does not look into the engine. All
times are microseconds of the machine's clock, which is also the clock of a running cloud.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

RETRY_US = 20_000
QUEUES = {"single": 1, "wide": 3}
KEYS = {"narrow": (2, None), "rated": (None, 4)}
RATE_PERIOD_US = 1_000_000
AT_ONCE = 4
CLIENTS = 3


@dataclass
class Wish:
    """A message to publish: its endpoint, the behaviour of its destination, and its settings."""

    label: str
    queue: str | None
    key: str | None
    fails: int
    retries: int
    callback: bool
    failure: bool
    seconds: float
    cancel: bool = False
    id: str = ""
    cancelled_us: int | None = None

    @property
    def attempts(self) -> int:
        return min(self.fails, self.retries) + 1

    @property
    def given_up(self) -> bool:
        return self.fails > self.retries


@dataclass
class Seen:
    """A request that a destination received; ``kind`` is its path: hook, callback or failure."""

    kind: str
    label: str
    retried: int
    id: str
    start_us: int
    end_us: int = 0


@dataclass
class Tried:
    """An attempt in the queue's list of attempts."""

    id: str
    url: str
    at_us: int
    status: int | None


@dataclass
class History:
    """A recorded history: the messages, received requests, attempts, and pauses."""

    wishes: list[Wish] = field(default_factory=list)
    order: dict[tuple[int, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    seen: list[Seen] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    pauses: list[tuple[str, int, int]] = field(default_factory=list)
    left: int = 0


def now_us() -> int:
    return time.time_ns() // 1000


def wishes(seed: int, count: int, *, rated: int = 0) -> list[Wish]:
    """Return random messages; ``rated`` of them use the flow-control key that has a rate."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        made.append(
            Wish(
                f"m{number}",
                chance.choice([None, None, "single", "single", "wide"]),
                chance.choice([None, None, "narrow"]),
                chance.choice([0, 0, 0, 1, 2]),
                chance.choice([0, 1, 3]),
                chance.random() < 0.3,
                chance.random() < 0.5,
                chance.choice([0.0, 0.002, 0.005, 0.02]),
                chance.random() < 0.15,
            )
        )
    made += [Wish(f"r{n}", None, "rated", 0, 0, False, False, 0.0) for n in range(rated)]
    chance.shuffle(made)
    return made


class World:
    """The clients and destinations of one queue, which is served at ``url`` and accepts ``token``."""

    def __init__(self, url: str, token: str, base: str, made: list[Wish], seed: int) -> None:
        self.history = History(made)
        self.base = base
        self._host, self._port = url.removeprefix("http://").split(":")
        self._token = token
        self._by_label = {wish.label: wish for wish in made}
        self._seed = seed
        self._lock = threading.Lock()
        self._patience = threading.Event()

    def receive(self, path: str, retried: int, message_id: str) -> int:
        """Answer one delivery after the time that its message asks for."""
        kind, _, label = path.strip("/").partition("/")
        seen = Seen(kind, label, retried, message_id, now_us())
        with self._lock:
            self.history.seen.append(seen)
        wish = self._by_label[label]
        self._patience.wait(wish.seconds if kind == "hook" else 0.001)
        seen.end_us = now_us()
        return 503 if kind == "hook" and retried < wish.fails else 200

    def _request(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: str = ""
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self._host, int(self._port), timeout=20)
        sent_headers = {"Authorization": f"Bearer {self._token}", **(headers or {})}
        connection.request(method, path, body, sent_headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, json.loads(data) if data else None

    def _publish(self, wish: Wish, client: int) -> None:
        headers = {
            "Upstash-Retries": str(wish.retries),
            "Upstash-Retry-Delay": str(RETRY_US // 1000),
        }
        if wish.key is not None:
            parallelism, rate = KEYS[wish.key]
            headers["Upstash-Flow-Control-Key"] = wish.key
            headers["Upstash-Flow-Control-Value"] = (
                f"parallelism={parallelism}" if rate is None else f"rate={rate},period=1s"
            )
        if wish.callback:
            headers["Upstash-Callback"] = f"{self.base}/callback/{wish.label}"
        if wish.failure:
            headers["Upstash-Failure-Callback"] = f"{self.base}/failure/{wish.label}"
        if wish.queue is not None:
            headers["Upstash-Queue-Name"] = wish.queue
        status, answer = self._request(
            "POST", f"/v2/publish/{self.base}/hook/{wish.label}", headers, wish.label
        )
        assert status in (200, 202), answer
        wish.id = answer["messageId"]
        if wish.queue is not None and wish.key is None:
            self.history.order[client, wish.queue].append(wish.label)
        if wish.cancel:
            status, _ = self._request("DELETE", f"/v2/messages/{wish.id}")
            if status // 100 == 2:
                wish.cancelled_us = now_us()

    def _pause_now_and_then(self, over: threading.Event) -> None:
        chance = random.Random(self._seed)
        while not over.wait(0.01):
            what, name = chance.choice([("queues", "single"), ("queues", "wide")])
            if chance.random() < 0.4:
                what, name = "flowControl", "narrow"
            status, _ = self._request("POST", f"/v2/{what}/{name}/pause")
            paused_us = now_us()
            over.wait(0.02)
            self.history.pauses.append((name, paused_us, now_us()))
            status, _ = self._request("POST", f"/v2/{what}/{name}/resume")
            assert status == 200

    def run(self, pending: Callable[[], int], within: float = 30.0) -> None:
        """Publish all messages and wait, at most ``within`` seconds, until none is pending."""
        for name, parallelism in QUEUES.items():
            body = json.dumps({"queueName": name, "parallelism": parallelism})
            self._request("POST", "/v2/queues", {"Content-Type": "application/json"}, body)
        over = threading.Event()

        def client(number: int) -> None:
            for wish in self.history.wishes[number::CLIENTS]:
                self._publish(wish, number)

        clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
        for thread in clients:
            thread.start()
        pausing = threading.Thread(target=self._pause_now_and_then, args=(over,))
        pausing.start()
        for thread in clients:
            thread.join()
        over.set()
        pausing.join()
        give_up = time.monotonic() + within
        while (left := pending()) and time.monotonic() < give_up:
            self._patience.wait(0.01)
        self.history.left = left


@contextmanager
def loopback(receive: Callable[[str, int, str], int]) -> Iterator[str]:
    """Serve ``World.receive`` over HTTP and yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            status = receive(
                self.path, int(self.headers["Upstash-Retried"]), self.headers["Upstash-Message-Id"]
            )
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    serving = threading.Thread(target=server.serve_forever, args=(0.01,))
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def check(history: History) -> list[str]:
    """Return the violations found in a history as strings; an empty list if there are none."""
    return [
        *_all_came_to_an_end(history),
        *_each_came_as_often_as_it_should(history),
        *_the_queue_tells_what_was_seen(history),
        *_retries_waited(history),
        *_cancelled_ones_did_not_start(history),
        *_queues_kept_order(history),
        *_no_more_at_once_than_allowed(history),
        *_rates_were_held(history),
        *_paused_ones_did_not_start(history),
    ]


def at_most_at_once(spans: Iterable[tuple[int, int]]) -> int:
    """Return the largest number of spans that overlap; spans that only touch do not."""
    steps = sorted(step for start, end in spans for step in ((start, 1), (end, -1)))
    most = now = 0
    for _, change in steps:
        now += change
        most = max(most, now)
    return most


def _all_came_to_an_end(history: History) -> Iterator[str]:
    if history.left:
        yield f"{history.left} message(s) never came to an end"


def _each_came_as_often_as_it_should(history: History) -> Iterator[str]:
    retries: dict[tuple[str, str], list[int]] = defaultdict(list)
    for seen in sorted(history.seen, key=lambda request: request.start_us):
        retries[seen.kind, seen.label].append(seen.retried)
    for wish in history.wishes:
        came = retries["hook", wish.label]
        wanted = list(range(wish.attempts))
        short = wish.cancelled_us is not None
        if came != (wanted[: len(came)] if short else wanted):
            yield f"{wish.label} came with Retried {came}, wanted {wanted}"
        for kind, asked, number in (
            ("callback", wish.callback, len(came)),
            ("failure", wish.failure, int(wish.given_up)),
        ):
            count = len(retries[kind, wish.label])
            number = number if asked else 0
            if count > number or (count < number and not short):
                yield f"{wish.label} had {count} {kind}(s), wanted {number}"


def _the_queue_tells_what_was_seen(history: History) -> Iterator[str]:
    tried = sorted(attempt.id for attempt in history.tried)
    seen = sorted(request.id for request in history.seen)
    if tried != seen:
        yield f"the queue tells of {len(tried)} attempts, destinations saw {len(seen)}"


def _retries_waited(history: History) -> Iterator[str]:
    tried: dict[str, list[int]] = defaultdict(list)
    for attempt in sorted(history.tried, key=lambda item: item.at_us):
        tried[attempt.id].append(attempt.at_us)
    seen: dict[str, list[Seen]] = defaultdict(list)
    for request in sorted(history.seen, key=lambda item: item.start_us):
        seen[request.id].append(request)
    for wish in history.wishes:
        for before, at_us in zip(seen[wish.id], tried[wish.id][1:], strict=False):
            if at_us < before.end_us + RETRY_US:
                yield f"{wish.label} was retried too early"


def _cancelled_ones_did_not_start(history: History) -> Iterator[str]:
    when = {wish.id: wish.cancelled_us for wish in history.wishes if wish.cancelled_us is not None}
    for attempt in history.tried:
        if attempt.id in when and attempt.at_us > when[attempt.id]:
            yield f"{attempt.url} was tried after it had been cancelled"


def _queues_kept_order(history: History) -> Iterator[str]:
    first = {}
    ids = {wish.id: wish.label for wish in history.wishes}
    for place, attempt in enumerate(sorted(history.tried, key=lambda item: item.at_us)):
        first.setdefault(ids.get(attempt.id), place)
    for (client, queue), labels in history.order.items():
        places = [first[label] for label in labels if label in first]
        if places != sorted(places):
            yield f"queue {queue} did not keep the order of client {client}"


def _no_more_at_once_than_allowed(history: History) -> Iterator[str]:
    by_label = {wish.label: wish for wish in history.wishes}
    everything: list[tuple[int, int]] = []
    keys: dict[str, list[tuple[int, int]]] = defaultdict(list)
    lives: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for seen in history.seen:
        wish, span = by_label[seen.label], (seen.start_us, seen.end_us)
        everything.append(span)
        if wish.key is not None and seen.kind == "hook":
            keys[wish.key].append(span)
        if wish.queue is not None and wish.cancelled_us is None:
            # A message of an ordered queue keeps its slot through all retries and callbacks.
            start, end = lives[wish.queue].get(wish.label, span)
            lives[wish.queue][wish.label] = (min(start, span[0]), max(end, span[1]))
    for key, (parallelism, _) in KEYS.items():
        if parallelism is not None and (most := at_most_at_once(keys[key])) > parallelism:
            yield f"key {key}: {most} at once, allowed are {parallelism}"
    for queue, allowed in QUEUES.items():
        if (most := at_most_at_once(lives[queue].values())) > allowed:
            yield f"queue {queue}: {most} at once, allowed are {allowed}"
    most = at_most_at_once(everything)
    if most > AT_ONCE:
        yield f"all: {most} at once, allowed are {AT_ONCE}"
    if most < 2:
        yield "all: one at a time, where several are allowed"


def _rates_were_held(history: History) -> Iterator[str]:
    ids = {wish.id for wish in history.wishes if wish.key == "rated"}
    at = sorted(attempt.at_us for attempt in history.tried if attempt.id in ids)
    most = KEYS["rated"][1] or 0

    def held(begin_us: int) -> bool:
        # Periods follow each other without gaps; clients cannot know where the first one starts.
        periods: dict[int, int] = defaultdict(int)
        for time_us in at:
            periods[(time_us - begin_us) // RATE_PERIOD_US] += 1
        return max(periods.values()) <= most

    if at and not any(held(begin_us) for begin_us in at):
        yield f"key rated: more than {most} in a period"


def _paused_ones_did_not_start(history: History) -> Iterator[str]:
    of = {
        wish.id: {name for name in (wish.queue, wish.key) if name is not None}
        for wish in history.wishes
    }
    for name, start_us, end_us in history.pauses:
        for attempt in history.tried:
            if name in of.get(attempt.id, ()) and start_us < attempt.at_us < end_us:
                yield f"{attempt.url} was tried while {name} was paused"
