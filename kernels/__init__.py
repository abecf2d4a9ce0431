"""Linear-time attention: plain XLA, Pallas for TPU, Pallas for Hopper GPUs."""

from kernels.dispatch import resolve, sharded, target
from kernels.lightning.api import lightning_attention
from kernels.linear.api import linear_attention
from kernels.simpletron.api import simpletron_attention

__all__ = [
  'lightning_attention',
  'linear_attention',
  'resolve',
  'sharded',
  'simpletron_attention',
  'target',
]
