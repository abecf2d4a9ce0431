"""Encoder and output head in float64, written from the papers' equations.

The encoder is the Transformer of Long Range Arena with softmax attention. It
takes the parameters of a model of `lra`.
"""

import numpy as np

from tests.helpers import mixer_oracle, recurrent_oracle
from tests.helpers.recurrent_oracle import dense, gelu


def logits(params, tokens, encoder, positions, *, mask_padding=True,
           drop=lambda site, x: x):
  """Returns logits [B, C] of token ids [B, L], or of pairs [B, 2, L].

  `encoder` is `config.encoder`. The table of positions, [L, D] or with CLS
  [L + 1, D], is not used if positions are learned. `drop(name of a place,
  array)` applies dropout.
  """
  flat = tokens.reshape(-1, tokens.shape[-1])
  x = encode(params['encoder'], flat, encoder, positions, mask_padding, drop)
  if tokens.ndim == 3:
    first, second = x[0::2], x[1::2]
    x = np.concatenate([first, second], -1)
    if encoder.head == 'nli':
      x = np.concatenate([x, first * second, first - second], -1)
  head = params['head']
  for i in range(sum(name.startswith('hidden_') for name in head)):
    x = np.maximum(dense(x, head[f'hidden_{i}']), 0)
  return dense(x, head['logits'])


def encode(params, tokens, encoder, positions, mask_padding, drop):
  """Returns one vector per sequence, [B, D]."""
  B, L = tokens.shape
  mask = tokens > 0
  if encoder.inputs == 'values':  # ids 1 ... 256 of grey levels
    grey = (tokens[..., None] - 1) / 255
    x = dense(2 * grey - 1, params['embedding'])
  else:
    x = params['embedding']['embedding'][tokens]
  normed = NORMS[encoder.norm]
  pre, post = ((normed, leave) if encoder.norm_place == 'pre' else
               (leave, normed))
  table = {'none': 0 * positions, 'learned': params.get('positions')}.get(
      encoder.positions, positions)
  if encoder.pooling == 'cls':
    cls = np.broadcast_to(params['cls'], (B, 1, x.shape[-1]))
    mask = np.concatenate([np.ones((B, 1), bool), mask], 1)
    if encoder.cls_has_position:
      x = np.concatenate([cls, x], 1) + table
    else:
      x = np.concatenate([cls, x + table], 1)
  else:
    x = x + table
  x = drop('embedding', x)
  keys = mask if mask_padding else np.ones_like(mask)
  for i in range(encoder.num_layers):
    block = params[f'block_{i}']
    y = attention(pre(x, block.get('norm_mixer')), keys, block['mixer'])
    x = post(x + drop('mixer', y), block.get('norm_mixer'))
    if encoder.block == 'none':
      continue
    y = pre(x, block.get('norm_mlp'))
    up = dense(y, block['mlp']['up'])
    if encoder.block == 'glu':
      gate = dense(y, block['mlp']['gate'])
      y = up * gate / (1 + np.exp(-gate))
    else:
      y = gelu(np, up)
    x = x + drop('mlp', dense(drop('hidden', y), block['mlp']['down']))
    x = post(x, block.get('norm_mlp'))
  x = pre(x, params.get('norm'))
  if encoder.pooling == 'mean':
    return np.einsum('bl,bld->bd', mask / mask.sum(1, keepdims=True), x)
  last = mask.shape[1] - 1 - mask[:, ::-1].argmax(1)
  return x[np.arange(B), last if encoder.pooling == 'last' else 0]


def attention(x, keys, p):
  """Computes softmax attention over the tokens that `keys` [B, L] allows."""
  q, k, v = mixer_oracle.qkv(np, x, p)
  o = mixer_oracle.attention(np, q, k, v, keys, q.shape[-1]**-0.5)
  return mixer_oracle.merge(np, o, p['out'])


def leave(x, p):
  assert p is None or p
  return x


def norm(x, p):
  return recurrent_oracle.layer_norm(np, x, 1e-6) * p['scale'] + p['bias']


def rms_norm(x, p):
  return recurrent_oracle.rms(np, x, p['scale'], 1e-6)


NORMS = {'layer': norm, 'scale': rms_norm, 'rms': rms_norm, 'none': leave}
