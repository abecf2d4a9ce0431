"""Every field of a config: its type and default, what it means, its range.

Constants only. `configs/base.py` makes configs from these declarations, a run
is checked against them, and `lra.identity` leaves out of a run's hash what
was declared after the first records were made.

The other arguments of a mixer are not here: they are whatever fields the class
`Mixer` of `lra/models/<config.model.name>.py` declares, with their ranges
(`argument`).
"""

import dataclasses
from typing import Any

# In `Field.before`: the field is as old as the first records.
ALWAYS = object()

# The largest steps and seeds, int32 on the devices; and the largest float32.
COUNT = 2**31 - 1
LARGEST = 3e38
# More than any machine holds of sequences, their positions, or a layer's units.
MANY = 2**20


@dataclasses.dataclass(frozen=True)
class Field:
  """One field of a config.

  Attributes:
    default: its value where neither a protocol nor a model says otherwise; or
      only its type, where each protocol must say.
    doc: what it means, in one or two sentences.
    low, high: inclusive range of a number, None for no limit.
    above, below: the same, the limit itself excluded.
    choices: the values it may have, () for any.
    letters: regular expression of each character of a text, '' for any, none
      included.
    before: what earlier versions did, which had no such field, as a value of
      it; ALWAYS where the field is as old as the first records. A field that
      is declared now needs one, or old records are no longer found.
  """
  default: Any
  doc: str
  low: float | None = None
  high: float | None = None
  above: float | None = None
  below: float | None = None
  choices: tuple = ()
  letters: str = ''
  before: Any = ALWAYS

  @property
  def required(self) -> bool:
    """Whether there is no default: each protocol says its own."""
    return isinstance(self.default, type)

  @property
  def type(self) -> type:
    """int, float, bool, str or tuple."""
    return self.default if self.required else type(self.default)


