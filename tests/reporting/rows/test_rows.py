"""Rows are nested in the row that caused them, and the row of a failed attempt has its request and
answer.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import jwt
import pytest
import responses
from qstash import Receiver

from pytest_fakecloud import Cloud
from pytest_fakecloud.queue.fake import Queue
from pytest_fakecloud.queue.model import Delivery, SigningKeys
from pytest_fakecloud.queue.signatures import body_hash, signature_details
from pytest_fakecloud.reporting.lookups import Lookups, lookups_of
from pytest_fakecloud.reporting.model import ReportRow
from pytest_fakecloud.reporting.render.as_json import row_json
from pytest_fakecloud.reporting.render.text import section
from pytest_fakecloud.reporting.render.wording import sentence
from pytest_fakecloud.reporting.rows.nesting import nested
from pytest_fakecloud.reporting.rows.rows import rows as report_rows

from ..findings.cases import found, kinds
from ..shown import deliver
from ..shown import shown as rows

URL = "https://app.example.com/orders?from=shop"
OTHER_KEY = f"sig_{'x' * 32}"


def order(request: bytes) -> tuple[str, int]:
    """Fail to handle an order without a customer: log the exception and respond 422."""
    try:
        json.loads(request)["customer"]["id"]
    except LookupError:
        logging.getLogger("shop").exception("no order")
    return '{"error": "no customer"}', 422


JSON = "application/json"


# -- what was sent and what came back --------------------------------------------------------------


def through_call(queue: Queue, cloud: Cloud) -> str:
    def handle(request: Any) -> Any:
        text, status = order(request.body)
        return status, json.loads(text)

    queue.destinations.call("https://app.example.com", handle)
    return URL


def through_wsgi(queue: Queue, cloud: Cloud) -> str:
    def app(environ: Any, start_response: Callable[..., Any]) -> Iterable[bytes]:
        text, status = order(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        start_response(f"{status} No", [("Content-Type", JSON)])
        return [text.encode()]

    queue.destinations.wsgi("https://app.example.com", app)
    return URL


def through_asgi(queue: Queue, cloud: Cloud) -> str:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        text, status = order((await receive())["body"])
        headers = [(b"content-type", JSON.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text.encode()})

    queue.destinations.asgi("https://app.example.com", app, lifespan=False)
    return URL


def through_destination(queue: Queue, cloud: Cloud) -> str:
    def handle(request: Any) -> Any:
        from werkzeug import Response

        return Response(*order(request.get_data()), content_type=JSON)

    destination = cloud.destination()
    destination.server.expect_request("/orders").respond_with_handler(handle)
    return f"{destination.url}/orders?from=shop"


def through_responses(queue: Queue, cloud: Cloud) -> str:
    def handle(request: Any) -> Any:
        text, status = order(request.body)
        return status, {"Content-Type": JSON}, text

    responses.add_callback(responses.POST, URL, callback=handle)
    return URL


WAYS = [through_call, through_wsgi, through_asgi, through_destination, through_responses]


@pytest.mark.parametrize("way", WAYS)
@responses.activate
def test_an_attempt_that_failed_tells_both_bodies_and_what_was_logged(
    cloud: Cloud, way: Callable[[Queue, Cloud], str]
) -> None:
    queue = cloud.queue()
    url = way(queue, cloud)
    deliver(queue, url, json={"customer": {}}, retries=0, headers={"X-Tenant": "acme"})
    (row,) = [row for row in rows(cloud) if "attempt" in row.what]
    # The row of a call to a fake, such as the destination, shows only the error's message.
    assert row.answer in ('422 {"error":"no customer"}', "422 no customer")
    assert row.remarks[0] == 'sent {"customer":{}} with header X-Tenant: acme'
    assert row.remarks[1].startswith("the handler logged KeyError: 'id' (test_rows.py:")
    assert row.remarks[1].endswith(' in order: json.loads(request)["customer"]["id"])')


def test_an_exception_has_the_last_line_of_the_application(cloud: Cloud) -> None:
    queue = cloud.queue()
    queue.destinations.call(URL, lambda request: json.loads("{no json"))
    deliver(queue, URL, retries=0)
    (row,) = rows(cloud)
    assert "JSONDecodeError" in row.note
    assert "(test_rows.py:" in row.note  # not json/decoder.py, where the exception was raised


def test_an_attempt_that_worked_tells_nothing_more(cloud: Cloud) -> None:
    queue = cloud.queue()
    queue.destinations.respond(URL, (200, "fine"))
    deliver(queue, URL, json={"n": 1})
    assert rows(cloud)[0].remarks == ()
    assert "answer" not in cloud.journal.events("attempt")[0].data


def test_no_secret_is_told(cloud: Cloud) -> None:
    queue = cloud.queue()
    secret = queue.token
    queue.destinations.respond(URL, (500, {"echo": "x" * 390 + secret}))
    deliver(
        queue, URL, body="y" * 395 + secret, retries=0, headers={"Authorization": "Bearer mine"}
    )
    text = section(cloud, width=140) + str(rows(cloud))
    assert secret[:12] not in text
    assert secret[-12:] not in text
    assert "Bearer mine" not in text


# -- signatures ------------------------------------------------------------------------------------


def refused(
    cloud: Cloud, url: str = URL, queue: Queue | None = None, **published: Any
) -> tuple[str, ...]:
    """Return the remarks in the row of a signed delivery that is answered 401."""
    queue = queue or cloud.queue()
    queue.destinations.respond(url, 401)
    deliver(queue, url, retries=0, **(published or {"json": {"n": 1}}))
    return next(row.remarks for row in rows(cloud) if "attempt" in row.what)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("unsigned", "the delivery was sent without a signature"),
        ("tamper", "differs: the token was issued for another body"),
        ("wrong_key", "differs: the token was signed with neither the current key nor the next"),
        ("expired_token", "differs: the token has expired"),
    ],
)
def test_what_a_fault_made_of_it_is_told(cloud: Cloud, fault: str, said: str) -> None:
    queue = cloud.queue()
    getattr(queue.faults, fault)()
    assert any(line.startswith(said) for line in refused(cloud, queue=queue))


def signed_lines(remarks: tuple[str, ...]) -> list[str]:
    return [line for line in remarks if line.startswith(("signed", "sent body"))]


SIGNED = body_hash(b'{"n": 1}')


def test_the_signed_body_is_that_of_the_token(cloud: Cloud) -> None:
    queue = cloud.queue()
    signed = [f"signed for {URL}", f"signed body: 8 bytes, hash {SIGNED[:12]}…"]
    assert signed_lines(refused(cloud, queue=queue)) == signed
    queue.faults.tamper()
    sent = body_hash(b'{"n": 1}tampered')
    deliver(queue, URL, json={"n": 1}, retries=0)
    assert signed_lines(rows(cloud)[-1].remarks) == [
        f"signed for {URL}",
        f"signed body: hash {SIGNED[:12]}…",
        f"sent body: 16 bytes, hash {sent[:12]}…",
    ]


@pytest.mark.parametrize(
    ("token", "url", "signed_hash"),
    [
        ("no token", "", ""),
        (jwt.encode({"sub": "1", "body": 1}, OTHER_KEY), "1", ""),
        (jwt.encode({"sub": "http://b.test", "body": SIGNED}, OTHER_KEY), "http://b.test", SIGNED),
    ],
)
def test_the_contents_of_another_token_are_those_of_the_token(
    token: str, url: str, signed_hash: str
) -> None:
    sent = Delivery("msg_1", URL, "POST", [("Upstash-Signature", token)], b"{}", 0, 1)
    keys = SigningKeys(OTHER_KEY, "sig_next", lambda: "")
    details = signature_details(sent, [], keys, 0)
    assert (details["url"], details["signed_hash"]) == (url, signed_hash)
    assert details["hash"] == body_hash(b"{}")


def test_keys_in_the_environment_are_compared(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = cloud.queue()
    name = "QSTASH_CURRENT_SIGNING_KEY"
    monkeypatch.setenv(name, queue.current_signing_key)
    assert "the URL must be the signed one" in refused(cloud, queue=queue)[-1]
    monkeypatch.setenv(name, queue.next_signing_key)
    deliver(queue, URL, retries=0)
    assert f"{name} of this process is the queue's next key" in rows(cloud)[-1].remarks
    monkeypatch.setenv(name, "sig_another_one_of_somebody")
    deliver(queue, URL, retries=0)
    assert f"{name} of this process is not a key of this queue" in rows(cloud)[-1].remarks


def test_an_address_that_a_framework_writes_otherwise_is_told(cloud: Cloud) -> None:
    below = refused(cloud, "https://app.example.com")
    called = "the application was called at https://app.example.com/, which is not the signed URL"
    assert called in below


def test_json_that_is_written_again_is_told(cloud: Cloud) -> None:
    said = "json.dumps() of the parsed body has another hash: verify the raw body"
    assert said in refused(cloud, body='{"n":1}')


def test_a_signed_body_of_several_lines_is_shown_whole(cloud: Cloud) -> None:
    body = "line\n" * 100
    assert refused(cloud, body=body)[0] == f"sent {body}"


def test_what_is_told_agrees_with_the_official_receiver(cloud: Cloud) -> None:
    queue = cloud.queue()
    verifying(cloud, queue=queue)
    queue.faults.tamper()
    differing = verifying(cloud, queue=queue)
    good, _ = rows(cloud)
    assert (good.answer, good.remarks) == ("200", ())
    assert any(
        line.startswith("differs: the token was issued for another body") for line in differing
    )


def verifying(cloud: Cloud, **changed: Any) -> tuple[str, ...]:
    """Return the remarks in the row of a delivery whose handler passes other values to the official
    receiver.
    """
    queue = changed.pop("queue", None) or cloud.queue()
    keys = changed.pop("keys", (queue.current_signing_key, queue.next_signing_key))
    sent = changed.pop("sent", {"n": 1})
    receiver = Receiver(*keys)

    def verify(request: Any) -> int:
        arguments = {"body": request.text, "url": URL, **changed}
        try:
            receiver.verify(signature=request.headers.get("Upstash-Signature"), **arguments)
        except Exception:
            return 401
        return 200

    queue.destinations.call(URL, verify)
    deliver(queue, URL, json=sent, retries=0)
    return rows(cloud)[-1].remarks


@pytest.mark.parametrize("body", ['{"n": "é"}', '{"n":"\\u00e9"}'], ids=["escapes", "whitespace"])
def test_json_that_was_serialized_otherwise_is_told_as_such(cloud: Cloud, body: str) -> None:
    verifying(cloud, sent={"n": "é"}, body=body)
    (finding,) = found(cloud)
    assert [reason["reason"] for reason in finding.values["reasons"]] == ["json"]
    said = sentence(finding, lookups_of(cloud, [], []))
    assert "the same JSON, serialized otherwise (whitespace, escapes)" in said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"url": "http://app:8000/x"},
            {"reason": "url", "got": "http://app:8000/x", "signed": URL},
        ),
        ({"body": '{"n":1}'}, {"reason": "json", "size": 7}),
        ({"body": '{"n": 2}'}, {"reason": "body", "size": 8}),
        ({"keys": ("sig_one", "sig_two")}, {"reason": "key"}),
    ],
)
def test_what_the_receiver_was_given_is_a_finding(
    cloud: Cloud, changed: dict[str, Any], said: dict[str, Any]
) -> None:
    before = Receiver.verify
    remarks = verifying(cloud, **changed)
    (finding,) = found(cloud)
    assert finding.kind == "wrong_signature"
    assert finding.values["reasons"] == [said]
    assert not [line for line in remarks if "was not seen" in line or "json.dumps" in line]
    assert Receiver.verify is before


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"missing": True}, {"reason": "unsigned"}),
        ({"invalid": "it has expired"}, {"reason": "invalid", "got": "it has expired"}),
        ({"environment": "other"}, {"reason": "environment"}),
    ],
)
def test_the_cause_of_a_wrong_signature_is_a_finding(
    cloud: Cloud, changed: dict[str, Any], said: dict[str, Any]
) -> None:
    queue = cloud.queue()
    queue.destinations.call(URL, lambda request: 401)
    deliver(queue, URL, json={"n": 1}, retries=1)
    for event in cloud.journal.events("attempt"):
        event.data["signature"] |= changed
    (finding,) = found(cloud)
    assert (finding.kind, finding.values["reasons"]) == ("wrong_signature", [said])


def check_with_receiver(token: str, body: str) -> None:
    Receiver("sig_one", "sig_two").verify(signature=token, body=body)


def check_with_pyjwt(token: str, body: str) -> None:
    try:
        jwt.decode(token, OTHER_KEY, ["HS256"])
    except jwt.InvalidTokenError as error:
        raise PermissionError from error


def check_and_log(token: str, body: str) -> int:
    try:
        check_with_receiver(token, body)
    except Exception:
        logging.getLogger("shop").exception("the request failed")
    return 500


def deliver_to_check(cloud: Cloud, check: Callable[[str, str], object]) -> None:
    queue = cloud.queue()
    queue.destinations.call(
        URL, lambda request: check(request.headers["Upstash-Signature"], request.text)
    )
    deliver(queue, URL, json={"n": 1}, retries=0)


CHECKS = [check_with_receiver, check_with_pyjwt, check_and_log]


@pytest.mark.parametrize("check", CHECKS)
def test_an_error_of_a_signature_check_is_explained(
    cloud: Cloud, check: Callable[[str, str], object]
) -> None:
    deliver_to_check(cloud, check)
    (finding,) = found(cloud)
    assert (finding.kind, finding.values["status"]) == ("wrong_signature", 500)
    assert finding.values["reasons"] == [{"reason": "key"}]


def check_another_token(token: str, body: str) -> None:
    jwt.decode(jwt.encode({"user": 1}, OTHER_KEY), f"not {OTHER_KEY}", ["HS256"])


def fail_after_the_check(token: str, body: str) -> int:
    check_and_log(token, body)
    logging.getLogger("shop").error("it failed", exc_info=KeyError())
    return 500


def ignore_the_check(token: str, body: str) -> int:
    check_and_log(token, body)
    return 200


OTHER_CHECKS = [check_another_token, fail_after_the_check, ignore_the_check]


@pytest.mark.parametrize("check", OTHER_CHECKS)
def test_another_error_than_that_of_the_check_is_not_explained(
    cloud: Cloud, check: Callable[[str, str], object]
) -> None:
    deliver_to_check(cloud, check)
    assert kinds(cloud) == []


def test_the_check_of_another_token_explains_no_rejection(cloud: Cloud) -> None:
    queue = cloud.queue()

    def verify(request: Any) -> int:
        with suppress(jwt.InvalidTokenError):
            check_another_token("", "")
        return 401

    queue.destinations.call(URL, verify)
    deliver(queue, URL, json={"n": 1}, retries=0)
    assert kinds(cloud) == []


def test_a_wrong_key_hides_no_other_wrong_argument(cloud: Cloud) -> None:
    verifying(cloud, keys=("sig_one", "sig_two"), url="http://app:8000/x")
    (finding,) = found(cloud)
    assert finding.values["reasons"] == [
        {"reason": "url", "got": "http://app:8000/x", "signed": URL},
        {"reason": "key"},
    ]
    said = sentence(finding, lookups_of(cloud, [], []))
    assert "verify() got another URL: http://app:8000/x" in said
    assert "the application's check was not made with the queue's current signing key" in said


def test_a_stubbed_destination_checks_no_signature(cloud: Cloud) -> None:
    refused(cloud)
    assert kinds(cloud) == []


@pytest.mark.parametrize(
    ("keys", "options", "kind", "said"),
    [
        ((OTHER_KEY,), {}, "wrong_signature", {"reasons": [{"reason": "key"}]}),
        (("current", OTHER_KEY), {"issuer": "x"}, "wrong_signature",
         {"reasons": [{"reason": "claim", "got": "iss"}]}),
    ],
)  # fmt: skip
def test_a_check_of_the_applications_own_is_explained(
    cloud: Cloud, keys: tuple[str, ...], options: Any, kind: str, said: dict[str, Any]
) -> None:
    queue = cloud.queue()

    def verify(request: Any) -> int:
        for key in keys:
            key = queue.current_signing_key if key == "current" else key
            with suppress(jwt.InvalidTokenError):
                token = request.headers.get("Upstash-Signature")
                jwt.decode(token, key, ["HS256"], **options)
        return 401

    queue.destinations.call(URL, verify)
    deliver(queue, URL, json={"n": 1}, retries=0)
    (finding,) = found(cloud)
    assert (finding.kind, said.items() <= finding.values.items()) == (kind, True)
    assert "msg_" in sentence(finding, lookups_of(cloud, [], []))


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [(0, 1, "next_key"), (1, 1, "next_key"), (0, 2, "former_key"), (1, 2, "former_key")],
)
def test_a_key_from_before_a_rotation_is_recognised(
    cloud: Cloud, before: int, after: int, reason: str
) -> None:
    queue = cloud.queue()
    for _ in range(before):
        queue.rotate_keys()
    keys = queue.current_signing_key, queue.current_signing_key
    for _ in range(after):
        queue.rotate_keys()
    verifying(cloud, queue=queue, keys=keys)
    (finding,) = found(cloud)
    assert [cause["reason"] for cause in finding.values["reasons"]] == [reason]


def test_a_receiver_that_was_replaced_meanwhile_stays_so(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Receiver, "verify", Receiver.verify)  # restored after the test
    queue = cloud.queue()

    def accept(self: object, **kwargs: Any) -> None:
        return None

    def replace_it(request: Any) -> int:
        Receiver.verify = accept  # type: ignore[method-assign]
        return 200

    queue.destinations.call(URL, replace_it)
    deliver(queue, URL)
    assert Receiver.verify is accept


def test_a_key_that_is_missing_is_told_with_what_was_there(cloud: Cloud) -> None:
    queue = cloud.queue()

    def ship(request: Any) -> None:
        order, unused = request.json(), {"not": "told"}
        order["id"], unused["x"] = order["number"], 1

    queue.destinations.call(URL, ship)
    deliver(queue, URL, json={"n": 1}, retries=0)
    note = rows(cloud)[0].note
    assert 'order is {"n": 1}' in note
    queue.destinations.call(URL, lambda request: {object(): 1}["x"])
    deliver(queue, URL, retries=0)
    assert " is {" not in rows(cloud)[-1].note


# -- order -----------------------------------------------------------------------------------------


def test_in_the_background_nothing_is_said_to_be_caused(cloud: Cloud) -> None:
    with Cloud(delivery="background") as background:
        queue, kv = background.queue(), background.kv_server()
        redis = kv.client()
        queue.destinations.call(URL, lambda request: redis.set("seen", 1) and None)
        ended = threading.Event()
        background.journal._recorder.shared.listeners.add(
            lambda entry: entry.service == "queue" and ended.set()
        )
        queue.publish(URL)
        assert ended.wait(10)
        assert {row.depth for row in rows(background)} == {0}


def test_ids_are_as_short_as_they_may_be(cloud: Cloud) -> None:
    queue = cloud.queue()
    queue.destinations.accept("https://app.example.com")
    for _ in range(300):
        queue.publish(URL)
    queue.run_until_idle()
    shown = {row.what.split()[3] for row in rows(cloud)}
    assert len(shown) == 300
    assert max(map(len, shown)) <= 12


def test_ids_of_what_was_deleted_are_as_short_as_others(cloud: Cloud) -> None:
    client, kv = cloud.queue().client(), cloud.kv_server().client(allow_telemetry=False)
    schedule = client.schedule.create(destination=URL, cron="0 9 * * *")
    message = client.message.publish(url=URL, delay="1h")
    kv.mset({"schedule": schedule, "message": message.message_id})
    client.schedule.delete(schedule)
    client.message.cancel(message.message_id)
    shown = " ".join(f"{row.what} {row.answer}" for row in rows(cloud))
    assert schedule not in shown
    assert message.message_id not in shown
    assert shown.count(schedule[:8]) == shown.count(message.message_id[:8]) == 3


def test_a_name_that_the_application_chose_is_whole(cloud: Cloud) -> None:
    client = cloud.queue().client()
    for name in ("report-of-ada", "report-of-bob"):
        client.schedule.create(destination=URL, cron="0 9 * * *", schedule_id=name)
    client.schedule.pause("report-of-ada")
    created, _, paused = rows(cloud)
    assert created.answer == "schedule report-of-ada"
    assert "report-of-ada" in paused.what
    assert "schedule report-of-bob of" in " ".join(section(cloud).split())


def test_a_refused_delivery_names_its_error_once(cloud: Cloud) -> None:
    queue = cloud.queue()
    queue.destinations.refuse(URL)
    deliver(queue, URL, retries=0)
    (row,) = rows(cloud)
    assert (row.answer, row.note) == (
        "ConnectionRefusedError: https://app.example.com refuses connections",
        "",
    )


def test_a_fault_with_a_setting_of_its_own(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"mails": 1})
    broker.faults.partial_produce(keep=1)
    with broker.client() as client:
        client.post("/produce/mails", json=[{"value": "a"}, {"value": "b"}])
    (row,) = rows(cloud)
    assert (row.kind, row.answer[:3]) == ("call", "503")
    assert [fault.description for fault in row.faults] == ["partial_produce keep=1"]


# -- durations ---------------------------------------------------------------------------------------


def test_rows_have_durations_on_the_clock_of_the_cloud(cloud: Cloud) -> None:
    kv, queue = cloud.kv_server(), cloud.queue()
    kv.faults.call(lambda: cloud.clock.advance("3s"), times=1)
    kv.client().get("slow")
    kv.client().get("fast")
    queue.destinations.respond(URL, 200, after="2s")
    deliver(queue, URL)
    lookups = lookups_of(cloud, cloud.journal.entries, [])
    found_rows = report_rows(cloud, lookups=lookups)
    assert [row.took_us for row in found_rows if row.operation == "GET"] == [3_000_000, 0]
    (attempt,) = (row for row in found_rows if row.kind == "delivery")
    assert attempt.took_us == 2_000_000
    assert row_json(attempt, (), lookups)["took_us"] == 2_000_000


def test_the_row_of_a_call_has_the_accesses_of_the_events_that_it_caused(cloud: Cloud) -> None:
    broker = cloud.broker(topics={"t": 1})
    broker.produce("t", "1")
    client = broker.client()
    client.get("/consume/g/i/t?timeout=0")
    client.post("/commit/g/i", json={"topic": "t", "partition": 0, "offset": 1})
    journal = report_rows(cloud, lookups=Lookups())
    by_number = {row.number: row for row in journal}
    events = [row for row in journal if row.first_cause]
    assert len(events) > 1
    for event in events:
        assert {access.order for access in event.accesses} == {event.number}
        assert set(event.accesses) <= set(by_number[event.first_cause].accesses)
        assert set(event.subjects) <= set(by_number[event.first_cause].subjects)
    [commit] = [row for row in journal if row.operation == "commit" and row.kind == "call"]
    assert [access.part for access in commit.accesses if access.writes] == ["t-0"]


def test_a_row_is_in_no_row_that_has_ended() -> None:
    """Also if another row, which began later, has not."""
    fields: dict[str, Any] = {"at_us": 0, "actor": "client", "operation": ""}
    overlapping = [
        ReportRow(1, kind="call", peer="kv_server", began=1, ended=4, **fields),
        ReportRow(9, kind="delivery", peer="app", began=2, ended=9, **fields),
        ReportRow(6, kind="call", peer="kv_server", began=6, **fields),
    ]
    placed = nested(overlapping, lambda delivery, row: False)
    assert {row.number: row.parent for row in placed} == {1: 0, 9: 1, 6: 0}
