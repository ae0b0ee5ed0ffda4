"""The learner for those who do not want to choose: a sample first, then more, or mini-batches."""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from srgp.chained import can_be_fresh
from srgp.checks import as_count
from srgp.collapsed import traces
from srgp.learners.base import Learner, Listener, Report, Task, as_model
from srgp.learners.exact import Exact, Objective, minimise
from srgp.learners.judge import judged, part_of
from srgp.learners.metric import Metric
from srgp.learners.sites import Sites, default_batch_size
from srgp.learners.srgp import SRGP
from srgp.parameters import Values, flat
from srgp.sources import Batch, Held, Spread, first_row, random_rows
from srgp.statistics import rows_for

SAMPLE = 2048  # rows of the first sample
PER_INDUCING = 8  # but at least so many for each inducing input
GROWTH = 8
AHEAD = 5  # times as many rows in the data: otherwise L-BFGS on all of them is as far as soon
WORTHWHILE = 2  # the same for the next samples, which start where the first one ended
BRIEF = 25  # iterations on the first sample: more of them fit that sample, not the data
EVERY = 5  # iterations on a sample, a report
LARGEST = 2**17  # beyond, many exact gradients of all data cost more than they bring
STEPS = 1000  # of Sites
WORTH = 50  # batches of Sites in the data, at least: below, L-BFGS takes less time
# Share of noise in the targets up to which Sites are tried: their bound looks at each batch twice,
# an optimism of about M/2B a row, which is little beside the signal but not beside noise.
QUIET = 0.35
FEW = 10  # iterations of L-BFGS on more rows than that
TURNS, RATE = 8, 0.05  # reports of SRGP's one pass over so many, and its learning rate
MOST = 2**20  # rows to learn from: P parameters learned from n rows lose about P/2n a row
NUMBERS = 2**24  # in memory, of such rows: 128 MB, or LARGEST rows if these take more


@dataclasses.dataclass(frozen=True)
class Auto:
    """Chooses by the size of the data, the noise in them and the model, and combines.

    1. A few iterations of L-BFGS on the exact bound of a small random sample, which find the right
       magnitudes, where there are more than five times as many rows.
    2. VFE, many rows, little noise and more parameters than `iterations`: mini-batches with
       `Sites`, kept if the bound of all data is better for it. Otherwise: L-BFGS on samples eight
       times larger each.
    3. L-BFGS on the exact bound of all data, where they are at most about 10⁵ rows. Beyond, where
       the samples were the last: one pass of `SRGP`, kept as `Sites` are; where its sums cannot be
       made anew at each θ, or where it did not help, ten iterations of L-BFGS.

    L-BFGS that follows L-BFGS starts with the curvature that it learned on the smaller sample.

    Of more than 2²⁰ rows (fewer, if they have more than 14 columns), as many at random are enough
    for all of these but the samples. They are held in memory, 128 MB (more only where 2¹⁷
    rows take more), and so are fewer rows of files, which are read once. Random rows are drawn by
    their number, so arrays, files and a cluster give the same answer.

    iterations: of L-BFGS on each sample but the first, at most 25 there; twice as many on all data.
    tolerance:  stop when ten iterations on all data gain less than this a row each, on average.

    >>> import srgp
    >>> srgp.Auto()
    Auto(iterations=60, tolerance=3e-05)
    """

    iterations: int = 60
    tolerance: float = 3e-5

    def __post_init__(self) -> None:
        as_count(self.iterations, "iterations")

    def run(self, task: Task, report: Listener) -> None:
        """Reports of samples, every few iterations, then those of the learners that follow."""
        watched = _Relay(task, report)
        model = task.coordinates.template
        size = max(SAMPLE, PER_INDUCING * len(model.inducing))
        stages = self._sizes(size, task.rows)
        most = _most(first_row(task.source, model.inducing.shape[1]))
        improved, held = False, None
        for k, sample in enumerate(_samples(task, stages)):
            watched.until = max(watched.begun, 0.3 * (k + 1) / len(stages))
            self._on_sample(sample, watched, self.iterations if k else min(BRIEF, self.iterations))
            if k == 0 and not watched.stopped and self._sites_pay(watched.task, sample):
                watched.until = 0.4
                held = _held(task, most)
                steps = held.count() / default_batch_size(model)
                sites = Sites(epochs=math.ceil(STEPS / steps), learning_rate=0.1)
                improved = self._improves(watched, sites, held)
            if watched.stopped or improved:
                break
        few = task.rows > LARGEST
        if watched.stopped or (few and improved):
            return
        # Rows that would be read again at every pass are held, too.
        here = isinstance(task.source, Held | Spread)
        if held is None and (task.present > most or not here):
            held = _held(task, most)
        if few and can_be_fresh(model):
            watched.until = 0.9
            turns = Turns(held or _held(task, most), TURNS, task.seed)
            if self._improves(watched, SRGP(epochs=TURNS, learning_rate=RATE), turns):
                return
        watched.until = 1.0
        polish = Exact(2 * self.iterations, tolerance=self.tolerance, window=10)
        watched.follow(Exact(FEW) if few else polish, held)

    def _sites_pay(self, task: Task, sample: Held) -> bool:
        """Whether Sites are worth a try from here."""
        model = as_model(task, task.start)
        enough = task.rows >= WORTH * default_batch_size(model)
        quiet = float(model.noise) <= QUIET * float(np.mean(np.var(sample.y, axis=0)))
        # As many iterations of L-BFGS as there are parameters are enough of them by themselves.
        many = flat(task.start).size > self.iterations
        return traces(model.approximation) and enough and quiet and many

    def _sizes(self, size: int, rows: int) -> list[int]:
        """Rows of the samples: much fewer than there are, or than are ever worth it."""
        sizes: list[int] = []
        while size * (WORTHWHILE if sizes else AHEAD) < min(rows, LARGEST):
            sizes.append(size)
            size *= GROWTH
        return sizes

    def _improves(self, watched: "_Relay", learner: Learner, sample: Held) -> bool:
        """Let a learner go on: True if the bound of all data is better for it, otherwise undone."""
        task = watched.task
        watched.follow(learner, sample)
        ends = (task.start, watched.last.values)
        before, after = task.journal.step(lambda: [judged(task, v) for v in ends], [0.0, 0.0])
        if watched.stopped or after >= before:
            return True
        watched.go_back(task)
        return False

    def _on_sample(self, sample: Held, watched: "_Relay", iterations: int) -> None:
        task = part_of(watched.task, sample)
        objective = Objective(task, rows_for(task.coordinates.template, SAMPLE))
        watched.share = task.share
        done = 0

        def tell(values: Values, bound: float | None, share: float) -> bool:
            calls, refused, objective.refused = objective.calls, objective.refused, 0
            return watched(Report(values, 2.0 * calls, bound=bound, refused=refused, done=share))

        def heard(values: Values, bound: float | None) -> bool:
            nonlocal done
            done += 1
            among = done % EVERY == 0 and done < iterations
            return among and tell(values, bound, done / iterations)

        values, metric = minimise(objective, task.start, iterations, 20, 1e-6, heard, task.metric)
        if not watched.stopped:
            tell(values, objective.bound_at(flat(values)), 1.0)
        watched.advance(metric)


