"""Rotary Transformer (arXiv 2104.09864): queries and keys rotated by position.

Amos et al. 2023 (arXiv 2310.02980, table 4) train it on Long Range Arena
without dropout, with mean pooling, and constant learning rates after 2,000 to
5,000 steps of warm-up: 1e-4 on ListOps, 5e-4 on Text, Retrieval and Pathfinder,
1e-3 on Image. Miralles-Gonzalez et al. 2025 (arXiv 2501.14850) rotate by
--config.model.planes=alternate; for their tricks see `config.train.augment`.
"""

from lra.configs import base

get_config = base.of('transformer_rotary', without=('rotary',))
