"""Test the mocks of the ``responses`` library as destinations."""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable
from typing import Any

import pytest
import requests
import responses

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.timers import finished
from pytest_fakecloud.queue.delivery import responses_mock as mocked
from pytest_fakecloud.queue.delivery.destinations import Sender

from ..edge import RawServer, delivery


@responses.activate
def test_an_active_mock_answers(sender: Sender) -> None:
    responses.post(
        "https://app.example.com/hook?x=1",
        body=b"made",
        status=202,
        headers={"X-A": "1"},
        match=[
            responses.matchers.header_matcher({"User-Agent": "Upstash-QStash"}),
            responses.matchers.json_params_matcher({"a": 1}),
        ],
    )
    outcome = finished(
        sender.send(
            delivery(
                "https://app.example.com/hook?x=1",
                b'{"a":1}',
                [("User-Agent", "Upstash-QStash"), ("Content-Type", "application/json")],
            )
        )
    )
    assert (outcome.status, outcome.body, outcome.where) == (202, b"made", "responses")
    assert ("X-A", "1") in outcome.headers
    assert len(responses.calls) == 1
    assert responses.calls[0].request.body == b'{"a":1}'


@responses.activate
def test_the_mock_sees_the_published_escapes(sender: Sender) -> None:
    responses.post("https://app.example.com/a%2fb")
    assert finished(sender.send(delivery("https://app.example.com/a%2fb"))).status == 200
    assert responses.calls[0].request.url == "https://app.example.com/a%2fb"


@responses.activate
def test_a_mocked_url_outside_ascii(sender: Sender) -> None:
    responses.post("https://app.example.com/ä")
    raw = "https://app.example.com/ä".encode().decode("latin-1")
    assert finished(sender.send(delivery(raw))).status == 200


@responses.activate
def test_answers_in_turn(sender: Sender) -> None:
    for status in (500, 200):
        responses.post("https://app.example.com/", status=status)
    got = [finished(sender.send(delivery("https://app.example.com/"))).status for _ in range(3)]
    assert got == [500, 200, 200]


@responses.activate
def test_a_mock_never_keeps_a_delivery_from_a_loopback_server(
    sender: Sender, serve: Callable[..., RawServer]
) -> None:
    responses.post("https://app.example.com/")
    assert finished(sender.send(delivery(serve().url))).where == "loopback"
    assert len(responses.calls) == 0


@responses.activate
def test_a_mock_of_a_loopback_url_comes_first(sender: Sender) -> None:
    responses.post("http://127.0.0.1:9/hook", status=418)
    assert finished(sender.send(delivery("http://127.0.0.1:9/hook"))).status == 418


@responses.activate
def test_a_mock_that_does_not_match_is_named(sender: Sender) -> None:
    responses.get("https://app.example.com/")
    responses.post("https://other.example.com/")
    outcome = finished(sender.send(delivery("https://app.example.com/")))
    assert outcome.unstubbed is not None
    text = str(outcome.exception)
    assert "GET https://app.example.com/: Method does not match" in text
    assert "POST https://other.example.com/: URL does not match" in text
    assert len(responses.calls) == 0


@responses.activate
@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (requests.ConnectionError("no"), False),
        (requests.ReadTimeout("slow"), True),
        (OSError("down"), False),
    ],
)
def test_a_mock_that_raises_is_a_failed_connection(
    sender: Sender, error: Exception, waits: bool
) -> None:
    responses.post("https://app.example.com/", body=error)
    outcome = finished(sender.send(delivery("https://app.example.com/")))
    assert outcome.status is None
    assert outcome.exception is error
    assert outcome.virtual_us == (30_000_000 if waits else 0)


@responses.activate
def test_an_error_inside_a_mocks_callback_is_a_500(sender: Sender) -> None:
    def broken(request: requests.PreparedRequest) -> Any:
        raise KeyError("boom")

    responses.add_callback(responses.POST, "https://app.example.com/", broken)
    outcome = finished(sender.send(delivery("https://app.example.com/")))
    assert outcome.status == 500
    assert isinstance(outcome.exception, KeyError)


def test_a_mock_that_was_stopped_answers_no_more(sender: Sender) -> None:
    with responses.RequestsMock() as mock:
        mock.post("https://app.example.com/")
        assert finished(sender.send(delivery("https://app.example.com/"))).status == 200
    assert finished(sender.send(delivery("https://app.example.com/"))).unstubbed


@responses.activate
def test_a_mock_under_another_tools_wrapper(sender: Sender) -> None:
    original = requests.adapters.HTTPAdapter.send

    @functools.wraps(original)
    def send(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    responses.post("https://app.example.com/", status=201)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests.adapters.HTTPAdapter, "send", send)
        assert finished(sender.send(delivery("https://app.example.com/"))).status == 201


