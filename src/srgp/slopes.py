"""How the raw sums of a batch change with kernel parameters φ and inducing inputs R.

With K = k(R, X) (M, B), the raw sums Φ = K Diag(w) Kᵀ and b = K Diag(w) y depend on r_m through
their row (and column) m only. So their derivatives in all M·D coordinates of R fit in D matrices,

    C_d[m, j] = Σ_i w_i ∂k(r_m, x_i)/∂r_md k(x_i, r_j),   Cb_d[m] = Σ_i w_i ∂k(r_m, x_i)/∂r_md y_i,

and those in φ in one matrix for each parameter, T_p and Tb_p likewise. Then, for any direction,

    δΦ = Z + Zᵀ,  Z = Σ_d Diag(δR_:d) C_d + Σ_p δφ_p T_p.

Everything is a sum over rows of data, and adds over batches as the statistics do.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from srgp.compiled import quick_jit
from srgp.kernels import SE, Kernel, Stationary
from srgp.kernels.stationary import distances, is_stationary
from srgp.linalg import gram_rows
from srgp.precision import Array, HostArray, Scalar


class Raw(NamedTuple):
    """The sums of a model with V̄ = 0, neither whitened nor divided by σ²; w are the weights."""

    Phi: Float[Array, "M M"]  # K Diag(w) Kᵀ
    b: Float[Array, "M *Q"]  # K Diag(w) y
    c: Float[Array, "*Q"]  # Σ w y²
    kappa: Scalar  # Σ w k(x, x)
    log_weight: Scalar  # Σ log w
    n: Scalar


class Slopes(NamedTuple):
    """The derivatives of `Raw`, for D inputs and P kernel parameters."""

    C: tuple[Float[Array, "M M"], ...]  # one for each input
    Cb: Float[Array, "D M *Q"]
    T: tuple[Float[Array, "M M"], ...]  # one for each kernel parameter
    Tb: Float[Array, "P M *Q"]
    kappa: Float[Array, " P"]


class Products(NamedTuple):
    """What `slopes` are linear in: accumulated over the blocks of a batch, converted once.

    For a stationary kernel these are G Diag(w p) Kᵀ and G Diag(w p) y over the monomials p of x,
    with G = 2 ∂k/∂r²; otherwise the slopes themselves. The matrices of the SE kernel have no sign:
    its G is −K.
    """

    raw: Raw
    matrices: tuple[Float[Array, "M M"], ...]
    vectors: Float[Array, "S M *Q"]
    kappa: Float[Array, " P"]


def is_se(kernel: Kernel) -> TypeGuard[SE]:
    """Whether the kernel is v exp(−r²/2), not just derived from it."""
    return isinstance(kernel, SE) and is_stationary(kernel) and type(kernel).profile is SE.profile


def kernel_matrix(
    kernel: Kernel, R: Float[Array, "M D"], X: Float[HostArray, "B D"], w: Float[HostArray, " B"]
) -> Float[Array, "M B"]:
    """K = k(R, X) Diag(√w), for use outside of compiled code.

    In two calls where it can be, see `distances`. The weights come along at no cost here, and every
    sum over rows is one of products of K.
    """
    if is_stationary(kernel):
        return _profile(kernel, distances(kernel, R, X), w)
    return _covariance(kernel, R, X, w)


@quick_jit
def _profile(kernel: Stationary, r2: Array, w: Array) -> Array:
    return kernel.at_distance(r2) * jnp.sqrt(w)


@quick_jit
def _covariance(kernel: Kernel, R: Array, X: Array, w: Array) -> Array:
    return kernel.covariance(R, X) * jnp.sqrt(w)


def products(
    kernel: Kernel,
    R: Float[Array, "M D"],
    K: Float[Array, "M B"],
    X: Float[Array, "B D"],
    y: Float[Array, "B *Q"],
    w: Float[Array, " B"],
) -> Products:
    """The products of one block of rows, given K = k(R, X) Diag(√w); w = 0 marks padding.

    Those of the SE kernel are `srgp.moments`' work.
    """
    if is_stationary(kernel):
        return _products_stationary(kernel, R, K, X, y, w)
    return products_generic(kernel, R, K, X, y, w)


def slopes(kernel: Kernel, R: Float[Array, "M D"], parts: Products) -> tuple[Raw, Slopes]:
    """Raw sums and their derivatives at (kernel, R), from the accumulated products."""
    if is_se(kernel):
        # G = −K
        moments = tuple(-matrix for matrix in (parts.raw.Phi, *parts.matrices))
        return parts.raw, _from_moments(kernel, R, parts.raw, moments, parts)
    if is_stationary(kernel):
        return parts.raw, _from_moments(kernel, R, parts.raw, parts.matrices, parts)
    D = R.shape[1]
    matrices, vectors = parts.matrices, parts.vectors
    return parts.raw, Slopes(matrices[:D], vectors[:D], matrices[D:], vectors[D:], parts.kappa)


def products_generic(
    kernel: Kernel,
    R: Float[Array, "M D"],
    K: Float[Array, "M B"],
    X: Float[Array, "B D"],
    y: Float[Array, "B *Q"],
    w: Float[Array, " B"],
) -> Products:
    """Any kernel: D + P forward derivatives of k(R, X), never M·D: all rows of R move as one."""
    phi, unravel = ravel_pytree(kernel)
    D, P = R.shape[1], len(phi)
    moved = [
        jax.jvp(lambda R: kernel.covariance(R, X), (R,), (jnp.zeros_like(R).at[:, d].set(1.0),))[1]
        for d in range(D)
    ] + [
        jax.jvp(lambda phi: unravel(phi).covariance(R, X), (phi,), (jnp.eye(P)[p],))[1]
        for p in range(P)
    ]
    root = jnp.sqrt(w)
    Kw = K * root
    return Products(
        _raw(kernel, K @ K.T, Kw @ y, X, y, w),
        tuple(E @ Kw.T for E in moved),
        jnp.stack([(E * w) @ y for E in moved]),
        _kappa_slope(kernel, X, w),
    )


def _products_stationary(
    kernel: Stationary, R: Array, K: Array, X: Array, y: Array, w: Array
) -> Products:
    x, squares = _centred(kernel, R, X)
    root = jnp.sqrt(w)
    moments = jnp.concatenate([jnp.ones((len(X), 1)), x, squares], 1) * root[:, None]
    r2 = kernel.squared_distance(kernel._select(R), kernel._select(X))
    G = 2.0 * kernel.variance * jax.jvp(kernel.profile, (r2,), (jnp.ones_like(r2),))[1]
    extra = [E * root for E in _extra_derivatives(kernel, r2)]
    weighted = (y.T * root).T
    matrices = [(G * p) @ K.T for p in moments.T] + [E @ K.T for E in extra]
    vectors = [
        jnp.moveaxis(jnp.tensordot(G, _times(moments, weighted), 1), 1, 0),
        *((E @ weighted)[None] for E in extra),
    ]
    return Products(
        _raw(kernel, K @ K.T, K @ weighted, X, y, w),
        tuple(matrices),
        jnp.concatenate(vectors),
        _kappa_slope(kernel, X, w),
    )


def _from_moments(
    kernel: Stationary, R: Array, raw: Raw, moments: tuple[Array, ...], parts: Products
) -> Slopes:
    """∂k/∂r_d = G (r_d − x_d)/ℓ_d² and ∂k/∂ℓ_d = −G (r_d − x_d)²/ℓ_d³, multiplied out."""
    D, active = R.shape[1], _columns(kernel, R.shape[1])
    r = kernel._select(R) - _centre(kernel, R)
    d = len(active)
    scales = jnp.broadcast_to(kernel.lengthscales, (d,))

    def first_and_second(m: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        # m: G Diag(p) Z for the monomials p = 1, x_1..x_d, then x_1²..x_d² or |x|²; rows are r_m.
        columns = [r[:, i].reshape(-1, *[1] * (m[0].ndim - 1)) for i in range(d)]
        first = [(columns[i] * m[0] - m[1 + i]) / scales[i] ** 2 for i in range(d)]
        squares = [columns[i] ** 2 * m[0] - 2.0 * columns[i] * m[1 + i] for i in range(d)]
        if is_shared(kernel):
            squares = [sum(squares[1:], squares[0])]
        second = [-(q + m[1 + d + i]) / scales[i] ** 3 for i, q in enumerate(squares)]
        return first, second

    C, T = first_and_second(moments)
    Cb, Tb = first_and_second(list(parts.vectors))
    used = 1 + d + len(T)
    nothing, none = jnp.zeros_like(raw.Phi), jnp.zeros_like(raw.b)
    return Slopes(
        tuple(C[active.index(i)] if i in active else nothing for i in range(D)),
        jnp.stack([Cb[active.index(i)] if i in active else none for i in range(D)]),
        (raw.Phi / kernel.variance, *T, *moments[used:]),
        jnp.stack([raw.b / kernel.variance, *Tb, *parts.vectors[used:]]),
        parts.kappa,
    )


def pullback(
    kernel: Kernel,
    R: Float[Array, "M D"],
    X: Float[Array, "B D"],
    K: Float[Array, "M B"],
    cotangent: Float[Array, "M B"],
    w: Float[Array, " B"] | None = None,
) -> tuple[Kernel, Float[Array, "M D"]]:
    """Σ ⟨cotangent, ∂K⟩ in kernel and R, where K = k(R, X) Diag(√w) is at hand; w = 1 if none."""
    if not is_stationary(kernel):
        _, back = jax.vjp(lambda kernel, R: kernel.covariance(R, X), kernel, R)
        return back(cotangent if w is None else cotangent * jnp.sqrt(w))
    # As products with the monomials of x: two passes over (M, B) instead of two for each input.
    x, squares = _centred(kernel, R, X)
    along, extra = _along_distance(kernel, R, X, K, cotangent, w)
    m = along @ jnp.concatenate([jnp.ones((len(X), 1)), x, squares], 1)
    # G = −K for the SE kernel: the first moment tells what another pass over (M, B) would.
    total = -jnp.sum(m[:, 0]) if is_se(kernel) else jnp.sum(cotangent * K)
    return pulled_moments(kernel, R, m, total, extra)


def pulled_moments(
    kernel: Stationary,
    R: Float[Array, "M D"],
    m: Float[Array, "M S"],
    total: Scalar,
    extra: Sequence[Array] = (),
) -> tuple[Kernel, Float[Array, "M D"]]:
    """The pull-back from its moments, which add over rows: m = (cotangent ∘ G) p, p the monomials.

    total: Σ cotangent ∘ K. extra: the pull-back to the parameters of the profile itself.
    """
    r = kernel._select(R) - _centre(kernel, R)
    d = r.shape[1]
    scales = jnp.broadcast_to(kernel.lengthscales, (d,))
    at_R = (r * m[:, :1] - m[:, 1 : d + 1]) / scales**2
    second = jnp.sum(r**2 * m[:, :1] - 2.0 * r * m[:, 1 : d + 1], 0)
    if is_shared(kernel):
        second = jnp.sum(second, keepdims=True)
    at_scales = -(second + jnp.sum(m[:, d + 1 :], 0)) / jnp.ravel(kernel.lengthscales) ** 3
    _, unravel = ravel_pytree(kernel)
    at_variance = total / kernel.variance
    everywhere = jnp.asarray(_columns(kernel, R.shape[1]))
    return (
        unravel(jnp.concatenate([jnp.ravel(at_variance), at_scales, *extra])),
        jnp.zeros_like(R).at[:, everywhere].set(at_R),
    )


def _along_distance(
    kernel: Stationary, R: Array, X: Array, K: Array, cotangent: Array, w: Array | None
) -> tuple[Array, list[Array]]:
    """cotangent ∘ 2 ∂K/∂r², and the pull-back to the parameters of the profile itself."""
    if is_se(kernel):
        return -cotangent * K, []
    if w is not None:
        cotangent = cotangent * jnp.sqrt(w)
    r2 = kernel.squared_distance(kernel._select(R), kernel._select(X))
    G = 2.0 * kernel.variance * jax.jvp(kernel.profile, (r2,), (jnp.ones_like(r2),))[1]
    extra = [jnp.sum(cotangent * E)[None] for E in _extra_derivatives(kernel, r2)]
    return cotangent * G, extra


def pullback_inducing(
    kernel: Kernel, R: Float[Array, "M D"], Krr: Float[Array, "M M"], cotangent: Float[Array, "M M"]
) -> tuple[Kernel, Float[Array, "M D"]]:
    """Σ ⟨cotangent, ∂k(R, R)⟩ in kernel and R, for a symmetric cotangent."""
    if is_stationary(kernel):
        at_kernel, at_rows = pullback(kernel, R, R, Krr, cotangent)
        return at_kernel, 2.0 * at_rows  # R stands for rows and for columns
    _, back = jax.vjp(lambda kernel, R: kernel.covariance(R, R), kernel, R)
    return back(cotangent)


def raw_sums(
    kernel: Kernel, K: Float[Array, "M B"], X: Array, y: Float[Array, "B *Q"], w: Array
) -> Raw:
    """The raw sums of one block, given K = k(R, X) Diag(√w); Φ as the rows of its lower half."""
    return _raw(kernel, gram_rows(K), K @ (y.T * jnp.sqrt(w)).T, X, y, w)


def host_raw(
    kernel: Kernel,
    Phi: Float[np.ndarray, "M M"],
    b: Float[np.ndarray, "M *Q"],
    X: np.ndarray,
    y: np.ndarray,
    w: np.ndarray,
) -> Raw:
    """The raw sums of one block, given its two products; outside of compiled code."""
    if is_stationary(kernel):
        kappa = np.asarray(kernel.variance) * w.sum()
    else:
        kappa = np.sum(w * np.asarray(_variances(kernel, X)))
    found: tuple[Any, ...] = (
        Phi,
        b,
        np.sum((y**2).T * w, -1),
        kappa,
        np.sum(np.log(w, where=w > 0.0, out=np.zeros_like(w))),
        (w > 0.0).sum(dtype=w.dtype),
    )
    return Raw(*found)


@quick_jit
def _variances(kernel: Kernel, X: Array) -> Array:
    return kernel.variance_at(X)


def _raw(kernel: Kernel, Phi: object, b: Array, X: Array, y: Array, w: Array) -> Raw:
    present = w > 0.0
    return Raw(
        Phi=Phi,  # type: ignore[arg-type]
        b=b,
        c=jnp.sum((y**2).T * w, -1),
        kappa=jnp.sum(w * kernel.variance_at(X)),
        log_weight=jnp.sum(jnp.where(present, jnp.log(jnp.where(present, w, 1.0)), 0.0)),
        n=jnp.sum(present.astype(w.dtype)),
    )


def _kappa_slope(kernel: Kernel, X: Array, w: Array) -> Array:
    phi, unravel = ravel_pytree(kernel)
    return jax.grad(lambda phi: jnp.sum(w * unravel(phi).variance_at(X)))(phi)


def _extra_derivatives(kernel: Stationary, r2: Array) -> list[Array]:
    """∂k/∂φ for the parameters of the profile itself, such as a mixture."""
    names = [name for name in kernel._data if name not in ("variance", "lengthscales")]
    values, unravel = ravel_pytree({name: getattr(kernel, name) for name in names})

    def profile(values: Array) -> Array:
        changed = jax.tree.map(lambda leaf: leaf, kernel)  # a copy, without checks
        for name, value in unravel(values).items():
            object.__setattr__(changed, name, value)
        return changed.at_distance(r2)

    basis = np.eye(len(values))
    return [jax.jvp(profile, (values,), (jnp.asarray(e),))[1] for e in basis]


def _centre(kernel: Stationary, R: Array) -> Array:
    # Products with x, x² would cancel far from the origin.
    return jnp.mean(kernel._select(R), 0)


def _centred(kernel: Stationary, R: Array, X: Array) -> tuple[Array, Array]:
    """x from the middle of R, and the squares that the lengthscales need."""
    x = kernel._select(X) - _centre(kernel, R)
    return x, jnp.sum(x**2, 1, keepdims=True) if is_shared(kernel) else x**2


def is_shared(kernel: Stationary) -> bool:
    """Whether all inputs have one lengthscale."""
    return int(np.prod(np.shape(kernel.lengthscales))) == 1


def _columns(kernel: Stationary, D: int) -> list[int]:
    return list(range(D)) if kernel.active_dims is None else list(kernel.active_dims)


def _times(moments: Float[Array, "B S"], y: Float[Array, "B *Q"]) -> Float[Array, "B S *Q"]:
    return moments.reshape(*moments.shape, *[1] * (y.ndim - 1)) * y[:, None]
