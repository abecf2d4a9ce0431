"""Reads a BERT (Devlin et al. 2018, arXiv 1810.04805) of Hugging Face.

A linear layer there stores W as [out, in], here as [in, out], and with heads as
[D, H, Dh] or [H, Dh, D].
"""

import functools
import hashlib
import os
import pathlib
import re

import numpy as np

from lra.core import files, foreign, paths
from lra.core.errors import UserError
from lra.schema import identity
from lra.schema.fields import MANY

# How `config.init_source` begins if `init_from` is a BERT.
_PREFIX = 'bert-'
WEIGHTS = ('model.safetensors', 'pytorch_model.bin')
# Field of our config -> entry of config.json with its value.
_SAME = {
    'encoder.num_layers': 'num_hidden_layers', 'encoder.width': 'hidden_size',
    'encoder.mlp_width': 'intermediate_size',
    'model.num_heads': 'num_attention_heads',
    'encoder.vocab_size': 'vocab_size',
    'encoder.max_positions': 'max_position_embeddings',
    'encoder.token_types': 'type_vocab_size',
    'encoder.norm_eps': 'layer_norm_eps'}
# Field -> its value in every BERT.
_FIXED = {
    'encoder.norm': 'layer', 'encoder.norm_place': 'post',
    'encoder.norm_embedding': True, 'encoder.block': 'mlp',
    'encoder.inputs': 'ids', 'encoder.positions': 'learned'}
_GELU = {'gelu': 'exact', 'gelu_new': 'tanh', 'gelu_pytorch_tanh': 'tanh'}
_LAYER, _THERE = r'encoder/block_(\d+)/', r'encoder.layer.\1.'
# Our module -> theirs; the names end with those of _PARTS.
_MODULES = {
    'encoder/norm_embedding': 'embeddings.LayerNorm',
    **{f'{_LAYER}mixer/{name}': f'{_THERE}attention.self.{name}'
       for name in ('query', 'key', 'value')},
    f'{_LAYER}mixer/out': f'{_THERE}attention.output.dense',
    f'{_LAYER}norm_mixer': f'{_THERE}attention.output.LayerNorm',
    f'{_LAYER}mlp/up': f'{_THERE}intermediate.dense',
    f'{_LAYER}mlp/down': f'{_THERE}output.dense',
    f'{_LAYER}norm_mlp': f'{_THERE}output.LayerNorm',
    'head/pooler': 'pooler.dense', 'head/logits': 'classifier'}
_PARTS = {'kernel': 'weight', 'scale': 'weight', 'bias': 'bias'}
# Our array -> their tensor.
_ARRAYS = {
    'encoder/embedding/embedding': 'embeddings.word_embeddings.weight',
    'encoder/positions': 'embeddings.position_embeddings.weight',
    'encoder/token_types': 'embeddings.token_type_embeddings.weight',
    **{f'{module}/{part}': f'{theirs}.{named}'
       for module, theirs in _MODULES.items()
       for part, named in _PARTS.items()}}
# Modules that a model without a classifier may lack.
_OPTIONAL = ('pooler.', 'classifier.')


def made(init_source: str) -> bool:
  return init_source.startswith(_PREFIX)


def settings(folder: pathlib.Path) -> dict:
  """Returns the config.json of a model of Hugging Face; {} if it is no such."""
  path = folder / 'config.json'
  values = files.read_json(path)
  if not isinstance(values, dict) or 'model_type' not in values:
    return {}
  kind = values['model_type']
  if kind != 'bert' or values.get('is_decoder'):
    raise UserError(f'{path} describes a model of the type {kind}, not an '
                    'encoder of the type bert: give the folder of a BERT.')
  positions = values.get('position_embedding_type', 'absolute')
  if positions != 'absolute' or values.get('hidden_act') not in [*_GELU]:
    raise UserError(
        f'{path} has position_embedding_type={positions} and hidden_act='
        f'{values.get("hidden_act")}: give a BERT with absolute positions and '
        f'one of {", ".join(_GELU)}.')
  return values


