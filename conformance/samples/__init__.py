"""Samples gathered elsewhere: their format, a reader that names line and field, and their judgement (`specref judge`)."""
