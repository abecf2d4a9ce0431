"""Every field of a config: its type and default, its meaning, its range.

`configs/base.py` makes configs from these declarations, and runs are checked
against them. A field declared after the first records is left out of a run's
hash if its value describes earlier versions; see `lra.schema.identity`.

The other arguments of a mixer are not here: the class `Mixer` of
`lra/models/<config.model.name>.py` declares them, with their ranges
(`argument`).
"""

import dataclasses
from typing import Any

# Value of `Field.before` for a field that is as old as the first records.
ALWAYS = object()

# Largest step and seed, which are int32 on the devices; largest float32.
COUNT = 2**31 - 1
LARGEST = 3e38
# No machine holds so many sequences, positions, or units of a layer.
MANY = 2**20


@dataclasses.dataclass(frozen=True)
class Field:
  """One field of a config.

  Attributes:
    default: its value unless a protocol or a model sets it; or only its type,
      if every protocol must set it.
    doc: its meaning, in one or two sentences.
    low, high: inclusive range of a number, None for no limit.
    above, below: exclusive range of a number, None for no limit.
    choices: the values it may have, () for any.
    letters: regular expression that each character of a text must match; '' for
      any text, which may be empty.
    before: value that describes earlier versions, which had no such field;
      ALWAYS if the field is as old as the first records. Every new field needs
      one, or old records are no longer found.
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
    """Returns whether each protocol must set it, since it has no default."""
    return isinstance(self.default, type)

  @property
  def type(self) -> type:
    """Returns int, float, bool, str or tuple."""
    return self.default if self.required else type(self.default)


FIELDS = {
    'seed': Field(
        0, 'Seed of the initial parameters, the order of the examples and '
        'dropout.', low=0, high=COUNT),
    'task': Field(str, 'Name of a task of lra/core/tasks.py.'),
    'protocol': Field(str, 'The protocol that set the fields of this config.',
                      letters='[a-z0-9_]'),
    'objective': Field(
        'classification', 'The training objective: the name of a file in '
        'lra/objectives.', before='classification'),
    'dtype': Field(
        'auto', 'Dtype of the computation; parameters are always float32. auto '
        'means bfloat16 on a GPU or TPU and float32 on a CPU. A resumed run '
        'keeps the dtype it began with.',
        choices=('auto', 'float32', 'bfloat16')),
    'mask_padding': Field(
        True, 'True hides padding from the mixers. The released code of '
        'SimpleTRON does not hide it (False).'),
    'mask_black': Field(
        False, 'True treats black pixels as padding, as the released code of '
        'Long Range Arena does.', before=False),
    'data_dir': Field(
        '', 'Folder of the prepared data sets. Empty means $TFDS_DATA_DIR or '
        '~/tensorflow_datasets.'),
    'seq_len': Field(
        0, 'Number of tokens kept from each sequence. 0 keeps the length of '
        'the task.', low=0, high=MANY),

    'init_from': Field(
        '', 'A finished run, whose parameters the run starts with: its '
        'directory, a checkpoint in it, or its config, such as '
        'configs/simpletron.py:listops_mini train.steps=2000. {seed} in a path '
        'stands for the seed; a config has the same seed. Or the folder of a '
        'BERT of Hugging Face. Empty means fresh parameters.', before=''),
    'init_rules': Field(
        (), 'With init_from, pairs of a regular expression and a name in the '
        'source. The first expression that matches the whole name of an array '
        'decides; \\1 in the second part is its first group. None instead of '
        'the name means a fresh array. () takes all arrays of the same names.',
        before=()),
    'init_source': Field(
        '', 'Set by the program: the hash of the config of init_from, and its '
        'checkpoint if init_from names one; or the hash of the weights of a '
        'BERT.', before=''),
    'tokenizer': Field(
        '', 'A vocabulary of word pieces: vocab.txt, tokenizer.json or a '
        'folder with one of them. Empty means that of the BERT in init_from; '
        'without one, the tokens of a text are its bytes.', before=''),
    'tokenizer_source': Field(
        '', 'Set by the program: the hash of the vocabulary.', before=''),

    'mesh.data': Field(
        -1, 'Number of devices that share the examples of a microbatch. -1 '
        'means all devices that the other mesh axes do not use.', low=-1,
        high=MANY,
        before=-1),
    'mesh.fsdp': Field(
        1, 'Number of devices that share the examples and also the parameters '
        'and the optimizer state.', low=-1, high=MANY, before=1),
    'mesh.sequence': Field(
        1, 'Number of devices that share the tokens of each sequence. It '
        'works for linear attention only.', low=-1, high=MANY, before=1),

    'train.steps': Field(int, 'Number of optimizer steps.', low=1, high=COUNT),
    'train.batch_size': Field(
        32, 'Examples per optimizer step.', low=1, high=MANY),
    'train.microbatch_size': Field(
        0, 'Examples per forward and backward pass; gradients are summed over '
        'the batch. 0 means a size for this machine. On a GPU or TPU it is '
        'that of the whole batch, halved until it fits in memory. On a CPU it '
        'is train.cpu_microbatch_size. The size affects memory and speed only.',
        low=0, high=MANY),
    'train.eval_batch_size': Field(
        0, 'Examples per forward pass in evaluation. 0 means a size for this '
        'machine. On a GPU or TPU it is 256, halved until it fits in memory. '
        'On a CPU it is train.cpu_eval_batch_size.', low=0, high=MANY),
    'train.cpu_microbatch_size': Field(
        8, 'The microbatch size on a CPU if train.microbatch_size is 0. If it '
        'does not divide the batch size, the next smaller divisor is used.',
        low=1, high=MANY, before=8),
    'train.cpu_eval_batch_size': Field(
        32, 'The evaluation batch size on a CPU if train.eval_batch_size is '
        '0.', low=1, high=MANY, before=32),
    'train.lengths': Field(
        (), 'Sequence lengths below that of the task. On a CPU, each '
        'microbatch is cut to the shortest of these lengths that holds all its '
        'tokens, so less padding is computed. This affects speed only. The '
        'lengths are ignored on other devices, with batch norms, and by '
        'mechanisms that mix padding.', before=()),
    'train.eval_every': Field(int, 'Steps between two validations.', low=1,
                              high=COUNT),
    'train.log_every': Field(50, 'Steps between two points of the log.',
                             low=1, high=COUNT),
    'train.mixer_std': Field(
        False, 'True logs the standard deviation of each mixer\'s output, on '
        'the first validation batch, at each validation.', before=False),
    'train.checkpoint_minutes': Field(
        5.0, 'Longest time between two checkpoints. Each validation makes a '
        'checkpoint too.', low=0, high=COUNT),
    'train.learning_rate': Field(
        float, 'The highest learning rate. With the schedule rsqrt, the '
        'learning rate of a step is this number divided by sqrt(step).', low=0,
        high=LARGEST),
    'train.warmup_steps': Field(
        int, 'Steps of linear warm-up of the learning rate, from 0.', low=0,
        high=COUNT),
    'train.weight_decay': Field(
        0.1, 'Weight decay of all parameters with two axes or more, except '
        'biases. The optimizers adam and sgd add it to the gradient; the '
        'others decouple it from the gradient.', low=0, high=LARGEST),
    'train.ssm_learning_rate': Field(
        -1.0, 'Learning rate of the state-space parameters, which follows the '
        'same schedule. -1 means train.learning_rate.', low=-1, high=LARGEST,
        before=-1.0),
    'train.ssm_weight_decay': Field(
        -1.0, 'Weight decay of the state-space parameters; published settings '
        'have 0. -1 means train.weight_decay.', low=-1, high=LARGEST,
        before=-1.0),
    'train.ssm_parameters': Field(
        (), 'Names of the state-space parameters, which must be in '
        "PARAM_GROUPS of the mixer's file. () means all names there.",
        before=()),
    'train.b1': Field(0.9, 'Decay of the running mean of gradients.', low=0,
                      below=1),
    'train.b2': Field(0.999, 'Decay of the running mean of squared gradients.',
                      low=0, below=1),
    'train.eps': Field(1e-8, 'Added to the root of the mean squared gradient.',
                       above=0, high=LARGEST),
    'train.augment': Field(
        False, 'True changes each training example at random: it moves images, '
        'shuffles arguments of ListOps, and takes a window of texts; see '
        'lra/data/augment.py.',
        before=False),
    'train.masked_loss': Field(
        0.0, 'Weight of a second loss in training: the prediction of all '
        'tokens, of which 30% are then hidden or replaced. 0 turns it off, and '
        'no token is changed.', low=0, high=LARGEST, before=0.0),
    'train.include_val': Field(
        False, 'True adds the validation examples to the training examples; '
        'then there is no validation.'),
    'train.select': Field(
        'best', 'The checkpoint that is scored on the test split: the one with '
        'the best validation accuracy, or the last.', choices=('best', 'last')),

    'optim.name': Field(
        'adamw', 'The optimizer.', before='adamw',
        choices=('adamw', 'adam', 'sgd', 'lion', 'muon')),
    'optim.schedule': Field(
        'rsqrt', 'Schedule of the learning rate after the warm-up. rsqrt is '
        'train.learning_rate / sqrt(step). The others start at '
        'train.learning_rate and end at the last step.',
        before='rsqrt', choices=('rsqrt', 'cosine', 'linear', 'constant')),
    'optim.final_fraction': Field(
        0.0, 'Final learning rate of the schedules cosine and linear, as a '
        'fraction of train.learning_rate.', low=0, high=1, before=0.0),
    'optim.momentum': Field(
        0.9, 'Momentum of the optimizers sgd and muon. The authors of muon use '
        '0.95.', low=0, below=1, before=0.9),
    'optim.clip_norm': Field(
        0.0, 'Largest global norm of the gradient: a larger gradient is scaled '
        'down to it. 0 turns clipping off.', low=0, high=LARGEST, before=0.0),
    'optim.groups': Field(
        (), "Settings for groups of parameters: pairs of a regular expression "
        "and dict(learning_rate=..., weight_decay=...). {} means the settings "
        "of train, and None freezes the group. A parameter belongs to the "
        "first expression that matches its whole name, such as "
        "encoder/block_0/mixer/query/kernel. Every parameter must match one. "
        "() gives all parameters the settings of train.", before=()),
    'optim.ema': Field(
        0.0, 'Decay per step of an exponential moving average of the '
        'parameters, which evaluation then uses. 0 turns it off.',
        low=0, below=1, before=0.0),

    'encoder.num_layers': Field(int, 'Number of blocks.', low=1, high=1000),
    'encoder.width': Field(int, 'D: width of the embedding and of the blocks.',
                           low=1, high=MANY),
    'encoder.mlp_width': Field(
        int, 'F: width of the hidden layer of each MLP and of the classifier.',
        low=1, high=MANY),
    'encoder.conv_width': Field(
        0, 'Kernel size of a causal depthwise convolution before each mixer; 0 '
        'for no convolution.', low=0, high=64, before=0),
    'encoder.norm': Field(
        'layer', 'The norms: layer is LayerNorm, scale is ScaleNorm, rms is '
        'RMSNorm, batch is BatchNorm over the tokens of all examples of a '
        'batch, without padding.',
        choices=('layer', 'scale', 'rms', 'batch', 'none'),
        before='layer'),
    'encoder.norm_place': Field(
        'pre', 'The place of the norms: before each mixer and MLP and after '
        'the last block (pre), or after each residual sum (post).',
        choices=('pre', 'post'), before='pre'),
    'encoder.norm_eps': Field(
        1e-6, 'With norm=layer, the number that is added to the variance.',
        above=0, high=1, before=1e-6),
    'encoder.norm_embedding': Field(
        False, 'True normalises the sum of the embeddings, as BERT does.',
        before=False),
    'encoder.norm_momentum': Field(
        0.9, 'With norm=batch, the weight of the old running mean in each '
        'training step. Evaluation uses the running means.', low=0, below=1,
        before=0.9),
    'encoder.norm_examples': Field(
        0, 'With norm=batch, the number of consecutive examples of a batch '
        'that share their statistics. A microbatch is a multiple of this '
        'number. 0 means the whole batch, which is then computed in one piece.',
        low=0, high=MANY, before=0),
    'encoder.block': Field(
        'mlp', 'The part of a block after the mixer: an MLP with GELU (mlp), '
        'a gated MLP with SiLU, known as SwiGLU (glu), or nothing (none).',
        choices=('mlp', 'glu', 'none'), before='mlp'),
    'encoder.gelu': Field(
        'tanh', 'How MLPs compute GELU: approximated by tanh, or exact.',
        choices=('tanh', 'exact'), before='tanh'),
    'encoder.inputs': Field(
        'ids', 'How tokens become vectors: by an embedding table (ids), or by '
        'a layer that reads numbers (values). The numbers are grey levels of '
        'pixels, from -1 to 1.', choices=('ids', 'values'), before='ids'),
    'encoder.dropout': Field(
        0.1, 'Dropout rate in the embedding and the blocks.', low=0, below=1),
    'encoder.tie_dropout': Field(
        False, 'True drops the same channels at all tokens of an example, as '
        'the released code of S4 and S5 does.', before=False),
    'encoder.pooling': Field(
        'cls', 'The vector that the classifier reads. cls is that of a CLS '
        'token before the sequence, mean is the mean over tokens, and first '
        'and last are those of the first and last token.',
        choices=('cls', 'mean', 'first', 'last')),
    'encoder.mean_over': Field(
        'tokens', 'With pooling=mean, what divides the sum over tokens: the '
        'number of tokens, or the number of all positions including padding. '
        'The released code of Nystromformer uses positions.',
        choices=('tokens', 'positions'), before='tokens'),
    'encoder.head': Field(
        'concat', 'How the classifier joins the two documents of a pair: '
        'concat is [x1, x2]; nli is [x1, x2, x1 * x2, x1 - x2].',
        choices=('concat', 'nli')),
    'encoder.head_layers': Field(
        0, 'Number of hidden layers of the classifier. The first is '
        'encoder.mlp_width wide, and each further layer is half as wide as the '
        'layer before. 0 means two layers for pairs of documents, else one.',
        low=0, high=20, before=0),
    'encoder.pooler': Field(
        False, 'True gives the classifier one layer with tanh, as wide as the '
        'encoder, and dropout, instead of its hidden layers. BERT calls it the '
        'pooler.', before=False),
    'encoder.vocab_size': Field(
        0, 'Number of token ids, padding included. 0 means that of the task. A '
        'larger number is for the word pieces of a tokenizer.', low=0,
        high=2**15 - 1, before=0),
    'encoder.token_types': Field(
        0, 'Number of token types. An embedding of the first type is added to '
        'all tokens. 0 turns it off; BERT has 2.', low=0, high=MANY, before=0),
    'encoder.max_positions': Field(
        0, 'With positions=learned, the number of positions in the table, of '
        'which a sequence uses the first. 0 means the positions of a sequence.',
        low=0, high=MANY, before=0),
    'encoder.positions': Field(
        'learned', 'Position embeddings. Use none for mixers that encode '
        'positions themselves, such as transformer_rotary.',
        choices=('learned', 'sinusoidal', 'none')),
    'encoder.cls_has_position': Field(
        False, 'True gives the CLS token a position embedding.'),
    'encoder.embedding_std': Field(
        float, 'Standard deviation of the initial token embedding; '
        'width**-0.5 unless the protocol sets it.', low=0, high=LARGEST),
    'encoder.remat': Field(
        False, 'True saves memory: the backward pass recomputes the blocks '
        '(rematerialisation).'),

    'pretrain.objective': Field(
        '', 'The objective of a first phase on the same inputs: masked '
        'predicts hidden tokens, causal the next token. The run then starts '
        'from the encoder of that phase. Empty means no such phase.',
        choices=('', 'masked', 'causal'), before=''),
    'pretrain.steps': Field(
        0, 'Steps of the first phase. 0 means train.steps.', low=0, high=COUNT,
        before=0),
    'pretrain.learning_rate': Field(
        -1.0, 'Learning rate of the first phase. -1 means train.learning_rate.',
        low=-1, high=LARGEST, before=-1.0),

    'model.name': Field('', 'The mechanism: the name of a model in '
                        'lra/models.'),
    'model.num_heads': Field(int, 'H: number of heads.', low=1, high=MANY),
    'model.qkv_width': Field(
        int, 'H * Dh: width of the queries, keys or values of all heads '
        'together; encoder.width unless the config sets it.', low=1,
        high=MANY),
}


def argument(default: Any, doc: str = '', **limits) -> Any:
  """Declares an argument of a mixer: `size: int = argument(64, 'Its size.')`.

  Args:
    default: its value unless a config sets it.
    doc: its meaning, in one or two sentences.
    **limits: low, high, above, below and choices of its `Field`.
  """
  return dataclasses.field(default=default, metadata={**limits, 'doc': doc})


# Arguments that mixers got after the first records:
# model -> argument -> the value that describes the mixer before.
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
    'transformer_rotary': {'planes': 'head'},
}


def added(model: str) -> dict[str, Any]:
  """Returns {field added later: the value that describes earlier versions}.

  Args:
    model: name of the model whose later arguments are included.
  """
  mixer = ADDED_TO_MODELS.get(model, {})
  return {
      **{name: field.before for name, field in FIELDS.items()
         if field.before is not ALWAYS},
      **{f'model.{name}': value for name, value in mixer.items()}}
