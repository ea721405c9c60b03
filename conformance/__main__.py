"""`python -m conformance` is the `specref` command."""

from conformance.cli import main

main()
