"""Credentials are masked in every encoding."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from urllib.parse import quote

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.recordings import archive
from pytest_fakecloud.reporting.as_json import as_json
from pytest_fakecloud.reporting.masking import HIDDEN, Mask
from pytest_fakecloud.reporting.page import page
from pytest_fakecloud.reporting.report import report_of
from pytest_fakecloud.reporting.text import section
from pytest_fakecloud.reporting.text import text as as_text

from .shown import deliver

TOKENS = ["a-plain-token-of-24-chars", "pa?s/word~with+odd>ones", "eightchr", "schlüssel-ungleich"]


def decodings(text: str) -> Iterator[str]:
    """Yield every string that decoding some part of a masked string can produce."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    piece = ""
    for character in text.replace("-", "+").replace("_", "/") + "\n":
        if character in alphabet:
            piece += character
            continue
        for start in range(4):
            some = piece[start:]
            yield base64.b64decode(some + "A" * (-len(some) % 4)).decode("utf-8", "replace")
        piece = ""


@pytest.mark.parametrize("token", TOKENS[:3])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("after", ["", "!", "??", "and more behind"])
def test_a_token_inside_a_base64_value_is_hidden_wherever_it_stands(
    cloud: Cloud, token: str, encode: Callable[[bytes], bytes], after: str
) -> None:
    cloud.kv_server(token=token)
    mask = Mask(cloud)
    for before in range(7):
        value = encode(b"u" * before + token.encode() + after.encode()).decode()
        masked = mask.text(f"header {value} and more")
        assert HIDDEN in masked, (before, after)
        assert masked.startswith("header ")
        # Nothing of the token can be decoded from the characters that remain at either end.
        assert not any(token[1:-1] in each or token[:5] in each for each in decodings(masked))
    assert mask.text(encode(b"nothing of the kind at all").decode()) == (
        encode(b"nothing of the kind at all").decode()
    )


@pytest.mark.parametrize("token", [*TOKENS, '"in quotes"', "\\back\\slashes\\", "sch/ü?&=l +x"])
def test_each_spelling_of_a_token_is_hidden_to_its_last_character(cloud: Cloud, token: str) -> None:
    cloud.kv_server(token=token)
    mask = Mask(cloud)
    raw = token.encode()
    spellings = [
        token,
        quote(token, safe=""),
        json.dumps(token)[1:-1],
        raw.decode("latin-1"),
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
    ]
    assert [mask.text(f"<{each}>") for each in spellings] == [f"<{HIDDEN}>"] * len(spellings)
    for before in range(3):
        value = base64.b64encode(b"u" * before + raw + b"and more").decode()
        # Only characters that also encode part of a neighbouring byte remain.
        own = (before + len(raw)) * 8 // 6 - -(-before * 8 // 6)
        assert len(mask.text(value)) == len(value) - own + len(HIDDEN)


def test_the_password_of_the_database_port_is_hidden(cloud: Cloud) -> None:
    store = cloud.kv_server(database_password="pa?s word of the port")
    url = store.database_url
    store.client().set("settings", f"REDIS_URL={url} pa?s word of the port")
    shown = section(cloud)
    assert "SET settings" in shown
    assert "pa%3Fs" in url
    assert not [word for word in ("pa?s word", "pa%3Fs") if word in shown]


def test_no_report_shows_a_token_in_a_base64_body_or_a_binary_one(cloud: Cloud) -> None:
    kv = cloud.kv_server(token="a-plain-token-of-24-chars")
    bodies = [base64.b64encode(b"u" * n + kv.token.encode() + b"!!") for n in range(3)]
    for body in bodies:
        httpx.post(kv.url, json=["SET", "basic", body.decode()], headers=kv.headers)
        httpx.post(f"{kv.url}/set/basic", content=body, headers=kv.headers)
        httpx.get(f"{kv.url}/get/{body.decode()}", headers={**kv.headers, "X-Forwarded": body})
    httpx.post(f"{kv.url}/set/raw", content=b"\xff\x00" + kv.token.encode(), headers=kv.headers)
    httpx.get(f"{kv.url}/get/raw", headers=kv.headers)
    for text in (
        section(cloud),
        page(cloud, report_of(cloud, test="test")),
        json.dumps(archive(cloud)),
    ):
        assert kv.token not in text
        assert not any(body.decode()[4:-8] in text for body in bodies)
        assert not any(kv.token in each for each in decodings(text))


def test_a_token_that_a_long_body_is_cut_in_is_hidden_whole(cloud: Cloud) -> None:
    kv = cloud.kv_server(token="a-plain-token-of-24-chars")
    for before in range(19_976, 20_000, 4):
        body = b"\xff" + b"y" * (before - 1) + kv.token.encode() + b"z" * 5000
        httpx.post(kv.url, content=body, headers=kv.headers)
    text = page(cloud, report_of(cloud, test="test"))
    assert '"cut":' in text
    assert "a-pl" not in text


URL = "https://ada:pa%2Fss@app.example/hook?a=1&access_token=tok%26en&b=2"
SECRETS = ("ada:", "pa%2Fss", "pa%252Fss", "tok%26en", "tok%2526en")


def test_no_report_shows_the_credentials_of_a_destination(cloud: Cloud) -> None:
    queue = cloud.queue()
    queue.destinations.answers(URL.partition("?")[0], 500)
    queue.faults.tamper(times=1, url=URL)
    api, headers = f"{queue.url}/v2", queue.headers
    options = {**headers, "Upstash-Retries": "1", "Upstash-Callback": URL}
    for path in (URL, quote(URL, safe="")):
        httpx.post(f"{api}/publish/{path}", headers=options, content=URL)
    batch = [{"destination": URL, "headers": {"Upstash-Failure-Callback": URL}}]
    httpx.post(f"{api}/batch", headers=headers, json=batch).raise_for_status()
    endpoints = {"endpoints": [{"url": URL}]}
    httpx.post(f"{api}/topics/all/endpoints", headers=headers, json=endpoints).raise_for_status()
    httpx.post(f"{api}/publish/all", headers=headers).raise_for_status()
    httpx.get(f"{api}/topics/all", headers=headers).raise_for_status()
    queue.run_until_idle()
    deliver(queue, "https://refused.example", callback=URL)
    queue.publish(URL, delay="1h")
    report = report_of(cloud, test="test")
    data = json.dumps(as_json(report), ensure_ascii=False)
    shown = as_text(report, width=500), page(cloud, report), data, json.dumps(archive(cloud))
    for text in shown:
        assert "app.example/hook" in text
        assert f"{HIDDEN}@app.example" in text
        for secret in SECRETS:
            assert secret not in text, text[max(0, text.index(secret) - 300) :][:400]