FIELDS = {
    'seed': Field(
        0, 'Of the initial parameters, the order of the examples and dropout.',
        low=0, high=COUNT),
    'task': Field(str, 'Name of a task of lra/tasks.py.'),
    'protocol': Field(str, 'The protocol that filled this config.',
                      letters='[a-z0-9_]'),
    'objective': Field(
        'classification', 'What is learnt: a file of lra/objectives.',
        before='classification'),
    'dtype': Field(
        'auto', 'Computing dtype; parameters are float32. auto is bfloat16 on '
        'an accelerator and float32 on a processor, for which bfloat16 is '
        'slower; a run keeps to the end what it began with.',
        choices=('auto', 'float32', 'bfloat16')),
    'mask_padding': Field(
        True, 'False lets padding take part in attention, as the released '
        'code of SimpleTRON does.'),
    'mask_black': Field(
        False, 'True takes black pixels for padding, as the released code of '
        'Long Range Arena does.', before=False),
    'data_dir': Field(
        '', 'Where prepared data is; empty means $TFDS_DATA_DIR or the default '
        'of TFDS.'),
    'seq_len': Field(
        0, 'Tokens kept of each sequence; 0 means all the task has.', low=0,
        high=MANY),

    'mesh.data': Field(
        -1, 'Devices that split the examples of a microbatch between them; -1 '
        'for all that the other axes of the mesh leave.', low=-1, high=MANY,
        before=-1),
    'mesh.fsdp': Field(
        1, 'Devices that do so too, and split parameters and optimizer state '
        'as well.', low=-1, high=MANY, before=1),
    'mesh.sequence': Field(
        1, 'Devices that split the tokens of each sequence, for mechanisms of '
        'linear attention.', low=-1, high=MANY, before=1),

    'train.steps': Field(int, 'Updates of the parameters.', low=1, high=COUNT),
    'train.batch_size': Field(32, 'Examples of an update.', low=1, high=MANY),
    'train.microbatch_size': Field(
        0, 'Examples per forward and backward pass; gradients are summed over '
        'a batch. 0 chooses for this machine: on a GPU or TPU the whole batch, '
        'halved until it fits; on a CPU train.cpu_microbatch_size. Changes '
        'memory and speed only.', low=0, high=MANY),
    'train.eval_batch_size': Field(
        0, 'Examples per forward pass in evaluation. 0 chooses for this '
        'machine: on a GPU or TPU 256, halved until it fits; on a CPU '
        'train.cpu_eval_batch_size.', low=0, high=MANY),
    'train.cpu_microbatch_size': Field(
        8, 'What microbatch_size=0 means on a CPU: so many examples, or the '
        'next smaller divisor of the batch size.', low=1, high=MANY, before=8),
    'train.cpu_eval_batch_size': Field(
        32, 'What eval_batch_size=0 means on a CPU.', low=1, high=MANY,
        before=32),
    'train.lengths': Field(
        (), 'For a CPU; other devices ignore it. Shorter lengths than that of '
        'the task: a microbatch is cut to the shortest that holds all its '
        'tokens, and the rest of its padding is not computed. Changes speed '
        'only; mechanisms that need padding ignore it.', before=()),
    'train.eval_every': Field(int, 'Steps from one validation to the next.',
                              low=1, high=COUNT),
    'train.log_every': Field(50, 'Steps from one line of the log to the next.',
                             low=1, high=COUNT),
    'train.checkpoint_minutes': Field(
        5.0, 'At least one checkpoint in so many minutes, besides that of each '
        'validation.', low=0, high=COUNT),
    'train.learning_rate': Field(
        float, 'The base of the schedule rsqrt; of the others, the highest '
        'rate.', low=0, high=LARGEST),
    'train.warmup_steps': Field(
        int, 'Steps in which the rate grows in proportion to the step.', low=0,
        high=COUNT),
    'train.weight_decay': Field(
        0.1, 'Of all parameters of two axes or more that are no biases: weight '
        'matrices, tables, and what some mixers learn for each head, as the '
        'scale of a norm; adam and sgd add it to the gradient, the others '
        'apply it beside theirs.', low=0, high=LARGEST),
    'train.b1': Field(0.9, 'Decay of the mean of gradients.', low=0, below=1),
    'train.b2': Field(0.999, 'Decay of the mean of squared gradients.',
                      low=0, below=1),
    'train.eps': Field(1e-8, 'Added to the root of the mean square.', above=0,
                       high=LARGEST),
    'train.include_val': Field(
        False, 'True trains on the validation examples too and validates on '
        'nothing.'),
    'train.select': Field(
        'best', 'The checkpoint that is scored on test: the best on validation '
        'or the last.', choices=('best', 'last')),

    'optim.name': Field(
        'adamw', 'The optimizer.', before='adamw',
        choices=('adamw', 'adam', 'sgd', 'lion', 'muon')),
    'optim.schedule': Field(
        'rsqrt', 'The rate after warm-up: rsqrt is learning_rate / sqrt(step), '
        'the others begin at learning_rate and last for train.steps.',
        before='rsqrt', choices=('rsqrt', 'cosine', 'linear', 'constant')),
    'optim.final_fraction': Field(
        0.0, 'Where the schedules cosine and linear end, as a fraction of '
        'train.learning_rate.', low=0, high=1, before=0.0),
    'optim.momentum': Field(
        0.9, "Of the optimizers sgd and muon, whose authors take 0.95.", low=0,
        below=1, before=0.9),
    'optim.clip_norm': Field(
        0.0, 'The largest norm of all gradients together, before the '
        'optimizer; longer ones are shortened to it. 0 for no limit.',
        low=0, high=LARGEST, before=0.0),
    'optim.groups': Field(
        (), "Parameters that are trained differently: pairs of a regular "
        "expression and dict(learning_rate=..., weight_decay=...), {} for the "
        "config's own, None for frozen. The first that matches a whole name, "
        "such as encoder/block_0/mixer/query/kernel, holds, and each parameter "
        "must match one; () trains all alike.", before=()),
    'optim.ema': Field(
        0.0, 'Decay, per step, of the moving average of the parameters that '
        'evaluation uses; 0 evaluates the parameters themselves.',
        low=0, below=1, before=0.0),

    'encoder.num_layers': Field(int, 'Blocks.', low=1, high=1000),
    'encoder.width': Field(int, 'D, of the embedding and between blocks.',
                           low=1, high=MANY),
    'encoder.mlp_width': Field(
        int, "F, of the hidden layer of each block's MLP and of the output "
        "head.", low=1, high=MANY),
    'encoder.conv_width': Field(
        0, 'Tokens that a causal convolution, one of each channel, joins '
        'before each mixer; 0 for no convolution.', low=0, high=64, before=0),
    'encoder.dropout': Field(0.1, 'Rate in the embedding and in each block.',
                             low=0, below=1),
    'encoder.pooling': Field(
        'cls', 'What stands for a sequence: a CLS token put before it, the '
        'mean, the first or the last token.',
        choices=('cls', 'mean', 'first', 'last')),
    'encoder.mean_over': Field(
        'tokens', 'What the sum over tokens is divided by under pooling=mean: '
        'their number, or all positions, padding too, as in the released code '
        'of Nystromformer.', choices=('tokens', 'positions'), before='tokens'),
    'encoder.head': Field(
        'concat', 'Of pairs: concat is [x1, x2], nli is [x1, x2, x1 * x2, '
        'x1 - x2].', choices=('concat', 'nli')),
    'encoder.head_layers': Field(
        0, 'Hidden layers of the output head, the first mlp_width wide, each '
        'other half the one before; 0 is two for pairs, one otherwise.',
        low=0, high=20, before=0),
    'encoder.positions': Field(
        'learned', 'Added to the embedding; none for mixers that see positions '
        'themselves, such as transformer_rotary.',
        choices=('learned', 'sinusoidal', 'none')),
    'encoder.cls_has_position': Field(
        False, 'Whether the CLS token is there before positions are added, or '
        'after.'),
    'encoder.embedding_std': Field(
        float, 'Standard deviation of the initial embedding; width**-0.5 '
        'unless a protocol says otherwise.', low=0, high=LARGEST),
    'encoder.remat': Field(
        False, 'Whether the backward pass computes blocks again instead of '
        'keeping what is inside them.'),

    'model.name': Field('', 'The mixer: its file in lra/models.'),
    'model.num_heads': Field(int, 'H.', low=1, high=MANY),
    'model.qkv_width': Field(
        int, 'H * Dh, all heads together; encoder.width unless a config says '
        'otherwise.', low=1, high=MANY),
}


