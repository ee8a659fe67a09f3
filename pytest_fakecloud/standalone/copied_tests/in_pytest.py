"""Tests for pytest, with the fixtures of this package."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from .literals import python
from .plan import AnyTest, CommandsTest, DeliveryTest, HttpRequest, RequestTest, Surroundings


def written(test: AnyTest) -> str:
    """Return the text of a module with the test."""
    around = test.around
    fake = around.fake
    # A fake with a name of its own has no fixture: the test starts it.
    variable = fake.fixture if fake.is_fixture else re.sub(r"\W", "_", fake.name, flags=re.ASCII)
    arguments, body = ["fakecloud"], list[str]()
    if fake.is_fixture:
        arguments.append(fake.fixture)
    else:
        body.append(f"{variable} = fakecloud.{fake.fixture}(name={python(fake.name)})")
    if isinstance(test, CommandsTest):
        imports, body = ["pytest", "redis"], [*body, *_commands(test, variable)]
        imports += ["requests"] if around.subscribers else []
    elif isinstance(test, RequestTest):
        imports, body = ["pytest", "requests"], [*body, *_request(test, variable)]
    else:
        imports, body = ["pytest"], [*body, *_delivery(test, variable)]
    return "\n".join(
        [
            *(f"import {name}" for name in imports),
            "\n",
            f'@pytest.mark.fakecloud(now={python(around.now)}, clock="frozen")',
            f"def test_{around.name}({', '.join(arguments)}):",
            *(f"    {line}" for line in body),
            "",
        ]
    )


def _commands(test: CommandsTest, fake: str) -> Iterator[str]:
    yield f"client = redis.Redis.from_url({fake}.database_url, protocol=2, decode_responses=True)"
    yield "client.response_callbacks.clear()  # replies as the server sends them"
    yield from map(_command, test.setup)
    yield from _prepared(test.around, fake)
    for step in test.steps:
        if step.error is not None:
            yield "with pytest.raises(redis.RedisError) as raised:"
            yield f"    {_command(step.words)}"
            yield f"assert {python(step.error_without_code)} in str(raised.value)"
        elif step.reply is None:
            yield _command(step.words)
        elif step.reply.value is None:
            yield f"assert {_command(step.words)} is None"
        else:
            yield f"assert {_command(step.words)} == {python(step.reply.value)}"
    yield from _ended(test.around)
    yield "client.close()"


def _command(words: Iterable[str]) -> str:
    return f"client.execute_command({', '.join(map(python, words))})"


def _request(test: RequestTest, fake: str) -> Iterator[str]:
    yield from (_sent(request, fake) for request in test.setup)
    yield from _prepared(test.around, fake)
    yield f"answer = {_sent(test.request, fake)}"
    yield f"assert answer.status_code == {test.around.status}"
    if test.text is not None:
        yield f"assert answer.text == {python(test.text)}"
    if test.answer is not None:
        yield f"assert answer.json() == {python(test.answer.value)}"
    for request, expected in test.checks:
        yield f"assert {_sent(request, fake)}.json() == {python(expected.value)}"
    if test.around.answers:
        yield f"{fake}.run_until_idle()"
        yield f"answers = {{attempt.url: attempt.status for attempt in {fake}.attempts()}}"
        yield f"assert answers == {python(dict(test.around.answers))}"
    yield from _ended(test.around)


def _sent(request: HttpRequest, fake: str) -> str:
    headers = [
        f"**{fake}.headers",
        *(f"{python(name)}: {python(value)}" for name, value in request.headers.items()),
    ]
    body = f", data={python(request.body)}.encode()" if request.body else ""
    return (
        f"requests.request({python(request.method)}, {fake}.url + {python(request.target)}, "
        f"headers={{{', '.join(headers)}}}{body})"
    )


def _delivery(test: DeliveryTest, fake: str) -> Iterator[str]:
    status, url = test.around.status, python(test.url)
    answer = "ConnectionRefusedError()" if status is None else str(status)
    yield "# This stands for your application, to which destinations.forward() delivers."
    yield f"{fake}.destinations.respond({url}, {answer})"
    yield (
        f"{fake}.client().message.publish(url={url}, body={python(test.request.body)}, "
        f"headers={python(dict(test.request.headers))}, retries=0)"
    )
    yield 'fakecloud.clock.advance("1s")'
    yield f"(attempt,) = {fake}.attempts()"
    yield f"assert attempt.status {'is None' if status is None else f'== {status}'}"


# -- what is there beside the data -----------------------------------------------------------------


def _prepared(around: Surroundings, fake: str) -> Iterator[str]:
    if around.status == 401 and around.fault is None:
        yield f'fakecloud.allow("refused", fake={python(around.fake.name)})'
    if around.fault is not None:
        status, body = around.fault
        yield f"{fake}.faults.respond({status}, {python(body)}, times=1)"
    for url, status in around.answers.items():
        yield f"{fake}.destinations.respond({python(url)}, {status})"
    if around.subscribers:
        # Each reader of the stream of a channel is a subscriber.
        target = "/subscribe/" + quote(around.channel, safe="")
        stream = f"{fake}.url + {python(target)}"
        headers = f'{{**{fake}.headers, "Accept": "text/event-stream"}}'
        yield (
            f"subscribers = [requests.get({stream}, headers={headers}, stream=True) "
            f"for _ in range({around.subscribers})]"
        )


def _ended(around: Surroundings) -> Iterator[str]:
    if around.subscribers:
        yield "for subscriber in subscribers:"
        yield "    subscriber.close()"
