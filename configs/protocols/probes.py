"""Settings of the probes: probes, state, mad and zoology."""

from lra.configs.protocols.mini import join, sized
from lra.core import mad


def _probe(steps: int, conv_width: int = 0) -> dict:
  """Returns a probe's settings; no dropout, since examples hardly repeat."""
  return dict(
      sized(2, 32, 64, 1, dropout=0.0, pooling='mean', conv_width=conv_width),
      dtype='float32', objective='token_classification',
      train=dict(steps=steps, warmup_steps=100, learning_rate=3e-3,
                 weight_decay=0.0, batch_size=64, cpu_microbatch_size=64,
                 cpu_eval_batch_size=100, eval_every=100),
      optim=dict(schedule='cosine'))


# Grazzi et al. 2024, arXiv 2411.12537, train Mamba and DeltaNet with
# convolutions of width 4 on these.
_LANGUAGES = ('formal_parity', 'modular_arithmetic',
              'modular_arithmetic_brackets')
_SHORT = ('parity', 'permutations_3', 'permutations_5')
_TRACKING = ('s3_words', 's5_words', 's5_swaps', 's5_cycles', 'a5_words',
             'even_pairs', 'cycle_navigation', 'missing_duplicate',
             'bucket_sort', 'dyck')

PROBES = dict(
    mqar_forgetting=_probe(2000, conv_width=4),
    # Two convolutions let a key's second part see the first one.
    mqar_compositional=_probe(3000, conv_width=4),
    phonebook=_probe(3000, conv_width=4),
    copying=_probe(2000),
    regbench_mini=_probe(3000, conv_width=4),
    # Without a convolution a mixer must first learn to look one token back. The
    # transformer did not learn this in as many steps, even with only 8 pairs.
    mqar=_probe(2000, conv_width=4),
    selective_copying=_probe(2000),
    **{task: _probe(1500) for task in _SHORT},
    **{task: _probe(2000, conv_width=4) for task in _LANGUAGES},
    **{task: _probe(2000) for task in _TRACKING})


def _state(steps: int, conv_width: int = 0) -> dict:
  """Returns a probe's settings without positions, which end at some length.

  The last parameters are scored: validation, on the lengths of training, soon
  finds no difference.
  """
  return join(_probe(steps, conv_width), sized(2, 64, 128, positions='none'),
              dict(train=dict(select='last')))


STATE = dict(
    **{task: _state(3000) for task in (*_SHORT, *_TRACKING)},
    **{task: _state(3000, conv_width=4) for task in _LANGUAGES})


def _mad(setting: dict) -> dict:
  """Returns MAD's settings: mixer, SwiGLU, mixer, SwiGLU, without positions.

  The inner width of SwiGLU is 2/3 of 4 * 128, rounded up to a multiple of 16.
  A run's learning rate is the middle one of `mad.LEARNING_RATES`.
  """
  epoch = -(-setting['examples'] // mad.BATCH)
  rate = mad.LEARNING_RATES[1]
  return dict(
      sized(2, 128, 352, 16, block='glu', norm='rms', positions='none',
            dropout=0.0, pooling='mean', embedding_std=0.02),
      objective='token_classification',
      train=dict(batch_size=mad.BATCH, steps=mad.EPOCHS * epoch, warmup_steps=0,
                 learning_rate=rate, weight_decay=mad.WEIGHT_DECAYS[0],
                 eval_every=10 * epoch, select='last', cpu_microbatch_size=32,
                 cpu_eval_batch_size=64),
      optim=dict(schedule='cosine', final_fraction=1e-6 / rate))


MAD = {name: _mad(setting) for task in mad.BASELINES
        for name, setting in mad.settings(task).items()}

# An epoch there has 707 batches: none has examples of two parts.
ZOOLOGY = dict(mqar_zoology=dict(
    sized(2, 64, 64, 2, block='none', conv_width=3, positions='none',
          dropout=0.0, pooling='mean', embedding_std=0.02),
    objective='token_classification',
    train=dict(batch_size=256, steps=32 * 707, warmup_steps=0,
               learning_rate=10**-2.5, weight_decay=0.1, eval_every=707,
               select='last', cpu_microbatch_size=8, cpu_eval_batch_size=8),
    optim=dict(schedule='cosine')))
