"""Kernels of sequence mixers: plain XLA, Pallas for TPUs and GPUs, cuDNN."""

from kernels.axes import keys as row_keys
from kernels.delta.api import delta_rule, general_delta_rule
from kernels.dispatch import OPS, explain, platform, resolve, target
from kernels.gated.api import gated_linear_attention
from kernels.lightning.api import (
  lightning_attention,
  lightning_attention_packed,
)
from kernels.linear.api import linear_attention, linear_attention_packed
from kernels.meshes import over_tokens, sharded
from kernels.norm_project.api import norm_project
from kernels.random_bits import draw as draw_words
from kernels.scan.api import linear_scan
from kernels.simpletron.api import (
  simpletron_attention,
  simpletron_attention_packed,
)
from kernels.softmax.api import softmax_attention

__all__ = ['OPS', 'delta_rule', 'draw_words', 'explain',
           'gated_linear_attention', 'general_delta_rule',
           'lightning_attention', 'lightning_attention_packed',
           'linear_attention', 'linear_attention_packed', 'linear_scan',
           'norm_project', 'over_tokens', 'platform', 'resolve', 'row_keys',
           'sharded', 'simpletron_attention', 'simpletron_attention_packed',
           'softmax_attention', 'target']
