"""What a fitted regressor remembers, and the file that keeps it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from srgp import storage
from srgp.kernels import Kernel
from srgp.learners import History
from srgp.regressor.answers import Answers, LazyPosterior
from srgp.regressor.choices import beginning, packed, unpacked
from srgp.regressor.places import Streams, kept_streams
from srgp.scaling import Scaler
from srgp.statistics import Statistics
from srgp.storage.files import library_version, refuse


class Remembered(Answers):
    """Model, statistics, scaling and history, in memory and in a file."""

    n_features_in_: int
    feature_names_in_: np.ndarray
    history_: History | None
    streams_: Streams
    get_params: Any  # of scikit-learn
    _memory: list[np.ndarray] | None  # of the optimiser that follows a stream

    def _set_statistics(self, statistics: Statistics, weight: float) -> None:
        if weight > 0.0 and not self.beginnings_:
            # The first rows after nothing: two models that have them in common are told by this.
            self.beginnings_ = frozenset([beginning(statistics)])
        self.statistics_, self.weight_seen_ = statistics, weight
        self._answers = LazyPosterior(self.model_, statistics, weight)

    def _streams(self) -> Streams:
        return getattr(self, "streams_", {})  # older pickles have none

    def save(self, path: str | Path) -> None:
        """Write model, statistics, scaling, names and history to one file; see `srgp.storage`."""
        storage.write(path, self.saved())

    def saved(self) -> storage.Saved:
        """What `save` writes."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        streams, memory = self._streams(), getattr(self, "_memory", None)
        return storage.Saved(
            model=self.model_,
            statistics=self.statistics_,
            scaler=self.scaler_.arrays(),
            feature_names=None if names is None else tuple(str(name) for name in names),
            target_names=self.target_names_,
            history=self.history_,
            settings={
                "parameters": {name: packed(v) for name, v in self.get_params(False).items()},
                "weight_seen": self.weight_seen_,
                "beginnings": sorted(self.beginnings_),
                **({"streams": streams} if streams else {}),
                **({"memory": memory} if memory else {}),
            },
        )

    @classmethod
    def load(cls, path: str | Path, kernels: Iterable[type[Kernel]] = ()) -> Self:
        """The regressor that `save` wrote; `kernels` are classes of your own that it uses.

        It answers the same to the last bit, and can go on learning, merge and unlearn.
        A ValueError says why a file is refused.
        """
        saved = storage.read(path, kernels)
        if saved.statistics is None or saved.scaler is None or "parameters" not in saved.settings:
            raise ValueError(f"{path} holds a model, but no regressor: read it with srgp.storage.")
        try:
            return cls._rebuilt(saved)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            refuse(
                path,
                f"cannot be read: {error}. It was written by srgp {saved.version}, and this is "
                f"srgp {library_version()}: use that version, or a newer one.",
            )

    @classmethod
    def _rebuilt(cls, saved: storage.Saved) -> Self:
        assert saved.scaler is not None
        assert saved.statistics is not None
        parameters = saved.settings["parameters"]
        est = cls(**{name: unpacked(value) for name, value in parameters.items()})
        est.model_, est.scaler_ = saved.model, Scaler(**saved.scaler)
        est.n_features_in_ = len(est.scaler_.x_centre)
        if saved.feature_names is not None:
            est.feature_names_in_ = np.asarray(saved.feature_names, dtype=object)
        est.target_names_, est.history_ = saved.target_names, saved.history
        est.beginnings_ = frozenset(saved.settings.get("beginnings", ()))
        est._set_statistics(saved.statistics, float(saved.settings["weight_seen"]))
        est.streams_, est._memory = kept_streams(saved.settings), saved.settings.get("memory")
        return est
