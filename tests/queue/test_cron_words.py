"""Test cron expressions in words, in the console."""

from __future__ import annotations

import pytest

from pytest_fakecloud.queue.inspect.cron_words import cron_words


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 9 * * *", "every day at 09:00"),
        ("CRON_TZ=Europe/Berlin 30 17 * * *", "every day at 17:30 in Europe/Berlin"),
        ("0 9,17 * * ?", "every day at 09:00 and 17:00"),
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("5 * * * *", "every hour at minute 5"),
        ("0 */6 * * *", "every 6 hours at minute 0"),
        ("0 8 * * 1-5", "every Monday to Friday at 08:00"),
        ("0 8 * * SUN,wed", "every Sunday and Wednesday at 08:00"),
        ("*/5 * * * 1", "every 5 minutes every Monday"),
        ("0 0 1 * *", "on day 1 of each month at 00:00"),
        ("0 0 1,15 JAN *", "on 1 and 15 January at 00:00"),
        ("0 7 * 12 *", "every day in December at 07:00"),
        ("@weekly", "every Sunday at 00:00"),
        ("@every 90m", "every 90m"),
        ("1-5 9 * * *", ""),
        ("0 9 1 * 1", ""),
        ("0 9-17 * * *", ""),
        ("0 9 1-7 * *", ""),
        ("0 9 * * 1-3,5", ""),
    ],
)  # fmt: skip
def test_common_cron_expressions_have_words(expression: str, words: str) -> None:
    assert cron_words(expression) == words
