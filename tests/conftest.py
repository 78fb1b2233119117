"""Settings of all tests."""

from hypothesis import HealthCheck, settings

# The same examples every time, and no stopwatch: a busy machine changes no result.
settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")
