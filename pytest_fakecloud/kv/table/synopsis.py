"""The column *arguments* of the command table: the parser of its notation, and what follows from it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from ...core.errors import did_you_mean
from .arguments import ARGUMENTS, ROLES, ArgumentRole


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
    def role(self) -> ArgumentRole | None:
        """The role of its words, or None."""
        return ROLES.get(self.name) if self.kind == "string" else None

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
            if not is_literal and token not in ARGUMENTS:
                raise ValueError(
                    f"{token!r} is not the name of an argument{did_you_mean(token, ARGUMENTS) or '.'} "
                    "Use a name in ARGUMENTS of kv/table/arguments.py, or add this one to it"
                )
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


# -- a command line --------------------------------------------------------------------------------


class BoundLine:
    """The arguments of a command line with their names in the synopsis.

    ``names`` has a name for each of ``words``, up to the first that the synopsis does not allow. A
    literal word is its own name, in upper case. Options can be repeated, and be in any order: with
    other options that are beside them in the synopsis, or at the end.
    """

    def __init__(self, arguments: Sequence[Argument] = (), words: Sequence[str] = ()) -> None:
        self.words = words
        self.names: list[str] = []
        self._end = len(words)
        self._bind_all(arguments, [])

    def named(self, *names: str) -> tuple[str, ...]:
        """Return the words that have one of the names."""
        pairs = zip(self.names, self.words, strict=False)
        return tuple(word for name, word in pairs if name in names)

    def with_role(self, role: ArgumentRole) -> tuple[str, ...]:
        """Return the words whose names have a role."""
        pairs = zip(self.names, self.words, strict=False)
        return tuple(word for name, word in pairs if ROLES.get(name) == role)

    @property
    def options(self) -> frozenset[str]:
        """The literal words of the line, in upper case."""
        return frozenset(name for name in self.names if name == name.upper())

    def _bind_all(self, arguments: Sequence[Argument], later: Sequence[Argument]) -> None:
        """Bind the next words to arguments, which those of ``later`` follow."""
        options: list[tuple[Argument, Sequence[Argument]]] = []
        for at, argument in enumerate(arguments, 1):
            following = [*arguments[at:], *later]
            if _first_words(argument) and (argument.optional or argument.kind != "pure-token"):
                # Words are options only here and at the end, not where any word is an argument.
                options.append((argument, following))
                self._bind_options(options)
            elif argument.optional or argument.multiple:
                self._bind_repeated(argument, following)
            else:
                self._bind(argument, following)
        self._bind_options(options)

    def _bind_options(self, options: list[tuple[Argument, Sequence[Argument]]]) -> None:
        """Bind the next words to options in any order, and remove a required one that is bound."""
        while option := next((option for option in options if self._begins(option[0])), None):
            argument, following = option
            self._bind(argument, following)
            if not (argument.optional or argument.multiple):
                options.remove(option)

    def _bind_repeated(self, argument: Argument, following: Sequence[Argument]) -> None:
        """Bind the next words to an argument, as often as the number before it says. Without a number,
        it ends before an option and before the words that the following arguments require.
        """
        size = len(argument.inner) or 1
        # In `numkeys key [key ...]`, a key has been bound before the argument that is repeated.
        first = len(self.names) - size * argument.multiple
        number = self._number_of(argument, first - 1)
        if number is not None:
            end = min(first + number * size, self._end)
        else:
            room = self._end - len(self.names) - _least(following)
            # In `key [key ...] id [id ...]`, there are as many keys as IDs.
            end = len(self.names) + room // (1 + sum(other.multiple for other in following))
        while len(self.names) < end:
            if number is None and any(map(self._begins, following)):
                return
            self._bind(argument, following)
            if not argument.multiple:
                return

    def _bind(self, argument: Argument, following: Sequence[Argument]) -> None:
        """Bind the next words to an argument once, or end the line if its literal word is missing."""
        if argument.kind == "oneof":
            # In `(*|id)`, the word `*` is not an ID.
            alternatives = [inner for inner in argument.inner if self._begins(inner)]
            alternatives += [inner for inner in argument.inner if not _first_words(inner)]
            if alternatives:
                self._bind(alternatives[0], following)
        elif argument.token and not self._begins(argument):
            self._end = len(self.names)
        else:
            if argument.token:
                self.names.append(argument.token)
            if argument.kind == "string" and len(self.names) < self._end:
                self.names.append(argument.name)
            self._bind_all(argument.inner, following)

    def _begins(self, argument: Argument) -> bool:
        """Return whether the next word is a literal word with which an argument begins."""
        at = len(self.names)
        return at < self._end and self.words[at].upper() in _first_words(argument)

    def _number_of(self, argument: Argument, at: int) -> int | None:
        """Return the number at an index if it is that of an argument, as ``numkeys`` is of ``key``."""
        if at < 0 or not self.names[at].startswith(f"num{argument.name}"):
            return None
        return int(self.words[at]) if re.fullmatch(r"\d{1,9}", self.words[at]) else None


def _first_words(argument: Argument) -> frozenset[str]:
    """Return the literal words with one of which an argument begins; none if it can have any word."""
    if argument.token or not argument.inner:
        return frozenset([argument.token] if argument.token else [])
    words: frozenset[str] = frozenset()
    for inner in argument.inner:
        first_words = _first_words(inner)
        if not first_words:
            return frozenset()
        words |= first_words
        if argument.kind == "block" and not inner.optional:
            break
    return words
