"""Bugs in small applications, with the rows that make each certain.

Each file in ``bugs/`` is an application with a bug and the test that fails because of it. Its deciding
rows are among the first lines of the report, and nothing of it is left out.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ...harness import QUIET

pytestmark = pytest.mark.slow

BUGS = Path(__file__).parent / "bugs"
NAMES = sorted(path.stem for path in BUGS.glob("*.py"))
HEAD = "--- fakecloud ---"
FIRST_LINES = 20
DECIDING = {
    "answers": ["upsert opening (metadata text=\"from ten\") in namespace \"de\"",
                "query top 1 in namespace \"en\""],
    "callback_in_base64": ["the handler logged JSONDecodeError", "text = json.loads(about[\"body\"])"],
    "carts": ["cart:ada expired at 12:15:00Z", "GET cart:ada <-- null; SET cart:ada [\"milk\"]"],
    "checkout_twice": ["publish https://mail.example.com/send {\"items\":{\"tea\":\"1\"}} <-- 503",
                       "RPUSH orders tea <-- 2 <== read"],
    "committed_too_early": ["payments-0@1 {\"amont\":2}", "committed payments-0=3"],
    "every_failure": ["INCRBY to 5 <-- 503 Service Unavailable (fault: respond)"],
    "failure_told_late": ["tried 2 of 4; its failure callback follows the last"],
    "handler_raises": ["the handler raised KeyError: 'id'", "customer is {\"name\": \"ada\"}"],
    "holds": ["this SET removed the TTL of hold:A1", "likewise for hold:A2",
              "SET hold:A2 \"bob with popcorn\" <-- OK"],
    "idempotency_of_none": ["SET idempotency:None 1 NX EX 86400 <-- OK",
                            "SET idempotency:None 1 NX EX 86400 <-- null"],
    "invoices": ["HSET invoice:7 tea 390 <-- 1", "HSET invoice:7 tea 390 <-- 0"],
    "jobs": ["HSET articles tea 5 <-- 1", "HSET articles tea 3 <-- 0"],
    "logged_and_answered": ["the handler logged KeyError: 'USD'"],
    "lost_answer": ["<-- msg_3bb5 (200 answer lost) (fault: lose_response)",
                    "publish …/welcome {\"user\":\"ada\"} <-- msg_a2b4"],
    "marked_before_done": ["SET done:7 1 NX EX 86400 <-- OK", "SET done:7 1 NX EX 86400 <-- null"],
    "not_before_in_milliseconds": ["<-- 400 invalid not before: '1772370000000'"],
    "parcels": ["key sc-107 {\"parcel\":\"P-17\",\"place\":\"Bonn\"} <-- scans-2@0",
                "key sc-104 {\"parcel\":\"P-17\",\"place\":\"Jena\"} <-- scans-1@1"],
    "plans": ["step 1 \"account\" (Run) result {\"plan\":\"solo\"}", "HSET account:ada plan team"],
    "prices": ["update tea-2 (metadata price=410) (OVERWRITE)"],
    "queue_held_up": ["waits in queue exports behind msg_a2b4", "{\"name\":\"or ders\"}"],
    "rebalance_with_open_work": ["second <-- mails-1@0 \"bob\"",
                                 "commit mails-0=1, mails-1=1 as mailers/first <-- 409"],
    "reminders": ["SET reminder {\"user\": \"bob\", \"text\": \"rent\"} <-- OK",
                  "GET reminder <-- '{\"user\": \"bob\""],
    "script_argument": ["local left = tonumber(redis.call('GET', KEYS[1]) or ARGV[1])"],
    "sessions": ["this SET removed the TTL of session:ada", "SET session:ada /cart <-- OK"],
    "signature_behind_proxy": ["verify() got another URL: http://hooks.internal:8000/paid"],
    "slept": ["s of wall-clock time passed while the fake clock was frozen"],
    "stock": ["SET stock:TEA-2 7 <-- OK", "GET stock:tea-2 <-- null"],
    "tickets": ["HINCRBY accounts ada 9000 <-- 0 <== read", "sent status 503, retried 0 of 4"],
}  # fmt: skip
"""Parts of the lines that make each bug certain."""


def report_of(output: Sequence[str]) -> list[str]:
    """Return the lines of the report of the failing test."""
    start = next(number for number, line in enumerate(output) if HEAD in line) + 1
    end = next(
        number
        for number, line in enumerate(output[start:], start)
        if re.match(r"[-=]{3,} .* [-=]{3,}$", line)
    )
    return list(output[start:end])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("impatient")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_deciding_rows_are_in_the_first_lines(
    name: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip({"jobs": "rq", "plans": "upstash_workflow"}.get(name, "pytest"))
    # Some examples have test files of the same names.
    monkeypatch.delitem(sys.modules, f"test_{name}", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    # Count every wait as sleep, so that the result does not depend on the machine's load.
    monkeypatch.setattr("pytest_fakecloud.pytest_run.observation.MINIMUM_WAIT_SECONDS", 0.0)
    gc.freeze()  # The collection below only inspects objects of this run.
    pytester.makepyfile(**{f"test_{name}": (BUGS / f"{name}.py").read_text(encoding="utf-8")})
    result = pytester.runpytest_inprocess(*QUIET)
    # Collect the clients that the application left open now, while their warnings are ignored.
    gc.collect()
    result.assert_outcomes(failed=1)
    lines = report_of(result.outlines)
    beginning = " ".join(" ".join(lines[:FIRST_LINES]).split())
    assert [part for part in DECIDING[name] if part not in beginning] == []
    assert not [line for line in lines if "left out" in line]


def test_every_bug_has_deciding_rows() -> None:
    assert sorted(DECIDING) == NAMES
