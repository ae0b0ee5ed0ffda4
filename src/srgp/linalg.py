"""The only place that touches factorisations."""

import functools
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Key

from srgp.precision import EPS, Array, Scalar

# Multiplying by an explicit L⁻¹ leaves a residual of eps·√cond(K). Up to here that is rounding.
WELL_CONDITIONED = 1e4
# Otherwise only diagonal blocks of this size are inverted, and refined.
LEAF = 64
# Jitter of a joint covariance, relative to its scale, that no draw shows.
ROUNDING = 1e-8
# Block rows of a symmetric product: narrower ones save work, but make slower products.
GRAM_ROWS = 256


class JitterWarning(UserWarning):
    """A matrix was singular to rounding, and a small multiple of the identity was added to it.

    >>> import warnings, srgp
    >>> model = srgp.Model(srgp.kernels.SE(), noise=0.1, inducing=[[0.0], [0.0]])  # repeated
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     jitter = model.jitter
    >>> caught[0].category.__name__, 0 < jitter < 1e-14
    ('JitterWarning', True)
    """


class Whitener(NamedTuple):
    """K = L Lᵀ, ready for many products L⁻¹B."""

    lower: Float[Array, "M M"]
    inverse: Float[Array, "M M"]
    leaves: tuple[Float[Array, "_ _"], ...]  # inverses of the diagonal blocks of L
    condition: Scalar  # ‖diag K‖ ‖L⁻¹‖², an estimate of cond(K)
    jitter: Scalar  # what was added to the diagonal of K, as a share of its largest entry

    def __call__(self, B: Float[Array, "M *B"]) -> Float[Array, "M *B"]:
        """W = L⁻¹B, as accurate as substitution row by row, at the speed of a matrix product."""
        if B.size == len(B):
            # For one column few operations count, not few flops.
            return substitute(self.lower, (self.inverse,), B)
        return jax.lax.cond(
            self.condition > WELL_CONDITIONED,
            lambda B: substitute(self.lower, self.leaves, B),
            lambda B: self.inverse @ B,
            B,
        )


def substitute(
    L: Float[Array, "M M"],
    leaves: tuple[Float[Array, "_ _"], ...],
    B: Float[Array, "M *B"],
) -> Float[Array, "M *B"]:
    """L⁻¹B by halves: W₁ = L₁₁⁻¹B₁ and W₂ = L₂₂⁻¹(B₂ − L₂₁W₁), down to the inverted blocks."""
    if len(leaves) == 1:
        W = leaves[0] @ B
        return W + leaves[0] @ (B - L @ W)  # one step of refinement, for what the inverse lost
    half = len(leaves) // 2
    cut = half * LEAF
    upper = substitute(L[:cut, :cut], leaves[:half], B[:cut])
    rest = B[cut:] - L[cut:, :cut] @ upper
    return jnp.concatenate([upper, substitute(L[cut:, cut:], leaves[half:], rest)])


def cholesky(
    K: Float[Array, "M M"], shift: Float[Array, " M"]
) -> tuple[Float[jax.Array, "M M"], Float[jax.Array, ""]]:
    """Lower Cholesky factor of K + jitter·Diag(shift), and the jitter: the least needed, often 0.

    A squared pivot below ½·M·eps of its diagonal entry is rounding error, not information, so a
    factor holding one counts as failed. Then the jitter starts at M·eps and grows tenfold. The
    search is not differentiated; the factorisation is.
    """
    least = len(K) * EPS

    def shifted(K: Array, jitter: Array) -> jax.Array:
        return K + jitter * jnp.diag(jax.lax.stop_gradient(shift))

    def fails(jitter: jax.Array) -> Bool[jax.Array, ""]:
        candidate = shifted(jax.lax.stop_gradient(K), jitter)
        pivots = jnp.diagonal(lower_factor(candidate))
        # NaN, the sign of a failed factorisation, compares false.
        return ~jnp.all(pivots**2 > 0.5 * least * jnp.diagonal(candidate))

    jitter = jax.lax.while_loop(
        lambda jitter: fails(jitter) & (jitter < 1e-2),
        lambda jitter: jnp.where(jitter == 0.0, least, 10.0 * jitter),
        jnp.zeros(()),
    )
    return lower_factor(shifted(K, jitter)), jitter


def steadied(A: Float[Array, "M M"]) -> Float[jax.Array, "M M"]:
    """A sum of data with a little more than it holds, which outweighs its rounding errors."""
    return A + len(A) * EPS * jnp.max(jnp.diagonal(A)) * jnp.eye(len(A))


def lower_factor(K: Float[Array, "*batch M M"]) -> Float[jax.Array, "*batch M M"]:
    """The lower Cholesky factor of a matrix known to be positive definite."""
    return jnp.linalg.cholesky(K, symmetrize_input=False)


