"""RWKV-7: a delta rule that removes with another key than it writes.

The removal key kappa with its rate a removes a value, and the key k writes v.
Both, and all gates, are computed from a mix of x and the token before it;
decay, rate, value residual and output gate by projections of low rank. From the
second layer on, values are mixed with those of the first layer. The
bidirectional form sums both ways before the output projection; it is not in the
paper. The encoder's MLP stands in for the channel mix.

Equation: S_t = diag(w_t) S_(t-1) - (a_t kappa_t)^T (kappa_t S_(t-1)) + k_t^T
  v_t, w = exp(-e^(-1/2) sigmoid(w_0 + W_2 tanh(W_1 x))), kappa = k' xi /
  length, k = k' (1 + (a - 1) alpha); W_o ((GroupNorm(r_t S_t) +
  (r_t rho k_t) v_t) g_t)
Source: Peng et al. 2025, arXiv 2503.14456, section 4 and appendix C, and the
  released code
"""

import math

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from lra import kernels
from lra.models import About
from lra.nn import direction, layers, norm
from lra.nn.contraction import Dense

ABOUT = About('state space', 'O(L D^2 / H)', kernels=('xla',))

EPS = 1e-5  # epsilon of the norm is this times the width of a head
# Exponents with which the share of the previous token grows over the channels.
SHARES = {'r': 0.2, 'w': 0.9, 'k': 0.7, 'v': 0.7, 'a': 0.9, 'g': 0.2}
# Ranks of projections: these numbers times sqrt(D), in steps of 32.
RANKS = {'w': 2.5, 'a': 2.5, 'v': 1.7, 'g': 5.0}


class Mixer(direction.DirectedMixer):
  num_heads: int = 8
  kernel: str = 'auto'
  layer: int = 0
  num_layers: int = 1

  op = 'delta'

  @property
  def traits(self):
    return super().traits.but(shares_values=True)

  def state_size(self, width: int) -> int:
    return width * layers.head_width(width, self.num_heads) * self.passes

  def kernel_call(self, length, width):
    head = layers.head_width(width, self.num_heads)
    return {'shape': (1, length, self.num_heads, head), 'dtype': self.dtype}

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, *, train, values: tuple = (),
               share: bool = False):
    """Returns [B, L, D], with `share` also the values of the first layer."""
    del train
    self.kernel_for(*x_BxLxD.shape[1:])  # refuses an impossible kernel
    x_BxLxD = jnp.where(mask_BxL[..., None], x_BxLxD, 0).astype(self.dtype)
    step = _Pass(self.num_heads, self.kernel, self.layer, self.num_layers,
                 self.dtype, name='pass')
    found = []

    def one_way(reverse):
      given = values[len(found)] if values else None
      o_BxLxD, v_BxLxD = step(x_BxLxD, mask_BxL, given, reverse)
      found.append(v_BxLxD)
      return o_BxLxD

    o_BxLxD = self.run(one_way, join='sum')
    y_BxLxD = Dense(x_BxLxD.shape[-1], use_bias=False, dtype=self.dtype,
                    kernel_init=nn.initializers.zeros, name='out')(o_BxLxD)
    return (y_BxLxD, values or tuple(found)) if share else y_BxLxD


