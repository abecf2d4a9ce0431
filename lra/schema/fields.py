"""Every field of a config: its type, range, default and meaning.

`configs/base.py` makes configs of these declarations, and `lra.run.check` holds
runs to them. A mixer declares its other arguments itself, with `argument`.
"""

import dataclasses
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field
from pydantic.fields import FieldInfo

COUNT = 2**31 - 1  # largest step and seed, which are int32 on the devices
LARGEST = 3e38  # largest float32
SMALLEST = 1.2e-38  # devices round smaller float32 numbers to 0
PATCH = 4  # pixels of a side of a patch
MANY = 2**20  # no machine holds so many sequences, positions, or units

Count = Annotated[int, Field(ge=0, le=COUNT)]
Steps = Annotated[int, Field(ge=1, le=COUNT)]
Size = Annotated[int, Field(ge=1, le=MANY)]
SizeOrZero = Annotated[int, Field(ge=0, le=MANY)]
Axis = Annotated[int, Field(ge=-1, le=MANY)]
Amount = Annotated[float, Field(ge=0, le=LARGEST)]
AmountOrMinus1 = Annotated[float, Field(ge=-1, le=LARGEST)]
# float32 rounds larger numbers below 1 to 1.
Share = Annotated[float, Field(ge=0, le=0.9999999)]
Tiny = Annotated[float, Field(ge=SMALLEST, le=1)]
Tuple = tuple | list  # JSON has lists only
_WORDS = {'ge': 'at least', 'gt': 'above', 'le': 'at most', 'lt': 'below'}


def field(doc: str, default: Any = None) -> Any:
  """Declares a field; each protocol must set one without a default."""
  return Field(default, description=doc)


def bounds(info: FieldInfo) -> dict[str, float]:
  """Returns the limits of a number, such as {'at least': 0, 'below': 1}."""
  return {word: getattr(part, name) for name, word in _WORDS.items()
          for part in info.metadata if hasattr(part, name)}


def choices(info: FieldInfo) -> tuple:
  """Returns the values that a field may have, () for any of its type."""
  return typing.get_args(info.annotation) if (
      typing.get_origin(info.annotation) is Literal) else ()


class Group(pydantic.BaseModel):
  """A group of fields. Nothing is converted: True is no number."""
  model_config = pydantic.ConfigDict(
      strict=True, extra='forbid', allow_inf_nan=False, protected_namespaces=())


class Mesh(Group):
  data: Axis = field(
      'Number of devices that share the examples of a microbatch. -1 means all '
      'devices that the other mesh axes do not use.', -1)
  fsdp: Axis = field(
      'Number of devices that share the examples and also the parameters and '
      'the optimizer state.', 1)
  sequence: Axis = field(
      'Number of devices that share the tokens of each sequence. It works for '
      'linear attention only.', 1)


class Train(Group):
  steps: Steps = field('Number of optimizer steps.')
  batch_size: Size = field('Examples per optimizer step.', 32)
  microbatch_size: SizeOrZero = field(
      'Examples per forward and backward pass; gradients are summed over the '
      'batch. 0 means a size for this machine. On a GPU or TPU it is that of '
      'the whole batch, halved until it fits in memory. On a CPU it is '
      'train.cpu_microbatch_size. The size affects memory and speed only.', 0)
  eval_batch_size: SizeOrZero = field(
      'Examples per forward pass in evaluation. 0 means a size for this '
      'machine. On a GPU or TPU it is 256, halved until it fits in memory. On '
      'a CPU it is train.cpu_eval_batch_size.', 0)
  cpu_microbatch_size: Size = field(
      'The microbatch size on a CPU if train.microbatch_size is 0. If it does '
      'not divide the batch size, the next smaller divisor is used.', 8)
  cpu_eval_batch_size: Size = field(
      'The evaluation batch size on a CPU if train.eval_batch_size is 0.', 32)
  lengths: Tuple = field(
      'Sequence lengths below that of the task. On a CPU, each microbatch is '
      'cut to the shortest of these lengths that holds all its tokens, so less '
      'padding is computed. This affects speed only. The lengths are ignored '
      'on other devices, with batch norms, and by mechanisms that mix padding.',
      ())
  eval_every: Steps = field('Steps between two validations.')
  log_every: Steps = field('Steps between two points of the log.', 50)
  mixer_std: bool = field(
      "True logs the standard deviation of each mixer's output, on the first "
      "validation batch, at each validation.", False)
  checkpoint_minutes: Annotated[float, Field(ge=0, le=COUNT)] = field(
      'Longest time between two checkpoints. Each validation makes a '
      'checkpoint too.', 5.0)
  learning_rate: Amount = field(
      'The highest learning rate. With the schedule rsqrt, the learning rate '
      'of a step is this number divided by sqrt(step).')
  warmup_steps: Count = field(
      'Steps of linear warm-up of the learning rate, from 0.')
  weight_decay: Amount = field(
      'Weight decay of all parameters with two axes or more, except biases. '
      'The optimizers adam and sgd add it to the gradient; the others decouple '
      'it from the gradient.', 0.1)
  ssm_learning_rate: AmountOrMinus1 = field(
      'Learning rate of the state-space parameters, which follows the same '
      'schedule. -1 means train.learning_rate.', -1.0)
  ssm_weight_decay: AmountOrMinus1 = field(
      'Weight decay of the state-space parameters; published settings have 0. '
      '-1 means train.weight_decay.', -1.0)
  ssm_parameters: Tuple = field(
      "Names of the state-space parameters, which must be in PARAM_GROUPS of "
      "the mixer's file. () means all names there.", ())
  b1: Share = field('Decay of the running mean of gradients.', 0.9)
  b2: Share = field('Decay of the running mean of squared gradients.', 0.999)
  eps: Tiny = field(
      'Added to the root of the mean squared gradient.', 1e-08)
  augment: bool = field(
      'True changes each training example at random: it moves images, shuffles '
      'arguments of ListOps, and takes a window of texts; see '
      'lra/data/augment.py.', False)
  masked_loss: Amount = field(
      'Weight of a second loss in training: the prediction of all tokens, of '
      'which 30% are then hidden or replaced. 0 turns it off, and no token is '
      'changed.', 0.0)
  include_val: bool = field(
      'True adds the validation examples to the training examples; then there '
      'is no validation.', False)
  select: Literal['best', 'last'] = field(
      'The checkpoint that is scored on the test split: the one with the best '
      'validation accuracy, or the last.', 'best')


