"""Property tests state what must hold, not how fast: on a busy machine an example may take long."""

from hypothesis import HealthCheck, settings

settings.register_profile("specref", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("specref")
