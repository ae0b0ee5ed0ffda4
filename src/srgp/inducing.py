"""Where to put the inducing inputs, and from which kernel and noise to start."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from srgp.approximations import VFE, Approximation, unexplained
from srgp.bound import log_bound
from srgp.checks import as_count, as_inputs, as_targets, padded_blocks
from srgp.compiled import quick_jit
from srgp.kernels import SE, Kernel, Stationary
from srgp.kernels.base import check_kernel
from srgp.linalg import JitterWarning, Whitener, cholesky, levels_to_the_caller, whitener
from srgp.model import Model
from srgp.precision import Array, double
from srgp.statistics import summarise

# Data that do not fit in memory: a function that starts a new pass over batches of X.
Passes: TypeAlias = Callable[[], Iterable[ArrayLike]]

MINI_BATCH_ABOVE = 10_000  # k-means over more rows than this works on mini-batches
POOL = 2048  # candidates kept from one pass of the greedy method
GREEDY_ROWS = 2048
EXPLAINED = 1e-10  # share of the prior variance below which a row is nothing new
SAMPLE = 500  # rows on which starting values are tried
TRIED = (50, 200)  # inducing inputs that they are tried with, at least and at most


def random(X: ArrayLike, n_inducing: int, seed: int = 0) -> np.ndarray:
    """M distinct rows of X, drawn uniformly, as the paper does. Shape (M, D).

    >>> import numpy as np
    >>> from srgp import inducing
    >>> inducing.random(np.arange(10.0)[:, None], 3, seed=1).shape
    (3, 1)
    """
    X = as_inputs(X)
    M = as_count(n_inducing, "n_inducing")
    order = np.random.default_rng(seed).permutation(len(X))
    # A few times M rows nearly always hold M distinct ones; sorting all of them is the last resort.
    for rows in (order[: 4 * M], order):
        _, first = np.unique(X[rows], axis=0, return_index=True)
        if len(first) >= M:
            return X[rows[np.sort(first)[:M]]]
    raise _too_few(M, len(first))


def kmeans(X: ArrayLike, n_inducing: int, seed: int = 0) -> np.ndarray:
    """Centres of M clusters of X, each column weighed by its spread. Shape (M, D).

    scikit-learn's k-means; on mini-batches beyond 10 000 rows.

    >>> import numpy as np
    >>> from srgp import inducing
    >>> X = np.repeat([[0.0], [10.0], [20.0]], 5, axis=0)
    >>> np.sort(inducing.kmeans(X, 3), axis=0).ravel().round(6) + 0.0
    array([ 0., 10., 20.])
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from threadpoolctl import threadpool_limits

    X = as_inputs(X)
    start = random(X, n_inducing, seed)  # also finds out whether there are M distinct rows
    centre, spread = X.mean(0), _spread(X)
    scaled = (X - centre) / spread
    if len(X) <= MINI_BATCH_ABOVE:
        clusters = KMeans(len(start), n_init=1, random_state=seed)
    else:
        clusters = MiniBatchKMeans(
            len(start), n_init=1, random_state=seed, batch_size=max(4096, 4 * len(start))
        )
    # One thread: those of several are added up in the order in which they come to an end.
    with threadpool_limits(1, user_api="openmp"):
        centres = clusters.fit(scaled).cluster_centers_
    return np.asarray(centres * spread + centre)