def whitener(L: Float[Array, "M M"], jitter: Scalar) -> Whitener:
    """Prepare L for repeated solves."""
    inverse = inverse_lower(L)
    # The diagonal blocks of L⁻¹ are the inverses of those of L.
    leaves = tuple(inverse[i : i + LEAF, i : i + LEAF] for i in range(0, len(L), LEAF))
    condition = jnp.max(jnp.sum(L**2, 1)) * jnp.sum(inverse**2)
    return Whitener(L, inverse, leaves, condition, jitter)


def inverse_lower(L: Float[Array, "M M"]) -> Float[jax.Array, "M M"]:
    """L⁻¹, lower triangular."""
    return jax.scipy.linalg.solve_triangular(L, jnp.eye(len(L)), lower=True)


def gram_rows(
    W: Float[Array, "M B"], Z: Float[Array, "M B"] | None = None
) -> tuple[Float[Array, "_ _"], ...]:
    """The block rows of the lower half of W Zᵀ, which is symmetric; Z = W if left out.

    Up to half the work of a whole product.
    """
    Z = W if Z is None else Z
    M = len(W)
    starts = range(0, M, GRAM_ROWS)
    return tuple(W[i : i + GRAM_ROWS] @ Z[: min(i + GRAM_ROWS, M)].T for i in starts)


def assemble(rows: tuple[Float[Array, "_ _"], ...]) -> Float[Array, "M M"]:
    """The symmetric matrix of which `gram_rows` gave the lower half."""
    cuts = [row.shape[1] for row in rows]
    starts = [0, *cuts[:-1]]

    def block(i: int, j: int) -> Array:
        # The blocks on the diagonal are whole, the rest is mirrored.
        lower, upper = (i, j) if i >= j else (j, i)
        found = rows[lower][:, starts[upper] : cuts[upper]]
        return found if i >= j else found.T

    return jnp.block([[block(i, j) for j in range(len(rows))] for i in range(len(rows))])


@functools.cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def _listen() -> None:
    """Let any thread set BLAS's threads: threadpoolctl, from 3.8, hears the first one only."""
    import threadpoolctl

    clear = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


class _OneThread:
    """Holds BLAS to one thread from the first that enters to the last that leaves.

    The number of threads is one setting for the whole process: each on their own, those who overlap
    would take one another's setting for the user's.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._users: Any = None  # setting, given back by the last

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                _listen()
                self._users = _blas().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                _listen()
                self._users.restore_original_limits()
                _listen()


_one_thread = _OneThread()


def quiet_blas() -> AbstractContextManager[None]:
    """Factorisations on one thread, as long as this lasts in any thread; it may be nested.

    The threads of LAPACK's library wait busily after each call, for longer than a step of learning
    takes, on the cores that matrix products need.
    """
    return _one_thread


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings of jitter, where it is told otherwise: few guess how few points are enough."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitterWarning)
        yield


def solve(A: Float[Array, "M M"], B: Float[Array, "M K"]) -> Float[Array, "M K"]:
    """A⁻¹B for a square matrix without structure."""
    return jnp.linalg.solve(A, B)


def log_determinant(L: Float[Array, "*batch M M"]) -> Float[jax.Array, "*batch"]:
    """log |L Lᵀ|."""
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(L, axis1=-2, axis2=-1)), -1)


def report_jitter(L: np.ndarray, jitter: float, what: str, cure: str) -> None:
    """Warn where jitter was added; raise where no reasonable jitter helped."""
    if not np.isfinite(L).all():
        raise np.linalg.LinAlgError(
            f"{what} is not positive definite, even with {jitter:.0e} of its scale added to the "
            f"diagonal. {cure}"
        )
    if jitter > 0:
        warnings.warn(
            f"{what} is singular to rounding: added {jitter:.1e} of its scale to the diagonal. "
            f"{cure}",
            JitterWarning,
            stacklevel=levels_to_the_caller(),
        )


def levels_to_the_caller() -> int:
    """How far up the stack the first line outside this package is."""
    frame, level = sys._getframe(1), 1
    # functools stands between: a model's basis is a cached property.
    between = ("srgp", "functools")
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in between:
        frame, level = frame.f_back, level + 1
    return level


def sample_normal(
    key: Key[Array, ""], mean: Float[Array, "A *Q"], covariance: Float[Array, "A A"], count: int
) -> Float[Array, "count A *Q"]:
    """Independent draws of N(mean, covariance), the outputs sharing the covariance.

    The covariance of close points is always singular to rounding, and jitter that is no more than
    that is no news. Beyond `ROUNDING` of its scale it changes the draws, and a warning says so.
    """
    shift = jnp.full(len(mean), jnp.max(jnp.diagonal(covariance)))
    L, jitter = cholesky(covariance, shift)
    if jitter > ROUNDING:
        report_jitter(
            np.asarray(L),
            float(jitter),
            "the joint covariance of the points to sample at",
            "Sample at fewer points, or at points further apart.",
        )
    standard = jax.random.normal(key, (count, *mean.shape))
    return mean + jnp.einsum("ab,nb...->na...", L, standard)
