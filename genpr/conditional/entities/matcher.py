"""All names of a vocabulary in a text, the longest first, in time that grows with the text alone.

Aho and Corasick 1975, "Efficient String Matching: An Aid to Bibliographic Search", run from the end of the text to its
start: there, what the automaton knows at a place is the longest name that begins at it.

Words have edges: "cat" is not in "category". So a mark is set where a word begins and where it ends, in the names and in
the text alike, and a name is found where its marks are, too. Scripts that are written without spaces get none.
"""

from __future__ import annotations

import unicodedata
from collections import deque
from collections.abc import Iterable, Mapping

_EDGE = "\x00"  # normalised texts hold no control characters
_UNSPACED = (
    *((0x0E00, 0x0EFF), (0x0F00, 0x109F), (0x1780, 0x17FF)),  # Thai, Lao; Tibetan, Burmese; Khmer
    *((0x1100, 0x11FF), (0x2E80, 0x2FDF), (0x3000, 0x30FF), (0x3100, 0x9FFF)),  # jamo, radicals, kana, Han
    *((0xAC00, 0xD7FF), (0xF900, 0xFAFF), (0xFF66, 0xFFDC), (0x1B000, 0x1B16F), (0x20000, 0x3FFFF)),
)
_NONE, _OTHER, _SUFFIX, _WORD = range(4)
_SUFFIXES = "+#"  # of C++ and C#


class Matcher:
    """An automaton of many names.

    Args:
        names: Normalised name -> whatever it stands for; empty names are no names.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._entities: list[str] = []
        self._next: dict[tuple[int, str], int] = {}
        self._ends: list[tuple[int, int] | None] = [
            None
        ]  # by state: length and entity of the name that it is
        for name, entity in names.items():
            self._add(marked(name), entity)
        self._fall, self._longest = self._links()

    def _add(self, name: str, entity: str) -> None:
        if not name:
            return
        state = 0
        for c in reversed(name):
            following = self._next.get((state, c))
            if following is None:
                following = self._next[state, c] = len(self._ends)
                self._ends.append(None)
            state = following
        self._ends[state] = len(name), len(self._entities)
        self._entities.append(entity)

    def _links(self) -> tuple[list[int], list[tuple[int, int] | None]]:
        """Where to go on after a mismatch, and the longest name that a state ends with."""
        children: list[list[tuple[str, int]]] = [[] for _ in self._ends]
        for (state, c), following in self._next.items():
            children[state].append((c, following))
        fall, longest = [0] * len(self._ends), list(self._ends)
        queue = deque(state for _, state in children[0])
        while queue:
            state = queue.popleft()
            longest[state] = longest[state] or longest[fall[state]]
            for c, following in children[state]:
                fall[following] = self._step(fall[state], c, fall)
                queue.append(following)
        return fall, longest

    def _step(self, state: int, c: str, fall: list[int]) -> int:
        while state and (state, c) not in self._next:
            state = fall[state]
        return self._next.get((state, c), 0)

    def find(self, text: str) -> Iterable[str]:
        """What each name in a normalised text stands for, from left to right.

        Of names that overlap, it is the one that begins first, and of those the longest.
        """
        searched = marked(text)
        begins: list[tuple[int, int] | None] = [None] * len(searched)
        state = 0
        for place in range(len(searched) - 1, -1, -1):
            state = self._step(state, searched[place], self._fall)
            begins[place] = self._longest[state]
        place = 0
        while place < len(searched):
            found = begins[place]
            if found is None:
                place += 1
                continue
            length, entity = found
            yield self._entities[entity]
            place += length


def marked(text: str) -> str:
    """A normalised text with a mark at each edge of a word.

    Example:
        >>> marked("c++用python").replace(chr(0), "|")
        '|c++|用|python|'
    """
    kinds = {c: _kind(c) for c in set(text)}
    parts: list[str] = []
    before, start = _NONE, 0
    for place, c in enumerate(text):
        kind = kinds[c]
        if kind == _SUFFIX and not (before == _WORD and _ends_word(text, place, kinds)):
            kind = _OTHER
        elif kind == _SUFFIX:
            kind = _WORD
        if (kind == _WORD) != (before == _WORD):
            parts += (text[start:place], _EDGE)
            start = place
        before = kind
    parts.append(text[start:])
    return "".join(parts) + _EDGE * (before == _WORD)


def _ends_word(text: str, place: int, kinds: Mapping[str, int]) -> bool:
    """Whether only suffixes are left of the word: C++ is one, 1+1 is two."""
    after = text[place : place + 3].lstrip(_SUFFIXES)
    return not after or kinds[after[0]] != _WORD


def _kind(c: str) -> int:
    if c in _SUFFIXES:
        return _SUFFIX
    if unicodedata.category(c)[0] not in "LNM" and c != "_":
        return _OTHER
    return _OTHER if any(low <= ord(c) <= high for low, high in _UNSPACED) else _WORD
