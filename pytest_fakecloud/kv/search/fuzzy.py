"""Finds the terms within an edit distance of a word, with an automaton over the tree of terms.

A state is the part of an edit-distance row that can still matter, relative to the number of
characters read. States do not depend on the word, so there are few of them (Schulz and Mihov, "Fast
string correction with Levenshtein automata"). The input for a character is a bit set of the
character's positions in the nearby part of the word. A transition is computed when it first occurs,
and is cached for all words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache

from ...core.budget import spend
from .postings import Node, Terms, below

_STEPS_PER_NODE = 4

_State = tuple[tuple[int, ...], tuple[int, ...]]
"""The distances around the current column, now and if the next character completes a swap."""


class _Automaton:
    """The numbered states for a maximum distance. ``rows`` has the distances of each state."""

    def __init__(self, distance: int, cheap_swap: bool) -> None:
        self._far = distance + 1
        self._cheap_swap = cheap_swap
        self._numbers: dict[_State, int] = {}
        self._swaps: list[tuple[int, ...]] = []
        self.rows: list[tuple[int, ...]] = []
        self._steps: list[dict[int, int]] = []
        around = range(-distance, distance + 1)
        first_row = tuple(at if at >= 0 else self._far for at in around)
        self._number((first_row, (self._far,) * len(around)))

    def _number(self, state: _State) -> int:
        if min(map(min, state)) == self._far:
            return -1
        number = self._numbers.setdefault(state, len(self.rows))
        if number == len(self.rows):
            row, swaps = state
            self.rows.append(row)
            self._swaps.append(swaps)
            self._steps.append({})
        return number

    def step(self, number: int, bits: int) -> int:
        """Return the state after a character, or -1 if no term within the distance can follow.

        After n characters, bit b of ``bits`` is set if the word has the character at ``n - 1 -
        distance + b``. Position p of a row is column ``n - distance + p``.
        """
        found = self._steps[number].get(bits)
        if found is not None:
            return found
        far = self._far
        above, swaps = (*self.rows[number], far), self._swaps[number]
        row: list[int] = []
        begun_swaps: list[int] = []
        cost = far
        for place, swap in enumerate(swaps):
            replaced = above[place] + (not bits >> (place + 1) & 1)
            cost = min(cost + 1, above[place + 1] + 1, replaced, far)
            if bits >> place & 1:
                # If the previous character began a swap, this character completes it.
                cost = min(cost, swap)
            row.append(cost)
            begins = self._cheap_swap and bits >> (place + 2) & 1
            begun_swaps.append(min(above[place] + 1, far) if begins else far)
        found = self._steps[number][bits] = self._number((tuple(row), tuple(begun_swaps)))
        return found


_automaton = cache(_Automaton)


class _Sought:
    """The word to search for, with the automaton that compares terms with it."""

    def __init__(self, word: str, distance: int, cheap_swap: bool, prefix: bool) -> None:
        self.automaton = _automaton(distance, cheap_swap)
        self._length = len(word)
        self._distance = distance
        self._prefix = prefix
        self._window = (1 << 2 * distance + 3) - 1
        self.bit_sets: dict[str, int] = {}
        for at, character in enumerate(word):
            self.bit_sets[character] = self.bit_sets.get(character, 0) | 1 << (at + 1 + distance)

    def step(self, state: int, character: str, depth: int) -> int:
        """Return the state after a character that has ``depth`` characters before it, or -1."""
        bits = self.bit_sets.get(character, 0) >> depth & self._window
        return self.automaton.step(state, bits)

    def is_near(self, state: int, depth: int) -> bool:
        """Return whether a term of ``depth`` characters with this state matches."""
        place = self._length - depth + self._distance
        if not 0 <= place <= 2 * self._distance:
            return False
        return self.automaton.rows[state][place] <= self._distance

    def begins_near(self, state: int, depth: int) -> bool:
        """Return whether, in a search by prefix, every term that continues after this state matches."""
        if not self.is_near(state, depth):
            return False
        row = self.automaton.rows[state]
        return row[self._length - depth + self._distance] == min(row)

    def rest_is_near(self, term: str, state: int, depth: int) -> bool:
        """Return whether a term matches whose first ``depth`` characters lead to this state."""
        for at in range(depth, len(term)):
            state = self.step(state, term[at], at)
            if state < 0:
                return False
            if self._prefix and self.begins_near(state, at + 1):
                return True
        return self.is_near(state, len(term))


def near(
    terms: Terms, word: str, distance: int, cheap_swap: bool = True, prefix: bool = False
) -> Iterator[str]:
    """Yield the terms within ``distance`` edits of a word.

    An edit inserts, removes or replaces a character. Swapping two adjacent characters counts as one
    edit, or as two if ``cheap_swap`` is false. With ``prefix=True``, a term matches if one of its
    prefixes is within the distance, and is not nearer to a prefix of the word than to the whole
    word, as in Tantivy's automaton (found by comparison). Takes steps from the command's budget.
    """
    if prefix and len(word) <= distance:
        yield from below(terms.root)
        return
    sought = _Sought(word, distance, cheap_swap, prefix)
    pending: list[tuple[Node, int, int]] = [(terms.root, 0, 0)]
    while pending:
        node, state, depth = pending.pop()
        children: Collection[tuple[str, Node | list[str]]] = node.items()
        if sought.automaton.step(state, 0) < 0:
            # From this state, only characters of the word lead to another state.
            children = [(each, node[each]) for each in ("", *sought.bit_sets) if each in node]
        spend(_STEPS_PER_NODE * (1 + len(children)))
        for character, child in children:
            next_state = sought.step(state, character, depth) if character else state
            if next_state < 0:
                continue
            if prefix and character and sought.begins_near(next_state, depth + 1):
                yield from below(child)
            elif isinstance(child, dict):
                pending.append((child, next_state, depth + 1))
            else:
                for term in child:
                    spend(_STEPS_PER_NODE * (1 + len(term) - depth))
                    if sought.rest_is_near(term, next_state, depth + len(character)):
                        yield term