def test_the_in_process_transport_keeps_every_byte() -> None:
    with Cloud(seed=1, delivery="driven", transport="inprocess") as cloud:
        queue: Any = cloud.queue()
        capture = cloud.callback_capture()
        queue.publish(capture.callback_url + "/a%2fb?x=%2f", body="x")
        (attempt,) = queue.run_until_idle()
        assert attempt.status == 200
        item = capture.callbacks().only()
        assert item.problem is None
        assert item.headers.get("Accept-Encoding") is None
        assert item.headers.get("User-Agent") == "Upstash-QStash"


@responses.activate
def test_a_route_comes_before_a_mock(sender: Sender) -> None:
    responses.post("https://app.example.com/", status=500)
    sender.destinations.respond("https://app.example.com", 201)
    assert finished(sender.send(delivery("https://app.example.com/"))).status == 201
    assert len(responses.calls) == 0


def test_a_route_for_everything_leaves_the_clouds_own_fakes_alone(
    serve: Callable[..., RawServer],
) -> None:
    server = serve()
    sender = Sender(is_fake=lambda url: url.startswith(server.url))
    sender.destinations.accept()
    assert finished(sender.send(delivery(server.url + "/x"))).where == "loopback"
    assert asyncio.run(sender.send(delivery(server.url + "/x"), in_loop=True)).where == "loopback"
    assert finished(sender.send(delivery("http://127.0.0.1:9/x"))).where == "accept"
    sender.destinations.respond(server.url, 418)
    assert finished(sender.send(delivery(server.url + "/x"))).status == 418
    sender.close()


def test_mocks_and_refusals_in_the_awaitable_form(sender: Sender) -> None:
    with responses.RequestsMock() as mock:
        mock.post("https://app.example.com/", status=201)
        assert (
            asyncio.run(sender.send(delivery("https://app.example.com/"), in_loop=True)).status
            == 201
        )
    assert asyncio.run(sender.send(delivery("https://app.example.com/"), in_loop=True)).unstubbed


@responses.activate
def test_a_response_that_lets_pass_sends_nothing_to_the_network(sender: Sender) -> None:
    responses.add(responses.PassthroughResponse("POST", "http://app.example.com/hook"))
    outcome = finished(sender.send(delivery("http://app.example.com/hook")))
    assert outcome.unstubbed
    assert "lets it pass, but the queue sends to loopback addresses only" in str(outcome.exception)


def test_a_response_that_lets_pass_to_loopback_is_delivered(
    sender: Sender, serve: Callable[..., RawServer]
) -> None:
    server = serve()
    with responses.RequestsMock() as mock:
        mock.add(responses.PassthroughResponse("POST", server.url))
        mock.assert_all_requests_are_fired = False
        assert finished(sender.send(delivery(server.url))).where == "loopback"


@pytest.mark.parametrize(
    ("prefix", "matches"),
    [
        ("http://app.", True),
        (re.compile(r"http://\w+\.example"), True),
        ("http://other.", False),
        (re.compile("https"), False),
    ],
)
def test_a_passthru_prefix_does_not_let_the_queue_use_the_network(
    sender: Sender, prefix: Any, matches: bool
) -> None:
    with responses.RequestsMock() as mock:
        mock.add_passthru(prefix)
        outcome = finished(sender.send(delivery("http://app.example.com/hook")))
    assert outcome.status is None
    assert ("a passthru prefix matches, but" in str(outcome.exception)) is matches


@pytest.mark.parametrize("lets_pass", [False, True])
def test_a_mock_undone_in_between_sends_nothing_to_the_network(
    sender: Sender, monkeypatch: pytest.MonkeyPatch, lets_pass: bool
) -> None:
    """The test may end its mock while a background delivery is about to use it."""
    mock = responses.RequestsMock(assert_all_requests_are_fired=False)
    mock.start()
    mock.post("http://app.example.com/hook")
    judged = mocked._mismatch

    def then_undone(*args: Any) -> Any:
        reasons = judged(*args)
        mock.stop(allow_assert=False)
        mock.reset()
        if lets_pass:
            mock.add_passthru("http://")
        return reasons

    monkeypatch.setattr(mocked, "_mismatch", then_undone)
    monkeypatch.setattr("socket.socket.connect", lambda *args: pytest.fail("to the network"))
    monkeypatch.setattr("socket.getaddrinfo", lambda *args: pytest.fail("to the network"))
    outcome = finished(sender.send(delivery("http://app.example.com/hook")))
    assert outcome.status is None
    assert isinstance(outcome.exception, OSError)
