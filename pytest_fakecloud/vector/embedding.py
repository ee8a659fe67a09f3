"""Embedding of text, by hashes of its words or by a test's own function or mapping.

The hashes do not know the meaning of words. A test that needs it passes a function or a mapping
from text to vector. ``similarity.hashing`` makes the dense vectors. A sparse vector contains stemmed
words with BM25 weights; the parameters are those of the vendor's BM25 model.
"""

from __future__ import annotations

import inspect
import itertools
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from ..core.errors import ContractError, did_you_mean, unknown_name
from ..core.field_types import discard_awaitable, signature_of
from ..similarity.dense import Floats
from ..similarity.hashing import DEFAULT_DIMENSION, hash_dense, words
from .errors import VectorError, invalid_dimension, no_embedding_model, unprocessable
from .fields import SPARSE_PARTS, as_floats, as_sparse, from_array
from .model import MOST_DIMENSIONS, IndexKind, SparseVector

MOST_ENTRIES = 1 << 20
EXPECTED: Mapping[IndexKind, str] = {
    IndexKind.DENSE: "a list of numbers",
    IndexKind.SPARSE: "a mapping from index to weight",
    IndexKind.HYBRID: "(dense, sparse) or either of the two",
}

MODELS: Mapping[str, int] = {
    "bge-small-en": 384,
    "bge-base-en": 768,
    "bge-large-en": 1024,
    "bge-m3": 1024,
    "bm25": 0,
}
"""The vendor's models with their dense dimensions; each name can be passed as ``embedding``."""
SERVICE_NAMES: Mapping[str, str] = {
    "bge-small-en": "BGE_SMALL_EN_V1_5",
    "bge-base-en": "BGE_BASE_EN_V1_5",
    "bge-large-en": "BGE_LARGE_EN_V1_5",
    "bge-m3": "BGE_M3",
    "bm25": "BM25",
}
"""The names of the models in ``/info`` (vendor's documentation, and tests of its PHP client)."""
SPARSE_MODELS = frozenset(("bge-m3", "bm25"))


def model_of(name: str) -> str:
    """Return the name in ``MODELS`` for any of the vendor's spellings of a model.

    The documentation writes ``BAAI/bge-small-en-v1.5``, the service itself ``BGE_SMALL_EN_V1_5``.
    Raises ``ContractError`` for an unknown model.
    """
    model = name.lower().replace("_", "-").replace(".", "-").removeprefix("baai/")
    model = re.sub(r"-v\d+(-\d+)*$", "", model)
    if model not in MODELS:
        raise ContractError(unknown_name("model", name, MODELS, "embedding"))
    return model


