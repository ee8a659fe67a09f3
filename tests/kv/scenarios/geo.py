"""Geo commands: command lines, and the replies of Redis 7.0 or Valkey 9.1."""

from __future__ import annotations

from typing import Any

from pytest_fakecloud.kv.reply import NIL_ARRAY, OK

from . import NOT_A_FLOAT, NOT_AN_INTEGER, SYNTAX_ERROR, WRONG_TYPE, Scenario, error

UNSUPPORTED_UNIT = error("ERR unsupported unit provided. please use M, KM, FT, MI")
STORE_WITH_EXTRAS = error(
    "ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
)
NO_SUCH_MEMBER = error("ERR could not decode requested zset member")
NO_RADIUS = error("ERR need numeric radius")

TOWNS: dict[str, tuple[int, list[bytes]]] = {
    "Palermo": (3479099956230698, [b"13.36138933897018433", b"38.11555639549629859"]),
    "Catania": (3479447370796909, [b"15.08726745843887329", b"37.50266842333162032"]),
    "edge2": (3481342659049484, [b"17.24151045083999634", b"38.78813451624225195"]),
    "edge1": (3479273021651468, [b"12.7584877610206604", b"38.78813451624225195"]),
}
"""The geohash and the position of each town."""


def found(name: str, distance: str) -> list[Any]:
    """Return a town as a search with WITHDIST, WITHHASH and WITHCOORD reports it."""
    geohash, position = TOWNS[name]
    return [name.encode(), distance.encode(), geohash, position]


