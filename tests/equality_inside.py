"""The parts of `equality.py` that call the code in their own process.

Each takes the options and returns {name: digest or small value}.
"""

import contextlib
import functools
import importlib
import json
import pathlib
import zlib

import jax
import jax.numpy as jnp
import numpy as np
from equality import digest, internal, run

SOURCES = {'text_mini': 'imdb/aclImdb_v1.tar.gz', 'retrieval_rfc_mini':
           'rfc_citations', 'image_mini': 'cifar10/cifar10_images.tar.gz'}
# Mixers that depend on the number of their layer, and one that does not.
DEEP = ('bigbird', 'differential', 'hgrn', 'hgrn2', 'lightning', 'rwkv7',
        'transformer')
# Calls of kernels: operation, function, arrays, then fixed arguments.
CALLS = '''linear linear_attention q k v mask
linear linear_attention q k v mask feature_map=relu
linear linear_attention q k v segment_ids num_segments=3
linear linear_attention q k v mask initial_state return_state=1 normalize=0
linear linear_attention_packed qkv bias mask
simpletron simpletron_attention q k v mask
simpletron simpletron_attention q k v segment_ids num_segments=3
simpletron simpletron_attention_packed qkv bias mask
lightning lightning_attention q k v mask slopes
lightning lightning_attention q k v segment_ids num_segments=3
lightning lightning_attention q k v initial_state return_state=1
lightning lightning_attention_packed qkv bias mask activation=silu
softmax softmax_attention q k v mask
softmax softmax_attention q k v mask distances
softmax softmax_attention q k v mask dropout_rate=0.3 dropout_key
norm_project norm_project o weight project_bias
scan linear_scan x a_E mask
scan linear_scan x a_T mask reverse=1
gated gated_linear_attention q k v log_decay mask return_state=1
gated gated_linear_attention q k v log_decay_N mask reverse=1
delta delta_rule q k v beta mask scale=0.25 return_state=1
delta delta_rule q k v beta log_decay mask reverse=1
delta general_delta_rule q k v a b log_decay mask scale=0.25'''
SHAPES = {'qkv': (2, 40, 3, 2, 16), 'bias': (3, 2, 16), 'distances': (2, 79),
          'o': (2, 40, 32), 'weight': (32, 24), 'project_bias': (24,),
          'x': (2, 40, 32), 'a_E': (32,), 'a_T': (2, 40, 32), 'slopes': (2,),
          'beta': (2, 40, 2), 'log_decay': (2, 40, 2),
          'initial_state': (2, 2, 16, 16)}  # others: (2, 40, 2, 16)
RENAMED = {'distances': 'bias', 'project_bias': 'bias', 'a_E': 'a', 'a_T': 'a',
           'log_decay_N': 'log_decay'}


def bits(tree):
  """Returns a digest of the names, dtypes, shapes and bits of arrays."""
  leaves = ((jax.tree_util.keystr(path), np.asarray(x))
            for path, x in jax.tree_util.tree_leaves_with_path(tree))
  return digest(b''.join(f'{name} {x.dtype} {x.shape}'.encode() + x.tobytes()
                         for name, x in leaves))


def keep_compiled(folder):
  """Keeps compiled programs: one that has not changed needs no compiling."""
  jax.config.update('jax_compilation_cache_dir', str(folder))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)
  jax.config.update('jax_persistent_cache_min_entry_size_bytes', -1)


def models():
  """Returns the names of all config files of models."""
  folder = pathlib.Path(internal('configs').__path__[0])
  return sorted({p.stem for p in folder.glob('*.py')} - {'__init__', 'base'})


def config(model, argument):
  """Returns the config that a config file makes."""
  room = internal('configs').__name__
  return importlib.import_module(f'{room}.{model}').get_config(argument)


def records(o):
  """Records: hash and folder of each config, and what is read and written."""
  found, folder = {}, o.checkout / 'lra/results/runs'
  for path in sorted(folder.rglob('*.json')):
    result = internal('read_result')(path)
    dumped = result.model_dump(by_alias=True, exclude_unset=True)
    found[str(path.relative_to(folder))] = ' '.join(map(str, (
        internal('config_hash')(result.config), result.config_sha256,
        internal('run_folder')(result.config), digest(dumped),
        json.loads(path.read_text()) == dumped)))
  return found


def configs(o):
  """Configs: run folder and content; tasks have their default protocols."""
  protocols, found = internal('protocols'), {}
  wanted = {f'{model} {task}' for model in models()
            for task in internal('tasks')}
  wanted |= {f'{model} {task},protocol={name}' for model in (
      'transformer', 'simpletron', 's4d') for name in protocols
             for task in protocols[name]}
  for name in sorted(wanted):
    try:
      made = internal('resolve')(config(*name.split()))
      found[name] = f'{made.folder} {digest(made.config.to_dict())}'
    except Exception as error:  # a setting that does not fit the task
      found[name] = type(error).__name__
  return found


