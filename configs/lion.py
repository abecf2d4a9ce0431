"""LION (arXiv 2502.16249): linear attention with decay in both directions.

This is LION-S; --config.model.decay=fixed makes it LION-D, `none` LION-LIT. On
Long Range Arena the authors start with gates near 1: nearest is memory=long.
"""

from lra.configs import base

get_config = base.of('lion')
