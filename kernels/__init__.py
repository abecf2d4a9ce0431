"""Attention kernels: plain XLA, Pallas for TPU and Hopper GPUs, cuDNN."""

from kernels.dispatch import OPS, resolve, sharded, target
from kernels.lightning.api import lightning_attention
from kernels.linear.api import linear_attention
from kernels.simpletron.api import simpletron_attention
from kernels.softmax.api import softmax_attention

__all__ = [
  'OPS',
  'lightning_attention',
  'linear_attention',
  'resolve',
  'sharded',
  'simpletron_attention',
  'softmax_attention',
  'target',
]
