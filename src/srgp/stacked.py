"""Rows of data for the SE kernel by NumPy and BLAS: the kernel matrix with the targets below it.

    Z = [K; yᵀ] Diag(√w)      ZZᵀ = [Φ b; bᵀ c]      K̄ = 2Φ̄K + b̄yᵀ = [2Φ̄ b̄] Z

One product sums rows up, one more takes a derivative back to them. NumPy and BLAS let go of
Python's lock, so that each core has rows of its own from distances to moments. Compiled code would
spread every kernel matrix over all cores, which then wait for each other.
"""

import itertools
from typing import Any, NamedTuple, Self, TypeAlias

import jax
import numpy as np
from jaxtyping import Float

from srgp.blas import Triangle, add_gram, add_product
from srgp.collapsed import RawCotangent
from srgp.kernels import SE
from srgp.linalg import Whitener
from srgp.moments import BEYOND, monomials, unheard
from srgp.precision import HostArray
from srgp.slopes import Raw, host_raw
from srgp.sources import Batch

# Inputs up to which differences are the fewest operations, and lengthscales across all of R up to
# which two products lose no more digits than they do.
FEW_INPUTS, WIDE = 2, 2.0**10
# Entries of Z that stay near the core that works on them; those of a job, at least and at most.
PIECE, LEAST, JOB = 2**18, 2**16, 2**21
# Jobs of many rows are a multiple of this.
JOBS = 8

# Z of parts of a batch.
Pieces: TypeAlias = list[tuple[slice, Float[np.ndarray, "Z B"]]]


class Exponent:
    """log v − r²/2 between all of R and rows of data, in which close points do not cancel.

    In coordinates p, q of R and X in units of √2 ℓ this is log v − |p − q|². Of many inputs, by two
    products. The coordinates are cut, p = p₁ + p₂, with p₁ on a grid so coarse that everything in
    p₁ and q₁ alone is exact in double precision, and p₂ so small that the rest hardly rounds:

        −|p − q|² = [2p₁·q₁ − |p₁|² − |q₁|²] + [2p·q₂ + 2p₂·q₁ − (p₁ + p)·p₂ − (q₁ + q)·q₂]
    """

    def __init__(self, kernel: SE, R: Float[np.ndarray, "M D"]) -> None:
        self.columns = slice(None) if kernel.active_dims is None else list(kernel.active_dims)
        R = R[:, self.columns]
        lengthscales = np.broadcast_to(np.asarray(kernel.lengthscales), R.shape[1:])
        self.centre, self.scales = R.mean(0), np.sqrt(0.5) / lengthscales
        # Where the kernel is zero x may be anything: what is far away would only cost digits.
        reach = BEYOND * lengthscales
        self.nearby = R.min(0) - reach, R.max(0) + reach
        self.log_variance = float(np.log(kernel.variance))
        self.R = self._coordinates(R)
        D, top = len(self.R), float(np.abs(self.R).max()) + BEYOND
        self.by_products = D > FEW_INPUTS and top < WIDE
        if not self.by_products:
            return
        # 4D products of two such numbers, in units of their last bits, are less than 2⁵³.
        bits = (51 - int(np.ceil(np.log2(D)))) // 2
        self.grid = 2.0 ** (np.ceil(np.log2(top)) - bits)
        p, (p1, p2) = self.R, self._cut(self.R)
        one = np.ones((1, p.shape[1]))
        self.coarse = np.concatenate([2.0 * p1, -_dot(p1, p1), one]).T.copy()
        rest = self.log_variance - _dot(p1 + p, p2)
        self.fine = np.concatenate([2.0 * p, 2.0 * p2, rest, one]).T.copy()

    def __call__(self, X: Float[np.ndarray, "B D"], out: Float[np.ndarray, "M B"]) -> None:
        """Into `out`."""
        q = self._coordinates(np.clip(X[:, self.columns], *self.nearby))
        if self.by_products:
            q1, q2 = self._cut(q)
            one = np.ones((1, q.shape[1]))
            np.matmul(self.coarse, np.concatenate([q1, one, -_dot(q1, q1)]), out=out)
            add_product(self.fine, np.concatenate([q2, q1, one, -_dot(q1 + q, q2)]), out)
        else:
            self._by_differences(q, out)

    def _by_differences(self, q: Float[np.ndarray, "D B"], out: Float[np.ndarray, "M B"]) -> None:
        np.square(np.subtract(self.R[0][:, None], q[0], out=out), out=out)
        for one, other in zip(self.R[1:], q[1:], strict=True):
            difference = one[:, None] - other
            out += np.square(difference, out=difference)
        np.subtract(self.log_variance, out, out=out)

    def _coordinates(self, X: Float[np.ndarray, "B D"]) -> Float[np.ndarray, "D B"]:
        """From the middle of R; long rows are the fast ones."""
        return np.ascontiguousarray(((X - self.centre) * self.scales).T)

    def _cut(self, p: Float[np.ndarray, "D B"]) -> tuple[np.ndarray, np.ndarray]:
        coarse = np.rint(p / self.grid) * self.grid
        return coarse, p - coarse


def _dot(p: Float[np.ndarray, "D B"], q: Float[np.ndarray, "D B"]) -> Float[np.ndarray, "1 B"]:
    return np.einsum("db,db->b", p, q)[None]


