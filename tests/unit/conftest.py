"""Unit tests are pure or nearly so; how long one example takes says nothing on a busy machine."""

from hypothesis import HealthCheck, settings

settings.register_profile("unit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")
