"""Tests of one's own engine: `pytest --pyargs conformance.suite --engine my_package.my_module:make_engine`."""
