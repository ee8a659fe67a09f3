"""The column *arguments* of the command table: the parser of its notation, and what follows from it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple


class Argument(NamedTuple):
    """An argument of a command, as ``COMMAND DOCS`` describes it.

    ``kind`` is ``string``, ``pure-token`` for a literal word, ``oneof`` for a choice or ``block``
    for a sequence. ``token`` is the word before the argument. ``inner`` are the alternatives of a
    choice, or the arguments of a sequence.
    """

    name: str
    kind: str
    token: str = ""
    inner: Sequence[Argument] = ()
    optional: bool = False
    multiple: bool = False

    @property
    def is_choice_of_words(self) -> bool:
        """Whether the argument is a choice, each of whose alternatives is a single word."""
        return self.kind == "oneof" and all(
            inner.kind == "pure-token" or not (inner.token or inner.inner) for inner in self.inner
        )


_TOKEN = re.compile(r"\[|\]|\(|\)|\||\.\.\.|[^\s\[\]()|]+")


def parse(synopsis: str, without: Collection[str] = ()) -> list[Argument]:
    """Return the arguments of a synopsis. Parts in brackets that begin with a word of ``without`` are
    left out.
    """
    tokens = _TOKEN.findall(synopsis)
    arguments = _sequence(tokens, without)
    if tokens:
        raise ValueError(f"{tokens[0]} in {synopsis!r} has no opening bracket; add it")
    return arguments


def _sequence(tokens: list[str], without: Collection[str]) -> list[Argument]:
    """Parse arguments up to the end of the synopsis, of the brackets or of the alternative."""
    arguments: list[Argument] = []
    while tokens and tokens[0] not in ("|", "]", ")"):
        token = tokens.pop(0)
        if token == "...":
            arguments = [_joined(arguments)._replace(multiple=True)]
        elif token in "[(":
            group = _group(tokens, without, closing="]" if token == "[" else ")")
            arguments += [argument._replace(optional=token == "[") for argument in group]
        else:
            is_literal = token.upper() == token and not token.isdigit()
            kind, literal = ("pure-token", token) if is_literal else ("string", "")
            arguments.append(Argument(token.lower(), kind, literal))
    return arguments


def _group(tokens: list[str], without: Collection[str], closing: str) -> list[Argument]:
    """Parse the content of brackets, and the closing bracket. The result has at most one item."""
    alternatives = [_joined(_sequence(tokens, without))]
    while tokens and tokens[0] == "|":
        del tokens[0]
        alternatives.append(_joined(_sequence(tokens, without)))
    if not tokens or tokens.pop(0) != closing:
        raise ValueError(f"a `{closing}` is missing after {alternatives[-1].name!r}; add it")
    alternatives = [argument for argument in alternatives if argument.token not in without]
    if len(alternatives) < 2:
        return alternatives
    name = "|".join(alternative.name for alternative in alternatives)
    return [Argument(name, "oneof", inner=alternatives)]


def _joined(sequence: list[Argument]) -> Argument:
    """Return a sequence as one argument. A literal word becomes the token of what follows it."""
    if not sequence:
        raise ValueError("an argument is missing before `|`, `...` or a bracket; add it")
    first, *others = sequence
    if not others:
        return first
    if first.kind != "pure-token" or first.optional:
        return Argument(first.name, "block", inner=sequence)
    if (
        len(others) == 1
        and others[0].kind == "string"
        and not (others[0].optional or others[0].multiple)
    ):
        return others[0]._replace(token=first.token)
    return Argument(first.name, "block", first.token, others)


# -- what follows from the arguments ---------------------------------------------------------------


def all_arguments(arguments: Iterable[Argument]) -> Iterator[Argument]:
    """Yield arguments and those in them."""
    for argument in arguments:
        yield argument
        yield from all_arguments(argument.inner)


def tokens_of(arguments: Iterable[Argument]) -> Iterator[str]:
    """Yield the literal words."""
    return (argument.token for argument in all_arguments(arguments) if argument.token)


def arity(arguments: Sequence[Argument], name_length: int) -> int:
    """Return the number of words of a command line with these arguments, after a name of one or two
    words. It is negative if it is a minimum, as in ``COMMAND INFO``.
    """
    least = name_length + _least(arguments)
    return -least if any(map(_varies, arguments)) else least


def _least(arguments: Iterable[Argument]) -> int:
    """Return the lowest number of words of arguments."""
    words = 0
    for argument in arguments:
        if argument.optional:
            continue
        words += bool(argument.token) + (argument.kind == "string")
        if argument.kind == "oneof":
            words += min(_least([inner]) for inner in argument.inner)
        else:
            words += _least(argument.inner)
    return words


def _varies(argument: Argument) -> bool:
    """Return whether the number of words of an argument varies."""
    if argument.kind == "oneof" and len({_least([inner]) for inner in argument.inner}) > 1:
        return True
    return argument.optional or argument.multiple or any(map(_varies, argument.inner))


def first_names(arguments: Iterable[Argument]) -> list[str]:
    """Return the names of the arguments at the beginning that are one word in every command line."""

    def is_a_word(argument: Argument) -> bool:
        return argument.kind == "string" and not (argument.token or argument.optional)

    return [argument.name for argument in takewhile(is_a_word, arguments)]


TO_THE_END = -1
"""Number of arguments of an option that takes all arguments after it."""


def option_sizes(arguments: Iterable[Argument]) -> dict[str, int]:
    """Return the number of arguments of each option, or ``TO_THE_END``.

    A required choice of words is an argument: its words are not options.
    """
    sizes: dict[str, int] = {}
    _add_sizes(sizes, arguments, "")
    return sizes


def _add_sizes(sizes: dict[str, int], arguments: Iterable[Argument], option: str) -> None:
    """Add the options in a sequence whose first arguments belong to ``option``, or to none."""
    for argument in arguments:
        if argument.token:
            sizes[argument.token] = 1 if argument.kind == "string" else 0
            _add_sizes(sizes, argument.inner, argument.token)
            has_more = argument.kind == "pure-token" and not argument.optional
            option = argument.token if has_more else ""
        elif option and argument.optional and argument.multiple:
            sizes[option] = TO_THE_END
        elif argument.optional or (argument.inner and not argument.is_choice_of_words):
            for inner in argument.inner:
                _add_sizes(sizes, [inner], "")
        elif option:
            sizes[option] += 1


def leading_arguments(arguments: Sequence[Argument]) -> list[Argument]:
    """Return the options without arguments that are directly after the key."""

    def is_option(argument: Argument) -> bool:
        has_no_argument = argument.kind == "pure-token" or argument.is_choice_of_words
        return argument.optional and has_no_argument

    return list(takewhile(is_option, arguments[1:]))


FIELD = re.compile(r"(?:field|member|index)\d?")
"""The names of arguments that are fields, members or indexes."""


def field_words(arguments: Sequence[Argument]) -> slice | None:
    """Return the places of fields, members or indexes as a slice, or None if there are none.

    It is a slice of the words from FIELDS on or, if the synopsis does not have this word, of a command
    line without its leading options. It ends after the last place, or has every so many words.
    """
    tokens = [argument.token for argument in arguments]
    if "FIELDS" in tokens:
        sequence, first = arguments[tokens.index("FIELDS") :], 0
    else:
        sequence, first = [*arguments[:1], *arguments[1 + len(leading_arguments(arguments)) :]], 1
    required = list(takewhile(lambda argument: not argument.optional, sequence))
    others = sequence[len(required) :]
    if len(others) == 1 and others[0].kind == "block" and others[0].inner[-1].multiple:
        # For example, `[member [member ...]]` has the same places as `member [member ...]`.
        required, others = [*required, *others[0].inner[:-1]], others[0].inner[-1:]
    places = [
        at for at, argument in enumerate(required, first)
        if at > 1 and FIELD.fullmatch(argument.name)
    ]  # fmt: skip
    if not places:
        return None
    period = [argument.inner or [argument] for argument in others if argument.multiple]
    if period and any(FIELD.fullmatch(argument.name) for argument in period[0]):
        return slice(places[0], None, len(period[0]))
    return slice(places[0], places[-1] + 1)