class _Pass(nn.Module):
  """Computes the time mix but its output projection, in one direction."""
  num_heads: int
  kernel: str
  layer: int
  num_layers: int
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x_BxLxD, mask_BxL, first_BxLxD, reverse):
    """Returns outputs and values, both [B, L, D]; see `Mixer.__call__`."""
    D = x_BxLxD.shape[-1]
    start = _Start(D, D // self.num_heads, self.layer, self.num_layers)
    delta_BxLxD = _before(x_BxLxD, reverse) - x_BxLxD
    at = {
        name: x_BxLxD + delta_BxLxD * self._per_channel(
            f'share_{name}', start.share(exponent), D)
        for name, exponent in SHARES.items()}
    r, k, v = (
        Dense(D, use_bias=False, dtype=self.dtype, name=name,
              kernel_init=nn.initializers.orthogonal(gain))(at[name])
        for name, gain in (('r', 1.0), ('k', 0.1), ('v', 1.0)))
    w = -math.exp(-0.5) * nn.sigmoid(
        self._low_rank(jnp.tanh, at, 'w', start.decay).astype(jnp.float32))
    a = nn.sigmoid(self._low_rank(None, at, 'a', start.rate))
    g = self._low_rank(nn.sigmoid, at, 'g')
    values = v
    if self.layer:
      share = nn.sigmoid(self._low_rank(None, at, 'v', start.residual))
      if first_BxLxD is not None:
        v = v + (first_BxLxD - v) * share

    xi, alpha, rho = (
        self._per_channel(name, init, D)
        for name, init in (
            ('removal', start.removal), ('replacement', _constant(1.02)),
            ('bonus', _constant(-0.04))))
    kappa = layers.unit(self._heads(k * xi))
    k = k * (1 + (a - 1) * alpha)
    bonus = self._heads(r * k * rho).sum(-1, keepdims=True)
    r, k, v, w, a = map(self._heads, (r, k, v, w, a))
    o_BxLxHxN = kernels.sharded(kernels.general_delta_rule)(
        r, k, v, -kappa, kappa * a, log_decay=w, mask=mask_BxL,
        reverse=reverse, kernel=self.kernel)
    o_BxLxHxN = _GroupNorm(start.scale, self.dtype, name='norm')(o_BxLxHxN)
    o_BxLxHxN += bonus * v
    return o_BxLxHxN.reshape(x_BxLxD.shape) * g, values

  def _per_channel(self, name, init, width):
    return self.param(name, init, (width,)).astype(self.dtype)[None, None]

  def _low_rank(self, activation, at, name, bias_init=None):
    x_BxLxD = at[name]
    D = x_BxLxD.shape[-1]
    rank = max(32, 32 * round(RANKS[name] * D**0.5 / 32))
    low = Dense(rank, use_bias=False, dtype=self.dtype, name=f'{name}_down',
                kernel_init=nn.initializers.zeros)(x_BxLxD)
    low = low if activation is None else activation(low)
    gain = 0.1 * max(1.0, rank / D)**0.5
    more = {} if bias_init is None else {'bias_init': bias_init}
    return Dense(D, use_bias=bias_init is not None, dtype=self.dtype,
                 kernel_init=nn.initializers.orthogonal(gain),
                 name=f'{name}_up', **more)(low)

  def _heads(self, y_BxLxD):
    return layers.split_heads(y_BxLxD, self.num_heads)


def _before(x_BxLxD, reverse):
  fill = (0, 1) if reverse else (1, 0)
  padded = jnp.pad(x_BxLxD, ((0, 0), fill, (0, 0)))
  return padded[:, 1:] if reverse else padded[:, :-1]


class _GroupNorm(nn.Module):
  """Normalises each head by its mean and deviation, in float32."""
  scale: float
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, o_BxLxHxN):
    heads = o_BxLxHxN.shape[-2:]
    scale, bias = (
        self.param(name, init, (math.prod(heads),)).reshape(1, 1, *heads)
        for name, init in (('scale', _constant(self.scale)),
                           ('bias', nn.initializers.zeros)))
    unit = norm.standardise(o_BxLxHxN, EPS * heads[-1])
    return (unit * scale + bias).astype(self.dtype)


class _Start:
  """Initial values of the authors' code, by channel and layer."""

  def __init__(self, width, head, layer, num_layers):
    n = np.arange(width)
    depth = layer / max(1, num_layers - 1)
    self._left = 1 - layer / num_layers
    self._place = n / width
    along = n / max(1, width - 1)
    zigzag = 2 * (n % head) / max(1, head - 1) - 1
    zigzag = zigzag * abs(zigzag)
    linear = along - 0.5
    self.decay = _constant(
        -5.5 + 6 * along**(1 + depth**0.3) + 2.5 * zigzag)
    self.rate = _constant(-0.19 + 0.3 * zigzag + 0.4 * linear)
    self.residual = _constant(0.73 - 0.4 * linear)
    self.removal = _constant(0.71 - 0.1 * linear)
    self.scale = ((layer + 1) / num_layers)**0.7

  def share(self, exponent):
    return _constant(1 - self._place**(exponent * self._left))


def _constant(value):
  return lambda _, shape, dtype=jnp.float32: jnp.broadcast_to(
      jnp.asarray(value, dtype), shape)
