"""A sparse GP model: kernel, noise, inducing inputs, and which approximation."""

import dataclasses
import functools
import hashlib
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from srgp import pytree
from srgp.approximations import VFE, Approximation
from srgp.checks import as_inputs, as_positive, kept
from srgp.compiled import quick_jit
from srgp.kernels import Kernel
from srgp.kernels.base import check_kernel, compiled_covariance
from srgp.kernels.describing import describe
from srgp.linalg import Whitener, cholesky, report_jitter, whitener
from srgp.precision import Array, OnDevice, Scalar, double, is_traced
from srgp.single import Single


class Basis(NamedTuple):
    """What compiled code needs of a model: the whitened basis functions and the noise."""

    kernel: Kernel
    inducing: Float[Array, "M D"]
    whiten: Whitener
    noise: Scalar

    def project(
        self, X: Float[Array, "B D"], scale: Float[Array, " B"] | None = None
    ) -> Float[Array, "M B"]:
        """W = L⁻¹ k(R, X), so that Q_XX = WᵀW, with its columns scaled if asked.

        A row for each inducing point is the fast layout.
        """
        K = self.kernel.covariance(self.inducing, X)
        return self.whiten(K if scale is None else K * scale)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Model(OnDevice):
    """y = f(x) + ε with f a sparse GP: u = f(R) ~ N(0, K_RR), ε ~ N(0, σ²).

    kernel:        any of `srgp.kernels`, their sums and products, or your own.
    noise:         the variance σ² of the measurement noise.
    inducing:      the inducing inputs R, shape (M, D); see `srgp.inducing` for good ones.
    approximation: `SoR DTC FITC FIC PITC VFE PEP(alpha) TighterVFE`, see `srgp.approximations`.

    A model is immutable; `replace` makes a changed copy.

    >>> import srgp
    >>> model = srgp.Model(srgp.kernels.SE(), noise=0.01, inducing=[[0.0], [1.0]])
    >>> model
    Model(SE(variance=1.0, lengthscales=1.0), noise=0.01, inducing=(2, 1), VFE())
    >>> model.replace(noise=0.1, approximation=srgp.FITC())
    Model(SE(variance=1.0, lengthscales=1.0), noise=0.1, inducing=(2, 1), FITC())
    """

    kernel: Kernel
    noise: Any
    inducing: Any
    approximation: Approximation = VFE()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        check_kernel(self.kernel)
        if not isinstance(self.approximation, Approximation):
            raise ValueError(
                f"approximation must be one such as srgp.VFE(), got {self.approximation!r}."
            )
        if is_traced(self):
            return
        noise = as_positive(self.noise, "noise (the variance σ²)")
        if noise.ndim:
            raise ValueError(f"noise must be one number, the variance σ², got shape {noise.shape}.")
        object.__setattr__(self, "noise", kept(noise))
        object.__setattr__(self, "inducing", kept(as_inputs(self.inducing, "inducing")))
        # Traces the kernel without computing it: lengthscales that do not fit are named here.
        jax.eval_shape(compiled_covariance, self.kernel, self.inducing, self.inducing)

    def replace(self, **changes: Any) -> Self:
        """A copy with some of kernel, noise, inducing, approximation changed."""
        return dataclasses.replace(self, **changes)

    @functools.cached_property
    def basis(self) -> Basis:
        """The factorised model, made once."""
        return _factorise(self)

    @functools.cached_property
    def slim_basis(self) -> Basis:
        """All that a single column needs: every array handed to compiled code costs time."""
        unused: dict[str, Any] = {"leaves": (), "condition": None, "jitter": None}
        return self.basis._replace(whiten=self.basis.whiten._replace(**unused))

    @functools.cached_property
    def single(self) -> Single | None:
        """For one sample without a compiled call, where the kernel is one that NumPy can do."""
        if is_traced(self):
            return None
        lower = np.asarray(self.basis.whiten.lower)
        return Single.of(self.kernel, self.approximation, self.inducing, lower, self.noise)

    @property
    def jitter(self) -> float:
        """What was added to the diagonal of K_RR, as a share of its largest entry: mostly 0."""
        return float(self.basis.whiten.jitter)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Names all that statistics depend on, so that sums of different models are never mixed."""
        noise = None if self.approximation.noise_free else self.noise.tobytes()
        content = (describe(self.kernel), self.inducing.shape, self.inducing.tobytes(), noise)
        text = repr((content, repr(self.approximation)))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def __repr__(self) -> str:
        noise = self.noise.item() if isinstance(self.noise, np.ndarray) else self.noise
        shape = getattr(self.inducing, "shape", None)
        return f"Model({self.kernel!r}, noise={noise}, inducing={shape}, {self.approximation!r})"


pytree.register(Model, ("kernel", "noise", "inducing"), ("approximation",))


@double
def _factorise(model: Model) -> Basis:
    # On the device once, not with every call.
    kernel, R, noise = jax.device_put((model.kernel, model.inducing, model.noise))
    whiten = whitener_of(kernel, R)
    if not is_traced(whiten):
        _check(model, whiten)
    return Basis(kernel, R, whiten, noise)


def whitener_of(kernel: Kernel, R: Float[Array, "M D"]) -> Whitener:
    """The factor of K_RR, ready for products."""
    return _whitener(compiled_covariance(kernel, R, R))


@quick_jit  # in a call of its own: compiled once for all kernels
def _whitener(Krr: Float[Array, "M M"]) -> Whitener:
    return whitener(*_lower(Krr))


def lower_of(kernel: Kernel, R: Float[Array, "M D"]) -> tuple[Float[Array, "M M"], Scalar]:
    """L with LLᵀ = K_RR, and the jitter it took."""
    return _lower(kernel.covariance(R, R))


def _lower(Krr: Float[Array, "M M"]) -> tuple[Float[Array, "M M"], Scalar]:
    return cholesky(Krr, jnp.full(len(Krr), jnp.max(jnp.diagonal(Krr))))


def _check(model: Model, whiten: Whitener) -> None:
    lower = np.asarray(whiten.lower)
    if not np.einsum("ij,ij->i", lower, lower).max() > 0.0:  # NaN compares false
        diagonal = model.kernel.diagonal(model.inducing)
        if not np.isfinite(diagonal).all() or diagonal.max() <= 0.0:
            raise ValueError(
                f"the kernel {model.kernel!r} gives no positive finite variance at the inducing "
                f"inputs (largest: {diagonal.max():g}): check its parameters and the scale of R."
            )
    report_jitter(
        lower,
        float(whiten.jitter),
        f"the kernel matrix of the {len(model.inducing)} inducing inputs",
        "Inducing inputs are repeated, or closer together than the lengthscales can tell apart: "
        "fewer of them, or shorter lengthscales, avoid it.",
    )
