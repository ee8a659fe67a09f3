"""Tests for Vitest, with the official clients and the helper of the guide."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote, unquote

from .literals import javascript, quoted
from .plan import (
    AnyTest,
    CommandsTest,
    DeliveryTest,
    HttpRequest,
    Known,
    RequestTest,
    Surroundings,
    TestedFake,
)

GUIDES = "https://pytest-fakecloud.github.io/pytest-fakecloud/guides/"
_ADDRESSES = {
    "kv_server": ("UPSTASH_REDIS_REST_URL", "UPSTASH_REDIS_REST_TOKEN"),
    "vector_index": ("UPSTASH_VECTOR_REST_URL", "UPSTASH_VECTOR_REST_TOKEN"),
    "queue": ("QSTASH_URL", "QSTASH_TOKEN"),
    "broker": (
        "UPSTASH_KAFKA_REST_URL",
        "UPSTASH_KAFKA_REST_USERNAME",
        "UPSTASH_KAFKA_REST_PASSWORD",
    ),
}


def variables(fake: TestedFake) -> list[str]:
    """Return the variables with the URL and the token of a fake, or its URL, user and password."""
    return [fake.prefix + name for name in _ADDRESSES[fake.fixture]]


def written(test: AnyTest) -> str:
    """Return the text of a module with the test."""
    lines: Iterable[str]
    if isinstance(test, CommandsTest):
        imports, lines = ['import Redis from "ioredis";'], _commands(test)
    elif isinstance(test, DeliveryTest):
        imports, lines = ['import { Client } from "@upstash/qstash";'], _delivery(test)
    else:
        imports, lines = _request(test)
    return "\n".join(
        [
            f"// Needs vitest.config.js beside it: {GUIDES}javascript.html",
            *imports,
            f'import {{ {", ".join(_helpers(test))} }} from "pytest-fakecloud";',
            'import { expect, test } from "vitest";',
            "",
            f'test("{test.around.name}", async () => {{',
            *(f"  {line}" for line in lines),
            "});",
            "",
        ]
    )


def _helpers(test: AnyTest) -> list[str]:
    """Return what a test imports of the helper."""
    if isinstance(test, DeliveryTest) or test.around.answers:
        return ["call", "clock", "control"]
    return ["clock", "faults"] if test.around.fault is not None else ["clock"]


def _move(around: Surroundings) -> list[str]:
    return ["await clock.freeze();", f"await clock.moveTo({quoted(around.now)});"]


# -- the kinds of tests ----------------------------------------------------------------------------


def _commands(test: CommandsTest) -> Iterator[str]:
    yield f"const redis = new Redis(process.env.{test.around.fake.prefix}REDIS_URL);"
    yield from _move(test.around)
    yield from (f"await {_command(words)};" for words in test.setup)
    yield from _prepared(test.around)
    for step in test.steps:
        if step.error is not None:
            error = quoted(step.error_without_code)
            yield f"await expect({_command(step.words)}).rejects.toThrow({error});"
        elif step.reply is None:
            yield f"await {_command(step.words)};"
        else:
            expected = javascript(step.reply.value)
            yield f"expect(await {_command(step.words)}).toEqual({expected});"
    yield from _ended(test.around)
    yield "redis.disconnect();"


def _command(words: Sequence[str]) -> str:
    return f"redis.call({', '.join(map(quoted, words))})"


def _delivery(test: DeliveryTest) -> Iterator[str]:
    around, name = test.around, quoted(test.around.fake.name)
    yield from _move(around)
    yield "// This stands for your application, to which a destination can forward."
    yield _destination(
        around, test.url, '"refuse"' if around.status is None else str(around.status)
    )
    yield (
        f"await new Client({_options('baseUrl', around.fake)}).publish({{ url: {quoted(test.url)}, "
        f"body: {quoted(test.request.body)}, headers: {javascript(test.request.headers)}, "
        "retries: 0 });"
    )
    yield f'await call({name}, "run_until_idle");'
    yield f'const [attempt] = await call({name}, "attempts");'
    yield f"expect(attempt.status).toBe({javascript(around.status)});"


def _request(test: RequestTest) -> tuple[list[str], list[str]]:
    """Return the imports and the lines of a test of a request."""
    around, fake = test.around, test.around.fake
    official = _official(test) if around.status is not None and around.status < 300 else None
    imports, lines = list[str](), list[str]()
    if official is not None and fake.fixture == "vector_index":
        imports.append('import { Index } from "@upstash/vector";')
        lines.append(f"const index = new Index({_options('url', fake)});")
    elif official is not None:
        imports.append('import { Client } from "@upstash/qstash";')
        lines.append(f"const client = new Client({_options('baseUrl', fake)});")
    lines += _move(around)
    lines += [f"await {_fetch(request, fake)};" for request in test.setup]
    lines += _prepared(around)
    lines += _answered(test) if official is None else _answered_officially(test, official)
    for request, expected in test.checks:
        value = javascript(expected.value)
        lines.append(f"expect(await (await {_fetch(request, fake)}).json()).toEqual({value});")
    if around.answers:
        name, answers = quoted(fake.name), javascript(dict(around.answers))
        lines += [
            f'await call({name}, "run_until_idle");',
            f'const attempts = await call({name}, "attempts");',
            "expect(Object.fromEntries(attempts.map(({ url, status }) => [url, status])))"
            f".toEqual({answers});",
        ]
    return imports, [*lines, *_ended(around)]


def _answered(test: RequestTest) -> Iterator[str]:
    yield f"const answer = await {_fetch(test.request, test.around.fake)};"
    yield f"expect(answer.status).toBe({test.around.status});"
    if test.answer is not None:
        yield f"expect(await answer.json()).toEqual({javascript(test.answer.value)});"
    if test.text is not None:
        yield f"expect(await answer.text()).toBe({quoted(test.text)});"


def _answered_officially(test: RequestTest, official: str) -> Iterator[str]:
    yield f"const answer = await {official};"
    if test.answer is not None and test.around.fake.fixture == "vector_index":
        yield f"expect(answer).toEqual({javascript(test.answer.value['result'])});"
    elif test.around.fake.fixture == "queue":
        yield "expect(answer.messageId).toMatch(/^msg_/);"


def _official(test: RequestTest) -> str | None:
    """Return the call of the official client for a request; None if it has no method for it."""
    request, fixture = test.request, test.around.fake.fixture
    match = re.fullmatch(r"/(upsert|query|delete|fetch)(?:/(.*))?", request.target)
    read = _body_of(request)
    if fixture == "vector_index" and match and read is not None:
        namespace = f", {{ namespace: {quoted(unquote(match[2]))} }}" if match[2] else ""
        return f"index.{match[1]}({javascript(read.value)}{namespace})"
    url = request.target.removeprefix("/v2/publish/")
    if fixture == "queue" and request.method == "POST" and url.startswith("http"):
        headers, body = javascript(request.headers), quoted(request.body)
        return f"client.publish({{ url: {quoted(url)}, body: {body}, headers: {headers} }})"
    return None


def _body_of(request: HttpRequest) -> Known | None:
    try:
        return Known(json.loads(request.body))
    except ValueError:
        return None


# -- requests and what is there beside the data ----------------------------------------------------


def _options(url_name: str, fake: TestedFake) -> str:
    """Return the options of an official client, which finds those of the only fake itself."""
    url, token, *_ = variables(fake)
    return f"{{ {url_name}: process.env.{url}, token: process.env.{token} }}" if fake.prefix else ""


def _fetch(request: HttpRequest, fake: TestedFake, rest: str = "") -> str:
    url, token, *password = variables(fake)
    credentials = f"`Bearer ${{process.env.{token}}}`"
    if password:
        pair = f"`${{process.env.{token}}}:${{process.env.{password[0]}}}`"
        credentials = f"`Basic ${{btoa({pair})}}`"
    headers = {name: quoted(value) for name, value in request.headers.items()}
    headers = {"Authorization": credentials, **headers}
    fields = ", ".join(
        f"{name if re.fullmatch(r'[A-Za-z_]+', name) else quoted(name)}: {value}"
        for name, value in headers.items()
    )
    method = "" if request.method == "GET" else f"method: {quoted(request.method)}, "
    body = f", body: {quoted(request.body)}" if request.body else ""
    options = f"{{ {method}headers: {{ {fields} }}{body}{rest} }}"
    return f"fetch(process.env.{url} + {quoted(request.target)}, {options})"


def _destination(around: Surroundings, url: str, answer: str) -> str:
    path = quoted(f"/fakes/{quote(around.fake.name, safe='')}/destinations")
    return f'await control("POST", {path}, {{ url: {quoted(url)}, answer: {answer} }});'


def _prepared(around: Surroundings) -> Iterator[str]:
    if around.fault is not None:
        name, args = quoted(around.fake.name), javascript(around.fault)
        yield f'await faults.inject({name}, "respond", {{ args: {args}, times: 1 }});'
    for url, status in around.answers.items():
        yield _destination(around, url, str(status))
    if around.subscribers:
        # Each reader of the stream of a channel is a subscriber.
        target = f"/subscribe/{quote(around.channel, safe='')}"
        request = HttpRequest("GET", target, {"Accept": "text/event-stream"})
        fetched = _fetch(request, around.fake, ", signal: subscribers.signal")
        yield "const subscribers = new AbortController();"
        yield f"for (let many = 0; many < {around.subscribers}; many++) await {fetched};"


def _ended(around: Surroundings) -> Iterator[str]:
    if around.subscribers:
        yield "subscribers.abort();"
