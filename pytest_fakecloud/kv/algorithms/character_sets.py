"""Sets of characters for regular expressions: Unicode properties, classes and variants in case.

A set is the sorted tuple of the code points at which membership changes: ``(97, 123)`` are the
characters from a to z. So one bisection tests a character, however many ranges a set has.

The properties are those that the standard library knows: general categories, some binary properties
and scripts. A script contains the characters whose names begin with the script's name (decided here:
the library has no table of scripts, and some signs that several scripts use are named after one).
Alphabetic leaves out marks, and other properties, such as Emoji and Common, are unknown.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from operator import xor
from typing import TypeAlias

CharacterSet: TypeAlias = tuple[int, ...]

_END = sys.maxunicode + 1
EVERYTHING: CharacterSet = (0, _END)


def span(first: str, last: str) -> CharacterSet:
    return ord(first), ord(last) + 1


def union(sets: Iterable[CharacterSet]) -> CharacterSet:
    spans = [pair for members in sets for pair in zip(members[::2], members[1::2], strict=True)]
    spans.sort()
    changes: list[int] = []
    for start, end in spans:
        if changes and start <= changes[-1]:
            changes[-1] = max(end, changes[-1])
        else:
            changes += start, end
    return tuple(changes)


def combined(
    left: CharacterSet, right: CharacterSet, operation: Callable[[int, int], int]
) -> CharacterSet:
    """Return the set of characters for whose membership in both sets an operation returns 1."""
    changes: list[int] = []
    for code in sorted({*left, *right}):
        if operation(bisect(left, code) & 1, bisect(right, code) & 1) != len(changes) & 1:
            changes.append(code)
    return tuple(changes)


def complement(members: CharacterSet) -> CharacterSet:
    return combined(members, EVERYTHING, xor)


def _from_codes(codes: Iterable[int]) -> CharacterSet:
    return union((code, code + 1) for code in codes)


# -- case ----------------------------------------------------------------------------------------


def _folded(character: str) -> str:
    """Return the simple case folding of a character, which is a single character."""
    for folded in (character.casefold(), character.lower()):
        if len(folded) == 1:
            return folded
    return character


@cache
def _variants() -> dict[int, CharacterSet]:
    """Map each character that has variants in case to the set of all its variants."""
    groups: dict[str, list[int]] = defaultdict(list)
    for character in map(chr, range(_FIRST_WITHOUT_CASE)):
        if character.lower() != character or character.upper() != character:
            groups[_folded(character)].append(ord(character))
    variants: dict[int, CharacterSet] = {}
    for codes in groups.values():
        if len(codes) > 1:
            variants |= dict.fromkeys(codes, _from_codes(codes))
    return variants


_FIRST_WITHOUT_CASE = 0x20000
"""No character from this code point on has an upper or lower case."""


def ignoring_case(members: CharacterSet) -> CharacterSet:
    """Return the set with the variants of its members in upper and lower case."""
    variants = _variants()
    if len(members) == 2 and members[1] == members[0] + 1:
        return variants.get(members[0], members)
    return union([members, *(variants[code] for code in variants if bisect(members, code) & 1)])


# -- classes and properties ------------------------------------------------------------------------


@cache
def _categories() -> dict[str, CharacterSet]:
    """Return the characters of each general category, such as Lu, and of the groups, such as L."""
    # Planes 4 to 13 are not assigned, and the last two are for private use.
    codes = [*range(0x40000), *range(0xE0000, 0xE1000), 0xF0000, 0xFFFFE, 0x100000, 0x10FFFE]
    changes: dict[str, list[int]] = defaultdict(list)
    last = ""
    for code in codes:
        category = unicodedata.category(chr(code))
        if category != last:
            if last:
                changes[last].append(code)
            changes[category].append(code)
            last = category
    changes[last].append(_END)
    categories = {name: tuple(members) for name, members in changes.items()}
    categories["LC"] = union(categories[name] for name in ("Lu", "Ll", "Lt"))
    for group in "CLMNPSZ":
        categories[group] = union(
            members for name, members in categories.items() if name[0] == group and len(name) == 2
        )
    # Rust has no surrogates.
    return {_loose(name): members for name, members in categories.items() if name != "Cs"}


_LONG_NAMES = {
    "other": "c", "control": "cc", "cntrl": "cc", "format": "cf", "unassigned": "cn",
    "privateuse": "co", "letter": "l", "casedletter": "lc", "lowercaseletter": "ll",
    "modifierletter": "lm", "otherletter": "lo", "titlecaseletter": "lt", "uppercaseletter": "lu",
    "mark": "m", "combiningmark": "m", "spacingmark": "mc", "enclosingmark": "me",
    "nonspacingmark": "mn", "number": "n", "decimalnumber": "nd", "digit": "nd", "letternumber": "nl",
    "othernumber": "no", "punctuation": "p", "punct": "p", "connectorpunctuation": "pc",
    "dashpunctuation": "pd", "closepunctuation": "pe", "finalpunctuation": "pf",
    "initialpunctuation": "pi", "otherpunctuation": "po", "openpunctuation": "ps", "symbol": "s",
    "currencysymbol": "sc", "modifiersymbol": "sk", "mathsymbol": "sm", "othersymbol": "so",
    "separator": "z", "lineseparator": "zl", "paragraphseparator": "zp", "spaceseparator": "zs",
}  # fmt: skip
"""The short names of general categories by their long names, without separators."""

SPACES: CharacterSet = union(
    [(9, 14), (32, 33), (133, 134), (160, 161), (0x1680, 0x1681), (0x2000, 0x200B), (0x2028, 0x202A),
     (0x202F, 0x2030), (0x205F, 0x2060), (0x3000, 0x3001)]
)  # fmt: skip
_CIRCLED_LETTERS = [(0x24B6, 0x24EA), (0x1F130, 0x1F14A), (0x1F150, 0x1F16A), (0x1F170, 0x1F18A)]
_JOINERS = (0x200C, 0x200E)


def digits() -> CharacterSet:
    return _categories()["nd"]


@cache
def word_characters() -> CharacterSet:
    """Return the characters of ``\\w``: letters, marks, digits, connectors and joiners."""
    categories = _categories()
    return union([_letters("l", "nl"), *(categories[name] for name in ("m", "nd", "pc")), _JOINERS])


@cache
def _having(test: Callable[[str], bool]) -> CharacterSet:
    return _from_codes(code for code in range(_FIRST_WITHOUT_CASE) if test(chr(code)))


_BINARY: dict[str, Callable[[], CharacterSet]] = {
    "any": lambda: EVERYTHING,
    "ascii": lambda: (0, 128),
    "assigned": lambda: complement(_categories()["cn"]),
    "alphabetic": lambda: _letters("l", "nl"),
    "alpha": lambda: _letters("l", "nl"),
    "lowercase": lambda: _having(str.islower),
    "lower": lambda: _having(str.islower),
    "uppercase": lambda: _having(str.isupper),
    "upper": lambda: _having(str.isupper),
    "whitespace": lambda: SPACES,
    "wspace": lambda: SPACES,
    "space": lambda: SPACES,
}

_SCRIPTS = """
Adlam, Ahom, Anatolian Hieroglyphs, Arabic, Armenian, Avestan, Balinese, Bamum, Bassa Vah, Batak,
Bengali, Bhaiksuki, Bopomofo, Brahmi, Braille, Buginese, Buhid, Canadian Aboriginal, Carian,
Caucasian Albanian, Chakma, Cham, Cherokee, Chorasmian, Coptic, Cuneiform, Cypriot, Cypro Minoan,
Cyrillic, Deseret, Devanagari, Dives Akuru, Dogra, Duployan, Egyptian Hieroglyphs, Elbasan, Elymaic,
Ethiopic, Georgian, Glagolitic, Gothic, Grantha, Greek, Gujarati, Gunjala Gondi, Gurmukhi, Han, Hangul,
Hanifi Rohingya, Hanunoo, Hatran, Hebrew, Hiragana, Imperial Aramaic, Inscriptional Pahlavi,
Inscriptional Parthian, Javanese, Kaithi, Kannada, Katakana, Kayah Li, Kharoshthi, Khmer, Khojki,
Khudawadi, Lao, Latin, Lepcha, Limbu, Linear A, Linear B, Lisu, Lycian, Lydian, Mahajani, Makasar,
Malayalam, Mandaic, Manichaean, Marchen, Masaram Gondi, Medefaidrin, Meetei Mayek, Mende Kikakui,
Meroitic Cursive, Meroitic Hieroglyphs, Miao, Modi, Mongolian, Mro, Multani, Myanmar, Nabataean,
Nandinagari, New Tai Lue, Newa, Nko, Nushu, Nyiakeng Puachue Hmong, Ogham, Ol Chiki, Old Hungarian,
Old Italic, Old North Arabian, Old Permic, Old Persian, Old Sogdian, Old South Arabian, Old Turkic,
Old Uyghur, Oriya, Osage, Osmanya, Pahawh Hmong, Palmyrene, Pau Cin Hau, Phags Pa, Phoenician,
Psalter Pahlavi, Rejang, Runic, Samaritan, Saurashtra, Sharada, Shavian, Siddham, SignWriting, Sinhala,
Sogdian, Sora Sompeng, Soyombo, Sundanese, Syloti Nagri, Syriac, Tagalog, Tagbanwa, Tai Le, Tai Tham,
Tai Viet, Takri, Tamil, Tangsa, Tangut, Telugu, Thaana, Thai, Tibetan, Tifinagh, Tirhuta, Toto,
Ugaritic, Vai, Vithkuqi, Wancho, Warang Citi, Yezidi, Yi, Zanabazar Square
"""
_SCRIPT_NAMES = {re.sub(r"\W", "", name).lower(): name.strip() for name in _SCRIPTS.split(",")}
_NAMES_BEGIN = {
    "Anatolian Hieroglyphs": ("ANATOLIAN HIEROGLYPH",),
    "Arabic": ("ARABIC-INDIC", "EXTENDED ARABIC"),
    "Canadian Aboriginal": ("CANADIAN SYLLABICS",),
    "Cypro Minoan": ("CYPRO-MINOAN",),
    "Cyrillic": ("COMBINING CYRILLIC", "MODIFIER LETTER CYRILLIC"),
    "Egyptian Hieroglyphs": ("EGYPTIAN HIEROGLYPH",),
    "Han": ("CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH", "CJK RADICAL", "KANGXI", "HANGZHOU NUMERAL",
            "IDEOGRAPHIC ITERATION", "IDEOGRAPHIC NUMBER ZERO"),
    "Hangul": ("PARENTHESIZED HANGUL", "CIRCLED HANGUL", "HALFWIDTH HANGUL"),
    "Hiragana": ("HENTAIGANA",),
    "Katakana": ("CIRCLED KATAKANA", "HALFWIDTH KATAKANA"),
    "Latin": ("FULLWIDTH LATIN", "ROMAN NUMERAL", "FEMININE", "MASCULINE", "KELVIN", "ANGSTROM"),
    "Meroitic Hieroglyphs": ("MEROITIC HIEROGLYPHIC",),
    "Phags Pa": ("PHAGS-PA",),
}  # fmt: skip
"""Other beginnings of the names of a script's characters."""


