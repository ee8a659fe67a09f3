"""Tests for Go, with the REST API of the service and the helper of the guide."""

from __future__ import annotations

from collections.abc import Iterator
from string import Template
from urllib.parse import quote

from .in_vitest import GUIDES, variables
from .literals import javascript, quoted
from .plan import AnyTest, CommandsTest, DeliveryTest, HttpRequest, Known, Surroundings, request_of

_TEST = Template(
    f"""\
// Needs newCloud and ask of fakecloud_test.go beside it: {GUIDES}go.html
package shop

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)
"""
    """
func Test$name(t *testing.T) {
	env := newCloud(t)
	ask(t, env, "POST", "/clock", map[string]any{"action": "freeze"}, nil)
	ask(t, env, "POST", "/clock", map[string]any{"action": "move_to", "to": $now}, nil)
$prepared	for _, call := range []struct {
		method, target string
		headers        map[string]string
		body           string
		status         int
		answer         string
	}{
$calls	} {
		request, err := http.NewRequest(call.method, env[$url]+call.target, strings.NewReader(call.body))
		if err != nil {
			t.Fatal(err)
		}
		$authorize
		for name, value := range call.headers {
			request.Header.Set(name, value)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != call.status {
			t.Fatalf("%s: %d %s", call.body, response.StatusCode, text)
		}
		var expected, answer any
		if call.answer != "" && json.Unmarshal([]byte(call.answer), &expected) == nil {
			if json.Unmarshal(text, &answer) != nil || !reflect.DeepEqual(expected, answer) {
				t.Errorf("%s: expected %s, got %s", call.body, call.answer, text)
			}
		}
	}
$delivered}
"""
)
_SUBSCRIBERS = Template("""\
	for range make([]int, $count) {
		subscriber, _ := http.NewRequest("GET", env[$url]+$target, nil)
		subscriber.Header.Set("Authorization", "Bearer "+env[$token])
		subscriber.Header.Set("Accept", "text/event-stream")
		stream, err := http.DefaultClient.Do(subscriber)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Body.Close()
	}
""")
_DELIVERED = Template("""\
	var attempts struct {
		Value []struct {
			URL    string
			Status int
		}
	}
	ask(t, env, "POST", "/call", map[string]any{"object": $fake, "name": "run_until_idle"}, nil)
	ask(t, env, "POST", "/call", map[string]any{"object": $fake, "name": "attempts"}, &attempts)
	answers := map[string]int{}
	for _, attempt := range attempts.Value {
		answers[attempt.URL] = attempt.Status
	}
	for url, status := range map[string]int{$answers} {
		if answers[url] != status {
			t.Error(url, attempts)
		}
	}
""")


def written(test: AnyTest) -> str | None:
    """Return the text of a file with the test; None for a delivery."""
    if isinstance(test, DeliveryTest):
        return None
    around = test.around
    url, token, *password = map(quoted, variables(around.fake))
    authorize = f'request.Header.Set("Authorization", "Bearer "+env[{token}])'
    if password:
        authorize = f"request.SetBasicAuth(env[{token}], env[{password[0]}])"
    delivered = ""
    if around.answers:
        answers = ", ".join(f"{quoted(url)}: {status}" for url, status in around.answers.items())
        delivered = _DELIVERED.substitute(fake=quoted(around.fake.name), answers=answers)
    return _TEST.substitute(
        name="".join(word.capitalize() for word in around.name.split("_")),
        now=quoted(around.now),
        prepared="".join(_prepared(around)),
        calls="".join(_call(*call) for call in _calls(test)),
        url=url,
        authorize=authorize,
        delivered=delivered,
    )


def _calls(test: AnyTest) -> Iterator[tuple[HttpRequest, int | None, Known | None]]:
    """Yield the requests of a test with their status and JSON."""
    if isinstance(test, CommandsTest):
        for words in test.setup:
            yield request_of(words), 200, None
        for step in test.steps:
            reply = step.reply and Known({"result": step.reply.value})
            yield request_of(step.words), 200 if step.error is None else test.around.status, reply
    elif not isinstance(test, DeliveryTest):
        for request in test.setup:
            yield request, 200, None
        yield test.request, test.around.status, test.answer
        for request, answer in test.checks:
            yield request, 200, answer


def _call(request: HttpRequest, status: int | None, answer: Known | None) -> str:
    headers = ", ".join(
        f"{quoted(name)}: {quoted(value)}" for name, value in request.headers.items()
    )
    expected = '""' if answer is None else quoted(javascript(answer.value))
    return (
        f"\t\t{{{quoted(request.method)}, {quoted(request.target)}, "
        f"map[string]string{{{headers}}}, {quoted(request.body)}, {status}, {expected}}},\n"
    )


def _prepared(around: Surroundings) -> Iterator[str]:
    path = f"/fakes/{quote(around.fake.name, safe='')}"
    if around.fault is not None:
        status, body = around.fault
        args = f"[]any{{{status}, {quoted(body)}}}"
        yield _post(f"{path}/faults", f'"kind": "respond", "args": {args}, "times": 1')
    for url, status in around.answers.items():
        yield _post(f"{path}/destinations", f'"url": {quoted(url)}, "answer": {status}')
    if around.subscribers:
        url, token, *_ = map(quoted, variables(around.fake))
        # Each reader of the stream of a channel is a subscriber.
        target = quoted(f"/subscribe/{quote(around.channel, safe='')}")
        yield _SUBSCRIBERS.substitute(count=around.subscribers, url=url, token=token, target=target)


def _post(path: str, fields: str) -> str:
    return f'\task(t, env, "POST", {quoted(path)}, map[string]any{{{fields}}}, nil)\n'