@double
def greedy(
    kernel: Kernel,
    X: ArrayLike | Passes,
    n_inducing: int,
    block: int | None = None,
    seed: int = 0,
) -> np.ndarray:
    """Rows of X chosen one after another where the prior is least explained by those before.

    The next row is the one of largest conditional variance d(x) = k(x, x) − k(x, R)K_RR⁻¹k(R, x): a
    pivoted Cholesky factorisation of K_XX that never forms it (Burt, Rasmussen, van der Wilk 2020).

    X:     an array, or for data out of core a function that starts a new pass over batches.
    block: one pass over the data chooses at least this many rows (default: M/10), from the 2048
           candidates of largest d; as long as a candidate's d exceeds that of every row outside
           the candidates, the choice is exactly the greedy one. block=1 is exact throughout.
    seed:  breaks ties, such as the first choice under a stationary kernel.

    Returns fewer than M rows, with a warning, when those explain all of X to rounding.

    >>> import numpy as np
    >>> from srgp import inducing, kernels as k
    >>> X = np.linspace(0, 1, 1000)[:, None]
    >>> np.sort(inducing.greedy(k.Matern32(lengthscales=0.2), X, 3, block=1), axis=0).ravel().shape
    (3,)
    """
    check_kernel(kernel)
    M = as_count(n_inducing, "n_inducing")
    block = -(-M // 10) if block is None else as_count(block, "block")
    rng = np.random.default_rng(seed)
    chosen = np.empty((0, 0))
    while len(chosen) < M:
        pool, variances, outside = _candidates(kernel, chosen, _passes(X), M, rng)
        new = _choose(kernel, chosen, pool, variances, outside, min(block, M), M - len(chosen))
        if not len(new):
            warnings.warn(
                f"{len(chosen)} inducing inputs explain all rows to rounding; {M} were asked for.",
                stacklevel=3,
            )
            break
        chosen = np.concatenate([chosen.reshape(-1, new.shape[1]), new])
    return chosen


def starting_values(
    X: ArrayLike,
    y: ArrayLike,
    kernel: type[Stationary] = SE,
    seed: int = 0,
    n_inducing: int = 50,
) -> tuple[Stationary, float]:
    """A kernel with one lengthscale per input, and a noise variance, to start learning from.

    The variance is that of y (of several outputs, the squared mean of their deviations);
    lengthscales are multiples of each input's spread. Which multiple, and how much of y is noise,
    is what gives the best VFE bound on a sample of 500 rows with `n_inducing` of them as inducing
    inputs. Other parameters, such as a period, keep their defaults.

    >>> import numpy as np
    >>> from srgp import inducing
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 10, (300, 1))
    >>> kernel, noise = inducing.starting_values(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=300))
    >>> print(kernel.lengthscales.round(1), round(noise, 3))
    [0.9] 0.01
    """
    X = as_inputs(X)
    y = as_targets(y, len(X))
    if not (isinstance(kernel, type) and issubclass(kernel, Stationary)):
        raise ValueError(
            f"kernel must be a class of stationary kernels, such as srgp.kernels.Matern32 without "
            f"parentheses, got {kernel!r}; build a srgp.Model by hand for any other."
        )
    M = as_count(n_inducing, "n_inducing")
    rows = np.random.default_rng(seed).permutation(len(X))[:SAMPLE]
    _warn_of_offset(y[rows])
    spread, scale = _spread(X), _spread(y.reshape(len(y), -1)).mean()
    R = X[rows[:M]]
    best = (-np.inf, 1.0, 0.1)
    with warnings.catch_warnings():
        # Long lengthscales are tried too, and their kernel matrices are singular: no news here.
        warnings.simplefilter("ignore", JitterWarning)
        for multiple in (0.1, 0.3, 1.0, 3.0):
            trial = kernel(lengthscales=multiple * spread * np.sqrt(X.shape[1]))
            model = Model(trial, 1.0, R)
            s = summarise(model, X[rows], y[rows] / scale)
            shares = np.geomspace(1e-4, 1.0, 25)
            bounds = [(log_bound(model.replace(noise=n), s), multiple, n) for n in shares.tolist()]
            best = max(best, *bounds)
    _, multiple, share = best
    lengthscales = multiple * spread * np.sqrt(X.shape[1])
    return kernel(variance=scale**2, lengthscales=lengthscales), float(share * scale**2)


def initial_model(
    X: ArrayLike,
    y: ArrayLike,
    n_inducing: int = 100,
    kernel: type[Stationary] = SE,
    approximation: Approximation = VFE(),  # noqa: B008 - frozen
    seed: int = 0,
) -> Model:
    """A whole model to start from: `starting_values`, and inducing inputs by k-means.

    >>> import numpy as np
    >>> from srgp import inducing
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> inducing.initial_model(X, np.sin(6 * X[:, 0]), n_inducing=10).inducing.shape
    (10, 1)
    """
    R = kmeans(X, n_inducing, seed)
    fitted, noise = starting_values(X, y, kernel, seed, tried_with(n_inducing))
    return Model(fitted, noise, R, approximation)


def tried_with(n_inducing: int) -> int:
    """How many inducing inputs to try starting values with: the model's own number, within reason.

    At the size that is learned with, nothing is compiled twice.

    >>> from srgp import inducing
    >>> [inducing.tried_with(M) for M in (10, 100, 5000)]
    [50, 100, 200]
    """
    return int(np.clip(n_inducing, *TRIED))


def _spread(X: np.ndarray) -> np.ndarray:
    """Standard deviation of each column; a constant column counts by its own size."""
    spread = X.std(0)
    size = np.abs(X).max(0)
    constant = spread <= 1e-12 * size
    return np.where(constant, np.where(size > 0.0, size, 1.0), spread)


def _warn_of_offset(y: np.ndarray) -> None:
    mean, deviation = np.abs(y.mean(0)).max(), y.std(0).max()
    if mean > 3.0 * deviation > 0.0:
        warnings.warn(
            f"y lies around {mean:.3g} with a deviation of {deviation:.2g}, but the prior mean of "
            "the GP is zero. Subtract the mean from y first, and add it to the predictions.",
            stacklevel=levels_to_the_caller(),
        )


def _too_few(M: int, distinct: int) -> ValueError:
    return ValueError(
        f"{M} inducing inputs were asked for, but X has only {distinct} distinct rows: "
        f"use n_inducing={distinct} or fewer."
    )


def _passes(X: ArrayLike | Passes) -> Iterator[np.ndarray]:
    batches = X() if callable(X) else (X,)
    for batch in batches:
        yield as_inputs(batch)


def _candidates(
    kernel: Kernel,
    chosen: np.ndarray,
    batches: Iterator[np.ndarray],
    M: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, float]:
    """One pass: the POOL rows of largest conditional variance, and the largest one left outside."""
    pool, variances, outside = None, np.empty(0), 0.0
    factor = None
    for batch in batches:
        if factor is None:
            padded = np.zeros((M, batch.shape[1]))
            padded[: len(chosen)] = chosen if len(chosen) else 0.0
            factor = _partial_whitener(kernel, padded, len(chosen))
            pool = np.empty((0, batch.shape[1]))
        assert pool is not None
        found = [
            np.asarray(_partial_variance(kernel, padded, len(chosen), factor, rows))
            for (rows,) in padded_blocks((batch,), GREEDY_ROWS)
        ]
        pool = np.concatenate([pool, batch])
        variances = np.concatenate([variances, np.concatenate(found)[: len(batch)]])
        if len(pool) > POOL:
            # Ties, as at the start with a stationary kernel, are broken at random.
            order = np.lexsort([rng.random(len(pool)), -variances])
            outside = max(outside, variances[order[POOL]])
            pool, variances = pool[order[:POOL]], variances[order[:POOL]]
    if pool is None:
        raise ValueError("X is empty: the function given for X produced no batch.")
    return pool, variances, outside


def _choose(
    kernel: Kernel,
    chosen: np.ndarray,
    pool: np.ndarray,
    variances: np.ndarray,
    outside: float,
    at_least: int,
    at_most: int,
) -> np.ndarray:
    """Pivoted Cholesky of the candidates' conditional covariance, given what is chosen."""
    limit = EXPLAINED * float(kernel.diagonal(pool).max())
    remaining = variances.copy()
    covariance = kernel(pool)
    if len(chosen):
        padded = np.zeros((len(chosen) + at_most, pool.shape[1]))
        padded[: len(chosen)] = chosen
        factor = _partial_whitener(kernel, padded, len(chosen))
        W = np.asarray(_partial_projection(kernel, padded, len(chosen), factor, pool))
        covariance = covariance - W.T @ W
    picks: list[int] = []
    columns = np.zeros((len(pool), at_most))
    while len(picks) < at_most:
        best = int(np.argmax(remaining))
        certain = remaining[best] >= outside
        if remaining[best] <= limit or (len(picks) >= at_least and not certain):
            break
        k = len(picks)
        column = covariance[:, best] - columns[:, :k] @ columns[best, :k]
        columns[:, k] = column / np.sqrt(remaining[best])
        remaining = np.maximum(remaining - columns[:, k] ** 2, 0.0)
        remaining[best] = 0.0
        picks.append(best)
    return pool[picks]


@quick_jit
def _partial_whitener(kernel: Kernel, R: Float[Array, "M D"], count: int) -> Whitener:
    """The factor of K_RR for the first `count` rows of R; fixed shapes, so compiled once."""
    used = jnp.arange(len(R)) < count
    Krr = jnp.where(jnp.outer(used, used), kernel.covariance(R, R), 0.0)
    scale = jnp.maximum(jnp.max(jnp.diagonal(Krr)), 1e-300)
    Krr = Krr + jnp.diag(jnp.where(used, 0.0, scale))
    return whitener(*cholesky(Krr, jnp.full(len(R), scale)))


@quick_jit
def _partial_projection(
    kernel: Kernel, R: Float[Array, "M D"], count: int, factor: Whitener, X: Float[Array, "B D"]
) -> Float[Array, "M B"]:
    used = jnp.arange(len(R)) < count
    return factor(jnp.where(used[:, None], kernel.covariance(R, X), 0.0))


@quick_jit
def _partial_variance(
    kernel: Kernel, R: Float[Array, "M D"], count: int, factor: Whitener, X: Float[Array, "B D"]
) -> Float[Array, " B"]:
    return unexplained(kernel, _partial_projection(kernel, R, count, factor, X), X)
