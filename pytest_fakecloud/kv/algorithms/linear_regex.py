r"""Regular expressions for the filters of JSON paths, matched in time linear in the string.

A match takes time proportional to pattern length times string length. The syntax is the part of the
vendor's engine that filters use: literals, ``.``, classes, ``\d \w \s`` and their opposites,
anchors, groups, alternatives, ``* + ? {m,n}`` (lazy or not, which makes no difference to whether a
string matches), and the flag ``(?i)``. Back references and look-around cannot be matched in linear
time and are rejected.

RE2 is 6 times as fast for a filter such as ``^user-\d+@example\.com$`` (2.7 us against 16 us) and
500 times as fast for ``(a*)*b`` on 200 letters (1.3 us against 726 us). Its package, google-re2
1.1.20251105, has wheels for CPython 3.11 to 3.14 on glibc, macOS and Windows, but not on musl. On
Alpine, installing pytest-fakecloud would then require a compiler and abseil. In addition,
`standalone/patterns.py` needs Python's syntax, which RE2 does not parse.
"""

from __future__ import annotations

from collections.abc import Callable

from ...core.budget import spend

_STEPS_A_STATE = 3
_LARGEST = 2000
"""Maximum number of states in the automaton of an expression. Counted repetitions multiply states."""

Test = Callable[[str], bool]


class RegexError(ValueError):
    """Raised for an invalid expression. The message continues a sentence about the expression."""


class _State:
    """A state of the automaton. It consumes a character, continues to ``next``, or accepts."""

    __slots__ = ("assertion", "next", "test")

    def __init__(self, test: Test | None = None, assertion: str = "") -> None:
        self.test = test
        self.assertion = assertion
        self.next: list[_State] = []


Fragment = tuple[_State, _State]


