"""Mixers beside other people's implementations, on the same parameters.

`pip install -e '.[dev,peers]'` installs these; a test is skipped without its
own. `pytest tests/peers --peers-table` writes `lra/results/peers.csv`, from
which the table in lra/models/README.md is made.
"""
