"""Turning text into vectors, the same text always into the same ones.

The built-in embedder hashes words and their character trigrams into a dense vector, so texts that
share words or parts of words are near, and gives stemmed words BM25 weights for a sparse one (k1
1.2, b 0.75, average length 32, stop words left out: the parameters of the vendor's BM25 model). It
knows nothing of meaning; a callable or a mapping from text to vector takes its place where a test
needs that.
"""

from __future__ import annotations

import difflib
import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pytest_fakecloud.kernel.errors import ContractError

from .errors import VectorError, unprocessable
from .fields import as_floats, as_sparse
from .model import Floats, Kind, SparseVector

__all__ = ["MODELS", "Embedder", "hash_dense", "hash_sparse"]

WORD = re.compile(r"\w+")
TRIGRAM_WEIGHT = 0.5
K1 = 1.2
B = 0.75
AVERAGE_LENGTH = 32
DEFAULT_DIMENSION = 384

MODELS: Mapping[str, int] = {
    "bge-small-en": 384,
    "bge-base-en": 768,
    "bge-large-en": 1024,
    "bge-m3": 1024,
    "bm25": 0,
}
"""The vendor's models and their dense dimensions; their names may be given as ``embedding``."""
SPARSE_MODELS = frozenset(("bge-m3", "bm25"))

STOP_WORDS = frozenset(
    WORD.findall(
        """
        a about above after again all also am an and any are as at be because been before being
        below between both but by can did do does doing down during each few for from further had
        has have having he her here hers him his how i if in into is it its itself just me more
        most my no nor not now of off on once only or other our ours out over own same she so some
        such than that the their theirs them then there these they this those through to too under
        until up very was we were what when where which while who whom why will with you your
        yours
        """
    )
)


def words(text: str) -> list[str]:
    """The lower-cased words of a text."""
    return WORD.findall(text.lower())


def hash_dense(text: str, dimension: int) -> Floats:
    """A unit vector of signed hashes of words and trigrams, or zero where there is no word."""
    total = np.zeros(dimension, np.float64)
    for word, count in Counter(words(text)).items():
        _add(total, f"w:{word}", count)
        framed = f"<{word}>"
        for start in range(len(framed) - 2):
            _add(total, f"t:{framed[start : start + 3]}", TRIGRAM_WEIGHT * count)
    norm = float(np.linalg.norm(total))
    return (total / norm if norm else total).astype(np.float32)


def _add(total: np.ndarray[Any, np.dtype[np.float64]], token: str, weight: float) -> None:
    hashed = zlib.crc32(token.encode())
    total[(hashed >> 1) % len(total)] += weight if hashed & 1 else -weight


def stem(word: str) -> str:
    """The word without the commonest English endings: related forms meet at one stem."""
    for ending, replacement in (("ies", "y"), ("ing", ""), ("edly", ""), ("ed", ""), ("ly", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)] + replacement
            break
    else:
        if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
            word = word[:-1]
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def hash_sparse(text: str, *, query: bool = False) -> SparseVector:
    """BM25 weights of the stemmed words; every word of a query weighs 1."""
    terms = [stem(word) for word in words(text) if word not in STOP_WORDS]
    length = K1 * (1 - B + B * len(terms) / AVERAGE_LENGTH)
    weights: dict[int, float] = {}
    for term, count in Counter(terms).items():
        dimension = zlib.crc32(term.encode()) >> 1
        weight = 1.0 if query else count * (K1 + 1) / (count + length)
        weights[dimension] = weights.get(dimension, 0.0) + weight
    count = len(weights)
    return SparseVector(
        np.fromiter(weights, np.int32, count), np.fromiter(weights.values(), np.float32, count)
    )


