"""Mamba-2: a state space of each head, whose time steps depend on the input.

B and C take the places of keys and queries, and dt x that of values. A group of
heads shares B and C. A short convolution with SiLU precedes x, B and C. After
the gate, an RMS norm normalises the channels of each group.

The paper's model is causal, and has `encoder.block=none`. A bidirectional layer
runs once from each end with the same parameters, and sums both before the gate.

Equation: S_t = exp(dt_t A) S_(t-1) + dt_t B_t^T x_t, y_t = C_t S_t + d x_t,
  dt_t = softplus(W x_t + b); W_o RMSNorm(y SiLU(z))
Source: Dao and Gu 2024, arXiv 2405.21060, sections 6 and 7, and the released
  code
"""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp

from lra.kernels import xla
from lra.models import About
from lra.nn import norm
from lra.nn.convolution import ShortConvolution
from lra.nn.matrix_state import EPS, SelectiveMixer, times

ABOUT = About('state space', 'O(L D (D + N))', kernels=('xla', 'pallas_tpu'))


class Mixer(SelectiveMixer):

  def mix(self, x_BxLxD, mask_BxL):
    N, E = self.heads(x_BxLxD.shape[-1])
    inner, states = self.num_heads * E, self.groups * N
    z_BxLxI = self.dense(inner, 'gate')(x_BxLxD)
    xbc_BxLxC = self.dense(inner + 2 * states, 'inputs')(x_BxLxD)
    dt_BxLxH, log_decay_BxLxH = self.steps(
        self.dense(self.num_heads, 'step')(x_BxLxD),
        functools.partial(jax.random.uniform, minval=1.0, maxval=16.0))
    convolution = ShortConvolution(
        self.conv_width, use_bias=True, dtype=self.dtype, name='convolution')
    ways = []
    for reverse in range(self.passes):
      x, b, c = jnp.split(convolution(xbc_BxLxC, mask_BxL, bool(reverse)),
                          [inner, inner + states], axis=-1)
      ways.append((x.reshape(*x.shape[:2], self.num_heads, E), *(
          y.reshape(*y.shape[:2], self.groups, N) for y in (b, c))))

    def operands(reverse):
      x, b, c = ways[reverse]
      return c, b, times(x, dt_BxLxH), log_decay_BxLxH

    skip_1x1xHx1 = self.param(
        'skip', nn.initializers.ones, (self.num_heads,))[None, None, :, None]
    y_BxLxHxE = xla.written(sum(
        o.astype(jnp.float32) + skip_1x1xHx1 * x.astype(jnp.float32)
        for o, (x, _, _) in zip(self.attend(operands, mask_BxL), ways,
                                strict=True)))
    y_BxLxGxF = (y_BxLxHxE.reshape(z_BxLxI.shape) * nn.silu(
        z_BxLxI.astype(jnp.float32))).reshape(
            *z_BxLxI.shape[:2], self.groups, -1)
    y_BxLxGxF = norm.RMSNorm(
        epsilon=EPS, dtype=self.dtype, feature_axes=(-2, -1),
        reduction_axes=-1, name='norm')(y_BxLxGxF)
    return self.dense(x_BxLxD.shape[-1], 'out')(
        y_BxLxGxF.reshape(z_BxLxI.shape))
