"""cosFormer (arXiv 2202.08791): ReLU features, faded by a cosine of distance.

The authors published other settings for Long Range Arena (OpenNLPLab/lra).
"""

from lra.configs import base

get_config = base.of('cosformer')
