"""Rotary Transformer (arXiv 2104.09864): queries and keys rotated by position.

python run_lra.py --config=configs/transformer_rotary.py:listops_mini

Everything else is as in configs/transformer.py.
`--config.encoder.positions=none` removes the positions of the embedding, as in
the paper. Amos et al. 2023 (arXiv 2310.02980, table 4) train it on Long Range
Arena from scratch at the benchmark's sizes, without dropout and with mean
pooling. Their learning rates are constant after 2,000 to 5,000 warm-up steps:
1e-4 on ListOps, 5e-4 on Text, Retrieval and Pathfinder, 1e-3 on Image.
Miralles-Gonzalez et al. 2025 (arXiv 2501.14850) take 80 to 160 channels, 4 to 8
layers, and a separate trick for each task: see `config.train.augment`. Their
rotation is `--config.model.planes=alternate`.
"""

from lra.configs import base


def get_config(arg=''):
  config = base.get_config(arg, 'transformer_rotary')
  del config.model.rotary  # it always rotates
  return config
