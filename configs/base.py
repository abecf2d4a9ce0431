"""Every field of a config, and the protocols that fill them.

`configs/<model>.py` calls `get_config('<task>[,protocol=<protocol>]')` and
changes what is its own. Protocols:

* `simpletron` (default): SimpleTRON, Yorsh et al. 2021, arXiv 2111.15588,
  appendix A.
* `lra`: the released code of Long Range Arena, Tay et al. 2020,
  arXiv 2011.04006.

The `_mini` tasks have one small setting of their own, sized for two CPU
cores; under `protocol=lra` they take that protocol's recipe at that size.
"""

import ml_collections

PROTOCOLS = ('simpletron', 'lra')

# task: num_layers, num_heads, width (= qkv_width), mlp_width
_SIMPLETRON_SIZE = {
    'listops': (6, 8, 512, 2048),
    'text': (4, 4, 256, 1024),
    'retrieval': (4, 4, 128, 512),
    'listops_mini': (2, 4, 64, 128),
    'text_mini': (1, 2, 64, 128),
    'retrieval_rfc_mini': (1, 2, 64, 128),
}
_LRA_SIZE = {**_SIMPLETRON_SIZE, 'listops': (4, 8, 512, 1024)}

# task: steps, warmup_steps, learning_rate, eval_every
_SIMPLETRON_STEPS = {
    'listops': (15_000, 1000, 0.005, 200),
    'text': (20_000, 8000, 0.05, 200),
    'retrieval': (15_000, 8000, 0.05, 50),
    'listops_mini': (4000, 200, 0.05, 500),
    'text_mini': (800, 100, 0.01, 100),
    'retrieval_rfc_mini': (1000, 100, 0.01, 200),
}
_LRA_STEPS = {
    **_SIMPLETRON_STEPS,
    'listops': (5000, 1000, 0.05, 200),
    'text': (20_000, 8000, 0.05, 200),
    'retrieval': (5000, 8000, 0.05, 200),
}


def _parse(arg: str) -> tuple[str, str]:
  task, *options = arg.split(',')
  protocol = 'simpletron'
  for option in options:
    key, _, value = option.partition('=')
    if key != 'protocol' or value not in PROTOCOLS:
      raise ValueError(
          f'Unknown config option {option!r}: after the task only '
          f'protocol={"|".join(PROTOCOLS)} is understood.')
    protocol = value
  return task, protocol


def _row(table, task):
  """The row of `task`; the RFC pairs are trained like the AAN pairs."""
  row = table.get(task) or table.get(task.removesuffix('_rfc'))
  if row is None:
    raise ValueError(
        f'Unknown task {task!r}: choose one of '
        f'{", ".join(sorted([*table, "retrieval_rfc"]))}.')
  return row


def get_config(arg: str = 'listops') -> ml_collections.ConfigDict:
  """Returns the config of a task under a protocol, without a model.

  Args:
    arg: `<task>` or `<task>,protocol=<protocol>`.

  Raises:
    ValueError: unknown task, option or protocol.
  """
  task, protocol = _parse(arg)
  lra, mini = protocol == 'lra', task.endswith('_mini')
  config = ml_collections.ConfigDict()
  config.seed = 0
  config.task = task
  config.protocol = protocol
  # Computing dtype, float32 or bfloat16; parameters are float32.
  config.dtype = 'float32' if mini else 'bfloat16'
  # False lets padding take part in attention, as SimpleTRON's code does.
  config.mask_padding = True
  # Where prepared data is; '' means $TFDS_DATA_DIR or TFDS's own default.
  config.data_dir = ''
  # Tokens kept of each sequence; 0 means the task's own length.
  config.seq_len = 1000 if lra and task == 'text' else 0

  config.train = train = ml_collections.ConfigDict()
  train.steps, train.warmup_steps, train.learning_rate, train.eval_every = (
      _row(_LRA_STEPS if lra else _SIMPLETRON_STEPS, task))
  train.batch_size = 32
  # Examples per forward/backward; gradients are summed over a batch. Four
  # sequences of 512 keep a processor's caches: twice as fast as 32 of them.
  bytes_mini = task in ('text_mini', 'retrieval_rfc_mini')
  train.microbatch_size = {
      'listops_mini': 32, 'text_mini': 4, 'retrieval_rfc_mini': 2}.get(task, 8)
  train.eval_batch_size = 2 * train.microbatch_size if bytes_mini else 32
  train.log_every = 50
  # At least one checkpoint in so many minutes, besides each validation's.
  train.checkpoint_minutes = 5.0
  # Learning rate: base * min(1, s / warmup) / sqrt(max(s, warmup)).
  train.weight_decay = 0.1
  train.b1 = 0.9
  train.b2 = 0.98 if lra else 0.999
  train.eps = 1e-9 if lra else 1e-8
  # True trains on the validation examples too, and validates on nothing.
  train.include_val = lra and task == 'text'
  # Which checkpoint is scored on test: best (on validation) or last.
  train.select = 'last' if lra else 'best'

  config.encoder = encoder = ml_collections.ConfigDict()
  encoder.num_layers, heads, encoder.width, encoder.mlp_width = (
      _row(_LRA_SIZE if lra else _SIMPLETRON_SIZE, task))
  encoder.dropout = 0.0 if mini else 0.1  # models that small underfit
  # cls, mean (of true tokens), first or last.
  encoder.pooling = 'mean' if bytes_mini else 'cls'
  # Of pairs: concat = [x1, x2], nli = [x1, x2, x1 * x2, x1 - x2].
  encoder.head = 'nli' if task == 'retrieval_rfc_mini' else 'concat'
  encoder.positions = 'sinusoidal' if lra else 'learned'
  # Whether the CLS token is there before positions are added, or after.
  encoder.cls_has_position = lra
  encoder.embedding_std = 1.0 if lra else encoder.width ** -0.5
  encoder.remat = False  # recompute blocks in the backward pass

  # The mixer: `name` is its file in lra/models, the rest its arguments.
  config.model = ml_collections.ConfigDict()
  config.model.name = ''
  config.model.num_heads = heads
  config.model.qkv_width = encoder.width
  return config