class Turns(Held):
    """Some of the rows in each pass, others in the next; seeds of passes count up from `seed`."""

    def __init__(self, held: Held, turns: int, seed: int) -> None:
        super().__init__(held.X, held.y, held.w)
        self.turns, self.seed = turns, seed
        self.order = np.random.default_rng(seed).permutation(len(held.X))

    def count(self) -> int:
        """Rows of a pass, of any weight: all that are held have some."""
        return -(-len(self.X) // self.turns)

    present = count

    def batches(self, size: int, seed: int | None = None) -> Iterator[Batch]:
        """Of the rows whose turn it is."""
        turn = ((self.seed if seed is None else seed) - self.seed) % self.turns
        rows = self.order[turn :: self.turns]
        yield from Held(self.X[rows], self.y[rows], self.w[rows]).batches(size, seed)


def _samples(task: Task, sizes: list[int]) -> Iterator[Held]:
    """Samples of so many rows each, every one a part of the next: files are read through once."""
    if not sizes:
        return
    rows = random_rows(task.source, sizes[-1], task.seed)
    order = np.random.default_rng(task.seed).permutation(len(rows[0]))
    for size in sizes:
        some = np.sort(order[:size])
        yield Held(*(array[some] for array in rows))


def _most(batch: Batch) -> int:
    """How many rows like these to learn from."""
    return min(MOST, max(LARGEST, NUMBERS // sum(a[0].size for a in batch)))


def _held(task: Task, most: int) -> Held:
    """So many, or all, in memory."""
    return Held(*random_rows(task.source, most, task.seed))


class _Relay:
    """Passes reports on, counting epochs through, and starts each learner where the last ended."""

    def __init__(self, task: Task, report: Listener) -> None:
        self.task, self.report = task, report
        self.stopped, self.spent, self.last = False, 0.0, Report(task.start, 0.0)
        self.begun, self.until = 0.0, 1.0  # shares of all work, around the learner of the moment
        self.share = 1.0  # of the data that it learns from

    def __call__(self, report: Report) -> bool:
        report = report._replace(epoch=self.share * report.epoch)
        if self.share < 1.0 and report.bound is not None:
            report = report._replace(bound=None, estimate=report.bound / self.share)
        self.last = report
        done = None
        if report.done is not None:
            done = self.begun + report.done * (self.until - self.begun)
        self.stopped = self.report(report._replace(epoch=self.spent + report.epoch, done=done))
        return self.stopped

    def advance(self, metric: Metric | None = None) -> None:
        """The next learner starts from the last report, with what is known of the curvature."""
        self.spent += self.last.epoch
        self.begun, self.share = self.until, 1.0
        self.task = self.task._replace(start=self.last.values, metric=metric)

    def go_back(self, task: Task) -> None:
        """Report where this task started, and go on from there."""
        self(Report(task.start, 0.0, done=1.0))
        self.task = task

    def follow(self, learner: Learner, sample: Held | None = None) -> None:
        """Let a learner go on from here, with all data or a sample of them."""
        task = self.task if sample is None else part_of(self.task, sample)
        self.share = task.share
        learner.run(task, self)
        self.advance()
