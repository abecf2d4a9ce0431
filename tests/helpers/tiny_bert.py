"""Writes a small random BERT as a folder of Hugging Face, and computes it.

The computation is in float64, written from Devlin et al. 2018, arXiv
1810.04805, and the names of the tensors of `transformers`.
"""

import json
import pathlib

import numpy as np
from scipy.special import erf

CONFIG = {
    'model_type': 'bert', 'hidden_size': 32, 'num_hidden_layers': 2,
    'num_attention_heads': 2, 'intermediate_size': 48, 'vocab_size': 64,
    'max_position_embeddings': 40, 'type_vocab_size': 2,
    'layer_norm_eps': 1e-12, 'hidden_act': 'gelu'}
PIECES = (
    '[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'the', 'said', 'cup', 'new',
    'bank', 'it', '.', ',', '-', *'abcdefghijklmnopqrstuvwxyz',
    *(f'##{letter}' for letter in 'aeinorstuy'), '##ing', '##er', 'é')
# The fields of a config whose encoder is this BERT.
FIELDS = {
    'encoder.num_layers': 2, 'encoder.width': 32, 'encoder.mlp_width': 48,
    'encoder.vocab_size': 64, 'encoder.max_positions': 40,
    'model.num_heads': 2}


def tensors(seed: int = 0, classes: int = 4) -> dict[str, np.ndarray]:
  """Returns {name: float32 array} of a BertForSequenceClassification."""
  rng = np.random.default_rng(seed)
  D, F = CONFIG['hidden_size'], CONFIG['intermediate_size']
  shapes = {'embeddings.word_embeddings.weight': (CONFIG['vocab_size'], D),
            'embeddings.position_embeddings.weight': (40, D),
            'embeddings.token_type_embeddings.weight': (2, D),
            **_norm('embeddings.LayerNorm')}
  for i in range(CONFIG['num_hidden_layers']):
    layer = f'encoder.layer.{i}.'
    for name in ('query', 'key', 'value'):
      shapes |= _dense(f'{layer}attention.self.{name}', D, D)
    shapes |= _dense(f'{layer}attention.output.dense', D, D)
    shapes |= _norm(f'{layer}attention.output.LayerNorm')
    shapes |= _dense(f'{layer}intermediate.dense', D, F)
    shapes |= _dense(f'{layer}output.dense', F, D)
    shapes |= _norm(f'{layer}output.LayerNorm')
  shapes |= _dense('pooler.dense', D, D)
  shapes = {f'bert.{name}': shape for name, shape in shapes.items()}
  shapes |= _dense('classifier', D, classes)
  return {name: (0.3 * rng.standard_normal(shape)).astype(np.float32)
          + ('LayerNorm.weight' in name) for name, shape in shapes.items()}


def _norm(name):
  return {f'{name}.weight': (CONFIG['hidden_size'],),
          f'{name}.bias': (CONFIG['hidden_size'],)}


def _dense(name, ins, outs):
  return {f'{name}.weight': (outs, ins), f'{name}.bias': (outs,)}


def write(folder: pathlib.Path, weights=None, **changes) -> pathlib.Path:
  """Writes config.json, model.safetensors and vocab.txt; returns the folder.

  Args:
    folder: the folder, which may exist.
    weights: the tensors; by default those of `tensors`.
    **changes: entries of config.json that differ from CONFIG.
  """
  from safetensors import numpy
  folder.mkdir(parents=True, exist_ok=True)
  (folder / 'config.json').write_text(json.dumps(CONFIG | changes))
  (folder / 'vocab.txt').write_text(''.join(f'{p}\n' for p in PIECES))
  numpy.save_file(weights or tensors(), folder / 'model.safetensors')
  return folder


def logits(weights, ids_BxL: np.ndarray) -> np.ndarray:
  """Returns float64 [B, C] for ids whose padding is 0 and comes last."""
  t = {name.removeprefix('bert.'): np.asarray(value, np.float64)
       for name, value in weights.items()}

  def dense(x, name):
    return x @ t[f'{name}.weight'].T + t[f'{name}.bias']

  def norm(x, name):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + CONFIG['layer_norm_eps'])
    return x * t[f'{name}.weight'] + t[f'{name}.bias']

  B, L = ids_BxL.shape
  x = (t['embeddings.word_embeddings.weight'][ids_BxL]
       + t['embeddings.position_embeddings.weight'][:L]
       + t['embeddings.token_type_embeddings.weight'][0])
  x = norm(x, 'embeddings.LayerNorm')
  H = CONFIG['num_attention_heads']
  for i in range(CONFIG['num_hidden_layers']):
    layer = f'encoder.layer.{i}.'
    q, k, v = (dense(x, f'{layer}attention.self.{name}').reshape(B, L, H, -1)
               for name in ('query', 'key', 'value'))
    scores = np.einsum('blhe,bshe->bhls', q, k) / q.shape[-1] ** 0.5
    scores = np.exp(scores) * (ids_BxL > 0)[:, None, None]
    scores /= scores.sum(-1, keepdims=True)
    y = np.einsum('bhls,bshe->blhe', scores, v).reshape(B, L, -1)
    x = norm(x + dense(y, f'{layer}attention.output.dense'),
             f'{layer}attention.output.LayerNorm')
    y = dense(x, f'{layer}intermediate.dense')
    y = y * (1 + erf(y / 2**0.5)) / 2
    x = norm(x + dense(y, f'{layer}output.dense'), f'{layer}output.LayerNorm')
  return dense(np.tanh(dense(x[:, 0], 'pooler.dense')), 'classifier')


def ids(rows: int = 3, length: int = 24, seed: int = 0) -> np.ndarray:
  """Returns random ids int16 [B, L] with ragged padding."""
  rng = np.random.default_rng(seed)
  found = rng.integers(1, CONFIG['vocab_size'], (rows, length))
  lengths = np.linspace(length, length // 4, rows).astype(int)
  return np.where(np.arange(length) < lengths[:, None], found, 0).astype(
      np.int16)


def config(model: str, folder: pathlib.Path, **fields):
  """Returns `configs/<model>.py:ag_news,protocol=bert` of the size of a folder.

  Args:
    model: name of the model.
    folder: the folder that `write` made.
    **fields: further fields of the config, not nested.
  """
  import importlib
  made = importlib.import_module(f'lra.configs.{model}').get_config(
      'ag_news,protocol=bert')
  for name, value in FIELDS.items():
    group, _, field = name.partition('.')
    made[group][field] = value
  made.dtype, made.seq_len = 'float32', 24
  made.init_from = str(folder)
  made.update(fields)
  return made.copy_and_resolve_references()
