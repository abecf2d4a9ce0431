"""The settings of the tasks of MAD: constants only.

Source: Poli et al. 2024, arXiv 2403.17844, and the released code,
github.com/athms/mad-lab, commit 0f49a45, `configs/tasks` and `mad/configs.py`.
`lra.data_prep.probes.mad` generates the data.

A task has a baseline setting. Each harder setting changes one number of the
baseline. The name of a harder setting is the name of the task, a letter or word
for this number, and its value: `mad_recall_v32` has 32 symbols.
"""

from collections.abc import Mapping

# Task -> its baseline setting. `vocab` counts all symbols, `length` is that of
# the config there, `examples` are the training examples.
BASELINES: Mapping[str, Mapping] = {
    'mad_recall': dict(vocab=16, length=128, examples=12_800),
    'mad_fuzzy_recall': dict(vocab=16, length=128, examples=12_800),
    'mad_noisy_recall': dict(
        vocab=32, length=128, examples=12_800, noise_symbols=16, noise=0.2),
    'mad_copying': dict(vocab=16, length=256, examples=12_800, copied=16),
    'mad_compression': dict(vocab=16, length=32, examples=12_800),
    'mad_memorization': dict(vocab=256, length=32, examples=256),
}

# Number -> how names of harder settings call it. A noise of 0.4 is noise40.
_LETTERS = dict(vocab='v', length='l', examples='n', noise='noise', copied='k')
_FEWER = (6400, 3200, 1600, 800)

# Task -> number -> its values in harder settings.
CHANGES: Mapping[str, Mapping[str, tuple]] = {
    'mad_recall': dict(
        vocab=(32, 64, 128), length=(256, 512, 1024), examples=_FEWER),
    'mad_fuzzy_recall': dict(
        vocab=(32, 64, 128), length=(256, 512, 1024), examples=_FEWER),
    'mad_noisy_recall': dict(
        vocab=(48, 80, 144), length=(256, 512, 1024), examples=_FEWER,
        noise=(0.4, 0.6, 0.8)),
    'mad_copying': dict(
        vocab=(32, 64, 128), length=(512, 1024), examples=_FEWER,
        copied=(32, 64, 96)),
    'mad_compression': dict(
        vocab=(32, 64, 128), length=(64, 128, 256), examples=_FEWER),
    'mad_memorization': dict(vocab=(512, 1024, 2048, 4096, 8192)),
}

# Examples of validation and of test. The released code has no validation.
TESTED = 1280
# Examples per training step, and passes over the training examples.
BATCH, EPOCHS = 128, 200
# A model is trained with all pairs of these, and its best run counts.
LEARNING_RATES, WEIGHT_DECAYS = (1e-4, 5e-4, 1e-3), (0.0, 0.1)


def settings(task: str) -> dict[str, dict]:
  """Returns {name: setting} of a task of `BASELINES`, the baseline first."""
  baseline = dict(BASELINES[task])
  found = {task: baseline}
  for number, values in CHANGES[task].items():
    for value in values:
      shown = round(100 * value) if number == 'noise' else value
      found[f'{task}_{_LETTERS[number]}{shown}'] = {**baseline, number: value}
  return found


def tokens(task: str, length: int) -> int:
  """Returns the tokens of a sequence; the last of a recall is an answer."""
  return length - (task in ('mad_recall', 'mad_noisy_recall'))
