"""GPyTorch's exact GP, one fantasy a sample: python gpytorch_stream.py INPUT OUTPUT."""

import sys
import time
import warnings

import gpytorch
import numpy as np
import torch

torch.set_default_dtype(torch.float64)
warnings.simplefilter("ignore")


class Model(gpytorch.models.ExactGP):
    """A zero mean and a squared-exponential kernel at given parameters."""

    def __init__(self, X: torch.Tensor, y: torch.Tensor, p: dict[str, np.ndarray]) -> None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        likelihood.noise = float(p["noise"])
        super().__init__(X, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        kernel = gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1])
        kernel.lengthscale = torch.tensor(p["lengthscales"])
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)
        self.covar_module.outputscale = float(p["variance"])

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def main(source: str, target: str) -> None:
    p = dict(np.load(source))
    X, y, first = torch.tensor(p["X"]), torch.tensor(p["y"]), int(p["first"])
    model = Model(X[:first], y[:first], p).eval()
    model.likelihood.eval()
    times, answers = [], []
    with torch.no_grad():
        model.likelihood(model(X[:1]))  # fills the caches that fantasies need
        for i in range(first, len(X)):
            a = time.perf_counter()
            found = model.likelihood(model(X[i : i + 1]))
            answers.append((found.mean.item(), found.variance.item()))
            b = time.perf_counter()
            model = model.get_fantasy_model(X[i : i + 1], y[i : i + 1])
            times.append((b - a, time.perf_counter() - b))
    np.savez(target, times=np.array(times), answers=np.array(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