def argument(default: float, **limits) -> Any:
  """Declares an argument of a mixer: `size: int = argument(64, low=1, ...)`.

  Args:
    default: its value where a config says nothing.
    **limits: low, high, above and below of its `Field`.
  """
  return dataclasses.field(default=default, metadata=limits)


# Arguments that mixers got after there were records of them:
# model -> argument -> the value that describes what it did before.
ADDED_TO_MODELS: dict[str, dict[str, Any]] = {
    **{model: {'qkv_bias': True} for model in (
        'fastfood_prf', 'fastfood_rks', 'generative_prf', 'generative_rks',
        'gmm_prf', 'gmm_rks', 'linformer', 'optimised', 'simpletron',
        'simpletron_res', 'simpletron_resl')},
    'lightning': {'qkv_bias': True, 'decay_by_depth': False},
    'performer': {'qkv_bias': True, 'eps': 0.0, 'feature_map': 'exp'},
    **{model: {'rotary': False} for model in (
        'attention_sink', 'differential', 'duo', 'sliding_window',
        'sliding_window_mqa', 'star')},
    **{model: {'attention_dropout': 0.0} for model in (
        'transformer_alibi', 'transformer_t5')},
    'routing': {'scaled': True},
    'synthesizer': {'trainable': True},
}


def added(model: str) -> dict[str, Any]:
  """Later fields -> the values which mean that nothing has changed.

  Args:
    model: name of the model whose arguments are asked for too.
  """
  mixer = ADDED_TO_MODELS.get(model, {})
  return {
      **{name: field.before for name, field in FIELDS.items()
         if field.before is not ALWAYS},
      **{f'model.{name}': value for name, value in mixer.items()}}
