"""Text as it is indexed: tokens, folded and stemmed.

The service stands on Tantivy, whose chain is followed: a token is a run of letters and digits, is
dropped from 40 bytes on, folded to lower case and stemmed by the Snowball stemmer of the index's
language. There are no stop words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import groupby

import snowballstemmer

__all__ = ["LANGUAGES", "Analyzer", "analyzer", "spans"]

LANGUAGES = (
    "arabic", "danish", "dutch", "english", "finnish", "french", "german", "greek", "hungarian",
    "italian", "norwegian", "portuguese", "romanian", "russian", "spanish", "swedish", "tamil",
    "turkish",
)  # fmt: skip

_LONGEST = 40
_ASCII_RUN = re.compile(r"[0-9A-Za-z]+")


def _is_letter(character: str) -> bool:
    # Vowel signs of Indic scripts count as letters in Unicode, though Python's isalnum() has not
    # heard of it; a sign that only combines (a virama, an accent) does not.
    if character.isalnum():
        return True
    kind = unicodedata.category(character)
    return kind in ("Mc", "Mn") and unicodedata.combining(character) == 0 and character > "\u0900"


def spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the words of a text begin and end."""
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
    # Letter by letter: a sigma at the end of a word is folded as every other.
    return "".join(map(str.lower, word))


class Analyzer:
    """Turns the texts of one field into tokens; the same is done to the words of a query.

    ``stem`` is None where words stay as they are; ``whole`` keeps a text as its one token, in its
    own case.
    """

    def __init__(self, stem: Callable[[str], str] | None, whole: bool = False) -> None:
        self._stem = stem
        self._whole = whole
        self._known: dict[str, str | None] = {}

    @property
    def whole(self) -> bool:
        """Whether a text is one token."""
        return self._whole

    def token(self, word: str) -> str | None:
        """The token of one word; None for a word that is too long to be indexed."""
        try:
            return self._known[word]
        except KeyError:
            token: str | None = None
            if len(word.encode("utf-8", "replace")) < _LONGEST:
                token = _fold(word)
                if self._stem is not None:
                    token = self._stem(token)
            if len(self._known) >= 100_000:
                self._known.clear()
            self._known[word] = token
            return token

    def tokens(self, text: str) -> tuple[str | None, ...]:
        """The tokens of a text in order; None keeps the place of a word that is dropped."""
        if self._whole:
            return (text,)
        return tuple(self.token(text[start:end]) for start, end in spans(text))


@lru_cache(maxsize=64)
def analyzer(language: str, stemmed: bool = True, whole: bool = False) -> Analyzer:
    """The analyzer of a language, which remembers what it stemmed."""
    if whole:
        return Analyzer(None, whole=True)
    return Analyzer(snowballstemmer.stemmer(language).stemWord if stemmed else None)