class Optim(Group):
  name: Literal['adamw', 'adam', 'sgd', 'lion', 'muon'] = field(
      'The optimizer.', 'adamw')
  schedule: Literal['rsqrt', 'cosine', 'linear', 'constant'] = field(
      'Schedule of the learning rate after the warm-up. rsqrt is '
      'train.learning_rate / sqrt(step). constant stays at '
      'train.learning_rate; cosine and linear fall from it with each step, and '
      'end at the last step.', 'rsqrt')
  final_fraction: Annotated[float, Field(ge=0, le=1)] = field(
      'Final learning rate of the schedules cosine and linear, as a fraction '
      'of train.learning_rate.', 0.0)
  momentum: Share = field(
      'Momentum of the optimizers sgd and muon. The authors of muon use 0.95.',
      0.9)
  clip_norm: Amount = field(
      'Largest global norm of the gradient: a larger gradient is scaled down '
      'to it. 0 turns clipping off.', 0.0)
  groups: Tuple = field(
      'Settings for groups of parameters: pairs of a regular expression and '
      'dict(learning_rate=..., weight_decay=...). {} means the settings of '
      'train, and None freezes the group. A parameter belongs to the first '
      'expression that matches its whole name, such as '
      'encoder/block_0/mixer/query/kernel. Every parameter must match one. () '
      'gives all parameters the settings of train.', ())
  ema: Share = field(
      'Decay per step of an exponential moving average of the parameters, '
      'which evaluation then uses. 0 turns it off.', 0.0)