class Embedder:
    """Embeds texts for an index, by the built-in hashes, a function or a mapping.

    ``setting`` is True or the name of one of the vendor's models (the built-in hashes), a callable
    taking a text, or a mapping from texts. A callable or mapping gives a list of numbers for a
    dense index, ``{index: weight}``, ``{"indices": …, "values": …}`` or a pair of lists for a
    sparse one, and ``(dense, sparse)`` or either of the two (the built-in hash makes the other) for
    a hybrid one.

    ``dimension`` is that of the dense vectors, None where the first vector decides.
    """

    def __init__(self, setting: object, kind: Kind, dimension: int | None) -> None:
        self.kind = kind
        self._source: Callable[[str], object] | None = None
        model = "hash"
        if isinstance(setting, str):
            if setting not in MODELS:
                raise ContractError(
                    f"embedding={setting!r} is no known model; the models are {', '.join(MODELS)}"
                )
            if kind is Kind.SPARSE and setting not in SPARSE_MODELS:
                raise ContractError(f"embedding={setting!r} makes no sparse vectors")
            if kind.has_dense and not MODELS[setting]:
                raise ContractError(f"embedding={setting!r} makes no dense vectors")
            model = setting
        elif isinstance(setting, Mapping):
            self._source = _lookup(setting)
            model = "mapping"
        elif callable(setting):
            self._source = setting
            model = getattr(setting, "__name__", type(setting).__name__)
        elif setting is not True:
            raise ContractError(
                f"embedding={setting!r} is not understood: give True, a model's name, a function "
                "from text to vector, or a mapping from text to vector"
            )
        if dimension is None and self._source is None:
            dimension = MODELS.get(model) or DEFAULT_DIMENSION
        self.dimension = dimension
        self.dense_model = model if kind.has_dense else ""
        keeps_name = self._source is not None or model in SPARSE_MODELS
        self.sparse_model = (model if keeps_name else "bm25") if kind.has_sparse else ""

    def embed(self, text: str, *, query: bool = False) -> tuple[Floats | None, SparseVector | None]:
        """The vectors the index's kind needs; a ``query`` weighs its sparse words equally.

        Raises ``VectorError`` 422 when the function or mapping has no usable vector for the text.
        """
        dense: Floats | None = None
        sparse: SparseVector | None = None
        if self._source is not None:
            dense, sparse = self._from_source(text, self._source)
        if dense is None and self.kind.has_dense:
            size = self.dimension or DEFAULT_DIMENSION
            dense = hash_dense(text, size)
        if sparse is None and self.kind.has_sparse:
            sparse = hash_sparse(text, query=query)
        return dense, sparse

    def _from_source(
        self, text: str, source: Callable[[str], object]
    ) -> tuple[Floats | None, SparseVector | None]:
        try:
            value = source(text)
        except VectorError:
            raise
        except Exception as error:
            raise unprocessable(
                f"The embedding function failed for the text {text[:80]!r}: {error!r}"
            ) from error
        try:
            return self._read(value)
        except (VectorError, TypeError, ValueError, OverflowError) as error:
            raise unprocessable(
                f"The embedding of the text {text[:80]!r} is not usable: {error}"
            ) from None

    def _read(self, value: Any) -> tuple[Floats | None, SparseVector | None]:
        if self.kind is Kind.HYBRID and isinstance(value, tuple) and len(value) == 2:
            dense, sparse = value
            return _dense(dense), _sparse(sparse)
        if self.kind is Kind.SPARSE or (self.kind is Kind.HYBRID and isinstance(value, Mapping)):
            return None, _sparse(value)
        return _dense(value), None


def _lookup(texts: Mapping[str, object]) -> Callable[[str], object]:
    def look_up(text: str) -> object:
        if text not in texts:
            near = difflib.get_close_matches(
                text[:200], [str(key) for key in texts], n=1, cutoff=0.5
            )
            hint = f"; the nearest it has is {near[0]!r}" if near else ""
            raise unprocessable(
                f"The embedding mapping has no vector for the text {text[:80]!r}{hint}"
            )
        return texts[text]

    return look_up


def _dense(value: Any) -> Floats | None:
    if value is None:
        return None
    return as_floats([float(number) for number in value] if is_sequence(value) else value)


def _sparse(value: Any) -> SparseVector | None:
    if value is None or isinstance(value, SparseVector):
        return value
    if isinstance(value, Mapping) and "indices" not in value:
        value = {"indices": list(value), "values": list(value.values())}
    elif isinstance(value, tuple | list) and len(value) == 2:
        value = {"indices": value[0], "values": value[1]}
    if isinstance(value, Mapping) and is_sequence(value.get("indices")):
        value = {
            "indices": [int(index) for index in value["indices"]],
            "values": [float(number) for number in value.get("values", ())],
        }
    return as_sparse(value)


def is_sequence(value: object) -> bool:
    """Whether a value can be walked like a list of numbers (a list, a tuple, an array)."""
    return hasattr(value, "__iter__") and not isinstance(value, str | bytes | Mapping)
