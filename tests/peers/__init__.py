"""Compares mixers with implementations in other packages.

Both get the same parameters. `pip install -e '.[dev,peers]'` installs the
packages; without its package, a test is skipped. `pytest tests/peers
--peers-table` writes `lra/results/peers.csv`, the source of the table in
lra/models/README.md.
"""
