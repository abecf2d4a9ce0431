"""Numbers of a config that must fit together, checked before any work."""

from lra.errors import UserError


def check(config, num_devices: int) -> None:
  """Raises UserError, naming the field, where a config cannot be run."""
  t, e = config.train, config.encoder
  for field, value in {
      'train.steps': t.steps, 'train.batch_size': t.batch_size,
      'train.microbatch_size': t.microbatch_size,
      'train.eval_batch_size': t.eval_batch_size,
      'train.eval_every': t.eval_every, 'train.log_every': t.log_every,
      'encoder.num_layers': e.num_layers, 'encoder.width': e.width,
      'encoder.mlp_width': e.mlp_width,
      'model.num_heads': config.model.get('num_heads', 1)}.items():
    if value < 1:
      raise UserError(f'config.{field}={value} must be at least 1.')
  if not 0 <= config.seed < 2**31:
    raise UserError(f'config.seed={config.seed} must be in 0..2**31 - 1.')
  if not 0 <= e.dropout < 1:
    raise UserError(f'config.encoder.dropout={e.dropout} must be in [0, 1).')
  check_choice('config.train.select', t.select, ('best', 'last'))
  if t.include_val and t.select == 'best':
    raise UserError(
        'config.train.include_val leaves nothing to choose the best '
        'checkpoint by: set config.train.select=last.')
  if t.batch_size % t.microbatch_size:
    raise UserError(
        f'config.train.microbatch_size={t.microbatch_size} does not divide '
        f'config.train.batch_size={t.batch_size}: choose a divisor.')
  for field in ('microbatch_size', 'eval_batch_size'):
    if t[field] % num_devices:
      raise UserError(
          f'config.train.{field}={t[field]} cannot be split over '
          f'{num_devices} devices: choose a multiple of {num_devices}.')


def check_choice(field, value, choices):
  if value not in choices:
    raise UserError(
        f'{field}={value!r} is not possible: choose one of '
        f'{", ".join(choices)}.')