def mixers(o):
  """Mixers: parameters, outputs and gradients of a small model of each."""
  if o.cache:
    keep_compiled(o.cache)
  rng, found = np.random.default_rng(0), {'jax': jax.__version__}
  tokens = rng.integers(1, 16, (2, 2, 32)).astype(np.int16)
  tokens *= np.arange(32) < rng.integers(16, 33, (2, 2, 1))
  batch = {'tokens': tokens, 'weights': np.ones((2, 2), np.float32),
           'labels': rng.integers(0, 10, (2, 2)).astype(np.int32),
           'place': np.arange(4, dtype=np.int32).reshape(2, 2)}

  def both(made, params, constants, key):
    tested = made.model.apply({'params': params, **constants},
                              tokens.reshape(4, 32), train=False)
    return tested, internal('gradient')(
        made.model, made.objective, params, constants, batch, key)

  for name in models():
    c = config(name, 'listops_mini')
    c.encoder.update(width=32, mlp_width=32, dropout=0.1,
                     num_layers=1 + (name in DEEP))
    c.train.update(batch_size=4, microbatch_size=2, eval_batch_size=4)
    c.dtype = 'float32'
    if 'attention_dropout' in c.model:
      c.model.attention_dropout = 0.1
    made = internal('program')(internal('resolve')(c), jax.devices()[:1])
    state = made.init()
    given = state.params, state.constants
    tested, trained = jax.jit(functools.partial(both, made))(
        *given, jax.random.key(1))
    found |= {f'{name} start': bits(given), f'{name} tested': bits(tested),
              f'{name} trained': bits(trained)}
  return found


def array(name):
  """Returns the value of an argument of a kernel."""
  if name == 'mask':
    return np.arange(40) < np.array([[40], [29]])
  if name == 'segment_ids':
    return np.repeat(np.array([[0, 1, 2, -1]] * 2, np.int32), 10, 1)
  if name == 'dropout_key':
    return jax.random.key(3)
  x = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(
      SHAPES.get(name, (2, 40, 2, 16))).astype(np.float32)
  if name.startswith(('a_', 'beta')):
    return np.exp(-np.abs(x))
  return (-np.abs(x) if 'decay' in name else np.abs(x) if name == 'slopes'
          else 0.2 * x if name in 'kab' else x)


def both(function, arrays, fixed):
  """Returns a digest of the outputs and gradients of a kernel."""

  def gradients(arrays):
    out, pull = jax.vjp(lambda given: function(**given, **fixed), arrays)
    return out, pull(jax.tree.map(lambda x: jnp.cos(jnp.arange(
        x.size, dtype='float32')).reshape(x.shape).astype(x.dtype), out))

  with contextlib.suppress(NotImplementedError):
    return bits(jax.jit(gradients)(arrays))
  return 'not possible'


def kernels(o):
  """Kernels: outputs and gradients, also of interpreted ones."""
  if o.cache:
    keep_compiled(o.cache)
  room, found = internal('kernels'), {}
  for line in CALLS.splitlines():
    op, name, *said = line.split()
    values = {x.partition('=')[0]: x.partition('=')[2] for x in said}
    arrays = {RENAMED.get(x, x): array(x) for x, value in values.items()
              if not value}
    fixed = {x: json.loads(value) if value[0].isdigit() else value
             for x, value in values.items() if value}
    fixed |= {x: arrays.pop(x) for x in (
        'mask', 'segment_ids', 'dropout_key', 'slopes') if x in arrays}
    for kernel in room.OPS[op]:
      if kernel in ('pallas_gpu', 'cudnn'):
        continue  # a simulator would take minutes, or there is none
      place = {'pallas_tpu': 'tpu', 'splash': 'tpu', 'pallas_triton': 'gpu'}
      with room.target(place.get(kernel, 'cpu'), interpret=True):
        found[f'{line}: {kernel}'] = both(
            getattr(room, name), arrays, {**fixed, 'kernel': kernel})
  return found | {'draw_words': bits(room.draw_words(
      array('dropout_key'), 3, (5, 7)))}


def data(o, tasks=('listops_mini', *SOURCES)):
  """Data: content and batches of mini tasks and probes, made anew.

  Full tasks and most harder settings of MAD are left out, since they take long.
  """
  found = {}
  for task in tasks:
    source = f'--source={o.sources / SOURCES.get(task, "")}'
    found[f'{task} command'] = run(
        o, 'data', f'--task={task}', *[source] * (task in SOURCES)).returncode
  generated = [name for name, task in internal('tasks').items() if task.probe]
  generated += [*internal('harder')][::10]
  for task in [*tasks, *(generated if len(tasks) > 1 else [])]:
    content, c = internal('load_data')(task), config('simpletron', task)
    found[task] = content.fingerprint
    split, size = content.splits['train'], c.train.batch_size
    make = functools.partial(internal('resolve')(c).objective.batch, split)
    for step in (0, 7):
      found[f'{task} batch {step}'] = bits(internal('train_batch')(
          make, len(split), batch_size=size, microbatch_size=size, seed=0,
          step=step))
  return found


def pathfinder(o):
  """Like `data`, of pathfinder_mini alone, which takes a minute."""
  return data(o, ('pathfinder_mini',))
