"""Learning from data that never end: constant memory, scores along the way, forgetting, moving."""

from srgp.streams.online import OnlineGP
from srgp.streams.scores import Prequential, Score
from srgp.streams.window import SlidingWindow

__all__ = ["OnlineGP", "Prequential", "Score", "SlidingWindow"]
