"""Geospatial commands. Positions are stored as the scores of a sorted set: 52-bit geohashes.

The arithmetic repeats the double-precision operations of Redis step by step, because results depend
on them: the members of a cell, distances with four decimals, and positions with seventeen decimals.
Existing libraries produce geohashes as strings of five bits per character, but 52 bits are not a
whole number of such characters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from .. import errors
from ..engine.sessions import Session
from ..errors import CommandError
from ..reply import NIL_ARRAY, PrintedDouble, Reply
from ..syntax import parse_float, parse_int
from ..table.registry import Args, CommandSpec, command, variant
from ..values.zset import SortedSet
from .arguments import get_or_empty, parse_options
from .sorted_set import add_scores, leading_options

STEPS = 26
"""Number of bits for each coordinate in a stored score."""

LONGITUDE = (-180.0, 180.0)
LATITUDE = (-85.05112878, 85.05112878)
_ALPHABET = b"0123456789bcdefghjkmnpqrstuvwxyz"
_EARTH_RADIUS = 6372797.560856
_MERCATOR_MAX = 20037726.37
_DEGREE = math.pi / 180.0

UNITS = {b"m": 1.0, b"km": 1000.0, b"ft": 0.3048, b"mi": 1609.34}
"""Lengths of the units in metres."""


def _spread(number: int) -> int:
    """Insert a zero bit before each bit of a number, by reading its bits as digits of base 4."""
    return int(f"{number:b}", 4)


def _squeeze(number: int) -> int:
    """Undo `_spread()`, ignoring the inserted bits."""
    return int(f"{number:064b}"[1::2], 2)


def encode(
    longitude: float, latitude: float, steps: int = STEPS, latitudes: tuple[float, float] = LATITUDE
) -> int:
    """Return the cell of a position in ``steps`` bits per coordinate, by default its score."""
    across = (longitude - LONGITUDE[0]) / (LONGITUDE[1] - LONGITUDE[0])
    up = (latitude - latitudes[0]) / (latitudes[1] - latitudes[0])
    cells = 1 << steps
    return _spread(int(up * cells) & 0xFFFFFFFF) | _spread(int(across * cells) & 0xFFFFFFFF) << 1


@dataclass(frozen=True, slots=True)
class Cell:
    """A rectangle of the grid that halves the range of each coordinate ``steps`` times."""

    bits: int
    steps: int

    def bounds(self) -> tuple[float, float, float, float]:
        """Return the west, south, east, and north bounds in degrees."""
        up, across = _squeeze(self.bits), _squeeze(self.bits >> 1)
        cells = 1 << self.steps
        height, width = LATITUDE[1] - LATITUDE[0], LONGITUDE[1] - LONGITUDE[0]
        return (
            LONGITUDE[0] + (across * 1.0 / cells) * width,
            LATITUDE[0] + (up * 1.0 / cells) * height,
            LONGITUDE[0] + ((across + 1) * 1.0 / cells) * width,
            LATITUDE[0] + ((up + 1) * 1.0 / cells) * height,
        )

    def moved(self, east: int, north: int) -> Cell:
        """Return the cell this many cells to the east and north, wrapping around at the edges.

        The highest longitude and latitude belong to cells after the last ones (see `encode()`). As
        in Redis, a coordinate wraps around only if it moves, so these cells are found.
        """
        mask = (1 << self.steps) - 1
        up, across = _squeeze(self.bits), _squeeze(self.bits >> 1)
        if north:
            up = (up + north) & mask
        if east:
            across = (across + east) & mask
        return Cell(_spread(up) | _spread(across) << 1, self.steps)

    def scores(self) -> tuple[int, int]:
        """Return the lowest score in the cell and the lowest one above the cell."""
        shift = 2 * (STEPS - self.steps)
        return self.bits << shift, (self.bits + 1) << shift


def decode(score: float) -> tuple[float, float]:
    """Return the (longitude, latitude) at the centre of a score's cell."""
    # A score that does not come from GEOADD can be any number. Like Redis, cast it to 64 bits.
    bits = int(score) & (1 << 64) - 1 if abs(score) < 1 << 64 else 1 << 63
    west, south, east, north = Cell(bits, STEPS).bounds()
    longitude = min(max((west + east) / 2, LONGITUDE[0]), LONGITUDE[1])
    latitude = min(max((south + north) / 2, LATITUDE[0]), LATITUDE[1])
    return longitude, latitude


def standard_geohash(score: float) -> bytes:
    """Return the standard geohash of a stored position: 11 characters, of which the last is ``0``."""
    bits = encode(*decode(score), latitudes=(-90.0, 90.0))
    letters = [_ALPHABET[bits >> (52 - 5 * i) & 31] for i in range(1, 11)]
    return bytes((*letters, _ALPHABET[0]))


def _latitude_distance(south: float, north: float) -> float:
    return _EARTH_RADIUS * abs(north * _DEGREE - south * _DEGREE)


