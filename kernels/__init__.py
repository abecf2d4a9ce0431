"""Kernels of sequence mixers: plain XLA, Pallas for TPUs and GPUs, cuDNN."""

from lra.kernels.axes import keys as row_keys
from lra.kernels.delta.api import delta_rule, general_delta_rule
from lra.kernels.dispatch import OPS, explain, platform, resolve, target
from lra.kernels.gated.api import gated_linear_attention
from lra.kernels.linear.api import (
  lightning_attention,
  lightning_attention_packed,
  linear_attention,
  linear_attention_packed,
  simpletron_attention,
  simpletron_attention_packed,
)
from lra.kernels.meshes import over_tokens, sharded
from lra.kernels.norm_project.api import norm_project
from lra.kernels.random_bits import draw as draw_words
from lra.kernels.scan.api import linear_scan
from lra.kernels.softmax.api import softmax_attention

__all__ = ['OPS', 'delta_rule', 'draw_words', 'explain',
           'gated_linear_attention', 'general_delta_rule',
           'lightning_attention', 'lightning_attention_packed',
           'linear_attention', 'linear_attention_packed', 'linear_scan',
           'norm_project', 'over_tokens', 'platform', 'resolve', 'row_keys',
           'sharded', 'simpletron_attention', 'simpletron_attention_packed',
           'softmax_attention', 'target']