SCENARIOS: dict[str, Scenario] = {
    "positions": [
        ("GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", 2),
        ("GEOADD g NX 2.349014 48.864716 Palermo 2.349014 48.864716 Paris", 1),
        ("GEOADD g XX CH 13.5 38.2 Palermo 0 0 Null", 1),
        ("GEOADD g CH 13.361389 38.115556 Palermo", 1),
        ("GEOPOS g Palermo None Catania", [TOWNS["Palermo"][1], NIL_ARRAY, TOWNS["Catania"][1]]),
        ("GEOPOS none a b", [NIL_ARRAY, NIL_ARRAY]),
        ("GEOHASH g Palermo None", [b"sqc8b49rny0", None]),
        ("GEOHASH none a", [None]),
        ("GEOHASH g", []),
        ("ZSCORE g Palermo", b"3479099956230698"),
        ("ZRANGE g 0 -1", [b"Palermo", b"Catania", b"Paris"]),
        ("GEOADD g NX XX 1 1 a", SYNTAX_ERROR),
        ("GEOADD g 1 1", error("ERR wrong number of arguments for 'geoadd' command")),
        ("GEOADD g 1 1 a 2", SYNTAX_ERROR),
        ("GEOADD g abc 1 a", NOT_A_FLOAT),
        ("GEOADD g 181 1 a", error("ERR invalid longitude,latitude pair 181.000000,1.000000")),
        ("GEOADD g 1 86 a", error("ERR invalid longitude,latitude pair 1.000000,86.000000")),
        ("GEOADD g 180 85.05112878 Corner", 1),
        ("GEOPOS g Corner", [[b"180", b"85.0511287799999991"]]),
    ],
    "distances": [
        ("GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania 13.361389 40 North", 3),
        ("GEODIST g Palermo Catania", b"166274.1516"),
        ("GEODIST g Palermo Catania m", b"166274.1516"),
        ("GEODIST g Palermo Catania km", b"166.2742"),
        ("GEODIST g Palermo Catania MI", b"103.3182"),
        ("GEODIST g Palermo Catania ft", b"545518.8700"),
        ("GEODIST g Palermo North", b"209599.6798"),
        ("GEODIST g Palermo Palermo", b"0.0000"),
        ("GEODIST g Palermo None", None),
        ("GEODIST none a b", None),
        ("GEODIST g Palermo Catania parsec", UNSUPPORTED_UNIT),
        ("GEODIST g Palermo Catania km extra", SYNTAX_ERROR),
    ],
    "around a position": [
        (
            "GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania 12.758489 "
            "38.788135 edge1 17.241510 38.788135 edge2",
            4,
        ),
        ("GEORADIUS g 15 37 200 km", [b"Palermo", b"Catania"]),
        (
            "GEORADIUS g 15 37 200 km WITHDIST WITHCOORD WITHHASH",
            [found("Palermo", "190.4424"), found("Catania", "56.4413")],
        ),
        ("GEORADIUS g 15 37 200 km DESC", [b"Palermo", b"Catania"]),
        ("GEORADIUS g 15 37 200 km ASC COUNT 1", [b"Catania"]),
        ("GEORADIUS g 15 37 200 km COUNT 1 ANY", [b"Palermo"]),
        ("GEORADIUS g 15 37 200 km COUNT 1", [b"Catania"]),
        ("GEORADIUS g 15 37 1 m", []),
        ("GEORADIUS g 15 37 600000 ft", [b"Catania"]),
        (
            "GEORADIUS g 15 37 125 mi WITHDIST",
            [[b"Palermo", b"118.3357"], [b"Catania", b"35.0711"]],
        ),
        ("GEORADIUS none 15 37 200 km", []),
        ("GEORADIUS g 15 37 200 km STORE d", 2),
        (
            "ZRANGE d 0 -1 WITHSCORES",
            [b"Palermo", b"3479099956230698", b"Catania", b"3479447370796909"],
        ),
        ("GEORADIUS g 15 37 200 km STOREDIST d", 2),
        (
            "ZRANGE d 0 -1 WITHSCORES",
            [b"Catania", b"56.441257870158204", b"Palermo", b"190.44242984775784"],
        ),
        ("GEORADIUS none 15 37 200 km STORE d", 0),
        ("EXISTS d", 0),
        ("GEORADIUS g 15 37 200 km STORE d WITHDIST", STORE_WITH_EXTRAS),
        ("GEORADIUS g 15 37 200 km COUNT 0", error("ERR COUNT must be > 0")),
        ("GEORADIUS g 15 37 200 km COUNT abc", NOT_AN_INTEGER),
        ("GEORADIUS g 15 37 200 km ANY", error("ERR the ANY argument requires COUNT argument")),
        ("GEORADIUS g 15 37 200 km FOO", SYNTAX_ERROR),
        ("GEORADIUS g 15 37 abc km", NO_RADIUS),
        ("GEORADIUS g 15 37 -1 km", error("ERR radius cannot be negative")),
        ("GEORADIUS g 15 37 200 parsec", UNSUPPORTED_UNIT),
        (
            "GEORADIUS g 181 37 200 km",
            error("ERR invalid longitude,latitude pair 181.000000,37.000000"),
        ),
        ("GEORADIUS g abc 37 200 km", NOT_A_FLOAT),
        (
            "GEORADIUS_RO g 15 37 200 km WITHDIST WITHCOORD WITHHASH COUNT 5 ANY ASC",
            [found("Catania", "56.4413"), found("Palermo", "190.4424")],
        ),
        ("GEORADIUS_RO g 15 37 200 mi DESC", [b"edge1", b"edge2", b"Palermo", b"Catania"]),
        ("GEORADIUS_RO g 15 37 200000 m", [b"Palermo", b"Catania"]),
        ("GEORADIUS_RO g 15 37 200000 ft", [b"Catania"]),
        ("GEORADIUS_RO g 15 37 200 km STORE d", SYNTAX_ERROR),
        ("GEORADIUS_RO g 15 37 200 xx", UNSUPPORTED_UNIT),
        ("GEORADIUS_RO g 15 37 abc km", NO_RADIUS),
        ("GEORADIUS_RO g 15 x 200 km", NOT_A_FLOAT),
    ],
    "around a member": [
        (
            "GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania 13.583333 "
            "37.316667 Agrigento",
            3,
        ),
        ("GEORADIUSBYMEMBER g Agrigento 100 km", [b"Agrigento", b"Palermo"]),
        (
            "GEORADIUSBYMEMBER g Agrigento 100 km WITHCOORD WITHDIST WITHHASH COUNT 1 DESC",
            [found("Palermo", "90.9778")],
        ),
        ("GEORADIUSBYMEMBER g Agrigento 100 mi COUNT 1 ANY ASC", [b"Agrigento"]),
        ("GEORADIUSBYMEMBER g Agrigento 100000 m", [b"Agrigento", b"Palermo"]),
        ("GEORADIUSBYMEMBER g Agrigento 400000 ft STORE d", 2),
        ("GEORADIUSBYMEMBER g Agrigento 100 km STOREDIST d", 2),
        ("ZRANGE d 0 -1 WITHSCORES", [b"Agrigento", b"0", b"Palermo", b"90.977753537996037"]),
        ("GEORADIUSBYMEMBER g None 100 km", NO_SUCH_MEMBER),
        ("GEORADIUSBYMEMBER none None 100 km", []),
        ("GEORADIUSBYMEMBER none None 100 km STORE d", 0),
        ("GEORADIUSBYMEMBER g Agrigento abc km", NO_RADIUS),
        ("GEORADIUSBYMEMBER g Agrigento 100 parsec", UNSUPPORTED_UNIT),
        (
            "GEORADIUSBYMEMBER_RO g Agrigento 100 km WITHCOORD WITHDIST WITHHASH COUNT 1 DESC",
            [found("Palermo", "90.9778")],
        ),
        ("GEORADIUSBYMEMBER_RO g Agrigento 100 mi COUNT 1 ANY ASC", [b"Agrigento"]),
        ("GEORADIUSBYMEMBER_RO g Agrigento 100000 m", [b"Agrigento", b"Palermo"]),
        ("GEORADIUSBYMEMBER_RO g Agrigento 400000 ft", [b"Agrigento", b"Palermo"]),
        ("GEORADIUSBYMEMBER_RO g None 100 km", NO_SUCH_MEMBER),
        ("GEORADIUSBYMEMBER_RO g Agrigento 100 km STORE d", SYNTAX_ERROR),
    ],
    "searching": [
        (
            "GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania 12.758489 "
            "38.788135 edge1 17.241510 38.788135 edge2",
            4,
        ),
        ("GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC", [b"Catania", b"Palermo"]),
        (
            "GEOSEARCH g FROMLONLAT 15 37 BYBOX 400 400 km ASC WITHCOORD WITHDIST WITHHASH",
            [
                found("Catania", "56.4413"),
                found("Palermo", "190.4424"),
                found("edge2", "279.7403"),
                found("edge1", "279.7405"),
            ],
        ),
        ("GEOSEARCH g FROMLONLAT 15 37 BYBOX 400 400 km DESC COUNT 2", [b"edge1", b"edge2"]),
        ("GEOSEARCH g FROMMEMBER Palermo BYRADIUS 200 mi COUNT 1 ANY", [b"Palermo"]),
        (
            "GEOSEARCH g FROMMEMBER Palermo BYBOX 1000000 1000000 ft",
            [b"Palermo", b"edge1", b"Catania"],
        ),
        ("GEOSEARCH g FROMMEMBER Palermo BYBOX 1000 1000 m", [b"Palermo"]),
        ("GEOSEARCH g FROMMEMBER None BYRADIUS 200 km", NO_SUCH_MEMBER),
        ("GEOSEARCH none FROMMEMBER None BYRADIUS 200 km", []),
        (
            "GEOSEARCH g FROMLONLAT 15 37 ASC DESC COUNT 1",
            error("ERR exactly one of BYRADIUS and BYBOX can be specified for GEOSEARCH"),
        ),
        (
            "GEOSEARCH g BYRADIUS 200 km ASC DESC COUNT 1",
            error("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for GEOSEARCH"),
        ),
        ("GEOSEARCH g FROMLONLAT 15 37 BYRADIUS abc km", NO_RADIUS),
        ("GEOSEARCH g FROMLONLAT 15 37 BYBOX abc 1 km", error("ERR need numeric width")),
        ("GEOSEARCH g FROMLONLAT 15 37 BYBOX 1 abc km", error("ERR need numeric height")),
        (
            "GEOSEARCH g FROMLONLAT 15 37 BYBOX -1 1 km",
            error("ERR height or width cannot be negative"),
        ),
        ("GEOSEARCH g FROMLONLAT 15 37 BYRADIUS -1 km", error("ERR radius cannot be negative")),
        ("GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 1 parsec", UNSUPPORTED_UNIT),
        ("GEOSEARCH g FROMLONLAT 15 x BYRADIUS 1 km", NOT_A_FLOAT),
        ("GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 1 km BYBOX 1 1 km", SYNTAX_ERROR),
        ("GEOSEARCH g FROMLONLAT 15 37 FROMMEMBER Palermo BYRADIUS 1 km", SYNTAX_ERROR),
        (
            "GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 1 km ANY",
            error("ERR the ANY argument requires COUNT argument"),
        ),
        ("GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 1 km STOREDIST", SYNTAX_ERROR),
        ("GEOSEARCHSTORE d g FROMLONLAT 15 37 BYRADIUS 200 km", 2),
        (
            "ZRANGE d 0 -1 WITHSCORES",
            [b"Palermo", b"3479099956230698", b"Catania", b"3479447370796909"],
        ),
        ("GEOSEARCHSTORE d g FROMMEMBER Palermo BYBOX 400 400 km STOREDIST", 3),
        (
            "ZRANGE d 0 -1 WITHSCORES",
            [b"Palermo", b"0", b"edge1", b"91.400658605814272", b"Catania", b"166.27415156960032"],
        ),
        ("GEOSEARCHSTORE d g FROMLONLAT 15 37 BYBOX 400 400 mi ASC COUNT 2", 2),
        ("GEOSEARCHSTORE d g FROMLONLAT 15 37 BYBOX 400000 400000 m DESC COUNT 2 ANY", 2),
        ("GEOSEARCHSTORE d g FROMLONLAT 15 37 BYBOX 400000 400000 ft", 1),
        ("GEOSEARCHSTORE d none FROMLONLAT 15 37 BYRADIUS 200 km", 0),
        ("EXISTS d", 0),
        (
            "GEOSEARCHSTORE d g FROMLONLAT 15 37 BYRADIUS 200 km WITHDIST",
            error(
                "ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            ),
        ),
        ("GEOSEARCHSTORE d g FROMMEMBER None BYRADIUS 200 km", NO_SUCH_MEMBER),
        ("GEOSEARCHSTORE d g FROMLONLAT 15 37 BYRADIUS abc km", NO_RADIUS),
        ("GEOSEARCHSTORE d g FROMLONLAT 15 37 BYBOX abc 1 km", error("ERR need numeric width")),
        ("GEOSEARCHSTORE d g FROMLONLAT 15 37 BYBOX 1 abc km", error("ERR need numeric height")),
        ("GEOSEARCHSTORE d g FROMLONLAT 15 37 BYBOX 1 1 xx", UNSUPPORTED_UNIT),
    ],
    "at the edge of the map and at huge radii": [
        ("GEOADD g 179.9 0 East -179.9 0 West 0 85 Pole 0 -85 South", 4),
        ("GEOSEARCH g FROMLONLAT 179.99 0 BYRADIUS 50 km ASC", [b"East", b"West"]),
        ("GEOSEARCH g FROMLONLAT 0 84 BYRADIUS 500 km ASC", [b"Pole"]),
        ("GEOSEARCH g FROMLONLAT 0 0 BYRADIUS 30000 km ASC", [b"Pole", b"South", b"East", b"West"]),
        ("GEOSEARCH g FROMLONLAT 0 0 BYBOX 40000 40000 km ASC", [b"Pole", b"South"]),
    ],
    "keys of other types": [
        ("SET str v", OK),
        ("GEOADD str 1 1 a", WRONG_TYPE),
        ("GEOPOS str a", WRONG_TYPE),
        ("GEOHASH str a", WRONG_TYPE),
        ("GEODIST str a b", WRONG_TYPE),
        ("GEORADIUS str 1 1 1 km", WRONG_TYPE),
        ("GEORADIUS_RO str 1 1 1 km", WRONG_TYPE),
        ("GEORADIUSBYMEMBER str a 1 km", WRONG_TYPE),
        ("GEORADIUSBYMEMBER_RO str a 1 km", WRONG_TYPE),
        ("GEOSEARCH str FROMLONLAT 1 1 BYRADIUS 1 km", WRONG_TYPE),
        ("GEOSEARCHSTORE d str FROMLONLAT 1 1 BYRADIUS 1 km", WRONG_TYPE),
        ("GEOADD g 1 1", error("ERR wrong number of arguments for 'geoadd' command")),
    ],
}
