"""The checks: one module per requirement family; pure functions from what an engine produced to what is found."""