class Factor(NamedTuple):
    """K_RR = LLᵀ on the host, ready for many blocks."""

    lower: Triangle
    inverse: HostArray

    @classmethod
    def of(cls, whiten: Whitener | None) -> Self | None:
        """None where sums are not whitened."""
        if whiten is None:
            return None
        return cls(Triangle(np.asarray(whiten.lower)), np.asarray(whiten.inverse))

    def whitened(self, K: HostArray, above: int | None = None) -> np.ndarray:
        """L⁻¹K in the rows above, and below them what was there."""
        W = np.array(K)
        self.lower.solve(W[:above])
        return W


def job_rows(count: int, M: int) -> int:
    """Rows of a job, of so many: as many jobs for each core, on 2, 4 or 8 of them."""
    if count * M <= JOBS * LEAST:
        return -(-count // 2 ** int(np.log2(max(count * M / LEAST, 1.0))))
    most = max(JOB // M, 1)
    return -(-count // (JOBS * -(-count // (JOBS * most))))


class Stack:
    """Z of all rows, in pieces, for two passes over them.

    count: of all rows; room: bytes of the first batches to keep from one pass to the next.
    """

    def __init__(self, kernel: SE, R: HostArray, count: int, room: int = 0) -> None:
        self.kernel: SE = jax.tree.map(np.asarray, kernel)
        self.R, self.room = np.asarray(R), room
        self.rows = job_rows(count, len(self.R))
        self.jobs = -(-count // self.rows)
        self.exponent = Exponent(self.kernel, self.R)
        self.free = np.empty(0)
        self.kept: dict[int, tuple[Batch, Pieces]] = {}

    def begin(self, number: int, batch: Batch) -> Pieces:
        """Memory for Z, kept as long as there is room."""
        size = self._height(batch) * len(batch[0])
        if number == 0:
            # At once: the system hands much over in large pages, in a fifth of the time.
            self.free = np.empty(min(self.room // 8, size * self.jobs))
        if size > self.free.size:
            return self._pieces(np.empty(size), batch)
        memory, self.free = self.free[:size], self.free[size:]
        pieces = self._pieces(memory, batch)
        X, y, w = map(np.array, batch)  # the source may use its own again
        self.kept[number] = (X, y, w), pieces
        return pieces

    def begin_again(self, number: int, batch: Batch) -> tuple[Batch | None, Pieces]:
        """Z as it was kept, and of which rows; otherwise memory for it."""
        size = self._height(batch) * len(batch[0])
        return self.kept.pop(number, None) or (None, self._pieces(np.empty(size), batch))

    def _height(self, batch: Batch) -> int:
        return len(self.R) + int(np.prod(batch[1].shape[1:]))

    def _pieces(self, memory: Float[np.ndarray, " S"], batch: Batch) -> Pieces:
        count, height = len(batch[0]), self._height(batch)
        ends = np.linspace(0, count, -(-count * len(self.R) // PIECE) + 1).astype(int)
        return [
            (slice(a, b), memory[height * a : height * b].reshape(height, b - a))
            for a, b in itertools.pairwise(map(int, ends))
        ]

    @unheard
    def sums(self, factor: Factor | None, number: int, pieces: Pieces, batch: Batch) -> Raw:
        """The sums of a batch, Φ as its lower half; of L⁻¹K if there is a factor."""
        X, y, w = batch
        M, height = len(self.R), len(pieces[0][1])
        total = np.zeros((height, height))
        for rows, Z in pieces:
            self._fill(Z, X[rows], y[rows], w[rows])
            add_gram(Z if factor is None else factor.whitened(Z, M), total)
        b = total[M:, :M].T.reshape(M, *y.shape[1:])
        return host_raw(self.kernel, total[:M, :M], b, X, y, w)

    @unheard
    def pulled(
        self,
        at: RawCotangent,
        factor: Factor | None,
        number: int,
        begun: tuple[Batch | None, Pieces],
        batch: Batch,
    ) -> tuple[Float[np.ndarray, "M S"], Any]:
        """−(K̄ ∘ K) p for the monomials p of x, from which `pulled_moments` has the gradient; Σ w.

        With a factor, Φ̄ and b̄ are derivatives in whitened sums: K̄ = L⁻ᵀ[2Φ̄ b̄][L⁻¹K; yᵀ].
        """
        X, y, w = batch
        known, pieces = begun
        # Batches may come in another order than in the first pass.
        filled = known is not None and all(map(np.array_equal, known, batch))
        M, moments = len(self.R), np.zeros(())
        G = np.concatenate([2.0 * np.asarray(at.Phi), np.reshape(at.b, (M, -1))], 1)
        for rows, Z in pieces:
            if not filled:
                self._fill(Z, X[rows], y[rows], w[rows])
            at_K = G @ (Z if factor is None else factor.whitened(Z, M))
            if factor is not None:
                at_K = np.asarray(factor.inverse).T @ at_K
            at_K *= Z[:M]
            moments = moments - at_K @ monomials(self.kernel, self.R, X[rows])
        return moments, w.sum()

    def _fill(self, Z: Float[np.ndarray, "Z B"], X: Any, y: Any, w: Any) -> None:
        K = Z[: len(self.R)]
        self.exponent(X, K)
        np.exp(K, out=K)
        Z[len(K) :] = y.T
        if not np.all(w == 1.0):
            Z *= np.sqrt(w)
