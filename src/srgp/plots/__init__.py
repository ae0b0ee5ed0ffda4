"""Pictures of posteriors, of learning and of how good predictions are; needs Matplotlib.

Every function draws into the axes handed in, or into a new figure, and returns them; nothing is
shown or saved. Where a `predict` is asked for, it is a function like `Posterior.predict`:

    predict(X, noise=False) -> mean, variance     X (A, D); mean and variance (A,), or (A, Q)

so hand in `posterior.predict`, `filter.predict`, or a function of your own: one that scales back,
or that fixes all inputs but one or two. Colours are those of Okabe and Ito, and viridis.
"""

from srgp.plots.learning import convergence, parameters_over_time
from srgp.plots.posteriors import Predict, posterior_1d, posterior_2d
from srgp.plots.quality import calibration, prediction_vs_truth, relevance

__all__ = [
    "Predict",
    "calibration",
    "convergence",
    "parameters_over_time",
    "posterior_1d",
    "posterior_2d",
    "prediction_vs_truth",
    "relevance",
]