def _letters(*categories: str) -> CharacterSet:
    return union([*(_categories()[name] for name in categories), *_CIRCLED_LETTERS])


@cache
def _script(name: str) -> CharacterSet:
    begins = (f"{name.upper()} ", *_NAMES_BEGIN.get(name, ()))
    return _from_codes(
        code for code in range(0x40000) if unicodedata.name(chr(code), "").startswith(begins)
    )


def property_of(name: str) -> CharacterSet | None:
    """Return the characters with a property such as ``L``, ``Greek`` or ``sc=Greek``, or None."""
    kind, separator, value = "", "", name
    if explicit := re.fullmatch(r"(?s)(.*?)(!=|=|:)(.*)", name):
        kind, separator, value = explicit.groups()
    kind, value = _loose(kind), _loose(value)
    members: CharacterSet | None = None
    if not separator and value in _BINARY:
        members = _BINARY[value]()
    elif kind in ("", "gc", "generalcategory"):
        members = _categories().get(_LONG_NAMES.get(value, value))
    if members is None and kind in ("", "sc", "script") and value in _SCRIPT_NAMES:
        members = _script(_SCRIPT_NAMES[value])
    if members is None:
        return None
    return complement(members) if separator == "!=" else members


def _loose(name: str) -> str:
    """Return a name of a property without case, separators and the prefix ``is``."""
    return re.sub(r"[\s_-]", "", name.lower()).removeprefix("is")


ASCII_CLASSES: dict[str, CharacterSet] = {
    "alnum": union([span("0", "9"), span("A", "Z"), span("a", "z")]),
    "alpha": union([span("A", "Z"), span("a", "z")]),
    "ascii": (0, 128),
    "blank": union([span("\t", "\t"), span(" ", " ")]),
    "cntrl": union([(0, 32), (127, 128)]),
    "digit": span("0", "9"),
    "graph": span("!", "~"),
    "lower": span("a", "z"),
    "print": span(" ", "~"),
    "punct": union([span("!", "/"), span(":", "@"), span("[", "`"), span("{", "~")]),
    "space": union([span("\t", "\r"), span(" ", " ")]),
    "upper": span("A", "Z"),
    "word": union([span("0", "9"), span("A", "Z"), span("_", "_"), span("a", "z")]),
    "xdigit": union([span("0", "9"), span("A", "F"), span("a", "f")]),
}
"""The classes such as ``[:alpha:]``."""
