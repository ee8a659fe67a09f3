"""Geospatial commands. Positions are stored as the scores of a sorted set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import islice
from typing import NamedTuple

from ...core.budget import spend
from .. import errors
from ..algorithms import geohash
from ..algorithms.geohash import UNITS, Shape
from ..engine.sessions import Session
from ..errors import CommandError
from ..reply import NIL_ARRAY, PrintedDouble, Reply
from ..table.registry import Args, CommandSpec, command, variant
from ..table.syntax import parse_float, parse_int
from ..values.zset import ScoreRange, SortedSet
from .arguments import options, running
from .sorted_set.members import add_scores, leading_words

_SEVENTEEN = Decimal(1).scaleb(-17)


def _parse_position(longitude_text: bytes, latitude_text: bytes) -> tuple[float, float]:
    longitude, latitude = parse_float(longitude_text), parse_float(latitude_text)
    if not geohash.in_bounds(longitude, latitude):
        raise CommandError(errors.geo_position(longitude, latitude))
    return longitude, latitude


def _parse_unit(text: bytes) -> float:
    metres = UNITS.get(text.lower())
    if metres is None:
        raise CommandError(errors.GEO_UNIT)
    return metres


def _coordinate_reply(session: Session, degrees: float) -> Reply:
    """Return a coordinate with up to 17 decimals and no trailing zeros, as Redis prints it."""
    digits = f"{Decimal(degrees).quantize(_SEVENTEEN, ROUND_HALF_EVEN):f}"
    text = digits.rstrip("0").rstrip(".").encode()
    return PrintedDouble(degrees, text) if session.resp > 2 else text


def _position_reply(session: Session, score: float) -> list[Reply]:
    longitude, latitude = geohash.decode(score)
    return [_coordinate_reply(session, longitude), _coordinate_reply(session, latitude)]


@command("GEOADD")
def geoadd(session: Session, args: Args) -> Reply:
    """Add members with their longitude and latitude to a geospatial index."""
    words, at = leading_words(args, (b"NX", b"XX", b"CH"))
    if (len(args) - at) % 3 or at == len(args) or {b"NX", b"XX"} <= words:
        raise CommandError(errors.SYNTAX)
    pairs = [
        (float(geohash.encode(*_parse_position(args[i], args[i + 1]))), args[i + 2])
        for i in range(at, len(args), 3)
    ]
    return add_scores(session, args[0], pairs, words)


def _scores(session: Session, args: Args) -> list[float | None]:
    members = session.db.get(args[0], SortedSet)
    return [None if members is None else members.score(member) for member in args[1:]]


@command("GEOPOS")
def geopos(session: Session, args: Args) -> Reply:
    """Return the longitude and latitude of members."""
    scores = _scores(session, args)
    return [NIL_ARRAY if score is None else _position_reply(session, score) for score in scores]


@command("GEOHASH")
def geohash_(session: Session, args: Args) -> Reply:
    """Return the standard geohash strings of members."""
    return [None if score is None else geohash.text(score) for score in _scores(session, args)]


@command("GEODIST")
def geodist(session: Session, args: Args) -> Reply:
    """Return the distance between two members."""
    if len(args) > 4:
        raise CommandError(errors.SYNTAX)
    unit = _parse_unit(args[3]) if len(args) == 4 else 1.0
    first, second = _scores(session, args[:3])
    if first is None or second is None:
        return None
    metres = geohash.distance(*geohash.decode(first), *geohash.decode(second))
    return b"%.4f" % (metres / unit)


_WITH = frozenset({b"WITHDIST", b"WITHHASH", b"WITHCOORD"})
_SIZES = {
    **dict.fromkeys((*_WITH, b"ANY", b"ASC", b"DESC"), 0),
    **dict.fromkeys((b"COUNT", b"STORE", b"STOREDIST", b"FROMMEMBER"), 1),
    **dict.fromkeys((b"FROMLONLAT", b"BYRADIUS"), 2),
    b"BYBOX": 3,
}


@dataclass(slots=True)
class _Search:
    """A geospatial search in a sorted set, and the form of its result."""

    members: SortedSet | None
    """The sorted set, or None for a missing key."""
    target: bytes | None = None
    """The key in which the result is stored."""
    stores_distance: bool = False
    origin: bytes | None = None
    """The option that set the centre: FROMMEMBER or FROMLONLAT."""
    centre: tuple[float, float] = (0.0, 0.0)
    """The longitude and latitude, which remain unset for a member of a missing key."""
    unit: float = 1.0
    """The length in metres of the unit of all lengths and of WITHDIST."""
    radius: float | None = None
    box: tuple[float, float] | None = None
    order: bytes = b""
    count: int = 0
    """Maximum number of hits; 0 means no limit."""
    any_order: bool = False
    """Whether ANY is given, so that the first hits are returned, not the closest ones."""
    with_words: set[bytes] = field(default_factory=set)

    def take_radius(self, radius: bytes, unit: bytes) -> None:
        self.radius = parse_float(radius, errors.GEO_RADIUS)
        if self.radius < 0:
            raise CommandError(errors.GEO_RADIUS_NEGATIVE)
        self.unit = _parse_unit(unit)

    def take_box(self, width: bytes, height: bytes, unit: bytes) -> None:
        self.box = (parse_float(width, errors.GEO_WIDTH), parse_float(height, errors.GEO_HEIGHT))
        if min(self.box) < 0:
            raise CommandError(errors.GEO_BOX_NEGATIVE)
        self.unit = _parse_unit(unit)

    def take_member(self, member: bytes) -> None:
        if self.members is not None:
            score = self.members.score(member)
            if score is None:
                raise CommandError(errors.GEO_MEMBER)
            self.centre = geohash.decode(score)

    def take_options(self, args: Args, spec: CommandSpec) -> None:
        """Parse the options of a command."""
        known = spec.option_words | _WITH
        sizes = {word: size for word, size in _SIZES.items() if word in known}
        if self.target is not None:
            # GEOSEARCHSTORE has its target before the options, so its STOREDIST has no value.
            sizes[b"STOREDIST"] = 0
        for word, values in options(args, 0, sizes):
            match word:
                case b"WITHDIST" | b"WITHHASH" | b"WITHCOORD":
                    self.with_words.add(word)
                case b"ANY":
                    self.any_order = True
                case b"ASC" | b"DESC":
                    self.order = word
                case b"COUNT":
                    self.count = parse_int(values[0])
                    if self.count <= 0:
                        raise CommandError(errors.GEO_COUNT)
                case b"STORE" | b"STOREDIST":
                    self.stores_distance = word == b"STOREDIST"
                    self.target = values[0] if values else self.target
                case b"FROMMEMBER" if self.origin in (None, word):
                    self.origin = word
                    self.take_member(*values)
                case b"FROMLONLAT" if self.origin in (None, word):
                    self.origin = word
                    self.centre = _parse_position(*values)
                case b"BYRADIUS" if self.box is None:
                    self.take_radius(*values)
                case b"BYBOX" if self.radius is None:
                    self.take_box(*values)
                case _:
                    raise CommandError(errors.SYNTAX)

    def find(self) -> list[_Hit]:
        if self.members is None:
            return []
        width, height = self.box or (0.0, 0.0)
        shape = Shape(*self.centre, self.unit, self.radius, width, height)
        hits = list(islice(_hits(self.members, shape), self.count if self.any_order else None))
        # COUNT without ANY returns the closest members, so sort the members by distance.
        if self.order or (self.count and not self.any_order):
            hits.sort(key=lambda hit: hit.metres, reverse=self.order == b"DESC")
        return hits[: self.count or None]


_STEPS_PER_POSITION = 30
"""Budget steps for decoding and comparing the position of a member, or for formatting a part of it."""


class _Hit(NamedTuple):
    member: bytes
    score: float
    metres: float
    """The distance from the centre."""


def _hits(members: SortedSet, shape: Shape) -> Iterator[_Hit]:
    for cell in shape.cells():
        low, high = cell.scores()
        start, stop = members.span(ScoreRange(low, high, high_exclusive=True))
        spend(_STEPS_PER_POSITION * (stop - start))
        for score, member in members.slice(start, stop):
            metres = shape.distance_inside(*geohash.decode(score))
            if metres is not None:
                yield _Hit(member, score, metres)


def _search_reply(session: Session, search: _Search, args: Args) -> Reply:
    """Parse the options in ``args``, and return or store the hits."""
    spec = running(session)
    is_geosearch = spec.name.startswith("GEOSEARCH")
    search.take_options(args, spec)
    if search.target is not None and search.with_words:
        raise CommandError(errors.GEOSEARCHSTORE_WITH if is_geosearch else errors.GEO_STORE_WITH)
    if is_geosearch and search.origin is None:
        raise CommandError(errors.geo_centre(spec.name))
    if is_geosearch and search.radius is None and search.box is None:
        raise CommandError(errors.geo_shape(spec.name))
    if search.any_order and not search.count:
        raise CommandError(errors.GEO_ANY)
    hits = search.find()
    if search.target is not None:
        scores = {
            hit.member: hit.metres / search.unit if search.stores_distance else hit.score
            for hit in hits
        }
        return session.db.store(search.target, SortedSet(scores).as_stored())
    spend(_STEPS_PER_POSITION * len(search.with_words) * len(hits))
    return [_hit_reply(session, search, hit) for hit in hits]


def _hit_reply(session: Session, search: _Search, hit: _Hit) -> Reply:
    if not search.with_words:
        return hit.member
    item: list[Reply] = [hit.member]
    if b"WITHDIST" in search.with_words:
        item.append(b"%.4f" % (hit.metres / search.unit))
    if b"WITHHASH" in search.with_words:
        item.append(int(hit.score))
    if b"WITHCOORD" in search.with_words:
        item.append(_position_reply(session, hit.score))
    return item


@variant("GEORADIUS", "Return the members within a radius of a position, or store them in a key.")
@variant("GEORADIUS_RO", "Return the members within a radius of a position, without storing them.")
def georadius(session: Session, args: Args) -> Reply:
    search = _Search(session.db.get(args[0], SortedSet))
    search.centre = _parse_position(args[1], args[2])
    search.take_radius(args[3], args[4])
    return _search_reply(session, search, args[5:])


@variant(
    "GEORADIUSBYMEMBER",
    "Return the members within a radius of another member, or store them in a key.",
)
@variant(
    "GEORADIUSBYMEMBER_RO",
    "Return the members within a radius of another member, without storing them.",
)
def georadiusbymember(session: Session, args: Args) -> Reply:
    search = _Search(session.db.get(args[0], SortedSet))
    search.take_member(args[1])
    if search.members is not None:
        search.take_radius(args[2], args[3])
    return _search_reply(session, search, args[4:])


@command("GEOSEARCH")
def geosearch(session: Session, args: Args) -> Reply:
    """Return the members inside a circle or a box."""
    return _search_reply(session, _Search(session.db.get(args[0], SortedSet)), args[1:])


@command("GEOSEARCHSTORE")
def geosearchstore(session: Session, args: Args) -> Reply:
    """Store the members inside a circle or a box in a key and return their number."""
    search = _Search(session.db.get(args[1], SortedSet), target=args[0])
    return _search_reply(session, search, args[2:])
