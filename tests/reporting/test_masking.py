"""Credentials are masked in every encoding, and where a name or a command says that they are."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.calls import Call, set_facts, shorten
from pytest_fakecloud.core.secrets import HIDDEN
from pytest_fakecloud.recordings.archives import archive
from pytest_fakecloud.reporting.contract import functions_of
from pytest_fakecloud.reporting.mask import Mask
from pytest_fakecloud.reporting.render.as_json import as_json
from pytest_fakecloud.reporting.render.page import page
from pytest_fakecloud.reporting.render.text import section
from pytest_fakecloud.reporting.render.text import text as as_text
from pytest_fakecloud.reporting.report import report_of

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
        assert not any(
            token[1:-1] in decoding or token[:5] in decoding for decoding in decodings(masked)
        )
    assert mask.text(encode(b"nothing of the kind at all").decode()) == (
        encode(b"nothing of the kind at all").decode()
    )


@pytest.mark.parametrize("token", [*TOKENS, '"in quotes"', "\\back\\slashes\\", "sch/ü?&=l +x"])
def test_each_spelling_of_a_token_is_hidden_to_its_last_character(cloud: Cloud, token: str) -> None:
    cloud.kv_server(token=token)
    mask = Mask(cloud)
    raw = token.encode()
    spellings = [
        token, quote(token, safe=""), json.dumps(token)[1:-1], raw.decode("latin-1"),
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
    ]  # fmt: skip
    assert [mask.text(f"<{spelling}>") for spelling in spellings] == [f"<{HIDDEN}>"] * len(
        spellings
    )
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
        assert not any(kv.token in decoding for decoding in decodings(text))


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
    queue.destinations.respond(URL.partition("?")[0], 500)
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


# -- by names and commands -------------------------------------------------------------------------


def sent(cloud: Cloud, *commands: list[str]) -> Call:
    """Return the call of a client that sent these commands, as a pipeline if there are several."""
    kv = cloud.kv_server()
    path, body = ("/pipeline", list(commands)) if len(commands) > 1 else ("", commands[0])
    httpx.post(kv.url + path, json=body, headers=kv.headers)
    return kv.journal.calls().only()


def hides_body(call: Call) -> bool:
    return functions_of(call.service).calls.hides_body(call)


@pytest.mark.parametrize(
    ("words", "hidden"),
    [
        ("AUTH", False), ("AUTH guess", True), ("auth ada guess", True), ("HELLO 3", False),
        ("HELLO 3 AUTH ada guess", True), ("ACL WHOAMI", False), ("ACL SETUSER ada >guess", True),
        ("CONFIG GET requirepass", True), ("CONFIG HELP", False),
        ("MIGRATE host 6379 key 0 10 AUTH guess", True), ("SET guess 1", False),
        ("ECHO AUTH", False),
    ],
)  # fmt: skip
def test_commands_that_may_carry_a_password_hide_their_words(
    cloud: Cloud, words: str, hidden: bool
) -> None:
    call = sent(cloud, words.split())
    mask = Mask(cloud)
    assert hides_body(call) is hidden
    assert mask.body(call) == (HIDDEN.encode() if hidden else call.request_body)
    assert mask.target(call) == "/"
    assert json.loads(call.request_body) == words.split()


@pytest.mark.parametrize(("words", "hidden"), [(["AUTH", "guess"], True), (["AUTH"], False)])
def test_one_command_of_a_pipeline_is_enough(cloud: Cloud, words: list[str], hidden: bool) -> None:
    assert hides_body(sent(cloud, ["PING"], words)) is hidden


def test_a_call_whose_commands_nobody_read_may_be_one(cloud: Cloud) -> None:
    kv, vector = cloud.kv_server(), cloud.vector_index(dimension=2)
    for url, service, hidden in ((kv.url, kv, True), (f"{vector.url}/upsert", vector, False)):
        httpx.post(url, content=b'["AUTH", "guess"')
        call = service.journal.calls().only()
        shorten(call, read_facts=False)
        assert ("facts" in call.cut, hides_body(call)) == (True, hidden)


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("/auth/guess", "/auth/***"),
        ("/auth/ada/guess", "/auth/***"),
        ("/auth", "/auth"),
        ("/get/guess", "/get/guess"),
        ("/acl/setuser/ada/%3Eguess?x=1", "/acl/***"),
        ("/get/a?_token=guess&b=1", "/get/a?_token=***&b=1"),
        ("/get/a?b=1&QSTASH_TOKEN=guess", "/get/a?b=1&QSTASH_TOKEN=***"),
        ("/get/a?pass=x&password=y&token=z", "/get/a?pass=***&password=***&token=***"),
        ("/get/a?passenger=x&tokens=2", "/get/a?passenger=x&tokens=2"),
        ("/get/a?token=a=b&c", "/get/a?token=***&c"),
        ("/get/a?", "/get/a?"),
    ],
)
def test_a_target_hides_what_its_names_say_is_secret(cloud: Cloud, target: str, shown: str) -> None:
    kv = cloud.kv_server()
    httpx.get(kv.url + target, headers=kv.headers)
    call = kv.journal.calls().only()
    assert call.target == target
    assert Mask(cloud).target(call) == shown


def test_a_header_is_secret_by_its_name() -> None:
    mask = Mask(secrets=["a-plain-token"])
    assert mask.header("X-Note", "it is a-plain-token.") == f"it is {HIDDEN}."
    for name in ("Authorization", "upstash-forward-authorization", "Cookie", "Set-Cookie", "X-Token",
                 "Upstash-Signature", "X-Password", "Client-Secret", "X-Api-Key", "apikey"):  # fmt: skip
        assert mask.header(name, "guess") == HIDDEN, name
    for name in ("Upstash-Sync-Token", "Content-Type"):
        assert mask.header(name, "guess") == "guess", name


def test_bytes_that_are_no_text_come_through_whole() -> None:
    every, mask = bytes(range(256)), Mask(secrets=["a-plain-token"])
    assert mask.data(every) == every
    assert mask.data(every + b"a-plain-token" + every) == every + b"***" + every


@pytest.mark.parametrize(
    ("lines", "length", "hidden"),
    [(15, 300, False), (16, 300, True), (40, 300, True), (3, 1, False)],
)
def test_a_pipeline_that_was_cut_may_have_lost_one(
    cloud: Cloud, lines: int, length: int, hidden: bool
) -> None:
    call = sent(cloud, *[["SET", "key", "x" * length]] * lines)
    shorten(call)
    assert ("words" in call.cut) is (length > 1)
    assert hides_body(call) is hidden


def test_a_masked_call_holds_no_secret_and_all_the_rest(cloud: Cloud) -> None:
    kv = cloud.kv_server(token="a-plain-token-of-24-chars")
    secret = kv.token
    words = ["SET", "k", f"über {secret}"]
    httpx.post(kv.url, json=words, headers={**kv.headers, "X-Plain": f"a {secret} b"})
    httpx.get(f"{kv.url}/echo/a%20{secret}%20b", headers=kv.headers)
    call, read = kv.journal.calls()
    mask = Mask(cloud)
    masked = mask.call(call)
    assert masked.target == call.target == "/"
    assert masked.request_body == call.request_body.replace(secret.encode(), HIDDEN.encode())
    assert masked.facts["words"] == [["SET", "k", f"über {HIDDEN}"]]
    assert masked.facts.keys() == call.facts.keys()
    headers = {name.lower(): value for name, value in masked.request_headers.items()}
    assert (headers["authorization"], headers["x-plain"]) == (HIDDEN, f"a {HIDDEN} b")
    assert len(masked.request_headers) == len(call.request_headers)
    assert (masked.number, masked.status) == (call.number, call.status)
    again = mask.call(read)
    assert again.target == f"/echo/a%20{HIDDEN}%20b"
    assert secret.encode() in read.response_body
    assert again.response_body == read.response_body.replace(secret.encode(), HIDDEN.encode())
    # The call in the journal is unchanged.
    assert secret in str(call.facts)
    assert secret in read.target


def test_facts_are_masked_however_deep_they_are(cloud: Cloud) -> None:
    token = "a-plain-token-of-24-chars"
    kv = cloud.kv_server(token=token)
    httpx.post(kv.url, json=["PING"], headers=kv.headers)
    call = kv.journal.calls().only()
    set_facts(call, {"words": [["PING"]], "deep": [{"in": [token, 1, None]}], "bytes": b"x"})
    masked = Mask(cloud).call(call).facts
    assert masked == {"words": [["PING"]], "deep": [{"in": [HIDDEN, 1, None]}], "bytes": b"x"}


@pytest.mark.parametrize("text", ["a eightchr-and-more b", "a eightchr b", "a seven77 eightchr b"])
def test_secrets_are_hidden_whole_unless_they_are_short(text: str) -> None:
    mask = Mask(secrets=["eightchr", "eightchr-and-more", "seven77"])
    seven = "seven77 " if "seven77" in text else ""
    assert mask.text(text) == f"a {seven}{HIDDEN} b"


@pytest.mark.parametrize("token", ["team/abc+def==ghi", "a b/c?d&e=f%g", "schlüssel/zwei"])
def test_a_token_is_hidden_however_a_url_writes_it(token: str) -> None:
    mask = Mask(secrets=[token])
    whole = quote(token, safe="")
    for text in (
        token, whole, quote(token), quote_plus(token), whole.lower(), quote(token, safe="/+="),
        json.dumps(token)[1:-1], token.replace("/", "\\/"),
    ):  # fmt: skip
        assert mask.text(f"https://x.test/{text}/end") == f"https://x.test/{HIDDEN}/end", text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://ada:guess@x.test/a", "https://***@x.test/a"),
        ("to redis://:gu@ess@x.test:1,", "to redis://***@x.test:1,"),
        ("https://guess@x.test", "https://***@x.test"),
        ("https://ada:gu%2Fess@x.test", "https://***@x.test"),
        (r'"https:\/\/ada:guess@x.test\/a"', r'"https:\/\/***@x.test\/a"'),
        ("https%3A%2F%2Fada%3Aguess%40x.test%2Fa", "https%3A%2F%2F***%40x.test%2Fa"),
        ("https%3a%2f%2fx.test%2fa%40b", "https%3a%2f%2fx.test%2fa%40b"),
        ("https://x.test/@ada", "https://x.test/@ada"),
        ("https://x.test?to=ada@x.test", "https://x.test?to=ada@x.test"),
        ("see https://x.test or ada@x.test", "see https://x.test or ada@x.test"),
        ("?access_token=guess", "?access_token=***"),
        ("(see /a?token=guess): no", "(see /a?token=***): no"),
        ("?a=1&API-Key=gu%26ess&b=2#c", "?a=1&API-Key=***&b=2#c"),
        ("?client_secret=guess;x=1", "?client_secret=***"),
        ("?X-Amz-Signature=guess x", "?X-Amz-Signature=*** x"),
        ("%3Fa%3D1%26sig%3Dgu%252Fess%26b%3D2", "%3Fa%3D1%26sig%3D***%26b%3D2"),
        (r'"?a=1\u0026jwt=guess\u0026b=2"', r'"?a=1\u0026jwt=***\u0026b=2"'),
        ("?passenger=x&tokens=2&key=k&design=d", "?passenger=x&tokens=2&key=k&design=d"),
    ],
)
def test_a_url_hides_its_user_and_its_secret_parameters(text: str, shown: str) -> None:
    assert Mask().text(text) == shown


@pytest.mark.parametrize(
    "piece", ["eyJ-", "eyJ-.", "://", "://a", "?token=", "%3A%2F%2Fa", "sig_a", "?sig%3D", "a", "-"]
)
def test_no_text_takes_long_to_mask(piece: str) -> None:
    """A pattern with backtracking would take minutes."""
    assert Mask().text(piece * 50_000)


WRITES_AND_LOOKS: list[tuple[str, Callable[..., object], Callable[..., object]]] = [
    ("kv_server", lambda fake, key: fake.client().set(key, "1"), lambda fake, key: fake.string(key)),
    ("kv_server", lambda fake, key: fake.execute("SET", key, "1"), lambda fake, key: fake.string(key)),
    (
        "kv_server", lambda fake, key: fake.execute("SET", key.encode(), "1"),
        lambda fake, key: fake.string(key.encode()),
    ),
    ("kv_server", lambda fake, key: fake.load({key: "1"}), lambda fake, key: fake.string(key)),
    ("kv_server", lambda fake, key: fake.client().set(key, "1"), lambda fake, key: fake.keys(f"*{key}")),
    (
        "vector_index", lambda fake, key: fake.load([{"id": "a", "vector": [1]}], namespace=key),
        lambda fake, key: fake.vectors(key),
    ),
    (
        "broker", lambda fake, key: fake.commit(key, "t", 0, 0),
        lambda fake, key: fake.group(key),
    ),
]  # fmt: skip
"""Writes of data with a name, and looks at it."""


@pytest.mark.parametrize("name", ["session:{token}", "seen:https://h/x?token=abc"])
@pytest.mark.parametrize(("service", "write", "look"), WRITES_AND_LOOKS)
def test_a_look_at_data_with_a_masked_name_finds_its_writes(
    cloud: Cloud, service: str, write: Callable[..., object], look: Callable[..., object], name: str
) -> None:
    settings = {"broker": {"topics": {"t": 1}}, "vector_index": {"dimension": 1}}.get(service, {})
    token = "a-plain-token-of-24-chars"
    fake: Any = getattr(cloud, service)(token=token, **settings)
    key = name.format(token=token)
    if service == "broker":
        fake.join(key, "i", ["t"])
    write(fake, key)
    with pytest.raises(AssertionError) as failed:
        assert look(fake, key) == "2"
    report = report_of(cloud, raised=failed.value)
    assert report.read_data is not None
    assert not report.read_data.unwritten
    assert report.rows[-1].number in report.marks.touched
    for text in (json.dumps(as_json(report)), page(cloud, report), as_text(report)):
        assert token not in text
        assert "token=abc" not in text


def test_a_masked_name_is_no_pattern(cloud: Cloud) -> None:
    kv_server = cloud.kv_server(token="a-plain-token-of-24-chars")
    kv_server.client().set("session:other", "1")
    for look in (kv_server.string, kv_server.keys):
        with pytest.raises(AssertionError) as failed:
            assert look(f"session:{kv_server.token}") == "2"
        report = report_of(cloud, raised=failed.value)
        assert report.read_data is not None
        assert set(report.read_data.unwritten.values()) == {"never"}