class Encoder(Group):
  num_layers: Annotated[int, Field(ge=1, le=1000)] = field('Number of blocks.')
  width: Size = field('D: width of the embedding and of the blocks.')
  mlp_width: Size = field(
      'F: width of the hidden layer of each MLP and of the classifier.')
  conv_width: Annotated[int, Field(ge=0, le=64)] = field(
      'Kernel size of a causal depthwise convolution before each mixer; 0 for '
      'no convolution.', 0)
  norm: Literal['layer', 'scale', 'rms', 'batch', 'none'] = field(
      'The norms: layer is LayerNorm, scale is ScaleNorm, rms is RMSNorm, '
      'batch is BatchNorm over the tokens of all examples of a batch, without '
      'padding.', 'layer')
  norm_place: Literal['pre', 'post'] = field(
      'The place of the norms: before each mixer and MLP and after the last '
      'block (pre), or after each residual sum (post).', 'pre')
  norm_eps: Tiny = field(
      'With norm=layer, the number that is added to the variance.', 1e-06)
  norm_embedding: bool = field(
      'True normalises the sum of the embeddings, as BERT does.', False)
  norm_momentum: Share = field(
      'With norm=batch, the weight of the old running mean in each training '
      'step. Evaluation uses the running means.', 0.9)
  norm_examples: SizeOrZero = field(
      'With norm=batch, the number of consecutive examples of a batch that '
      'share their statistics. A microbatch is a multiple of this number. 0 '
      'means the whole batch, which is then computed in one piece.', 0)
  block: Literal['mlp', 'glu', 'none'] = field(
      'The part of a block after the mixer: an MLP with GELU (mlp), a gated '
      'MLP with SiLU, known as SwiGLU (glu), or nothing (none).', 'mlp')
  gelu: Literal['tanh', 'exact'] = field(
      'How MLPs compute GELU: approximated by tanh, or exact.', 'tanh')
  inputs: Literal['ids', 'values', 'patches'] = field(
      'How tokens become vectors: by an embedding table (ids), or by a layer '
      'that reads numbers (values). The numbers are grey levels of pixels, '
      'from -1 to 1. With patches the layer reads squares of 4 x 4 pixels, as '
      'in a vision transformer, and each square is a position.', 'ids')
  dropout: Share = field('Dropout rate in the embedding and the blocks.', 0.1)
  tie_dropout: bool = field(
      'True drops the same channels at all tokens of an example, as the '
      'released code of S4 and S5 does.', False)
  pooling: Literal['cls', 'mean', 'first', 'last'] = field(
      'The vector that the classifier reads. cls is that of a CLS token before '
      'the sequence, mean is the mean over tokens, and first and last are '
      'those of the first and last token.', 'cls')
  mean_over: Literal['tokens', 'positions'] = field(
      'With pooling=mean, what divides the sum over tokens: the number of '
      'tokens, or the number of all positions including padding. The released '
      'code of Nystromformer uses positions.', 'tokens')
  head: Literal['concat', 'nli'] = field(
      'How the classifier joins the two documents of a pair: concat is [x1, '
      'x2]; nli is [x1, x2, x1 * x2, x1 - x2].', 'concat')
  head_layers: Annotated[int, Field(ge=0, le=20)] = field(
      'Number of hidden layers of the classifier. The first is '
      'encoder.mlp_width wide, and each further layer is half as wide as the '
      'layer before. 0 means two layers for pairs of documents, else one.', 0)
  pooler: bool = field(
      'True gives the classifier one layer with tanh, as wide as the encoder, '
      'and dropout, instead of its hidden layers. BERT calls it the pooler.',
      False)
  vocab_size: Annotated[int, Field(ge=0, le=2**15 - 1)] = field(
      'Number of token ids, padding included. 0 means that of the task. A '
      'larger number is for the word pieces of a tokenizer.', 0)
  token_types: SizeOrZero = field(
      'Number of token types. An embedding of the first type is added to all '
      'tokens. 0 turns it off; BERT has 2.', 0)
  max_positions: SizeOrZero = field(
      'With positions=learned, the number of positions in the table, of which '
      'a sequence uses the first. 0 means the positions of a sequence.', 0)
  positions: Literal['learned', 'sinusoidal', 'none', 'needed'] = field(
      'Position embeddings. Use none for mixers that encode positions '
      'themselves, such as transformer_rotary. needed is none for mixers that '
      'know the order of tokens, and sinusoidal for the others.', 'learned')
  cls_has_position: bool = field(
      'True gives the CLS token a position embedding.', False)
  embedding_std: Amount = field(
      'Standard deviation of the initial token embedding; width**-0.5 unless '
      'the protocol sets it.')
  remat: bool = field(
      'True saves memory: the backward pass recomputes the blocks '
      '(rematerialisation).', False)


class Pretrain(Group):
  objective: Literal['', 'masked', 'causal'] = field(
      'The objective of a first phase on the same inputs: masked predicts '
      'hidden tokens, causal the next token. The run then starts from the '
      'encoder of that phase. Empty means no such phase.', '')
  steps: Count = field('Steps of the first phase. 0 means train.steps.', 0)
  learning_rate: AmountOrMinus1 = field(
      'Learning rate of the first phase. -1 means train.learning_rate.', -1.0)


class Model(Group, extra='allow'):
  name: str = field('The mechanism: the name of a model in lra/models.', '')
  num_heads: Size = field('H: number of heads.')
  qkv_width: Size = field(
      'H * Dh: width of the queries, keys or values of all heads together; '
      'encoder.width unless the config sets it.')