class Embedder:
    """Embeds text with the built-in hashes, a function or a mapping.

    ``setting`` is True or the name of one of the vendor's models (both use the built-in hashes), a
    function that takes a text, or a mapping from text to vector. A function or mapping returns a
    list of numbers for a dense index; ``{index: weight}``, ``{"indices": …, "values": …}`` or a
    pair of lists for a sparse index; and ``(dense, sparse)`` for a hybrid index. If it returns only
    one of the two for a hybrid index, the built-in hashes make the other. Arrays, tuples and
    generators are accepted as lists, and objects with ``indices`` and ``values`` as sparse vectors.

    ``dimension`` is the length of the dense vectors; if it is None, the first vector determines it.

    Raises ``ContractError`` for an invalid setting, such as an asynchronous function.
    """

    def __init__(self, setting: object, kind: IndexKind, dimension: int | None) -> None:
        self.kind = kind
        model, self._source = _model_and_source(setting, kind)
        if self._source is None:
            dimension = dimension or MODELS.get(model) or DEFAULT_DIMENSION
        self.dimension = dimension
        dense_name = sparse_name = model
        if self._source is None:
            sparse_name = SERVICE_NAMES[model if model in SPARSE_MODELS else "bm25"]
            dense_name = SERVICE_NAMES.get(model, model)
        self.dense_model = dense_name if kind.has_dense else ""
        self.sparse_model = sparse_name if kind.has_sparse else ""

    def embed(
        self, text: str, *, dimension: int | None = None, query: bool = False
    ) -> tuple[Floats | None, SparseVector | None]:
        """Return the vectors of a text. The words of a ``query`` have equal weights.

        ``dimension`` is the index's current dimension, or None if it has no vectors yet.
        Raises ``VectorError`` 422 if the function or mapping returns no valid vector for the text.
        """
        dense: Floats | None = None
        sparse: SparseVector | None = None
        if self._source is not None:
            dense, sparse = self._from_source(text, self._source)
        if dense is None and self.kind.has_dense:
            dense = hash_dense(text, self.dimension or dimension or DEFAULT_DIMENSION)
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
        except AssertionError as error:
            raise ContractError(
                f"the embedding function failed for the text {text[:80]!r}: {error!r}"
            ) from error
        except Exception as error:
            raise unprocessable(
                f"The embedding function failed for the text {text[:80]!r}: {error!r}"
            ) from error
        try:
            dense, sparse = self._read(value)
        except Exception as error:  # A generator's code runs only while its values are read.
            reason = str(error) if isinstance(error, VectorError) else repr(error)
            raise unprocessable(
                f"The embedding of the text {text[:80]!r} is not usable: {reason}"
            ) from error
        if dense is not None and self.dimension is not None and len(dense) != self.dimension:
            message = invalid_dimension(len(dense), self.dimension).message
            raise unprocessable(f"{message} (the embedding of the text {text[:80]!r})")
        return dense, sparse

    def _read(self, value: Any) -> tuple[Floats | None, SparseVector | None]:
        expected = EXPECTED[self.kind]
        if discard_awaitable(value):
            raise unprocessable(
                f"expected {expected}, got {type(value).__name__}: "
                "the embedding is called during a request and cannot be awaited"
            )
        if self.kind is IndexKind.HYBRID and _is_pair(value):
            dense, sparse = value
            if dense is None and sparse is None:
                raise unprocessable(f"expected {expected}, got neither")
            return (
                None if dense is None else _dense(dense),
                None if sparse is None else _sparse(sparse),
            )
        if value is None:
            raise unprocessable(f"expected {expected}, got None: does the function return it?")
        if self.kind is IndexKind.SPARSE or (self.kind is IndexKind.HYBRID and is_sparse(value)):
            return None, _sparse(value)
        return _dense(value), None


def required(embedder: Embedder | None) -> Embedder:
    """Return the embedder; raise ``VectorError`` 422 if the index has none."""
    if embedder is None:
        raise no_embedding_model()
    return embedder


def _model_and_source(
    setting: object, kind: IndexKind
) -> tuple[str, Callable[[str], object] | None]:
    """Return the name of the model, and the test's function, or None for the built-in hashes.

    Raises ``ContractError`` if one of the vendor's models does not suit the kind of the index.
    """
    if setting is True:
        return "hash", None
    if isinstance(setting, str):
        model = model_of(setting)
        if kind is IndexKind.SPARSE and model not in SPARSE_MODELS:
            raise ContractError(
                f"embedding={setting!r} has no sparse vectors: for a sparse index, pass one of "
                f"{', '.join(sorted(SPARSE_MODELS))}, True, a function or a mapping"
            )
        if kind.has_dense and not MODELS[model]:
            raise ContractError(
                f"embedding={setting!r} has no dense vectors: pass another model, True, a function "
                "or a mapping, or make the index with kind='sparse'"
            )
        return model, None
    if isinstance(setting, Mapping):
        return "mapping", partial(_look_up, setting)
    if callable(setting):
        _check_function(setting)
        return str(getattr(setting, "__name__", type(setting).__name__)), setting
    raise ContractError(
        f"embedding={setting!r} is invalid: pass True, the name of a model, a function "
        "from text to vector, or a mapping from text to vector"
    )


def _check_function(function: Callable[..., object]) -> None:
    call = getattr(function, "__call__", None)  # noqa: B004
    if any(map(inspect.iscoroutinefunction, (function, call))):
        raise ContractError(
            f"embedding={function!r:.200} is asynchronous, but it is called during a "
            "request and cannot be awaited: pass a plain function of the text"
        )
    try:
        signature_of(function).bind("text")
    except ValueError:  # Some C functions have no signature to check.
        pass
    except TypeError as error:
        raise ContractError(
            f"embedding={function!r:.200} cannot be called with the text as its only argument: {error}"
        ) from None


def _look_up(texts: Mapping[str, object], text: str) -> object:
    try:
        return texts[text]
    except KeyError:
        near = did_you_mean(text, map(str, texts))
        raise unprocessable(
            f"The embedding mapping has no vector for the text {text[:80]!r}{near}"
        ) from None


