"""BLAS through its addresses: against SciPy, and refusing what it would misread."""

import numpy as np
import pytest
import scipy.linalg

import srgp
from srgp import blas, statistics
from srgp.approximations import Approximation


@pytest.mark.parametrize(("B", "M"), [(1, 1), (3, 7), (200, 5)])
def test_products_equal_scipys(B: int, M: int) -> None:
    rng = np.random.default_rng(B)
    lower = np.asfortranarray(np.tril(rng.normal(size=(M, M))) + 3 * np.eye(M))
    K = rng.normal(size=(B, M))
    rows = K.copy()
    blas.solve_rows(lower, rows)
    np.testing.assert_allclose(
        rows, scipy.linalg.solve_triangular(lower, K.T, lower=True).T, rtol=1e-12, atol=1e-14
    )
    start = rng.normal(size=(M, M))
    total = np.array(start, order="F")
    blas.add_gram(rows, total)
    expected = np.tril(start + rows.T @ rows)
    np.testing.assert_allclose(np.tril(total), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(blas.mirrored(total), blas.mirrored(total).T)


def test_other_layouts_and_types_are_refused() -> None:
    lower, rows = np.asfortranarray(np.eye(3)), np.ones((4, 3))
    for wrong in (rows.astype(np.float32), np.asfortranarray(rows), rows[:, ::-1]):
        with pytest.raises(TypeError, match="float64"):
            blas.solve_rows(lower, wrong)
    with pytest.raises(TypeError, match="float64"):
        blas.add_gram(rows, np.arange(9.0).reshape(3, 3))  # in rows, not in columns


@pytest.mark.parametrize("approximation", [srgp.VFE(), srgp.FITC()])
def test_sums_do_not_depend_on_the_number_of_cores(
    monkeypatch: pytest.MonkeyPatch, approximation: Approximation
) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(30_000, 2))
    y = np.sin(5 * X).sum(1)
    monkeypatch.setattr(statistics, "GROUP_ROWS", 4096)  # several groups of few rows
    model = srgp.Model(srgp.kernels.SE(lengthscales=0.3), 0.1, X[:20], approximation)
    found = []
    for cores in (1, 2, 5):
        monkeypatch.setattr(statistics, "workers", lambda cores=cores: cores)
        found.append(srgp.summarise(model, X, y).sums)
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
