"""Vector sets: elements with vectors and attributes under a key, searched by similarity.

From the documentation of Redis 8. Every search is exact, which the documentation allows, so the options
EF, TRUTH, NOTHREAD and CAS are only checked. FILTER-EF is the number of elements, the nearest ones,
whose attributes are looked at, as a test of redis-py shows. Decided here, because nothing says it:

- Elements with equal scores are in the order in which they were added.
- A vector that is added again replaces the old one. Without a word for its form, it gets that of the
  set.
- The links of an element are the elements nearest to it, at most M, in a single layer. The highest
  level is the logarithm to the base M of the number of elements.
- The UID of a vector set is a random number, which copies share.
- The bits of the form `bin` are in words of 64 bits, the first one the lowest, and the numbers of
  `f32` are those of the vector of length 1.
- Attributes may be any JSON. VADD checks them as VSETATTR does.
- The events of a key have the names of its commands and belong to the class `d`.
"""

from __future__ import annotations

import json
from collections import deque
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Any

from .. import errors
from ..algorithms.attribute_filter import AttributeFilter, FilterError
from ..engine.sessions import Session
from ..errors import CommandError
from ..reply import Bool, Map, Reply
from ..syntax import I64_MAX, decoded, parse_float, parse_int
from ..table.registry import Args, command
from ..table.versions import FILTERS_WITH_IN
from ..values.vector_form import MOST_DIMENSIONS, Form
from .arguments import only_option, parse_negatable, parse_options, random_indexes
from .sorted_set import parse_lex_range
from .vector import read_vector

if TYPE_CHECKING:
    from ...similarity.dense import Floats
    from ..values.vector_set import VectorSet

# NumPy is imported when a vector command runs: other tests do not need it.

_FORMS: dict[bytes, Form] = {b"NOQUANT": "f32", b"Q8": "int8", b"BIN": "bin"}
_OPTIONS_OF_VADD = {
    **dict.fromkeys(_FORMS, 0), b"CAS": 0, b"EF": 1, b"SETATTR": 1, b"M": 1,
}  # fmt: skip
"""The options after the element, with their numbers of arguments."""
_MOST = 1_000_000
"""The highest EF and number of links."""


def _stored(session: Session, key: bytes) -> VectorSet | None:
    from ..values.vector_set import VectorSet

    return session.db.get(key, VectorSet)


def _vector(words: deque[bytes]) -> Floats:
    """Consume a vector: ``FP32 blob`` or ``VALUES count number …``."""
    if not words or words[0].upper() not in (b"FP32", b"VALUES"):
        raise CommandError(errors.SYNTAX)
    return read_vector(words)


def _check_dimension(vectors: VectorSet, vector: Floats) -> None:
    if len(vector) != vectors.expected_dimension:
        expected = vectors.expected_dimension
        raise CommandError(errors.vector_set_dimension(expected, len(vector)))


def _check_attributes(text: bytes) -> None:
    """Raise an error for attributes that are neither JSON nor empty."""
    try:
        if text:
            json.loads(text)
    except (ValueError, RecursionError):
        raise CommandError(errors.VECTOR_ATTRIBUTES) from None


# -- writing ---------------------------------------------------------------------------------------