def distance(longitude1: float, latitude1: float, longitude2: float, latitude2: float) -> float:
    """Return the great-circle (haversine) distance in metres between two positions."""
    v = math.sin((longitude2 * _DEGREE - longitude1 * _DEGREE) / 2)
    if v == 0.0:
        return _latitude_distance(latitude1, latitude2)
    radians1, radians2 = latitude1 * _DEGREE, latitude2 * _DEGREE
    u = math.sin((radians2 - radians1) / 2)
    a = u * u + math.cos(radians1) * math.cos(radians2) * v * v
    return 2.0 * _EARTH_RADIUS * math.asin(math.sqrt(min(a, 1.0)))


@dataclass(frozen=True, slots=True)
class Shape:
    """A search area around a centre: a circle or a box, with lengths in units of ``unit`` metres."""

    longitude: float
    latitude: float
    unit: float
    radius: float | None = None
    width: float = 0.0
    height: float = 0.0

    def distance_inside(self, longitude: float, latitude: float) -> float | None:
        """Return the distance in metres from the centre, or None outside the search area."""
        if self.radius is not None:
            metres = distance(self.longitude, self.latitude, longitude, latitude)
            return metres if metres <= self.radius * self.unit else None
        if _latitude_distance(latitude, self.latitude) > self.height * self.unit / 2:
            return None
        # The width is measured along the position's own parallel, so a box narrows to the equator.
        if distance(longitude, latitude, self.longitude, latitude) > self.width * self.unit / 2:
            return None
        return distance(self.longitude, self.latitude, longitude, latitude)

    def _bounding_box(self) -> tuple[float, float, float, float]:
        half_height = self.unit * (self.height / 2 if self.radius is None else self.radius)
        half_width = self.unit * (self.width / 2 if self.radius is None else self.radius)
        up = half_height / _EARTH_RADIUS / _DEGREE
        toward_pole = self.latitude - up if self.latitude < 0 else self.latitude + up
        # As in C, the cosine of an infinity is not a number.
        cosine = math.nan if math.isinf(toward_pole) else math.cos(toward_pole * _DEGREE)
        across = half_width / _EARTH_RADIUS / cosine / _DEGREE
        longitude, latitude = self.longitude, self.latitude
        return longitude - across, latitude - up, longitude + across, latitude + up

    def _steps(self) -> int:
        metres = self.radius
        if metres is None:
            across, up = self.width / 2, self.height / 2
            metres = math.sqrt(across * across + up * up)
        metres *= self.unit
        if metres == 0:
            return STEPS
        steps = 1
        while metres < _MERCATOR_MAX:
            metres *= 2
            steps += 1
        # Like Redis, take larger cells towards the poles, where cells cover fewer metres.
        steps -= 2 + (abs(self.latitude) > 66) + (abs(self.latitude) > 80)
        return min(max(steps, 1), STEPS)

    def cells(self) -> Iterator[Cell]:
        """Yield the cells that cover the area, in the same order as Redis."""
        west, south, east, north = self._bounding_box()
        steps = self._steps()
        centre = Cell(encode(self.longitude, self.latitude, steps), steps)
        too_small = (
            centre.moved(0, 1).bounds()[3] < north
            or centre.moved(0, -1).bounds()[1] > south
            or centre.moved(1, 0).bounds()[2] < east
            or centre.moved(-1, 0).bounds()[0] > west
        )
        if steps > 1 and too_small:
            steps -= 1
            centre = Cell(encode(self.longitude, self.latitude, steps), steps)
        cell_west, cell_south, cell_east, cell_north = centre.bounds()
        previous = None
        for across, up in (
            (0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1),
        ):  # fmt: skip
            if steps >= 2 and (
                (up < 0 and cell_south < south)
                or (up > 0 and cell_north > north)
                or (across < 0 and cell_west < west)
                or (across > 0 and cell_east > east)
            ):
                continue
            cell = centre.moved(across, up)
            # With a huge radius, neighbouring cells wrap around and coincide: skip repeated ones.
            if previous is not None and cell == previous:
                continue
            yield cell
            previous = cell


# -- members and positions -----------------------------------------------------------------------


def _parse_position(longitude_text: bytes, latitude_text: bytes) -> tuple[float, float]:
    longitude, latitude = parse_float(longitude_text), parse_float(latitude_text)
    if not (LONGITUDE[0] <= longitude <= LONGITUDE[1] and LATITUDE[0] <= latitude <= LATITUDE[1]):
        raise CommandError(errors.geo_position(longitude, latitude))
    return longitude, latitude


def _parse_unit(text: bytes) -> float:
    metres = UNITS.get(text.lower())
    if metres is None:
        raise CommandError(errors.GEO_UNIT)
    return metres


def _position_reply(session: Session, score: float) -> list[Reply]:
    """Return both coordinates with up to 17 decimals and no trailing zeros, as Redis prints them."""
    reply: list[Reply] = []
    for degrees in decode(score):
        text = f"{degrees:.17f}".rstrip("0").rstrip(".").encode()
        reply.append(PrintedDouble(degrees, text) if session.resp > 2 else text)
    return reply


