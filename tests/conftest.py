"""Property tests draw the same examples on every run: a failure is a failure of the code."""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")
