"""Analysis of text for indexing: tokenization, case folding and stemming.

The steps are those of Tantivy, which the vendor uses. A token is a run of letters and digits. A
token of 40 bytes or more is dropped. Other tokens are converted to lower case and stemmed by the
Snowball stemmer for the index's language. There are no stop words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from itertools import groupby

from Stemmer import Stemmer

LANGUAGES = (
    "arabic", "danish", "dutch", "english", "finnish", "french", "german", "greek", "hungarian",
    "italian", "norwegian", "portuguese", "romanian", "russian", "spanish", "swedish", "tamil",
    "turkish",
)  # fmt: skip

_LONGEST = 40
"""Length in bytes from which on words are not indexed."""
_CACHED_WORDS = 100_000
_ASCII_RUN = re.compile(r"[0-9A-Za-z]+")

_SIGNS = """
345 363-36f 5b0-5bd 5bf 5c1-5c2 5c4-5c5 5c7 610-61a 64b-657 659-65f 670 6d6-6dc 6e1-6e8 6ed
711-73f 7a6-7b0 816-817 81b-82c 8d4-8df 8e3-8e9 8f0-93b 93e-94c 94e-94f 955-963 981-983
9be-9cc 9d7-9e3 a01-a03 a3e-a4c a51-a75 a81-a83 abe-acc ae2-ae3 afa-afc b01-b03 b3e-b4c
b56-b63 b82-bcc bd7 c00-c04 c3e-c4c c55-c63 c81-c83 cbe-ccc cd5-d03 d3e-d4c d57-d63 d81-d83
dcf-df3 e31-e3a e4d eb1-eb9 ebb-ebc ecd f71-f83 f8d-fbc 102b-1036 1038 103b-103e 1056-109d
1712-1713 1732-1733 1752-1773 17b6-17c8 1885-1938 1a17-1a1b 1a55-1a5e 1a61-1a74 1abf-1ac0
1acc-1b04 1b35-1b43 1b80-1ba9 1bac-1bad 1be7-1bf1 1c24-1c36 1dd3-1df4 24b6-24e9 2de0-2dff
a674-a67b a69e-a69f a802 a80b-a827 a880-a8c3 a8c5 a8ff-a92a a947-a952 a980-a983 a9b4-a9bf
a9e5-aa4d aa7b-aabe aaeb-aaef aaf5 abe3-abea fb1e
"""
"""Characters up to U+FFFF, such as vowel signs, that are letters in Unicode but not in Python."""


@cache
def _signs() -> frozenset[int]:
    found: set[int] = set()
    for each in _SIGNS.split():
        first, _, last = each.partition("-")
        found.update(range(int(first, 16), int(last or first, 16) + 1))
    return frozenset(found)


def _is_letter(character: str) -> bool:
    return character.isalnum() or (
        ord(character) in _signs() and unicodedata.category(character) in ("Mn", "Mc", "So")
    )


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end offsets of each word in a text."""
    if text.isascii():
        for found in _ASCII_RUN.finditer(text):
            yield found.span()
        return
    at = 0
    for is_word, run in groupby(text, _is_letter):
        end = at + sum(1 for _ in run)
        if is_word:
            yield at, end
        at = end


def _fold(word: str) -> str:
    if word.isascii():
        return word.lower()
    # Fold letter by letter, so that a final sigma becomes the same letter as any other sigma.
    return "".join(map(str.lower, word))


class Analyzer:
    """Converts texts to tokens, stemmed by ``stem``; with ``whole``, a text is one token."""

    def __init__(self, stem: Callable[[str], str] | None, whole: bool = False) -> None:
        self.whole = whole
        self._stem = stem
        self._known: dict[str, str | None] = {}

    def token(self, word: str) -> str | None:
        """Return the token of a word, or None if the word is too long to be indexed."""
        try:
            return self._known[word]
        except KeyError:
            token: str | None = None
            if len(word.encode("utf-8", "replace")) < _LONGEST:
                token = _fold(word)
                if self._stem is not None:
                    token = self._stem(token)
            if len(self._known) >= _CACHED_WORDS:
                self._known.clear()
            self._known[word] = token
            return token

    def tokens(self, text: str) -> tuple[str | None, ...]:
        """Return the tokens of a text in order. Each dropped word is represented by None."""
        if self.whole:
            return (text,)
        return tuple(self.token(text[start:end]) for start, end in spans(text))


@lru_cache(maxsize=64)
def analyzer(language: str, stemmed: bool = True, whole: bool = False) -> Analyzer:
    """Return the analyzer for a language. Analyzers cache the stems of words."""
    if whole:
        return Analyzer(None, whole=True)
    # Disable the stemmer's own cache, which would store the stems a second time.
    return Analyzer(Stemmer(language, 0).stemWord if stemmed else None)
