"""HGRN2 (arXiv 2404.07904): a gated recurrence with outer products as state.

The authors' settings for LRA have no weight decay; on ListOps 5 layers of width
64 with heads of 4, on Text 4 of 128 and 8, on Retrieval 2 of 256 and 2.
"""

from lra.configs import base

get_config = base.of('hgrn2')