class Config(Group):
  """A whole config."""
  seed: Count = field(
      'Seed of the initial parameters, the order of the examples and dropout.',
      0)
  task: str = field('Name of a task of lra/core/tasks.py.')
  protocol: Annotated[str, Field(pattern='^[a-z0-9_]+$')] = field(
      'The protocol that set the fields of this config.')
  objective: str = field(
      'The training objective: the name of a file in lra/objectives.',
      'classification')
  dtype: Literal['auto', 'float32', 'bfloat16'] = field(
      'Dtype of the computation; parameters are always float32. auto means '
      'bfloat16 on a GPU or TPU and float32 on a CPU. A resumed run keeps the '
      'dtype it began with.', 'auto')
  mask_padding: bool = field(
      'True hides padding from the mixers. The released code of SimpleTRON '
      'does not hide it (False).', True)
  mask_black: bool = field(
      'True treats black pixels as padding, as the released code of Long Range '
      'Arena does.', False)
  data_dir: str = field(
      'Folder of the prepared data sets. Empty means $TFDS_DATA_DIR or '
      '~/tensorflow_datasets.', '')
  seq_len: SizeOrZero = field(
      'Number of tokens kept from each sequence. 0 keeps the length of the '
      'task.', 0)
  init_from: str = field(
      'A finished run, whose parameters the run starts with: its directory, a '
      'checkpoint in it, or its config, such as '
      'configs/simpletron.py:listops_mini train.steps=2000. {seed} in a path '
      'stands for the seed; a config has the same seed. Or the folder of a '
      'BERT of Hugging Face. Empty means fresh parameters.', '')
  init_rules: Tuple = field(
      'With init_from, pairs of a regular expression and a name in the source. '
      'The first expression that matches the whole name of an array decides; '
      '\\1 in the second part is its first group. None instead of the name '
      'means a fresh array. () takes all arrays of the same names.', ())
  init_source: str = field(
      'Set by the program: the hash of the config of init_from, and its '
      'checkpoint if init_from names one; or the hash of the weights of a '
      'BERT.', '')
  tokenizer: str = field(
      'A vocabulary of word pieces: vocab.txt, tokenizer.json or a folder with '
      'one of them. Empty means that of the BERT in init_from; without one, '
      'the tokens of a text are its bytes.', '')
  tokenizer_source: str = field(
      'Set by the program: the hash of the vocabulary.', '')
  mesh: Mesh
  train: Train
  optim: Optim
  encoder: Encoder
  pretrain: Pretrain
  model: Model


def _flat(group, prefix='') -> Iterator[tuple[str, FieldInfo]]:
  for name, info in group.model_fields.items():
    inner = info.annotation
    if isinstance(inner, type) and issubclass(inner, Group):
      yield from _flat(inner, f'{name}.')
    else:
      yield prefix + name, info


# Dotted name -> declaration; `default` is None without a default.
FIELDS: dict[str, FieldInfo] = dict(_flat(Config))

# Fields with a default that are as old as the first records. The default of all
# later ones must describe the code before them; see `lra.schema.identity`.
_FIRST = """
seed dtype mask_padding data_dir seq_len train.batch_size
train.microbatch_size train.eval_batch_size train.log_every
train.checkpoint_minutes train.weight_decay train.b1 train.b2 train.eps
train.include_val train.select encoder.dropout encoder.pooling encoder.head
encoder.positions encoder.cls_has_position encoder.remat model.name
"""
LATER: dict[str, Any] = {
    name: info.default for name, info in FIELDS.items()
    if info.default is not None and name not in _FIRST.split()}


def argument(default: Any, doc: str = '', **limits) -> Any:
  """Declares an argument of a mixer: `size: int = argument(64, 'Its size.')`.

  The limits are low and high (inclusive), above and below (exclusive), choices.
  """
  return dataclasses.field(default=default, metadata={**limits, 'doc': doc})


def count(default: int, doc: str, low: int = 1) -> Any:
  """Declares an argument that counts something, from `low` to `MANY`."""
  return argument(default, doc, low=low, high=MANY)


# Arguments that mixers got after the first records:
# model -> argument -> the value that describes the mixer before.
ADDED_TO_MODELS: dict[str, dict[str, Any]] = {
    **{model: {'qkv_bias': True} for model in (
        'fastfood_prf', 'fastfood_rks', 'generative_prf', 'generative_rks',
        'gmm_prf', 'gmm_rks', 'linformer', 'optimised')},
    **{model: {'qkv_bias': True, 'output_projection': model.endswith('resl')}
       for model in ('simpletron', 'simpletron_res', 'simpletron_resl')},
    'lightning': {'qkv_bias': True, 'decay_by_depth': False},
    'performer': {'qkv_bias': True, 'eps': 0.0, 'feature_map': 'exp'},
    **{model: {'rotary': False} for model in (
        'attention_sink', 'differential', 'duo', 'sliding_window',
        'sliding_window_mqa', 'star')},
    **{model: {'attention_dropout': 0.0} for model in (
        'transformer_alibi', 'transformer_t5')},
    'routing': {'scaled': True},
    **{model: {'released': False} for model in (
        'hgrn', 'hgrn2', 'lion', 'mlstm', 'retnet')},
    'synthesizer': {'trainable': True},
    'transformer_rotary': {'planes': 'head'},
}


def added(model: str) -> dict[str, Any]:
  """Returns {later field or argument: the value of earlier versions}."""
  return LATER | {f'model.{name}': value for name, value in
                  ADDED_TO_MODELS.get(model, {}).items()}
