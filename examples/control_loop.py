"""A control loop at 0.2 s: predict the next output, measure it, learn it; how long it takes.

    python examples/control_loop.py

The stirred tank is identified while it runs. Each sample costs one prediction and one update; both
must be done long before the next sample comes.
"""

import time

import numpy as np

from srgp.experiments import tank
from srgp.streams import OnlineGP


def main(samples: int = 5000) -> None:
    X, y = tank.features(tank.simulate(samples))
    gp = OnlineGP(n_inducing=50, warm_up=500, forgetting=0.9999)
    taken = []
    for x, measured in zip(X, y, strict=True):
        begun = time.perf_counter()
        expected, deviation = gp.predict_one(x)  # what a controller would act on
        gp.learn_one(x, measured)
        taken.append(1e6 * (time.perf_counter() - begun))
    # The start, where kernel and inducing inputs are learned and code is compiled, comes once.
    loop = np.array(taken[600:])
    print(f"last prediction {expected:.3f} ± {deviation:.3f}, measured {measured:.3f}")
    print(f"RMSE of the last 1000 samples: {gp.scores.recent.rmse:.4f} (noise {tank.NOISE})")
    shares = (0.5, 0.9, 0.99, 0.999)
    told = ", ".join(f"{100 * s:g} % {np.quantile(loop, s):.0f}" for s in shares)
    late = int(np.sum(loop > 1e6 * tank.PERIOD))
    print(f"microseconds a sample: {told}, worst {loop.max():.0f}")
    print(f"later than the {tank.PERIOD:g} s between samples: {late} of {len(loop)}")
    print(f"the start, once: {max(taken) / 1e6:.1f} s")


if __name__ == "__main__":
    main()
