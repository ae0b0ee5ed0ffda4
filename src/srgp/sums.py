"""The sums that a sparse posterior is made of, from blocks of data; and how they add."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from srgp.approximations import Approximation, Observation, Projection
from srgp.blas import Triangle, add_gram, begun_ahead, put_rows
from srgp.compiled import quick_jit
from srgp.kernels import Stationary
from srgp.kernels.stationary import distances, is_stationary
from srgp.linalg import gram_rows
from srgp.model import Basis, Model
from srgp.precision import Array, Scalar, double
from srgp.single import Single


class Sums(NamedTuple):
    """What a sparse model remembers of its data, with W = L⁻¹K_RX and K_RR = LLᵀ:

    A = W V⁻¹ Wᵀ,  b = W V⁻¹ y,  c = yᵀV⁻¹y,  log_noise = log |V|,  a, and n rows.

    Where V̄ = 0, V is divided by σ² (see `at_noise`), so that σ can change at any time.
    """

    A: Float[Array, "M M"]
    b: Float[Array, "M *Q"]
    c: Float[Array, "*Q"]
    log_noise: Scalar
    a: Scalar
    n: Scalar


def as_sums(parts: Iterable[Any]) -> Sums:
    """Sums from NumPy arrays, which statistics are kept in."""
    return Sums(*parts)


def observe(
    approximation: Approximation,
    basis: Basis,
    X: Float[Array, "B D"],
    y: Float[Array, "B *Q"],
    weights: Float[Array, " B"],
    noise: Scalar,
    project: Projection | None = None,
) -> Observation:
    """A batch as rows of a linear regression with unit noise, in the whitened basis."""

    def compiled(X: Array, scale: Array) -> tuple[Array, Array]:
        W = basis.project(X, scale)
        return W, jnp.sum(W**2, 0)

    return approximation.observe(basis.kernel, project or compiled, X, y, noise, weights)


def block_sums(
    approximation: Approximation,
    basis: Basis,
    X: Float[Array, "B D"],
    y: Float[Array, "B *Q"],
    weights: Float[Array, " B"],
) -> Sums:
    """The sums of one block, in compiled code; A as the block rows of its lower half.

    Whitening comes before squaring, which would lose twice the digits: see docs/design.md.
    """
    seen = observe(approximation, basis, X, y, weights, _kept_noise(approximation, basis))
    return Sums(
        A=gram_rows(seen.W),  # type: ignore[arg-type]
        b=seen.W @ seen.y,
        c=jnp.sum(seen.y**2, 0),
        log_noise=jnp.sum(seen.log_noise),
        a=jnp.sum(seen.regulariser),
        n=jnp.sum(seen.present),
    )


def _kept_noise(approximation: Approximation, basis: Basis) -> Scalar:
    """The σ² that sums are in units of: 1 where the model allows it, see `at_noise`."""
    return jnp.ones(()) if approximation.noise_free else basis.noise


@functools.partial(quick_jit, static_argnums=0)
def _asked(
    approximation: Approximation,
    basis: Basis,
    points: Float[Array, "MQ D"],
    r2: Float[Array, "MQ B"] | None,
    X: Float[Array, "B D"],
    y: Float[Array, "B *Q"],
    weights: Float[Array, " B"],
) -> tuple[Float[Array, "MQ B"], "Rest | None"]:
    """What `observe` wants whitened: k(R, X), in units of the noise where that is known before.

    points: R, and one more for each output: their rows are room for y.
    r2: the distances of a stationary kernel, made in a call of their own. With it comes the rest of
    what is seen, where that does not depend on W: V̄ = 0, and a regulariser that is a trace.
    """
    kernel, asked = basis.kernel, []

    def project(X: Array, scale: Array) -> tuple[Array, Array]:
        known = None if r2 is None else cast(Stationary, kernel).at_distance(r2)
        asked.append((kernel.covariance(points, X) if known is None else known) * scale)
        return asked[0], jnp.zeros_like(scale)

    noise = _kept_noise(approximation, basis)
    seen = observe(approximation, basis, X, y, weights, noise, project)
    known = seen.W is asked[0] and approximation.regulariser_slope is not None
    return asked[0], _rest(seen) if known else None


@functools.partial(quick_jit, static_argnums=0)
def _seen(
    approximation: Approximation,
    basis: Basis,
    W: Float[Array, "M B"],
    squares: Float[Array, " B"],
    X: Float[Array, "B D"],
    y: Float[Array, "B *Q"],
    weights: Float[Array, " B"],
) -> tuple[Float[Array, "M B"] | None, "Rest"]:
    """The rest of `observe`, from the whitened matrix; it comes back only if V̄ changed it."""
    noise = _kept_noise(approximation, basis)
    seen = observe(approximation, basis, X, y, weights, noise, lambda X, scale: (W, squares))
    return None if seen.W is W else seen.W, _rest(seen)


class Rest(NamedTuple):
    """What is seen of a block beside W: its targets, and sums over its rows."""

    y: Float[Array, "B *Q"]
    log_noise: Scalar
    a: Scalar
    n: Scalar


def _rest(seen: Observation) -> Rest:
    return Rest(seen.y, *map(jnp.sum, (seen.log_noise, seen.regulariser, seen.present)))


# What overflows is refused where the sums are used, with a message of its own.
@np.errstate(over="ignore", invalid="ignore")
@double
def group_sums(
    approximation: Approximation,
    basis: Basis,
    lower: Triangle,
    blocks: Sequence[tuple[np.ndarray, ...]],
) -> Sums:
    """The sums of a few blocks; A as its lower half.

    Kernel and noise are compiled code; the two products, L⁻¹K and WWᵀ, are triangular and
    symmetric, and so BLAS's: half the flops of a plain product, and a substitution that keeps
    its digits however ill-conditioned K_RR is. With y as one more row of W, the symmetric product
    is A, b and c at once: [A b; bᵀ c].
    """
    M, outputs = len(lower), blocks[0][1].shape[1:]
    kernel, slope = basis.kernel, approximation.regulariser_slope
    R = np.asarray(basis.inducing)
    points = np.concatenate([R, np.repeat(R[-1:], np.prod(outputs, dtype=int), 0)])
    products, parts = np.zeros((len(points), len(points))), []

    def ask(block: tuple[np.ndarray, ...]) -> tuple[Array, Rest | None]:
        r2 = distances(kernel, points, block[0]) if is_stationary(kernel) else None
        return _asked(approximation, basis, points, r2, *block)

    for block, (asked, rest) in begun_ahead(ask, blocks):
        stacked = np.asarray(asked)  # its memory: nobody else has seen it, so it may change
        W = stacked[:M]
        lower.solve(W)
        if rest is None:
            # The regulariser needs those of single rows, or only their sum, the trace of A.
            squares = np.einsum("mb,mb->b", W, W) if slope is None else np.zeros(W.shape[1])
            changed, rest = _seen(approximation, basis, W, squares, *block)
            if changed is not None:
                put_rows(stacked, 0, np.asarray(changed))
        y, *totals = map(np.asarray, rest)
        put_rows(stacked, M, y.reshape(len(y), -1).T)
        add_gram(stacked, products)
        parts.append(totals)
    A = np.ascontiguousarray(products[:M, :M])
    b = products[M:, :M].T.reshape(M, *outputs)
    c = np.diag(products[M:, M:]).reshape(outputs)
    sums = as_sums((A, b, c, *(sum(part) for part in zip(*parts, strict=True))))
    return sums if slope is None else sums._replace(a=np.maximum(sums.a - slope * np.trace(A), 0.0))


# What overflows is refused where the sums are used, with a message of its own.
@np.errstate(over="ignore", invalid="ignore")
def single_sums(model: Model, single: Single, x: np.ndarray, y: np.ndarray, weight: float) -> Sums:
    """The sums of one row, without a compiled call."""
    noise = 1.0 if model.approximation.noise_free else float(model.noise)
    w, y, log_noise, a = single.observe(x, y, weight, noise)
    numbers = (np.asarray(number) for number in (log_noise, a, 1.0))
    return as_sums((np.outer(w, w), np.multiply.outer(w, y), y**2, *numbers))


class CarefulSum:
    """Kahan's summation of `Sums`: the error does not grow with the number of terms."""

    def __init__(self) -> None:
        self.value: Any = None
        self._lost: Any = None

    @np.errstate(over="ignore", invalid="ignore")
    def add(self, term: Sums) -> None:
        """Add one more."""
        if self.value is None:
            self.value, self._lost = term, as_sums(np.zeros_like(x) for x in term)
            return
        term = as_sums(map(np.subtract, term, self._lost))
        value = as_sums(map(np.add, self.value, term))
        gained = map(np.subtract, value, self.value)
        self.value, self._lost = value, as_sums(map(np.subtract, gained, term))


def at_noise(approximation: Approximation, sums: Sums, noise: Scalar) -> Sums:
    """The sums with V at noise variance σ², from the noise-free form where the model allows it."""
    if not approximation.noise_free:
        return sums
    return Sums(
        A=sums.A / noise,
        b=sums.b / noise,
        c=sums.c / noise,
        log_noise=sums.log_noise + sums.n * jnp.log(noise),
        a=sums.a / noise,
        n=sums.n,
    )