class LinearRegex:
    """A compiled regular expression. The constructor raises `RegexError` if it is invalid."""

    def __init__(self, pattern: str) -> None:
        self._reset()
        self._pattern = pattern
        self._at = 0
        self._level = 0
        if pattern.startswith("(?i)"):
            self._fold = True
            self._at = 4
        self._start, self._end = self._alternatives()
        if self._at < len(pattern):
            raise RegexError("has an unmatched closing parenthesis")

    def _reset(self) -> None:
        self.states = 0
        """Number of states of the automaton, which limits the steps for each character of a string."""
        self._fold = False

    def fullmatch(self, text: str) -> bool:
        return self._run(text, anywhere=False)

    def search(self, text: str) -> bool:
        return self._run(text, anywhere=True)

    # -- matching --------------------------------------------------------------------------------

    def _run(self, text: str, anywhere: bool) -> bool:
        if self._fold:
            text = text.lower()
        current: dict[_State, None] = {}
        self._enter(self._start, current, text, 0)
        for at, character in enumerate(text):
            if anywhere and self._end in current:
                return True
            spend(_STEPS_A_STATE * (1 + len(current)))
            following: dict[_State, None] = {}
            for state in current:
                if state.test is not None and state.test(character):
                    for target in state.next:
                        self._enter(target, following, text, at + 1)
            if anywhere:
                self._enter(self._start, following, text, at + 1)
            elif not following:
                return False
            current = following
        return self._end in current

    def _enter(self, state: _State, states: dict[_State, None], text: str, at: int) -> None:
        waiting = [state]
        while waiting:
            state = waiting.pop()
            if state in states:
                continue
            if state.assertion and not _holds(state.assertion, text, at):
                continue
            states[state] = None
            if state.test is None:
                waiting.extend(state.next)

    # -- reading ---------------------------------------------------------------------------------

    def _state(self, test: Test | None = None, assertion: str = "") -> _State:
        self.states += 1
        if self.states > _LARGEST:
            raise RegexError(f"is too large (more than {_LARGEST} states)")
        return _State(test, assertion)

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _alternatives(self) -> Fragment:
        self._level += 1
        if self._level > 50:
            raise RegexError("is nested more than 50 levels deep")
        start, end = self._state(), self._state()
        while True:
            first, last = self._sequence()
            start.next.append(first)
            last.next.append(end)
            if self._peek() != "|":
                break
            self._at += 1
        self._level -= 1
        return start, end

    def _sequence(self) -> Fragment:
        start = end = self._state()
        while self._peek() not in ("", "|", ")"):
            first, last = self._repeated()
            end.next.append(first)
            end = last
        return start, end

    def _repeated(self) -> Fragment:
        begin = self._at
        fragment = self._atom()
        stop = self._at
        while True:
            bounds = self._bounds()
            if bounds is None:
                return fragment
            fragment = self._repeat(begin, stop, *bounds)
            begin_again = self._at
            if self._peek() in ("*", "+", "?"):
                raise RegexError(f"repeats a repetition at character {begin_again + 1}")

    def _bounds(self) -> tuple[int, int | None] | None:
        sign = self._peek()
        bounds: tuple[int, int | None]
        if sign in ("*", "+", "?") and sign:
            bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
            self._at += 1
        elif sign == "{":
            end = self._pattern.find("}", self._at)
            least, comma, most = self._pattern[self._at + 1 : max(end, 0)].partition(",")
            if end < 0 or not least.isdecimal() or not (most.isdecimal() or not most):
                return None
            bounds = (int(least), (int(most) if most else None) if comma else int(least))
            if len(least) > 4 or len(most) > 4 or (bounds[1] is not None and bounds[1] < bounds[0]):
                raise RegexError(f"has an invalid repetition at character {self._at + 1}")
            self._at = end + 1
        else:
            return None
        if self._peek() == "?":
            self._at += 1  # lazy
        return bounds

    def _repeat(self, begin: int, stop: int, least: int, most: int | None) -> Fragment:
        after = self._at

        def again() -> Fragment:
            self._at = begin
            fragment = self._atom()
            assert self._at == stop
            return fragment

        start, end = self._times(again, least, most)
        self._at = after
        return start, end

    def _times(self, again: Callable[[], Fragment], least: int, most: int | None) -> Fragment:
        """Return the first and last state of a repetition of the states that ``again`` creates."""
        start = end = self._state()
        for _ in range(least):
            first, last = again()
            end.next.append(first)
            end = last
        if most is None:
            first, last = again()
            loop = self._state()
            end.next.append(loop)
            loop.next.append(first)
            last.next.append(loop)
            end = self._state()
            loop.next.append(end)
        else:
            final = self._state()
            for _ in range(most - least):
                end.next.append(final)
                first, last = again()
                end.next.append(first)
                end = last
            end.next.append(final)
            end = final
        return start, end

    def _atom(self) -> Fragment:
        sign = self._peek()
        if sign == "(":
            return self._group()
        if sign in ("^", "$"):
            self._at += 1
            state = self._state(assertion=sign)
            return state, state
        if sign in ("*", "+", "?"):
            raise RegexError(f"has nothing to repeat at character {self._at + 1}")
        if sign == "\\" and self._pattern[self._at + 1 : self._at + 2] in ("b", "B"):
            self._at += 2
            state = self._state(assertion=self._pattern[self._at - 1])
            return state, state
        return self._over(self._character_test())

    def _over(self, test: Test) -> Fragment:
        start, end = self._state(test), self._state()
        start.next.append(end)
        return start, end

    def _group(self) -> Fragment:
        self._at += 1
        if self._peek() == "?":
            if self._pattern[self._at : self._at + 2] == "?:":
                self._at += 2
            elif self._pattern[self._at : self._at + 3] == "?P<":
                self._at = self._pattern.find(">", self._at) + 1
            else:
                raise RegexError(f"uses an unsupported group at character {self._at}")
        fragment = self._alternatives()
        if self._peek() != ")":
            raise RegexError("has an unclosed parenthesis")
        self._at += 1
        return fragment

    def _character_test(self) -> Test:
        sign = self._peek()
        self._at += 1
        if sign == ".":
            return lambda character: character != "\n"
        if sign == "[":
            return self._class()
        if sign == "\\":
            return self._escape()
        return self._literal(sign)

    def _literal(self, wanted: str) -> Test:
        wanted = wanted.lower() if self._fold else wanted
        return lambda character: character == wanted

    def _escape(self) -> Test:
        sign = self._peek()
        if not sign:
            raise RegexError("ends with a backslash")
        self._at += 1
        if sign.lower() in _CLASSES:
            test = _CLASSES[sign.lower()]
            return test if sign.islower() else lambda character: not test(character)
        if sign in _CONTROLS:
            return self._literal(_CONTROLS[sign])
        if sign.isalnum():
            raise RegexError(f"uses the unsupported escape \\{sign}")
        return self._literal(sign)

    def _class(self) -> Test:
        negated = self._peek() == "^"
        if negated:
            self._at += 1
        tests: list[Test] = []
        first = True
        while first or self._peek() != "]":
            first = False
            sign = self._peek()
            if not sign:
                raise RegexError("has an unclosed character class")
            self._at += 1
            if sign == "\\":
                test = self._escape()
                tests.append(test)
                continue
            following = self._pattern[self._at : self._at + 2]
            if len(following) == 2 and following[0] == "-" and following[1] not in "]\\":
                self._at += 2
                tests.append(self._range(sign, following[1]))
            else:
                tests.append(self._literal(sign))
        self._at += 1
        return lambda character: any(test(character) for test in tests) != negated

    def _range(self, low: str, high: str) -> Test:
        if low > high:
            raise RegexError(f"has the range {low}-{high}, which is in reverse order")
        if self._fold:
            return lambda character: low <= character <= high or low <= character.upper() <= high
        return lambda character: low <= character <= high


_CLASSES: dict[str, Test] = {
    "d": str.isdecimal,
    "w": lambda character: character.isalnum() or character == "_",
    "s": str.isspace,
}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}


def _holds(assertion: str, text: str, at: int) -> bool:
    if assertion[0] in "^$":
        return _ANCHORS[assertion](text, at)
    word = _is_ascii_word if assertion.endswith("ASCII") else _CLASSES["w"]
    before = at > 0 and word(text[at - 1])
    after = at < len(text) and word(text[at])
    return (before != after) == (assertion[0] == "b")


_ANCHORS: dict[str, Callable[[str, int], bool]] = {
    "^": lambda text, at: at == 0,
    "$": lambda text, at: at == len(text),
    "^ of a line": lambda text, at: at == 0 or text[at - 1] == "\n",
    "$ of a line": lambda text, at: at == len(text) or text[at] == "\n",
    "$ before a last line break": lambda text, at: (
        at == len(text) or (at == len(text) - 1 and text[at] == "\n")
    ),
}


def _is_ascii_word(character: str) -> bool:
    return character.isascii() and _CLASSES["w"](character)
