"""Geospatial commands. Positions are stored as the scores of a sorted set."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal

from .. import errors
from ..algorithms import geohash
from ..algorithms.geohash import UNITS, Shape
from ..engine.engine import Session
from ..errors import CommandError
from ..reply import NIL_ARRAY, PrintedDouble, Reply
from ..table.registry import Args, command
from ..table.syntax import parse_float, parse_int
from ..values.zset import ScoreRange, SortedSet
from .sorted_set.members import add_scores, store

_SEVENTEEN = Decimal(1).scaleb(-17)


def _position(longitude_text: bytes, latitude_text: bytes) -> tuple[float, float]:
    longitude, latitude = parse_float(longitude_text), parse_float(latitude_text)
    if not geohash.in_bounds(longitude, latitude):
        raise CommandError(errors.geo_position(longitude, latitude))
    return longitude, latitude


def _unit(text: bytes) -> float:
    metres = UNITS.get(text.lower())
    if metres is None:
        raise CommandError(errors.GEO_UNIT)
    return metres


def _coordinate(session: Session, degrees: float) -> Reply:
    """Return a coordinate with up to 17 decimals and no trailing zeros, as Redis prints it."""
    digits = f"{Decimal(degrees).quantize(_SEVENTEEN, ROUND_HALF_EVEN):f}"
    text = digits.rstrip("0").rstrip(".").encode()
    return PrintedDouble(degrees, text) if session.resp > 2 else text


def _place(session: Session, score: float) -> list[Reply]:
    longitude, latitude = geohash.decode(score)
    return [_coordinate(session, longitude), _coordinate(session, latitude)]


def _distance_text(metres: float, unit: float) -> bytes:
    return b"%.4f" % (metres / unit)


@command("GEOADD")
def geoadd(session: Session, args: Args) -> Reply:
    """Add members with their longitude and latitude to a geospatial index."""
    words: set[bytes] = set()
    at = 1
    while at < len(args) and args[at].upper() in (b"NX", b"XX", b"CH"):
        words.add(args[at].upper())
        at += 1
    if (len(args) - at) % 3 or at == len(args) or {b"NX", b"XX"} <= words:
        raise CommandError(errors.SYNTAX)
    pairs = [
        (float(geohash.encode(*_position(args[i], args[i + 1]))), args[i + 2])
        for i in range(at, len(args), 3)
    ]
    return add_scores(session, args[0], pairs, words)


@command("GEOPOS")
def geopos(session: Session, args: Args) -> Reply:
    """Return the longitude and latitude of members."""
    members = session.db.get(args[0], SortedSet)
    found: list[Reply] = []
    for member in args[1:]:
        score = None if members is None else members.score(member)
        found.append(NIL_ARRAY if score is None else _place(session, score))
    return found


@command("GEOHASH")
def geohash_(session: Session, args: Args) -> Reply:
    """Return the standard geohash strings of members."""
    members = session.db.get(args[0], SortedSet)
    found: list[Reply] = []
    for member in args[1:]:
        score = None if members is None else members.score(member)
        found.append(None if score is None else geohash.text(score))
    return found


@command("GEODIST")
def geodist(session: Session, args: Args) -> Reply:
    """Return the distance between two members."""
    if len(args) > 4:
        raise CommandError(errors.SYNTAX)
    unit = _unit(args[3]) if len(args) == 4 else 1.0
    members = session.db.get(args[0], SortedSet)
    if members is None:
        return None
    first, second = members.score(args[1]), members.score(args[2])
    if first is None or second is None:
        return None
    metres = geohash.distance(*geohash.decode(first), *geohash.decode(second))
    return _distance_text(metres, unit)


# -- searching -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Search:
    """The arguments of a geospatial search."""

    name: str
    centre: tuple[float, float] | None = None
    origin: bytes | None = None
    unit: float = 1.0
    radius: float | None = None
    box: tuple[float, float] | None = None
    order: str | None = None
    count: int = 0
    any: bool = False
    with_words: set[bytes] = field(default_factory=set)
    target: bytes | None = None
    by_distance: bool = False

    def take_radius(self, radius: bytes, unit: bytes) -> None:
        self.radius = parse_float(radius, errors.GEO_RADIUS)
        if self.radius < 0:
            raise CommandError(errors.GEO_RADIUS_NEGATIVE)
        self.unit = _unit(unit)

    def take_box(self, width: bytes, height: bytes, unit: bytes) -> None:
        self.box = (parse_float(width, errors.GEO_WIDTH), parse_float(height, errors.GEO_HEIGHT))
        if min(self.box) < 0:
            raise CommandError(errors.GEO_BOX_NEGATIVE)
        self.unit = _unit(unit)

    def take_member(self, members: SortedSet, member: bytes) -> None:
        score = members.score(member)
        if score is None:
            raise CommandError(errors.GEO_MEMBER)
        self.centre = geohash.decode(score)

    def shape(self) -> Shape:
        assert self.centre is not None
        if self.box is not None:
            return Shape(*self.centre, self.unit, None, *self.box)
        return Shape(*self.centre, self.unit, self.radius)


_WITH = frozenset({b"WITHDIST", b"WITHHASH", b"WITHCOORD"})


def _read_common(search: _Search, args: Args, at: int) -> int:
    """Parse an option that all search commands share, and return the position after it.

    Returns ``at`` if the word is another option.
    """
    word = args[at].upper()
    if word in _WITH:
        search.with_words.add(word)
    elif word == b"ANY":
        search.any = True
    elif word in (b"ASC", b"DESC"):
        search.order = word.decode()
    elif word == b"COUNT" and at + 1 < len(args):
        search.count = parse_int(args[at + 1])
        if search.count <= 0:
            raise CommandError(errors.GEO_COUNT)
        return at + 2
    else:
        return at
    return at + 1


def _read_radius_words(search: _Search, args: Args, at: int, *, may_store: bool) -> None:
    while at < len(args):
        following = _read_common(search, args, at)
        if following == at:
            word = args[at].upper()
            if not may_store or word not in (b"STORE", b"STOREDIST") or at + 1 == len(args):
                raise CommandError(errors.SYNTAX)
            search.target, search.by_distance = args[at + 1], word == b"STOREDIST"
            following = at + 2
        at = following
    if search.target is not None and search.with_words:
        raise CommandError(errors.GEO_STORE_WITH)


def _read_search_words(
    search: _Search, members: SortedSet | None, args: Args, at: int, *, storing: bool
) -> None:
    while at < len(args):
        following = _read_common(search, args, at)
        if following == at:
            following = at + _read_search_word(search, members, args, at, storing=storing)
        at = following
    if storing and search.with_words:
        raise CommandError(errors.GEOSEARCHSTORE_WITH)
    if search.origin is None:
        raise CommandError(errors.geo_centre(search.name))
    if search.radius is None and search.box is None:
        raise CommandError(errors.geo_shape(search.name))


def _read_search_word(
    search: _Search, members: SortedSet | None, args: Args, at: int, *, storing: bool
) -> int:
    """Parse an option of GEOSEARCH or GEOSEARCHSTORE; return the number of words that it occupies."""
    word = args[at].upper()
    left = len(args) - at - 1
    if word in (b"FROMMEMBER", b"FROMLONLAT") and search.origin in (None, word):
        if word == b"FROMMEMBER" and left >= 1:
            if members is not None:
                search.take_member(members, args[at + 1])
            search.origin = word
            return 2
        if word == b"FROMLONLAT" and left >= 2:
            search.centre = _position(args[at + 1], args[at + 2])
            search.origin = word
            return 3
    elif word == b"BYRADIUS" and left >= 2 and search.box is None:
        search.take_radius(args[at + 1], args[at + 2])
        return 3
    elif word == b"BYBOX" and left >= 3 and search.radius is None:
        search.take_box(args[at + 1], args[at + 2], args[at + 3])
        return 4
    elif word == b"STOREDIST" and storing:
        search.by_distance = True
        return 1
    raise CommandError(errors.SYNTAX)


@dataclass(frozen=True, slots=True)
class _Hit:
    member: bytes
    score: float
    metres: float


def _find(members: SortedSet, search: _Search) -> list[_Hit]:
    shape = search.shape()
    limit = search.count if search.any else 0
    hits: list[_Hit] = []
    for cell in shape.cells():
        low, high = cell.scores()
        start, stop = members.span(ScoreRange(low, high, high_exclusive=True))
        for score, member in members.slice(start, stop):
            metres = shape.distance_inside(*geohash.decode(score))
            if metres is None:
                continue
            hits.append(_Hit(member, score, metres))
            if len(hits) == limit:
                break
        if limit and len(hits) >= limit:
            break
    # COUNT without ANY returns the closest members, so sort the members by distance.
    order = search.order or ("ASC" if search.count and not search.any else None)
    if order is not None:
        hits.sort(key=lambda hit: hit.metres, reverse=order == "DESC")
    return hits[: search.count] if search.count else hits


def _answer(session: Session, search: _Search, members: SortedSet | None) -> Reply:
    if search.any and not search.count:
        raise CommandError(errors.GEO_ANY)
    hits = [] if members is None else _find(members, search)
    if search.target is not None:
        scores = {
            hit.member: hit.metres / search.unit if search.by_distance else hit.score
            for hit in hits
        }
        return store(session, search.target, SortedSet(scores))
    return [_hit_reply(session, search, hit) for hit in hits]


def _hit_reply(session: Session, search: _Search, hit: _Hit) -> Reply:
    if not search.with_words:
        return hit.member
    item: list[Reply] = [hit.member]
    if b"WITHDIST" in search.with_words:
        item.append(_distance_text(hit.metres, search.unit))
    if b"WITHHASH" in search.with_words:
        item.append(int(hit.score))
    if b"WITHCOORD" in search.with_words:
        item.append(_place(session, hit.score))
    return item


def _georadius(session: Session, args: Args, *, may_store: bool) -> Reply:
    members = session.db.get(args[0], SortedSet)
    search = _Search("georadius", _position(args[1], args[2]))
    search.take_radius(args[3], args[4])
    _read_radius_words(search, args, 5, may_store=may_store)
    return _answer(session, search, members)


def _georadiusbymember(session: Session, args: Args, *, may_store: bool) -> Reply:
    members = session.db.get(args[0], SortedSet)
    search = _Search("georadiusbymember")
    if members is not None:
        search.take_member(members, args[1])
        search.take_radius(args[2], args[3])
    _read_radius_words(search, args, 4, may_store=may_store)
    return _answer(session, search, members)


@command("GEORADIUS")
def georadius(session: Session, args: Args) -> Reply:
    """Return the members within a radius of a position, or store them in a key."""
    return _georadius(session, args, may_store=True)


@command("GEORADIUS_RO")
def georadius_ro(session: Session, args: Args) -> Reply:
    """Return the members within a radius of a position, without storing them."""
    return _georadius(session, args, may_store=False)


@command("GEORADIUSBYMEMBER")
def georadiusbymember(session: Session, args: Args) -> Reply:
    """Return the members within a radius of another member, or store them in a key."""
    return _georadiusbymember(session, args, may_store=True)


@command("GEORADIUSBYMEMBER_RO")
def georadiusbymember_ro(session: Session, args: Args) -> Reply:
    """Return the members within a radius of another member, without storing them."""
    return _georadiusbymember(session, args, may_store=False)


@command("GEOSEARCH")
def geosearch(session: Session, args: Args) -> Reply:
    """Return the members inside a circle or a box."""
    members = session.db.get(args[0], SortedSet)
    search = _Search("GEOSEARCH")
    _read_search_words(search, members, args, 1, storing=False)
    return _answer(session, search, members)


@command("GEOSEARCHSTORE")
def geosearchstore(session: Session, args: Args) -> Reply:
    """Store the members inside a circle or a box in a key and return their number."""
    members = session.db.get(args[1], SortedSet)
    search = _Search("GEOSEARCHSTORE", target=args[0])
    _read_search_words(search, members, args, 2, storing=True)
    return _answer(session, search, members)
