"""Encoder and output head in float64, written from the papers' equations.

The encoder is the Transformer of Long Range Arena with softmax attention. It
takes the parameters of a model of `lra`.
"""

import numpy as np

# Names of the parameters of a block and its MLP.
NORM_MIXER, NORM_MLP, UP, DOWN = (
    'norm_mixer', 'norm_mlp', 'up', 'down')


def logits(params, tokens, encoder, positions, *, mask_padding=True,
           drop=lambda site, x: x):
  """Returns logits [B, C] of token ids [B, L], or of pairs [B, 2, L].

  Args:
    params: parameters of the model, float64.
    tokens: integer ids, 0 is padding.
    encoder: `config.encoder`.
    positions: position table [L, D], or [L + 1, D] if CLS has a position; not
      used if positions are learned.
    mask_padding: whether attention masks padding.
    drop: function (name of a place, array) -> array, which applies dropout.
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
    y = attention(pre(x, block.get(NORM_MIXER)), keys, block['mixer'])
    x = post(x + drop('mixer', y), block.get(NORM_MIXER))
    if encoder.block == 'none':
      continue
    y = pre(x, block.get(NORM_MLP))
    up = dense(y, block['mlp'][UP])
    if encoder.block == 'glu':
      gate = dense(y, block['mlp']['gate'])
      y = up * gate / (1 + np.exp(-gate))
    else:
      y = gelu(up)
    x = x + drop('mlp', dense(drop('hidden', y), block['mlp'][DOWN]))
    x = post(x, block.get(NORM_MLP))
  x = pre(x, params.get('norm'))
  if encoder.pooling == 'mean':
    return np.einsum('bl,bld->bd', mask / mask.sum(1, keepdims=True), x)
  last = mask.shape[1] - 1 - mask[:, ::-1].argmax(1)
  return x[np.arange(B), last if encoder.pooling == 'last' else 0]


def attention(x, keys, p):
  """Computes softmax attention over the tokens that `keys` [B, L] allows."""
  q, k, v = (np.einsum('bld,dhe->bhle', x, p[name]['kernel'])
             + p[name].get('bias', np.zeros((1, 1)))[:, None]
             for name in ('query', 'key', 'value'))
  weights = np.exp(np.einsum('bhle,bhse->bhls', q, k) / q.shape[-1]**0.5)
  weights = weights * keys[:, None, None]
  weights = weights / weights.sum(-1, keepdims=True)
  o = np.einsum('bhls,bhse->blhe', weights, v)
  return np.einsum('blhe,hed->bld', o, p['out']['kernel']) + p['out']['bias']


def dense(x, p):
  return x @ p['kernel'] + p['bias']


def norm(x, p):
  """Computes layer normalisation with Flax's epsilon."""
  x = x - x.mean(-1, keepdims=True)
  variance = (x**2).mean(-1, keepdims=True)
  return x / np.sqrt(variance + 1e-6) * p['scale'] + p['bias']


def rms_norm(x, p):
  """Computes RMS norm; `scale` is one number, or one for each channel."""
  return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * p['scale']


def leave(x, p):
  assert p is None or p
  return x


NORMS = {'layer': norm, 'scale': rms_norm, 'rms': rms_norm, 'none': leave}


def gelu(x):
  """Computes GELU by the tanh approximation of Hendrycks and Gimpel 2016."""
  return x / 2 * (1 + np.tanh((2 / np.pi)**0.5 * (x + 0.044715 * x**3)))
