"""Settings of the laptop arena, `laptop_1`: one recipe for all mechanisms.

It was designed on the eight mechanisms that lra/board/suite.toml names, and is
not changed: a change makes `laptop_2`. Its file of runs is
configs/runs/laptop.toml, which chooses the learning rate of each mechanism and
task from three.
"""

from lra.configs.protocols.mini import join, sized

# Batch norms, and no positions where the mixer knows the order: in trials S4D
# learnt more with each of them, and the Transformer no less with batch norms.
_RECIPE = dict(
    sized(2, 32, 64, 2, dropout=0.0, pooling='mean', norm='batch',
          positions='needed'),
    dtype='float32', optim=dict(schedule='cosine'))


def _task(steps: int, batch: int = 32, **encoder) -> dict:
  """Returns the settings of a task; it validates once, after its last step."""
  return join(_RECIPE, dict(encoder=encoder), dict(train=dict(
      batch_size=batch, steps=steps, warmup_steps=steps // 10,
      learning_rate=0.003, weight_decay=0.05, ssm_learning_rate=0.001,
      ssm_weight_decay=0.0, eval_every=steps, select='last',
      cpu_microbatch_size=batch, cpu_eval_batch_size=32)))


def _probe(steps: int, conv_width: int = 0) -> dict:
  return join(_task(steps, conv_width=conv_width), sized(2, 32, 64, 1), dict(
      objective='token_classification', train=dict(weight_decay=0.0)))


# The papers on these tasks train causal models.
CAUSAL = 'mqar', 'selective_copying', 'parity', 's3_words', 's5_words'

LAPTOP = dict(
    listops_laptop=_task(3000),
    image_mini=_task(1500, inputs='values'),
    pathfinder_laptop=join(_task(1500, inputs='values'), dict(mask_black=True)),
    # Four sequences share the statistics of a norm, so that attention over
    # 1,024 tokens fits into a CPU's caches.
    text_laptop=join(_task(600, batch=16, norm_examples=4), dict(
        train=dict(cpu_microbatch_size=4, cpu_eval_batch_size=4))),
    **{task: _probe(1500, conv_width=4 * (task == 'mqar')) for task in CAUSAL})