@command("VADD")
def vadd(session: Session, args: Args) -> Reply:
    """Add an element with its vector, or replace its vector; return whether the element is new."""
    from ..values.vector_set import VectorSet

    key, *others = args
    words, reduced = deque(others), 0
    if words[0].upper() == b"REDUCE" and len(words) > 1:
        words.popleft()
        reduced = parse_int(words.popleft(), 1, error=errors.VECTOR_REDUCE)
    vector = _vector(words)
    if not words:
        raise CommandError(errors.SYNTAX)
    if len(vector) > MOST_DIMENSIONS:
        raise CommandError(errors.VECTOR_TOO_LONG)
    if reduced > len(vector):
        raise CommandError(errors.VECTOR_REDUCE)
    name, form, links, attributes = words.popleft(), None, 16, None
    for word, values in parse_options([*words], 0, _OPTIONS_OF_VADD):
        if word in _FORMS:
            if form not in (None, _FORMS[word]):
                raise CommandError(errors.SYNTAX)
            form = _FORMS[word]
        elif word == b"SETATTR":
            attributes = values[0]
            _check_attributes(attributes)
        elif values:
            number = parse_int(values[0], 1, _MOST)
            links = number if word == b"M" else links
    vectors = _stored(session, key)
    if vectors is None:
        uid = session.engine.random.randrange(2**31)
        lengths = (reduced, len(vector)) if reduced else (len(vector), 0)
        vectors = VectorSet(form or "int8", links, *lengths, uid)
    else:
        _check_dimension(vectors, vector)
        if form not in (None, vectors.form):
            raise CommandError(errors.VECTOR_OTHER_FORM)
        if reduced and (not vectors.input_dimension or reduced != vectors.dimension):
            raise CommandError(errors.VECTOR_OTHER_REDUCE)
    had_elements = len(vectors) > 0
    is_new = vectors.add(name, vector)
    if attributes is not None:
        vectors.set_attributes(name, attributes)
    if had_elements:
        session.db.touch(key)
    else:
        session.db.set(key, vectors)
    return Bool(is_new)


@command("VREM")
def vrem(session: Session, args: Args) -> Reply:
    """Remove an element and return whether it existed."""
    vectors = _stored(session, args[0])
    existed = vectors is not None and vectors.remove(args[1])
    if existed:
        session.db.note_removal(args[0])
    return Bool(existed)


@command("VSETATTR")
def vsetattr(session: Session, args: Args) -> Reply:
    """Set the attributes of an element, or remove them if they are empty."""
    key, name, attributes = args
    _check_attributes(attributes)
    vectors = _stored(session, key)
    if vectors is None or name not in vectors:
        return Bool.FALSE
    vectors.set_attributes(name, attributes)
    session.db.touch(key)
    return Bool.TRUE


# -- reading ---------------------------------------------------------------------------------------


@command("VCARD")
def vcard(session: Session, args: Args) -> Reply:
    """Return the number of elements."""
    return len(_stored(session, args[0]) or ())


@command("VDIM")
def vdim(session: Session, args: Args) -> Reply:
    """Return the number of dimensions of the stored vectors."""
    vectors = _stored(session, args[0])
    if vectors is None:
        raise CommandError(errors.NO_VECTOR_SET)
    return vectors.dimension


@command("VEMB")
def vemb(session: Session, args: Args) -> Reply:
    """Return the numbers of an element's vector; with RAW, the bytes in which it is stored."""
    is_raw = only_option(session, args[2:]) == b"RAW"
    vectors = _stored(session, args[0])
    if vectors is None or args[1] not in vectors:
        return None
    if not is_raw:
        numbers: list[Any] | None = vectors.numbers(args[1])
        return numbers
    raw = vectors.raw(args[1])
    assert raw is not None
    shown: list[Any] = [vectors.form.encode(), raw.blob, raw.norm]
    return shown if raw.range is None else [*shown, raw.range]


@command("VGETATTR")
def vgetattr(session: Session, args: Args) -> Reply:
    """Return the attributes of an element as JSON."""
    vectors = _stored(session, args[0])
    return None if vectors is None else vectors.attributes.get(args[1])


@command("VINFO")
def vinfo(session: Session, args: Args) -> Reply:
    """Return information about a vector set."""
    vectors = _stored(session, args[0])
    if vectors is None:
        return None
    return Map([
        b"quant-type", vectors.form.encode(),
        b"hnsw-m", vectors.links,
        b"vector-dim", vectors.dimension,
        b"projection-input-dim", vectors.input_dimension,
        b"size", len(vectors),
        b"max-level", vectors.levels,
        b"attributes-count", len(vectors.attributes),
        b"vset-uid", vectors.uid,
        b"hnsw-max-node-uid", vectors.added,
    ])  # fmt: skip


@command("VISMEMBER")
def vismember(session: Session, args: Args) -> Reply:
    """Return whether an element is in a vector set."""
    return Bool(args[1] in (_stored(session, args[0]) or ()))


