"""Answers that are alike beyond what their task explains: pairs for a person to look at. It never grades.

An answer is taken as its tokens, with names, numbers and comments made equal, so that renaming and reformatting change
nothing; of these the hashes of every eight neighbours are sampled by winnowing (Schleimer, Wilkerson and Aiken, 2003):
equal stretches of twelve tokens or more are found wherever they stand. What the task gives, and what most of a class
has, explains nothing and is left out. A pair's likeness is the share of the smaller one's samples that the other has.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

#: Neighbouring tokens in a hash, and hashes of which one is kept.
GRAM, WINDOW = 8, 5
#: Likeness from which a pair is shown, and samples that an answer needs for that.
ALIKE, ENOUGH = 0.7, 8
#: A sample that more than this part of the class has is no sign.
COMMON = 0.3

_TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|#(?!include|define|pragma|if|else|end)[^\n]*|\"[^\"\n]*\"|[A-Za-z_]\w*|\d[\w.]*|\S", re.S
)
_KEYWORDS = """
    if else for while do return break continue switch case const float int unsigned double bool void struct
    def lambda in not and or is None True False import from yield
    __global__ __device__ __shared__ __constant__ threadIdx blockIdx blockDim gridDim __syncthreads atomicAdd
"""
_KEPT = frozenset(_KEYWORDS.split())


@dataclass(frozen=True)
class Pair:
    """Two answers to one task. `likeness` 0 to 1; `samples` that both have and few others."""

    task: str
    one: str
    other: str
    likeness: float
    samples: int


def tokens(text: str) -> list[str]:
    """A text's tokens: keywords and operators as they are, every other name `n`, every number `0`, strings `s`."""
    found = []
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token.startswith(("//", "/*")) or (token.startswith("#") and len(token) > 1):
            continue
        if re.match(r"[A-Za-z_]", token):
            token = token if token in _KEPT else "n"
        elif token[0].isdigit():
            token = "0"
        elif token[0] == '"':
            token = "s"
        found.append(token)
    return found


def samples(text: str) -> frozenset[int]:
    """The winnowed hashes of a text."""
    words = tokens(text)
    grams = [" ".join(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)]
    hashes = [int.from_bytes(hashlib.blake2b(g.encode(), digest_size=8).digest()) for g in grams]
    windows = (hashes[i : i + WINDOW] for i in range(max(1, len(hashes) - WINDOW + 1)))
    return frozenset(min(w) for w in windows if w)


def alike(task: str, answers: Mapping[str, str], given: Iterable[str] = ()) -> Iterator[Pair]:
    """The pairs of a task's answers that are alike, the most alike first.

    answers  by who wrote them: students of this class, of earlier ones, or a rung of the ladder
    given    texts that the task hands out, which explain what is like them
    """
    explained = frozenset().union(*(samples(text) for text in given)) if given else frozenset()
    found = {who: samples(text) - explained for who, text in answers.items()}
    often = Counter(itertools.chain.from_iterable(found.values()))
    limit = max(2, COMMON * len(found))
    rare = {who: frozenset(s for s in own if often[s] <= limit) for who, own in found.items()}
    pairs = []
    for one, other in itertools.combinations(sorted(rare), 2):
        both, least = len(rare[one] & rare[other]), min(len(rare[one]), len(rare[other]))
        if least >= ENOUGH and both / least >= ALIKE:
            pairs.append(Pair(task, one, other, both / least, both))
    yield from sorted(pairs, key=lambda p: (-p.likeness, -p.samples, p.one, p.other))
