"""Test signatures with the official receivers, and the explanation of an invalid one."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
import pytest
from qstash import Receiver
from qstash.errors import SignatureError

from pytest_fakecloud.cloud.fake import Context
from pytest_fakecloud.core.ids import Ids
from pytest_fakecloud.queue.fake import Queue
from pytest_fakecloud.queue.model import SigningKeys
from pytest_fakecloud.queue.signatures import LIFETIME, Signer, body_hash, explain
from pytest_fakecloud.queue.wire.values import as_text

from ..engine.bench import Bench

URL = "https://app.example.com/hook?x=1"
KEYS = SigningKeys("sig_" + "c" * 28, "sig_" + "n" * 28, lambda: "new")
NOW = 1_700_000_000


def signer(now: float = NOW) -> Signer:
    return Signer(KEYS, lambda: now, Ids(1).stream("queue", "token ids"))


def signed(body: bytes = b'{"a":1}', url: str = URL, now: float = NOW, **options: Any) -> str:
    return signer(now).sign(url, body, **options)


def claims_of(token: str) -> dict[str, Any]:
    claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return claims


def token_with(changes: dict[str, object]) -> str:
    claims = claims_of(signed()) | changes
    # Sign by hand: PyJWT refuses to encode claims of a wrong type.
    return jwt.PyJWS().encode(json.dumps(claims).encode(), KEYS.current, algorithm="HS256")


def why(token: str | None, **changes: Any) -> str:
    asked: dict[str, Any] = {"body": b'{"a":1}', "keys": KEYS, "at": NOW + 1, "url": URL}
    reason = explain(token, **{**asked, **changes})
    assert reason is not None
    return reason


def test_the_claims_are_those_of_the_service() -> None:
    claims = claims_of(signed())
    assert claims.pop("jti").startswith("jwt_")
    assert claims == {
        "iss": "Upstash",
        "sub": URL,
        "iat": NOW,
        "exp": NOW + LIFETIME,
        "nbf": 0,
        "body": body_hash(b'{"a":1}'),
    }


def test_the_head_names_the_algorithm_and_the_type() -> None:
    token = signed()
    assert jwt.get_unverified_header(token) == {"alg": "HS256", "typ": "JWT"}


def test_an_empty_body_is_hashed_too() -> None:
    assert body_hash(b"") == "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU="


def test_every_token_has_its_own_id_and_the_ids_repeat_with_the_seed() -> None:
    def three() -> list[str]:
        shared_signer = signer()
        return [claims_of(shared_signer.sign(URL, b""))["jti"] for _ in range(3)]

    ids = three()
    assert len(set(ids)) == 3
    assert ids == three()


def test_the_official_receiver_accepts_it() -> None:
    token = signed(now=time.time())
    Receiver(KEYS.current, KEYS.next).verify(signature=token, body='{"a":1}', url=URL)


def test_the_official_receiver_accepts_a_token_of_the_key_after_rotation() -> None:
    token = signed(now=time.time())
    Receiver("sig_" + "o" * 28, KEYS.current).verify(signature=token, body='{"a":1}', url=URL)


def test_the_official_receiver_hides_the_reason_and_explain_gives_it() -> None:
    token = signed(now=time.time(), age=600)
    with pytest.raises(SignatureError, match="Signature verification failed"):
        Receiver(KEYS.current, KEYS.next).verify(signature=token, body='{"a":1}', url=URL)
    assert "the token has expired 30" in why(token, at=time.time())


def test_the_subject_is_the_text_that_was_published() -> None:
    raw = "https://app.example.com/ä?q=%2f".encode().decode("latin-1")
    bench = Bench()
    bench.engine.deliveries.intercept(signer())
    bench.publish(raw)
    bench.clock.advance(1)
    token = dict(bench.sent[0].headers)["Upstash-Signature"]
    assert claims_of(token)["sub"] == "https://app.example.com/ä?q=%2f"


def test_bytes_that_are_no_text_stay_as_they_are() -> None:
    assert as_text("https://h/\xff") == "https://h/\xff"
    assert as_text("https://h/\u2603") == "https://h/\u2603"


def test_a_good_token_has_no_reason() -> None:
    assert explain(signed(), body=b'{"a":1}', keys=KEYS, at=NOW, url=URL) is None


def test_either_key_is_good() -> None:
    token = signed(key=KEYS.next)
    assert explain(token, body=b'{"a":1}', keys=KEYS, at=NOW) is None


def test_a_token_without_padding_in_the_hash_is_good() -> None:
    claims = claims_of(signed())
    claims["body"] = claims["body"].rstrip("=")
    token = jwt.encode(claims, KEYS.current)
    assert explain(token, body=b'{"a":1}', keys=KEYS, at=NOW) is None


@pytest.mark.parametrize("missing", [None, ""])
def test_no_signature(missing: str | None) -> None:
    assert "has no Upstash-Signature header" in why(missing)


@pytest.mark.parametrize("text", ["x", "a.b.c", "ä", "." * 3, "\ud800.b.c"])
def test_text_that_is_no_token(text: str) -> None:
    assert "not a JSON web token" in why(text)


def test_another_algorithm() -> None:
    token = jwt.encode({"iss": "Upstash"}, "k" * 64, algorithm="HS512")
    assert why(token) == "the token is signed with 'HS512', expected 'HS256'"


def test_urls_that_differ_in_an_empty_part() -> None:
    token = signed(url="https://app.example.com/hook?")
    reason = why(token, url="https://app.example.com/hook")
    assert reason.endswith("compared https://app.example.com/hook: they differ in the empty parts")


def test_an_unsigned_token_is_refused() -> None:
    claims = claims_of(signed())
    token = jwt.encode(claims, None, algorithm="none")  # type: ignore[arg-type]
    assert why(token) == "the token is signed with 'none', expected 'HS256'"


def test_a_strange_key() -> None:
    token = signed(key="sig_" + "x" * 28)
    assert why(token) == (
        "the token was signed with neither the current key nor the next key"
        f" (it claims to be for {URL})"
    )
    assert why(token, keys={"only": "y" * 32}) == (
        f"the token was not signed with the only key (it claims to be for {URL})"
    )


def test_expired() -> None:
    token = signed()
    assert "expired 2 s ago" in why(token, at=NOW + LIFETIME + 2)
    assert "expired 2.0 h ago" in why(token, at=NOW + LIFETIME + 7200)


def test_signed_on_a_clock_ahead_of_the_receiver() -> None:
    token = signed(now=NOW + 86_400)
    reason = why(token, at=NOW)
    assert "iat is 24.0 h ahead" in reason
    assert "set signature_clock= to the clock" in reason


@pytest.mark.parametrize("name", ["iss", "sub", "exp", "nbf", "body"])
def test_a_missing_claim(name: str) -> None:
    claims = claims_of(signed())
    del claims[name]
    assert f"the token has no {name} claim" in why(jwt.encode(claims, KEYS.current))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"iss": "Someone"}, "issued by 'Someone', expected 'Upstash'"),
        ({"exp": "soon"}, "exp claim is 'soon', expected a number"),
        ({"iat": True}, "iat claim is True, expected a number"),
        ({"nbf": [0]}, "nbf claim is [0], expected a number"),
        ({"exp": float("nan")}, "exp claim is nan, expected a number"),
        ({"nbf": 10**400}, "nbf claim is 1000"),
        ({"nbf": NOW + 90}, "nbf is 89 s ahead"),
        ({"jti": 7}, "jti claim is 7, expected text"),
    ],
)
def test_a_wrong_claim(changes: dict[str, object], text: str) -> None:
    assert text in why(token_with(changes))


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://app.example.com/hook?x=1", "differ in the scheme (behind a proxy"),
        ("https://127.0.0.1:8000/hook?x=1", "differ in the host (behind a proxy"),
        ("https://app.example.com/hook", "differ in the query"),
        ("https://app.example.com/hook/?x=1", "differ in the path"),
        ("https://app.example.com/?x=2", "differ in the path and query"),
    ],
)
def test_another_url_is_named_with_the_part_that_differs(url: str, text: str) -> None:
    assert text in why(signed(), url=url)


@pytest.mark.parametrize(("signed", "url"), [("http://[", URL), (URL, "http://[")])
def test_another_url_that_cannot_be_parsed(signed: str, url: str) -> None:
    assert why(token_with({"sub": signed}), url=url) == (
        f"the token is for {signed}, the receiver compared {url}, and one of them is not a URL:"
        " Invalid IPv6 URL"
    )


def test_another_body() -> None:
    reason = why(signed(), body=b'{"a":2}')
    assert "another body than these 7 bytes" in reason
    assert "another layout" not in reason


@pytest.mark.parametrize("seen", [b'{"a": 1}', b'{\n  "a": 1\n}', b' {"a":1}\n'])
def test_a_body_that_was_parsed_and_written_again(seen: bytes) -> None:
    assert "verify the raw body before parsing" in why(signed(), body=seen)


@pytest.mark.parametrize("body", [b"{plain", b'"\\ud800"', b"[" * 100_000, b"NaN", b"\xff"])
def test_a_body_that_is_no_json_gets_no_guess(body: bytes) -> None:
    reason = why(signed(b"plain"), body=body)
    assert reason.startswith("the token was issued for another body")
    assert "verify the raw" not in reason


def test_all_reasons_are_given_at_once() -> None:
    token = signed(age=3_600)
    reason = why(token, body=b"x", url="https://h/")
    assert "expired" in reason
    assert "differ in" in reason
    assert "another body" in reason


def test_a_queue_explains_the_signatures_of_its_own_deliveries() -> None:
    with Queue(Context.alone(now="2026-01-01T00:00:00Z"), signature_clock="virtual") as queue:
        route = queue.destinations.accept(URL)
        queue.publish(URL, body="text")
        queue.run_until_idle()
        signature = route.deliveries.only().headers.get("Upstash-Signature")
        assert queue.explain_signature(signature, body="text", url=URL) is None
        assert queue.explain_signature(signature, body=b"text") is None
        assert "another body" in (queue.explain_signature(signature, body="other") or "")
        queue.clock.advance("1h")
        assert "the token has expired" in (queue.explain_signature(signature, body="text") or "")
        queue.rotate_keys()
        assert "neither the current key nor" in (queue.explain_signature(signature, body="") or "")
        assert "no Upstash-Signature" in (queue.explain_signature(None, body="") or "")