def fingerprint(folder: pathlib.Path) -> str:
  """Returns `bert-` and the hash of the file of weights."""
  path = _weights(folder)
  about = os.stat(path)
  return _PREFIX + _digest(path, about.st_size, about.st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _digest(path, *_):
  with open(path, 'rb') as f:
    return hashlib.file_digest(f, 'sha256').hexdigest()[:16]


def _weights(folder):
  for path in (folder / name for name in WEIGHTS):
    if path.is_file():
      return path
  raise UserError(f'{folder} has neither {" nor ".join(WEIGHTS)}: save the '
                  'model there with save_pretrained of transformers.')


def check(config, folder: pathlib.Path) -> None:
  """Checks that the encoder of a config is that of a BERT, but for its mixer.
  """
  theirs, ours = settings(folder), identity.flatten(config.to_dict())
  wanted = _FIXED | {'encoder.gelu': _GELU[theirs['hidden_act']]}
  for field, name in _SAME.items():
    value = theirs.get(name)
    if type(value) not in (int, float) or not 0 < value <= MANY:
      raise UserError(f'{folder / "config.json"} has no {name} that is a '
                      'number above 0: restore it.')
    wanted[field] = value
  differ = [f'--config.{field}={value}' for field, value in wanted.items()
            if ours.get(field, value) != value]
  if differ:
    raise UserError(f'config.init_from={folder} is a BERT with other settings '
                    f'than the config: add {" ".join(differ)}.')


def tensors(folder: pathlib.Path) -> dict[str, np.ndarray]:
  """Returns {name: float32 array} of a BERT, with axes as they are here.

  Names are those of BertModel, without `bert.` at the start. The norms of older
  files have `gamma` and `beta`, which become `weight` and `bias`.
  """
  path, heads = _weights(folder), settings(folder)['num_attention_heads']
  found = {}
  with foreign.reading(path, 'copy it again, or save it in float32'):
    for name, value in _read(path).items():
      name = name.removeprefix('bert.').replace(
          'LayerNorm.gamma', 'LayerNorm.weight').replace(
              'LayerNorm.beta', 'LayerNorm.bias')
      with foreign.reading(f'{path}: {name}', 'save it as finite float32'):
        found[name] = _turned(name, foreign.finite(value), heads)
  return found


def _read(path):
  if path.suffix == '.safetensors':
    return paths.need('safetensors.numpy', str(path), 'bert').load_file(path)
  torch = paths.need('torch', str(path), '')
  found = torch.load(path, map_location='cpu', weights_only=True)
  return {name: (value if value.is_complex() else value.float()).numpy()
          for name, value in found.items()}


def _turned(name, value, heads):
  """Returns a tensor of theirs with the axes of ours."""
  if value.ndim == 2 and 'embeddings' not in name:
    value = value.T
  # A tensor of another shape stays as it is: `choose` refuses it by name.
  if '.attention.self.' in name and value.shape[-1] % heads == 0:
    return value.reshape(*value.shape[:-1], heads, -1)
  if name.endswith('attention.output.dense.weight') and (
      value.shape[0] % heads == 0):
    return value.reshape(heads, -1, value.shape[-1])
  return value


def rules(ours, theirs, before: tuple = ()
          ) -> tuple[tuple[str, str | None], ...]:
  """Returns a rule for each array of ours that the rules `before` leave out."""
  found = []
  for name in ours:
    if any(re.fullmatch(pattern, name) for pattern, _ in before):
      continue
    origin = next((match.expand(template) for pattern, template in
                   _ARRAYS.items() if (match := re.fullmatch(pattern, name))),
                  None)
    if origin and origin not in theirs and origin.startswith(_OPTIONAL):
      origin = None
    found.append((re.escape(name), origin))
  return tuple(found)
