"""Differences between solutions, in the units that the tables show."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from . import exact, ours
from .problems import SCAN, Problem, Solution, without_jitter

AIM = 1e-8
TOLERANCE = 1e-6
# Beyond this condition number of K_RR a comparison informs, but cannot fail.
WELL_CONDITIONED = 1e10


@dataclass(frozen=True)
class Difference:
    """Bound relative to itself; mean relative to the scale of y; variance to the kernel's."""

    bound: float
    mean: float
    var: float

    @property
    def worst(self) -> float:
        """The largest of the three; NaN counts as infinite."""
        worst = np.max([self.bound, self.mean, self.var])
        return float(worst) if np.isfinite(worst) else float("inf")


@dataclass(frozen=True)
class Comparison:
    """One line of the main table."""

    peer: str
    data: str
    kernel: str
    model: str
    method: str
    condition: float
    jitter: float
    our_jitter: float
    difference: Difference

    @property
    def counts(self) -> bool:
        """Whether the problem is well-conditioned, so that the check may fail on it."""
        return self.condition < WELL_CONDITIONED


@dataclass(frozen=True)
class Accuracy:
    """The largest differences of a library from 60-digit arithmetic."""

    solver: str
    model: str
    singular: bool
    difference: Difference


@dataclass(frozen=True)
class Scan:
    """What jitter does to a peer's bound."""

    peer: str
    model: str
    data: str
    differences: tuple[float, ...]  # from srgp, one a jitter in SCAN
    unexplained: float  # the largest from 60-digit arithmetic with the same jitter

    @property
    def growth(self) -> float:
        """How much the difference grows when the jitter grows tenfold, on average."""
        first, last = np.maximum(self.differences, np.finfo(float).tiny)[[0, -1]]
        return float((last / first) ** (1.0 / np.log10(SCAN[-1] / SCAN[0])))


Solutions = Mapping[str, Solution]


def difference(p: Problem, a: Solution, b: Solution) -> Difference:
    """How far `a` is from `b`."""
    return Difference(
        abs(a.bound - b.bound) / max(1.0, abs(b.bound)),
        float(np.max(np.abs(a.mean - b.mean)) / np.std(p.y)),
        float(np.max(np.abs(a.var - b.var)) / p.variance),
    )


def _worst(differences: Sequence[Difference]) -> Difference:
    columns = zip(*((d.bound, d.mean, d.var) for d in differences), strict=True)
    return Difference(*(float(np.max(column)) for column in columns))


class Bench:
    """srgp's solutions and the true ones, computed once a problem."""

    def __init__(self) -> None:
        self._ours: dict[tuple[str, str], Solution] = {}
        self._exact: dict[str, Solution] = {}

    def ours(self, p: Problem, method: str) -> Solution:
        p = without_jitter(p)
        if (p.name, method) not in self._ours:
            self._ours[p.name, method] = ours.solve(p, method)
        return self._ours[p.name, method]

    def exact(self, p: Problem) -> Solution:
        """With the jitter that the problem asks for."""
        if p.name not in self._exact:
            self._exact[p.name] = exact.solve(p, p.jitter)
        return self._exact[p.name]

    def compare(self, peer: str, p: Problem, theirs: Solution) -> list[Comparison]:
        """One comparison for every way srgp has to answer."""
        return [
            Comparison(
                peer=peer,
                data=p.data,
                kernel=p.kernel,
                model=p.model,
                method=method,
                condition=ours.condition(p, method),
                jitter=theirs.jitter,
                our_jitter=self.ours(p, method).jitter,
                difference=difference(p, theirs, self.ours(p, method)),
            )
            for method in ours.methods(p.model)
        ]

    def accuracy(self, solver: str, problems: Iterable[Problem], s: Solutions) -> list[Accuracy]:
        """The worst of a library for every sparse model, with and without a singular K_RR."""
        groups: dict[tuple[str, bool], list[Difference]] = {}
        for p in problems:
            group = groups.setdefault((p.model, p.data == "singular"), [])
            group.append(difference(p, s[p.name], self.exact(p)))
        return [Accuracy(solver, *key, _worst(group)) for key, group in groups.items()]

    def scan(self, peer: str, problems: Iterable[Problem], s: Solutions) -> list[Scan]:
        """The bounds of a peer against jitter, one scan a model and data set."""
        groups: dict[tuple[str, str], list[Problem]] = {}
        for p in problems:
            groups.setdefault((p.model, p.data), []).append(p)
        return [
            Scan(
                peer,
                *key,
                tuple(difference(p, s[p.name], self.ours(p, p.model)).bound for p in group),
                max(difference(p, s[p.name], self.exact(p)).bound for p in group),
            )
            for key, group in groups.items()
        ]
