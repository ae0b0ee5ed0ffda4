"""Train GPyTorch's SVGP: python gpytorch_runner.py INPUT OUTPUT."""

import copy
import sys
from pathlib import Path
from typing import Any

import gpytorch
import linear_operator
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    NaturalVariationalDistribution,
    VariationalStrategy,
)
from loop import THETA, Array, Rows, read, train, write

DISTRIBUTIONS = {
    "svgp-adam": CholeskyVariationalDistribution,
    "svgp-ngd": NaturalVariationalDistribution,
}
# The library's own bound, 1e-4, may be above the noise of the data.
LEAST_NOISE = 1e-6


class Model(gpytorch.models.ApproximateGP):
    """Whitened SVGP with a zero mean and a squared-exponential kernel."""

    def __init__(self, p: dict[str, Array], method: str) -> None:
        # The first call sets q to the prior, with random numbers added to its mean by default.
        q = DISTRIBUTIONS[method](len(p["R"]), mean_init_std=0.0)
        R = torch.tensor(p["R"])
        super().__init__(VariationalStrategy(self, R, q, learn_inducing_locations=True))
        self.mean_module = gpytorch.means.ZeroMean()
        self.kernel = gpytorch.kernels.RBFKernel(ard_num_dims=p["R"].shape[1])
        self.kernel.lengthscale = torch.tensor(p["lengthscales"])
        self.covar_module = gpytorch.kernels.ScaleKernel(self.kernel)
        self.covar_module.outputscale = float(p["variance"])

    def forward(self, x: torch.Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class SVGP:
    """Adam for all parameters, or natural gradients for q and Adam for the others."""

    def __init__(self, p: dict[str, Array], settings: dict[str, Any]) -> None:
        self.X, self.y, N = torch.tensor(p["X"]), torch.tensor(p["y"]), len(p["X"])
        self.model = Model(p, settings["method"])
        constraint = gpytorch.constraints.GreaterThan(LEAST_NOISE)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=constraint)
        self.likelihood.noise = float(p["noise"])
        self.elbo = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, N)
        self.optimizers = self._optimizers(settings, N)
        self.train()

    def _optimizers(self, settings: dict[str, Any], N: int) -> list[torch.optim.Optimizer]:
        others, optimizers = [*self.model.parameters()], []
        if settings["method"] == "svgp-ngd":
            q = self.model.variational_parameters()
            optimizers.append(gpytorch.optim.NGD(q, num_data=N, lr=settings["gamma"]))
            others = [*self.model.hyperparameters()]
        others += self.likelihood.parameters()
        return [*optimizers, torch.optim.Adam(others, lr=settings["learning_rate"])]

    def train(self, mode: bool = True) -> None:
        self.model.train(mode)
        self.likelihood.train(mode)

    def step(self, rows: Rows) -> float:
        batch = torch.from_numpy(rows)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        # The mean over the data.
        bound = self.elbo(self.model(self.X[batch]), self.y[batch])
        (-bound).backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return len(self.X) * bound.item()

    def state(self) -> list[dict[str, Any]]:
        parts = (self.model, self.likelihood, *self.optimizers)
        return [copy.deepcopy(part.state_dict()) for part in parts]

    def restore(self, state: list[dict[str, Any]]) -> None:
        parts = (self.model, self.likelihood, *self.optimizers)
        for part, value in zip(parts, state, strict=True):
            part.load_state_dict(copy.deepcopy(value))

    def finite(self) -> bool:
        parameters = (*self.model.parameters(), *self.likelihood.parameters())
        return all(bool(torch.isfinite(p).all()) for p in parameters)

    def theta(self) -> dict[str, Array]:
        model = self.model
        values = (
            model.covar_module.outputscale,
            model.kernel.lengthscale[0],
            self.likelihood.noise[0],
            model.variational_strategy.inducing_points,
        )
        return {n: v.detach().numpy().copy() for n, v in zip(THETA, values, strict=True)}

    def predict(self, X: Array) -> tuple[Array, Array]:
        self.train(False)
        with torch.no_grad():
            y = self.likelihood(self.model(torch.tensor(X)))
            mean, var = y.mean.numpy(), y.variance.numpy()
        self.train()
        return mean, var


def main(questions: Path, answers: Path) -> None:
    torch.set_default_dtype(torch.float64)
    problem, settings = read(questions)
    torch.manual_seed(settings["seed"])
    trace, info = train(SVGP(problem, settings), problem, settings)
    versions = {
        "GPyTorch": gpytorch.__version__,
        "linear_operator": linear_operator.__version__,
        "PyTorch": torch.__version__,
        "NumPy": np.__version__,
    }
    about = {"peer": "gpytorch", "versions": versions, "settings": settings}
    write(answers, trace, {**about, "method": settings["method"], **info})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
