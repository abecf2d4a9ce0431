"""Encoder and head in float64, written from the papers' equations.

The pre-LN Transformer encoder of Long Range Arena with softmax attention and
an output head, on the parameters of a model of `lra`.
"""

import numpy as np

# Names of the parameters of a block and its MLP.
NORM_MIXER, NORM_MLP, UP, DOWN = (
    'norm_mixer', 'norm_mlp', 'up', 'down')


def logits(params, tokens, encoder, positions, *, mask_padding=True,
           drop=lambda site, x: x):
  """Scores [B, C] of ids [B, L], or of pairs [B, 2, L].

  Args:
    params: the model's, float64.
    tokens: integer ids, 0 is padding.
    encoder: `config.encoder`.
    positions: a table [L + CLS, D] where positions are not learned.
    mask_padding: whether attention is told which tokens are padding.
    drop: what dropout makes of an array, given the name of the place.
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
  """One vector for each sequence, [B, D]."""
  B, L = tokens.shape
  x, mask = params['embedding']['embedding'][tokens], tokens > 0
  table = positions if encoder.positions != 'learned' else params['positions']
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
    y = attention(norm(x, block[NORM_MIXER]), keys, block['mixer'])
    x = x + drop('mixer', y)
    y = gelu(dense(norm(x, block[NORM_MLP]), block['mlp'][UP]))
    x = x + drop('mlp', dense(drop('hidden', y), block['mlp'][DOWN]))
  x = norm(x, params['norm'])
  if encoder.pooling == 'mean':
    return np.einsum('bl,bld->bd', mask / mask.sum(1, keepdims=True), x)
  last = mask.shape[1] - 1 - mask[:, ::-1].argmax(1)
  return x[np.arange(B), last if encoder.pooling == 'last' else 0]


def attention(x, keys, p):
  """Multi-head softmax attention over the true keys [B, L]."""
  q, k, v = (np.einsum('bld,dhe->bhle', x, p[name]['kernel'])
             + p[name]['bias'][:, None] for name in ('query', 'key', 'value'))
  weights = np.exp(np.einsum('bhle,bhse->bhls', q, k) / q.shape[-1]**0.5)
  weights = weights * keys[:, None, None]
  weights = weights / weights.sum(-1, keepdims=True)
  o = np.einsum('bhls,bhse->blhe', weights, v)
  return np.einsum('blhe,hed->bld', o, p['out']['kernel']) + p['out']['bias']


def dense(x, p):
  return x @ p['kernel'] + p['bias']


def norm(x, p):
  """Layer normalisation with the epsilon of Flax."""
  x = x - x.mean(-1, keepdims=True)
  variance = (x**2).mean(-1, keepdims=True)
  return x / np.sqrt(variance + 1e-6) * p['scale'] + p['bias']


def gelu(x):
  """The tanh approximation, Hendrycks and Gimpel 2016."""
  return x / 2 * (1 + np.tanh((2 / np.pi)**0.5 * (x + 0.044715 * x**3)))
