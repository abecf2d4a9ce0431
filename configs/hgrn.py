"""HGRN (arXiv 2311.04823): a gated linear recurrence with lower bounds.

The authors' settings for Long Range Arena have `encoder.block` glu and batch
norms; on ListOps 6 layers of 32 channels, on Text 4 of 128.
"""

from lra.configs import base

get_config = base.of('hgrn')