@command("GEOADD")
def geoadd(session: Session, args: Args) -> Reply:
    """Add members with their longitude and latitude to a geospatial index."""
    words, at = leading_options(session, args)
    if (len(args) - at) % 3 or at == len(args) or {b"NX", b"XX"} <= words:
        raise CommandError(errors.SYNTAX)
    pairs = [
        (float(encode(*_parse_position(args[i], args[i + 1]))), args[i + 2])
        for i in range(at, len(args), 3)
    ]
    return add_scores(session, args[0], pairs, words)


def _scores(session: Session, args: Args) -> list[float | None]:
    return list(map(get_or_empty(session, args[0], SortedSet).scores.get, args[1:]))


@command("GEOPOS")
def geopos(session: Session, args: Args) -> Reply:
    """Return the longitude and latitude of members."""
    scores = _scores(session, args)
    return [NIL_ARRAY if score is None else _position_reply(session, score) for score in scores]


@command("GEOHASH")
def geohash(session: Session, args: Args) -> Reply:
    """Return the standard geohash strings of members."""
    return [None if score is None else standard_geohash(score) for score in _scores(session, args)]


@command("GEODIST")
def geodist(session: Session, args: Args) -> Reply:
    """Return the distance between two members."""
    if len(args) > 4:
        raise CommandError(errors.SYNTAX)
    unit = _parse_unit(args[3]) if len(args) == 4 else 1.0
    first, second = _scores(session, args[:3])
    if first is None or second is None:
        return None
    metres = distance(*decode(first), *decode(second))
    return b"%.4f" % (metres / unit)


@dataclass(slots=True)
class _GeoSearch:
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

    def take_member(self, member: bytes) -> None:
        if self.members is not None:
            score = self.members.scores.get(member)
            if score is None:
                raise CommandError(errors.GEO_MEMBER)
            self.centre = decode(score)

    def take_options(self, args: Args, spec: CommandSpec) -> None:
        sizes = {b"WITHDIST": 0, b"WITHHASH": 0, b"WITHCOORD": 0, **spec.option_sizes}
        for word, values in parse_options(args, 0, sizes):
            match word:
                case b"WITHDIST" | b"WITHHASH" | b"WITHCOORD":
                    self.with_words.add(word)
                case b"ANY":
                    self.any_order = True
                case b"ASC" | b"DESC":
                    self.order = word
                case b"COUNT":
                    self.count = parse_int(values[0], 1, outside=errors.GEO_COUNT)
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
                    width = parse_float(values[0], errors.GEO_WIDTH)
                    self.box = (width, parse_float(values[1], errors.GEO_HEIGHT))
                    if min(self.box) < 0:
                        raise CommandError(errors.GEO_BOX_NEGATIVE)
                    self.unit = _parse_unit(values[2])
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


class _Hit(NamedTuple):
    member: bytes
    score: float
    metres: float
    """The distance from the centre."""


def _hits(members: SortedSet, shape: Shape) -> Iterator[_Hit]:
    for cell in shape.cells():
        start, stop = members.span(*cell.scores())
        for score, member in members.slice(start, stop):
            metres = shape.distance_inside(*decode(score))
            if metres is not None:
                yield _Hit(member, score, metres)


def _search_reply(session: Session, search: _GeoSearch, args: Args) -> Reply:
    """Parse the options in ``args``, and return or store the hits."""
    spec = session.command
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
        event = "geosearchstore" if is_geosearch else "georadiusstore"
        return session.db.store(search.target, SortedSet(scores).as_stored(), event)
    return [_hit_reply(session, search, hit) for hit in hits]


def _hit_reply(session: Session, search: _GeoSearch, hit: _Hit) -> Reply:
    item: list[Reply] = [hit.member]
    if b"WITHDIST" in search.with_words:
        item.append(b"%.4f" % (hit.metres / search.unit))
    if b"WITHHASH" in search.with_words:
        item.append(int(hit.score))
    if b"WITHCOORD" in search.with_words:
        item.append(_position_reply(session, hit.score))
    return item if search.with_words else hit.member


@variant("GEORADIUS", "Return the members within a radius of a position, or store them in a key.")
@variant("GEORADIUS_RO", "Return the members within a radius of a position, without storing them.")
def georadius(session: Session, args: Args) -> Reply:
    search = _GeoSearch(session.db.get(args[0], SortedSet))
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
    search = _GeoSearch(session.db.get(args[0], SortedSet))
    search.take_member(args[1])
    if search.members is not None:
        search.take_radius(args[2], args[3])
    return _search_reply(session, search, args[4:])


@command("GEOSEARCH")
def geosearch(session: Session, args: Args) -> Reply:
    """Return the members inside a circle or a box."""
    return _search_reply(session, _GeoSearch(session.db.get(args[0], SortedSet)), args[1:])


@command("GEOSEARCHSTORE")
def geosearchstore(session: Session, args: Args) -> Reply:
    """Store the members inside a circle or a box in a key and return their number."""
    search = _GeoSearch(session.db.get(args[1], SortedSet), target=args[0])
    return _search_reply(session, search, args[2:])
