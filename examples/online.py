"""One sample at a time: predict it, learn it, forget a little, while the function drifts."""

import numpy as np

import srgp

rng = np.random.default_rng(0)
model = srgp.Model(srgp.kernels.SE(), noise=0.01, inducing=np.linspace(0, 6, 12)[:, None])
keeping = forgetting = srgp.Filter.start(model)
errors = []
for k in range(2000):
    x = rng.uniform(0, 6, (1, 1))
    y = np.sin(x[:, 0] + k / 500) + 0.1 * rng.normal(size=1)  # the phase drifts
    errors.append([(f.predict(x)[0] - y)[0] for f in (keeping, forgetting)])
    keeping, forgetting = keeping.update(x, y), forgetting.forget(0.98).update(x, y)

late = np.sqrt(np.mean(np.square(errors[1000:]), axis=0))
print(f"RMSE of the second half: {late[0]:.2f} keeping all, {late[1]:.2f} forgetting")