@command("VLINKS")
def vlinks(session: Session, args: Args) -> Reply:
    """Return the elements that are linked with an element, layer by layer."""
    with_scores = bool(only_option(session, args[2:]))
    vectors = _stored(session, args[0])
    linked = None if vectors is None else vectors.linked(args[1])
    if linked is None:
        return None
    return [Map(chain(*linked)) if with_scores else [name for name, _ in linked]]


@command("VRANDMEMBER")
def vrandmember(session: Session, args: Args) -> Reply:
    """Return a random element, or several; a negative count allows repetitions."""
    if len(args) > 2:
        raise CommandError(errors.SYNTAX)
    count = None if len(args) == 1 else parse_negatable(args[1])
    names = list(_stored(session, args[0]) or ())
    if count is None:
        return names[session.engine.random.randrange(len(names))] if names else None
    return [names[at] for at in random_indexes(session, len(names), count)] if names else []


@command("VRANGE")
def vrange(session: Session, args: Args) -> Reply:
    """Return the elements in a range of names."""
    if len(args) > 4:
        raise CommandError(errors.SYNTAX)
    first, stop = parse_lex_range(args[1], args[2])
    count = -1 if len(args) == 3 else parse_int(args[3])
    names = sorted(
        name
        for name in _stored(session, args[0]) or ()
        if first <= name and (stop is None or name < stop)
    )
    return names if count < 0 else names[:count]


@command("VSIM")
def vsim(session: Session, args: Args) -> Reply:
    """Return the elements whose vectors are nearest to a vector, or to that of an element."""
    key, *others = args
    words = deque(others)
    name, vector = None, None
    if words[0].upper() == b"ELE":
        words.popleft()
        name = words.popleft()
    else:
        vector = _vector(words)
    options: dict[bytes, bytes] = {}
    sizes = {word: size for word, size in session.command.option_sizes.items() if word in _OF_VSIM}
    for word, values in parse_options([*words], 0, sizes):
        options[word] = values[0] if values else b""
    count = parse_int(options.get(b"COUNT", b"10"), 1)
    parse_int(options.get(b"EF", b"1"), 1, _MOST)
    effort = parse_int(options.get(b"FILTER-EF", b"%d" % (min(100 * count, I64_MAX))), 0)
    least_score = 1 - parse_float(options.get(b"EPSILON", b"2"))
    accepts = _filter(session, options[b"FILTER"]) if b"FILTER" in options else None
    vectors = _stored(session, key)
    if vectors is None:
        return []
    if vector is None:
        assert name is not None
        searched = vectors.stored(name)
        if searched is None:
            raise CommandError(errors.NO_ELEMENT)
    else:
        _check_dimension(vectors, vector)
        searched = vectors.searched(vector)
    attributes = vectors.attributes
    accept = None if accepts is None else lambda name: accepts.matches(attributes.get(name))
    budget = min(effort, len(vectors)) or None
    nearest = vectors.nearest(searched, min(count, len(vectors)), accept, budget)
    similar = list(takewhile(lambda item: item[1] >= least_score, nearest))
    with_scores, with_attributes = b"WITHSCORES" in options, b"WITHATTRIBS" in options
    if with_scores and with_attributes:
        if session.resp > 2:
            return Map(
                part for name, score in similar for part in (name, [score, attributes.get(name)])
            )
        return [part for name, score in similar for part in (name, score, attributes.get(name))]
    if with_scores:
        return Map(chain(*similar))
    if with_attributes:
        return Map(part for name, _ in similar for part in (name, attributes.get(name)))
    return [name for name, _ in similar]


_OF_VSIM = frozenset({
    b"WITHSCORES", b"WITHATTRIBS", b"COUNT", b"EPSILON", b"EF", b"FILTER", b"FILTER-EF", b"TRUTH",
    b"NOTHREAD",
})  # fmt: skip
"""The options after the vector."""


def _filter(session: Session, text: bytes) -> AttributeFilter:
    try:
        return AttributeFilter(decoded(text), has_in=session.engine.table.knows[FILTERS_WITH_IN])
    except FilterError as error:
        raise CommandError(errors.vector_filter(str(error))) from None
