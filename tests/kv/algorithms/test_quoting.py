"""Splitting a line into words, quoted as in a shell."""

from __future__ import annotations

import pytest

from pytest_fakecloud.kv.algorithms.quoting import split_words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"SET  k\tv ", [b"SET", b"k", b"v"]), (b"", []), (b'"a\\x41\\n\\q" b', [b"aA\nq", b"b"]),
        (b"'it\\'s' '\\n'", [b"it's", b"\\n"]), (b'a"b c"', [b"ab c"]), (b'""', [b""]),
        (b"'a", None), (b"'a'b", None), (b'"\\', None),
    ],
)  # fmt: skip
def test_quotes(line: bytes, words: list[bytes] | None) -> None:
    assert split_words(line) == words
