"""Geohashes as Redis stores them (52-bit interleaved integers), and searches in an area.

The arithmetic repeats the double-precision operations of Redis step by step, because results depend
on them: the members of a cell, distances with four decimals, and positions with seventeen decimals.
Existing libraries produce geohashes as strings of five bits per character, but 52 bits are not a
whole number of such characters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

STEPS = 26
"""Number of bits for each coordinate in a stored score."""

LONGITUDE = (-180.0, 180.0)
LATITUDE = (-85.05112878, 85.05112878)
_STANDARD_LATITUDE = (-90.0, 90.0)
_ALPHABET = b"0123456789bcdefghjkmnpqrstuvwxyz"
_EARTH_RADIUS = 6372797.560856
_MERCATOR_MAX = 20037726.37
_DEGREE = math.pi / 180.0

UNITS = {b"m": 1.0, b"km": 1000.0, b"ft": 0.3048, b"mi": 1609.34}
"""Lengths of the units in metres."""


def in_bounds(longitude: float, latitude: float) -> bool:
    """Return whether a position can be stored: within ±180 degrees east and ±85.05112878 north."""
    return LONGITUDE[0] <= longitude <= LONGITUDE[1] and LATITUDE[0] <= latitude <= LATITUDE[1]


def _spread(number: int) -> int:
    """Insert a zero bit after each bit of a 32-bit number."""
    number = (number | number << 16) & 0x0000FFFF0000FFFF
    number = (number | number << 8) & 0x00FF00FF00FF00FF
    number = (number | number << 4) & 0x0F0F0F0F0F0F0F0F
    number = (number | number << 2) & 0x3333333333333333
    return (number | number << 1) & 0x5555555555555555


def _squeeze(number: int) -> int:
    """Undo `_spread()`, ignoring the inserted bits."""
    number &= 0x5555555555555555
    number = (number | number >> 1) & 0x3333333333333333
    number = (number | number >> 2) & 0x0F0F0F0F0F0F0F0F
    number = (number | number >> 4) & 0x00FF00FF00FF00FF
    number = (number | number >> 8) & 0x0000FFFF0000FFFF
    return (number | number >> 16) & 0x00000000FFFFFFFF


def encode(
    longitude: float, latitude: float, steps: int = STEPS, latitudes: tuple[float, float] = LATITUDE
) -> int:
    """Return the cell of a position in ``steps`` bits per coordinate, with the latitude in even bits.

    With the default for ``steps``, the cell is the score of the position.
    """
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
        """Return the scores of the positions in the cell, as a range ``start <= score < stop``."""
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


def text(score: float) -> bytes:
    """Return the standard geohash of a stored position: 11 characters, of which the last is ``0``."""
    bits = encode(*decode(score), latitudes=_STANDARD_LATITUDE)
    letters = [_ALPHABET[bits >> (52 - 5 * i) & 31] for i in range(1, 11)]
    return bytes((*letters, _ALPHABET[0]))


def _cosine(radians: float) -> float:
    """Return the cosine of an angle; NaN for an infinity, as in C."""
    return math.nan if math.isinf(radians) else math.cos(radians)


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
        across = half_width / _EARTH_RADIUS / _cosine(toward_pole * _DEGREE) / _DEGREE
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
