"""Rotary Transformer: softmax attention with rotated queries and keys.

Vectors of position p are rotated by angles proportional to p, so that logits
depend on the distance of two tokens. The paper removes the positions that are
added to the embedding; here they stay as in all models, unless
`config.encoder.positions` is 'none'.

Equation: softmax(R(Q) R(K)^T / sqrt(Dh)) V per head, R rotates channel pair i
  of position p by p 10000^(-2i/Dh); then an output projection
Source: Su et al. 2021, arXiv 2104.09864, eq. 16
"""

from lra.models import transformer
from lra.nn.rotary import RotaryMixer

FAMILY = 'dense'
COST = 'O(L^2 D) time; O(L^2) memory dense, else O(L)'
GROWTH = {'time': 2, 'memory': 1}
KERNELS = ('dense', 'chunked', 'splash', 'cudnn')


class Mixer(RotaryMixer, transformer.Mixer):
  """Rotary softmax attention: x [B, L, D], mask [B, L] bool -> [B, L, D].

  Attributes: those of `transformer.Mixer`.
  """
  rotary: bool = True
