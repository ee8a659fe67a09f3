"""The parts of a section, case by case: lines of rows, what stands below, what cannot be told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.calls import Call
from pytest_fakecloud.core.timeparse import instant_us
from pytest_fakecloud.reporting import section as module
from pytest_fakecloud.reporting.applications import Served
from pytest_fakecloud.reporting.facts import Fact
from pytest_fakecloud.reporting.rows import Row
from pytest_fakecloud.reporting.section import counted, findings, refused, section

NOON = "2026-03-01T12:00:00Z"
START = instant_us(NOON)
DAY_US = 24 * 3600 * 1_000_000


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud(seed="seed", now=NOON, delivery="driven") as opened:
        yield opened


def row(number: int, what: str = "", **more: Any) -> Row:
    given = {"kind": "kv_server command GET", "began": number, **more}
    name = what or f"GET k{number}"
    return replace(Row(number, START, "client", "kv", name, "1", True), **given)


Told = Callable[..., list[str]]


@pytest.fixture
def told(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Told:
    """What a section says of these rows, facts and things that wait, below its head."""

    def tell(
        rows: Sequence[Row],
        facts: Sequence[Fact] = (),
        waiting: Sequence[str] = (),
        width: int = 80,
    ) -> list[str]:
        monkeypatch.setattr(module, "rows", lambda *_, **__: list(rows))
        monkeypatch.setattr(module, "facts", lambda *_: list(facts))
        monkeypatch.setattr(module, "waiting", lambda *_: list(waiting))
        return section(cloud, width=width).splitlines()[1:]

    return tell


STAMP = "12:00:00.000"
BELOW = " " * 15


def line(text: str, answer: str = " <-- 1") -> str:
    return f"{STAMP} --> kv {text}{answer}"


# -- rows ------------------------------------------------------------------------------------------

LONG = "a remark that is just as long as it takes to stand only once"
LONGER = f"{LONG}!"
assert len(LONG) == 60
WORDS = " ".join(f"word{number:03}" for number in range(60))


def words(first: int, last: int) -> str:
    return " ".join(WORDS.split()[first:last])


CASES: dict[str, tuple[list[Row], list[str]]] = {
    "a long remark once": (
        [row(1, remarks=(LONGER,)), row(2, remarks=(LONGER,))],
        [line("GET k1"), BELOW + LONGER, line("GET k2", " <-- 1 (as above)")],
    ),
    "a shorter one each time": (
        [row(1, remarks=(LONG,)), row(2, remarks=(LONG,))],
        [line("GET k1"), BELOW + LONG, line("GET k2"), BELOW + LONG],
    ),
    "a long one with another note": (
        [row(1, remarks=(LONGER,), note="a"), row(2, remarks=(LONGER,), note="b")],
        [
            line("GET k1"), BELOW + LONGER, f"{BELOW}note: a",
            line("GET k2"), BELOW + LONGER, f"{BELOW}note: b",
        ],
    ),
    "no answer": ([row(1, answer="")], [line("GET k1", "")]),
    "remarks that fit share a line": (
        [row(1, remarks=("a" * 30, "b" * 33, "c" * 30, "d" * 34))],
        [
            line("GET k1"),
            f"{BELOW}{'a' * 30}; {'b' * 33}",
            BELOW + "c" * 30,
            BELOW + "d" * 34,
        ],
    ),
    "lines below do not": (
        [row(1, below=("a", "b"), remarks=("c", "d"))],
        [line("GET k1"), f"{BELOW}a", f"{BELOW}b", f"{BELOW}c; d"],
    ),
    "a first callback": (
        [row(1, "callback 1 of msg_a about 1 of b", attempt=1)],
        [line("callback msg_a about 1 of b")],
    ),
    "a second one": (
        [row(1, "callback 2 of msg_a", attempt=2)],
        [line("callback 2 of msg_a")],
    ),
    "a first attempt": ([row(1, "attempt 1 of msg_a", attempt=1)], [line("attempt 1 of msg_a")]),
    "attempts that read the same": (
        [row(n, f"attempt {n} of msg_a 1 of b", attempt=n, at_us=START + n * 1000)
         for n in (1, 2, 3)],
        ["12:00:00.001 --> kv attempt 1 to 3 of msg_a 1 of b (until 12:00:00.003) <-- 1"],
    ),
    "attempts of one instant": (
        [row(n, f"attempt {n} of msg_a", attempt=n) for n in (1, 2)],
        [line("attempt 1 to 2 of msg_a")],
    ),
    "calls that read the same": (
        [row(1, "GET k"), row(2, "GET k", at_us=START + 999_999)],
        [line("GET k (x2 until 12:00:00.999)")],
    ),
    "days": (
        [row(1), row(2, at_us=START + DAY_US), row(3, at_us=START + DAY_US)],
        [
            "-- 2026-03-01 --", line("GET k1"), "-- 2026-03-02 --", line("GET k2"),
            line("GET k3"),
        ],
    ),
    "a note below what stands below": (
        [
            row(1, note="a"), row(2, depth=1, note="b"), row(3, depth=2), row(4, depth=1),
            row(5, note="c"), row(6),
        ],
        [
            line("GET k1"),
            f"{STAMP}   --> kv GET k2 <-- 1",
            f"{STAMP}     --> kv GET k3 <-- 1",
            f"{BELOW}  note: b",
            f"{STAMP}   --> kv GET k4 <-- 1",
            f"{BELOW}note: a",
            line("GET k5"),
            f"{BELOW}note: c",
            line("GET k6"),
        ],
    ),
    "notes at the end": (
        [row(1, note="a"), row(2, depth=1, note="b"), row(3, depth=2)],
        [
            line("GET k1"),
            f"{STAMP}   --> kv GET k2 <-- 1",
            f"{STAMP}     --> kv GET k3 <-- 1",
            f"{BELOW}  note: b",
            f"{BELOW}note: a",
        ],
    ),
    "a long remark": (
        [row(1, remarks=(WORDS,))],
        [
            line("GET k1"), f"{BELOW}{words(0, 8)}", f"{BELOW}  {words(8, 16)}",
            f"{BELOW}  {words(16, 23)} ...",
        ],
    ),
    "a long note": (
        [row(1, note=WORDS)],
        [
            line("GET k1"), f"{BELOW}note: {words(0, 7)}", f"{BELOW}  {words(7, 15)}",
            f"{BELOW}  {words(15, 22)} ...",
        ],
    ),
    "one run that held": (
        [row(1, kind="cloud run held"), row(2, kind="cloud run broken")],
        ["... 1 run left out, in which the promise held", line("GET k2")],
    ),
    "two runs that held": (
        [row(n, kind=f"cloud run {how}") for n, how in ((1, "held"), (2, "held"), (3, "broken"))],
        ["... 2 runs left out, in which the promise held", line("GET k3")],
    ),
    "one row left out": (
        [row(n) for n in range(1, 62)],
        [line("GET k1"), "... 1 row left out", *(line(f"GET k{n}") for n in range(3, 62))],
    ),
    "rows left out": (
        [row(n, ok=n not in (*range(10, 25), *range(60, 75))) for n in range(1, 201)],
        [
            "... 9 rows left out",
            *(line(f"GET k{n}") for n in range(10, 25)),
            "... 35 rows left out",
            *(line(f"GET k{n}") for n in range(60, 75)),
            "... 96 rows left out",
            *(line(f"GET k{n}") for n in range(171, 201)),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "expected"), CASES.values(), ids=CASES)
def test_rows_as_lines(told: Told, rows: list[Row], expected: list[str]) -> None:
    assert told(rows) == expected


def test_words_stay_whole_at_their_hyphens(told: Told) -> None:
    found = told([row(1, remarks=(f"{'a' * 50} {'b' * 10}-{'c' * 10}",))])
    assert found[1:] == [f"{BELOW}{'a' * 50}", f"{BELOW}  {'b' * 10}-{'c' * 10}"]


def script(count: int) -> str:
    return "\n\n\t  first\n\tsecond   \n" + "".join(f"\tline {n}\n" for n in range(3, count + 1))


def test_a_script_is_shown_once_and_up_to_twenty_lines(told: Told) -> None:
    found = told(
        [
            row(1, "EVAL a", script=("a", script(20))),
            row(2, "EVAL a", answer="2", script=("a", script(20))),
            row(3, "EVAL b", script=("b", script(21))),
            row(4, "EVAL c", script=("c", f"return\t{'x' * 100}")),
        ]
    )
    text = [f"{BELOW}    first", f"{BELOW}  second", *(f"{BELOW}  line {n}" for n in range(3, 21))]
    assert found == [
        line("EVAL a"),
        f"{BELOW}script a:",
        *text,
        line("EVAL a", " <-- 2"),
        line("EVAL b"),
        f"{BELOW}script b:",
        *text,
        f"{BELOW}  ... 1 more line",
        line("EVAL c"),
        f"{BELOW}script c:",
        f"{BELOW}  return  {'x' * 55}",
    ]


# -- what stands below the rows --------------------------------------------------------------------


def test_facts_stand_below_and_have_the_marks_of_their_rows(told: Told) -> None:
    facts = [Fact("kv: two", 3), Fact("kv: one", 1), Fact("kv: none")]
    assert told([row(1), row(2), row(3, also=7)], [*facts, Fact("kv: also", 7)]) == [
        line("GET k1 [1]"),
        line("GET k2"),
        line("GET k3 [2]"),
        "",
        "worth a look:",
        "- [2] kv: two",
        "- [1] kv: one",
        "- kv: none",
        "- [2] kv: also",
    ]


def test_an_address_stays_in_one_piece(told: Told) -> None:
    url = f"http://127.0.0.1/{'x' * 90}"
    assert told([row(1)], [Fact(f"see {url} there")])[-3:] == [
        "worth a look: see", f"  {url}", "  there"
    ]  # fmt: skip


def test_no_section_is_narrower_than_forty_columns(told: Told) -> None:
    assert max(map(len, told([], [Fact(" ".join("x" * 99))], width=1))) == 39


def test_groups_that_are_behind_come_of_the_facts_about_their_broker(told: Told) -> None:
    behind = "{}: group g is 1 record behind in t-0 ({})"
    never, until = "nothing committed", "committed 0"
    waiting = [
        behind.format("broker", never),
        behind.format("broker", until),
        behind.format("other", never),
        "msg_a waits",
    ]
    assert told([row(1)], [Fact("broker: a fact: of it")], waiting)[2:] == [
        "worth a look: broker: a fact: of it",
        "unfinished:",
        f"- {behind.format('broker', until)}",
        f"- {behind.format('other', never)}",
        "- msg_a waits",
    ]
    assert told([row(1)], [], waiting[:1])[-1] == f"unfinished: {waiting[0]}"


PARTS = [
    ("scene_of", "what to look up for the calls cannot be told", False),
    ("facts", "what is worth a look cannot be told", False),
    ("rows", "the calls cannot be told", False),
    ("_timeline", "the calls cannot be told", False),
    ("_with_mark", "what is worth a look cannot be told", True),
    ("waiting", "what is unfinished cannot be told", True),
    ("findings", "[problems] they cannot be told", True),
]


@pytest.mark.parametrize(("name", "said", "is_below"), PARTS, ids=[name for name, *_ in PARTS])
def test_a_part_that_cannot_be_told_leaves_the_others_theirs(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, name: str, said: str, is_below: bool
) -> None:
    server = cloud.kv_server()
    httpx.post(server.url, json=["SET", "lock:a", "me", "NX"], headers=server.headers)
    httpx.get(f"{server.url}/get/k")

    def breaks(*_: object, **__: object) -> Any:
        raise KeyError("it broke")

    monkeypatch.setattr(module, name, breaks)
    text = section(cloud, width=140)
    lines = text.splitlines()
    (place,) = [n for n, one in enumerate(lines) if one.startswith(f"{said}: KeyError: 'it broke'")]
    assert text.count("cannot be told") == 1
    assert (place > lines.index("")) is is_below
    assert ("GET k" in text) is (name not in ("rows", "_timeline"))
    assert ("lock:a was taken" in text) is (name not in ("facts", "_with_mark"))
    assert ("[credentials]" in text) is (name != "findings")


def test_what_a_test_waited_for_and_failed_with_is_told(cloud: Cloud) -> None:
    server = cloud.kv_server()
    httpx.post(server.url, json=["SET", "a", "1", "NX", "XX"], headers=server.headers)
    text = " ".join(section(cloud, idle_s=1.5, raised=AssertionError()).split())
    assert "1.5 s of real time passed idle" in text
    assert "no exception of it reached the test" in text
    text = " ".join(section(cloud, idle_s=0.5).split())
    assert "passed idle" not in text
    assert "reached the test" not in text


def test_facts_are_found_in_all_that_is_known(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = cloud.queue()
    queue.publish("https://app.example.com/hook", delay="1h")
    known: list[Any] = []

    def find(*given: object) -> list[Fact]:
        known.extend(given)
        return []

    monkeypatch.setattr(module, "facts", find)
    error, request = KeyError(), Served(1, START, "GET /a", "Flask", None, 0)
    text = section(cloud, idle_s=1.5, raised=error, served=[request])
    (id,) = known[1].ids
    assert known[0] is cloud
    assert known[2:] == [1.5, error, [request]]
    assert known[1].short(id) in text
    assert id not in text
    assert text == text.strip()


def test_requests_to_the_application_are_told(cloud: Cloud) -> None:
    cloud.kv_server()
    one = Served(1, START, "GET /a", "Flask", None, 0, ended=2, status=500)
    assert section(cloud, served=[one]).splitlines()[-1] == (
        f"{STAMP} --> application GET /a (Flask) <-- 500"
    )


@pytest.mark.parametrize(
    ("now", "expected"),
    [(NOON, "12:00:00Z"), ("2026-03-01T12:00:00.999Z", "12:00:00.999Z"),
     ("2026-03-01T12:00:00.010Z", "12:00:00.010Z")],
)  # fmt: skip
def test_the_clock_is_told_to_the_millisecond(now: str, expected: str) -> None:
    with Cloud(seed=1, now=now) as cloud:
        assert section(cloud).startswith(f"clock frozen at 2026-03-01 {expected}, seed 1\n")


def test_a_head_that_is_too_long_goes_on_in_the_next_line() -> None:
    with Cloud(seed=" ".join(["seed"] * 20), now=NOON) as cloud:
        first, second = section(cloud).splitlines()[:2]
    assert first.startswith("clock frozen at 2026-03-01 12:00:00Z, seed 'seed seed")
    assert second.startswith("  seed seed")


# -- problems and credentials ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], []),
        (["a (message m1)"], ["a (message m1)"]),
        (["a (message m1)", "b", "a (message m2)"], ["a (2 times)", "b"]),
        (["a (message m1) b\nc\nd", "a (message m2) b\nc\nd"], ["a b (2 times)\nc\nd"]),
        (["a", "a", "a\nb"], ["a (2 times)", "a\nb"]),
    ],
    ids=["none", "one", "two of a message", "more lines", "the same first line"],
)
def test_texts_that_are_the_same_are_counted(texts: list[str], expected: list[str]) -> None:
    assert list(counted(texts)) == expected


def test_findings_have_a_line_and_what_follows_it(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = cloud.kv_server()
    httpx.get(f"{server.url}/get/k")
    credentials = (
        "[credentials] kv_server answered 401 to 1 of 1 call(s): no credentials came with it",
        "",
    )
    cloud._recorded.report("bug", "kv_server broke\nline 1\nline 2")
    assert findings(cloud) == [("[bug] kv_server broke", "line 1\nline 2"), credentials]

    def breaks(texts: object) -> Any:
        raise KeyError("it broke")

    monkeypatch.setattr(module, "counted", breaks)
    (broken, rest), last = findings(cloud)
    assert broken.startswith("[problems] they cannot be told: KeyError: 'it broke'")
    assert (rest, last) == ("", credentials)


def call(status: int, authorization: str | None = None, **more: Any) -> Call:
    headers = [] if authorization is None else [("authorization", f"Bearer {authorization}")]
    target = more.pop("target", "/")
    made = Call(1, START, "kv", "kv", "GET", target, headers)
    made.status = status
    for name, value in more.items():
        setattr(made, name, value)
    return made


def fake(name: str, *calls: Call, token: str = "", read_only: str | None = None) -> Any:
    found = SimpleNamespace(
        name=name,
        headers={"Authorization": f"Bearer {token}"} if token else {},
        journal=SimpleNamespace(calls=lambda: list(calls)),
    )
    if read_only is not None:
        found.read_only_token = read_only
    return found


def why(*handles: Any, **options: Any) -> list[str]:
    return [text for _, text in refused(SimpleNamespace(handles=handles), **options)]  # type: ignore[arg-type]


def test_each_refusal_has_its_reasons() -> None:
    mine = fake("kv", call(200), call(401), call(401, "x"), call(401), token="t", read_only="r")
    calm = fake("calm", call(200, "t"), call(401, "z", fault="answer 401"), token="t2")
    other = fake("pages", call(401, "t"), call(401, "t2"), token="t3")
    assert why(calm, mine, other) == [
        "kv answered 401 to 3 of 4 call(s): no credentials came with it; the credentials are not kv's",
        "pages answered 401 to 2 of 2 call(s): the credentials are those of kv; the credentials "
        "are those of calm",
    ]
    assert why(calm, mine, other, every_call=True) == [
        "pages answered 401 to 2 of 2 call(s): the credentials are those of kv; the credentials "
        "are those of calm"
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (call(401, "r"), "the credentials are the read-only ones"),
        (call(401, "t"), "the credentials are not kv's"),
        (call(401, "None"), "the credentials are not kv's"),
        (call(401, target="/get/k?_token=x"), "a wrong _token"),
    ],
    ids=["read-only", "its own of before", "a word", "in the address"],
)
def test_credentials_are_named(given: Call, expected: str) -> None:
    one = fake("kv", given, token="t", read_only="r")
    assert why(fake("queue"), one) == [f"kv answered 401 to 1 of 1 call(s): {expected}"]


def test_a_fake_without_a_read_only_token_has_none() -> None:
    assert why(fake("queue", call(401, "x"), token="t")) == [
        "queue answered 401 to 1 of 1 call(s): the credentials are not queue's"
    ]


def test_what_was_meant_is_left_out() -> None:
    first = fake("a", call(401, target="/meant"))
    both = fake("b", call(401, target="/meant"), call(401, "x"))
    assert why(first, both, meant=lambda one: one.target == "/meant") == [
        "b answered 401 to 1 of 2 call(s): the credentials are not b's"
    ]