def _is_pair(value: object) -> bool:
    """Return whether a value is a dense and a sparse vector, rather than two numbers."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        return False
    return all(part is None or is_sequence(part) or is_sparse(part) for part in value)


def is_sparse(value: object) -> bool:
    """Return whether a value has the form of a sparse vector: a mapping, or indices and values."""
    return isinstance(value, Mapping) or (hasattr(value, "indices") and hasattr(value, "values"))


def _dense(value: Any) -> Floats:
    if isinstance(value, np.ndarray):
        return from_array(value.astype(np.float32) if value.dtype == np.bool_ else value)
    if is_sequence(value):
        value = list(map(_number, _listed(value, MOST_DIMENSIONS)))
    return as_floats(value)


def _listed(values: Iterable[Any], most: int) -> list[Any]:
    taken = list(itertools.islice(values, most + 1))
    if len(taken) > most:
        raise unprocessable(f"it has more than {most} numbers")
    return taken


def _number(value: Any) -> Any:
    """Convert a number of any type to a Python number. Return other values, rejected later, as is."""
    if isinstance(value, str | bytes):
        return value
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return value


def _sparse(value: Any) -> SparseVector:
    """Convert any of the forms of a sparse vector that the class ``Embedder`` describes."""
    if isinstance(value, SparseVector):
        return value
    if isinstance(value, Mapping) and "indices" not in value:
        value = {"indices": list(value), "values": list(value.values())}
    elif isinstance(value, tuple | list) and len(value) == 2:
        value = {"indices": value[0], "values": value[1]}
    elif not isinstance(value, Mapping) and is_sparse(value):
        value = {"indices": value.indices, "values": value.values}
    if isinstance(value, Mapping) and all(is_sequence(value.get(name)) for name in SPARSE_PARTS):
        indices, values = (_listed(value[name], MOST_ENTRIES) for name in ("indices", "values"))
        value = {"indices": list(map(_index, indices)), "values": list(map(_number, values))}
    return as_sparse(value)


def _index(value: Any) -> Any:
    """Convert any integer, or a string of one (a name in a JSON object), to ``int``."""
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"-?\d{1,10}", value) else value
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return int(value)
    return int(value) if isinstance(value, np.integer) else value


def is_sequence(value: object) -> bool:
    """Return whether a value is iterable and not a string, bytes or a mapping."""
    return hasattr(value, "__iter__") and not isinstance(value, str | bytes | Mapping)


# The parameters of BM25: the saturation of repeated words, the influence of a text's length, and
# the average number of words in a text.
K1 = 1.2
B = 0.75
AVERAGE_LENGTH = 32

_STOP_WORDS = """
a about above after again all also am an and any are as at be because been before being
below between both but by can did do does doing down during each few for from further had
has have having he her here hers him his how i if in into is it its itself just me more
most my no nor not now of off on once only or other our ours out over own same she so some
such than that the their theirs them then there these they this those through to too under
until up very was we were what when where which while who whom why will with you your
yours
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())


@cache
def stemmer() -> Callable[[str], str]:
    """Return a function of a word that returns the stem that related forms have in common."""
    # Imported here, because most indexes embed no sparse vectors.
    from Stemmer import Stemmer

    stem: Callable[[str], str] = Stemmer("english", 0).stemWord
    return stem


def hash_sparse(text: str, *, query: bool = False) -> SparseVector:
    """Return hashes of the stemmed words with their BM25 weights, or the weight 1 in a query.

    If a text contains only stop words, they are kept, because a sparse vector cannot be empty.
    """
    tokens, stem = words(text), stemmer()
    terms = [stem(word) for word in tokens if word not in STOP_WORDS] or tokens
    saturation = K1 * (1 - B + B * len(terms) / AVERAGE_LENGTH)
    weights: dict[int, float] = {}
    for term, count in Counter(terms).items():
        dimension = zlib.crc32(term.encode()) >> 1
        weight = 1.0 if query else count * (K1 + 1) / (count + saturation)
        weights[dimension] = weights.get(dimension, 0.0) + weight
    count = len(weights)
    return SparseVector(
        np.fromiter(weights, np.int32, count), np.fromiter(weights.values(), np.float32, count)
    )
