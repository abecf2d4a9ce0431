"""From a config to a result: set up or resume, train, validate, score."""

import collections
import contextlib
import dataclasses
import math
import pathlib
import time

import jax

from lra import files, machine
from lra.data import batches, prepared
from lra.errors import UserError
from lra.report import curves, floors
from lra.terminal import StopRequest, bar, say
from lra.training import evaluate, optim, outcome, program, run
from lra.training.checkpoint import Checkpoints
from lra.training.clock import Clock


@dataclasses.dataclass
class Memory:
  """What the loop remembers besides the state; kept in each checkpoint."""
  validated_step: int = 0
  best_step: int = 0
  best_val: dict | None = None
  last_val: dict | None = None
  timed_steps: int = 0
  train_seconds: float = 0.0
  eval_seconds: float = 0.0
  compile_seconds: float = 0.0


# Updates sent off before the first of them is done: enough to hide the making
# of a batch, few enough that a stop is a matter of a step or two.
AHEAD = 2


class _Diverged(Exception):
  """The loss is not finite."""


class _Stopped(Exception):
  """A stop was asked for."""


class Trainer:
  """A run: a config, its directory and all that was loaded for it.

  Raises:
    UserError: the config, the data, the directory or its checkpoint is not
      what it must be; see `program.make`, `prepared.load`, `run.Run` and
      `checkpoint.Checkpoints`.
  """

  def __init__(self, config, folder: pathlib.Path):
    self.config = config
    self.program = program.make(config)
    self.identity = outcome.identity(self.program)
    self.run = run.Run(folder, config.to_dict())
    self.data = self._load()
    self.floors = floors.of_data(self.program.task, self.data)
    self.checkpoints = Checkpoints(folder / 'checkpoints')
    self.memory = Memory()
    self._seed = self.program.put_seed()
    self._restore()
    self._write_environment()

  def _load(self):
    data = prepared.load(self.config.task, self.config.data_dir or None)
    if self.config.train.include_val:
      data = prepared.fold_val_into_train(data)
    return data

  def _restore(self):
    restored = self.checkpoints.restore_last(self.program.state_shape)
    if restored is None:
      self.state = self.program.init()
    else:
      self.state, memory = restored
      self.memory = Memory(**memory)
    self.step = int(self.state.step)
    self.clock = Clock(self.memory.train_seconds)
    self._logged_seconds = self.clock.seconds
    self.run.rewind(self.step)

  def _write_environment(self):
    path = self.run.folder / 'env.json'
    before = files.read_json(path)
    ours = self.data.fingerprint
    if before and before['data_fingerprint'] != ours and self.step:
      raise UserError(
          f'{self.run.folder} was trained on other data than is prepared now '
          '(env.json has its fingerprint): choose another --workdir.')
    files.write_json(path, {
        **machine.environment(), **self.identity, 'data_fingerprint': ours})

  def train(self, max_minutes: float | None = None) -> dict:
    """Trains to the end and scores; returns the result, which is written.

    Args:
      max_minutes: stop after so long, with status `stopped`.
    """
    test = None
    with StopRequest(max_minutes) as self._stop, contextlib.closing(
        self.run), contextlib.closing(self.checkpoints):
      try:
        self._loop()
        test, status = self._score(), 'ok'
      except _Stopped:
        status = 'stopped'
      except _Diverged:
        status = 'diverged'
      except jax.errors.JaxRuntimeError as e:
        if not machine.out_of_memory(e):
          raise
        status = 'oom'
    fields = outcome.outcome(
        self.program, status, self.step, self.memory, test=test,
        floors=self.floors, data_fingerprint=self.data.fingerprint,
        **self.identity)
    self.run.write_result(fields)
    if self.run.metrics_path.exists():
      curves.plot(
          self.run.metrics_path, self.run.folder / 'curves.png', self.floors)
    return fields

  @contextlib.contextmanager
  def stepping(self):
    """Compiles; yields a function that makes and logs the next step."""
    self._train_step, a = program.timed(self.program.compile_train)
    self._eval_step, b = program.timed(self.program.compile_eval)
    self.memory.compile_seconds += a + b
    steps = self.config.train.steps
    title = f'{self.config.model.name} on {self.config.task}'
    self._under_way = collections.deque()
    with bar(total=steps, done=self.step, what=title) as self._bar:
      yield self._advance

  def batch(self, number: int):
    """The batch of step `number`."""
    t = self.config.train
    return batches.train_batch(
        self.data.splits['train'], batch_size=t.batch_size,
        microbatch_size=t.microbatch_size, seq_len=self.program.seq_len,
        seed=self.config.seed, step=number)

  def update(self, batch):
    """The bare compiled step, sent off; returns what to wait for."""
    self.state, done = self._train_step(self.state, batch, self._seed)
    return done

  def _advance(self):
    self.clock.start()
    self._under_way.append(self.update(self.batch(self.step)))
    if len(self._under_way) > AHEAD:
      self._under_way.popleft().block_until_ready()
    self.step += 1
    self.memory.timed_steps += 1
    self._bar.update()
    t = self.config.train
    if self.step % t.log_every == 0 or self.step == t.steps:
      self._log_train()

  def _loop(self):
    t = self.config.train
    self._saved_at = time.monotonic()
    with self.stepping() as advance:
      self._validate_if_due()
      while self.step < t.steps:
        if self._stop.reason:
          self._stop_here()
        advance()
        self._validate_if_due()
        if time.monotonic() > self._saved_at + 60 * t.checkpoint_minutes:
          self._save()

  def _stop_clock(self):
    """Ends a stretch of training time, once the device has done its work."""
    jax.block_until_ready(self.state)
    self.clock.stop()
    self.memory.train_seconds = self.clock.seconds

  def _log_train(self):
    self._stop_clock()
    self.clock.start()
    sums = {k: float(v) for k, v in jax.device_get(self.state.sums).items()}
    loss = sums['loss'] / sums['weight']
    if not math.isfinite(loss):
      raise _Diverged
    accuracy = sums['correct'] / sums['weight']
    speed = sums['weight'] / (self.clock.seconds - self._logged_seconds)
    self._logged_seconds = self.clock.seconds
    t = self.config.train
    self.run.log(
        step=self.step, split='train', loss=loss, accuracy=accuracy,
        learning_rate=float(optim.learning_rate(
            self.step - 1, base=t.learning_rate, warmup=t.warmup_steps)),
        examples_per_s=speed, seconds=self.clock.seconds)
    self._bar.set_postfix_str(
        f'loss {loss:.3f}, acc {accuracy:.1%}, {speed:.0f} ex/s',
        refresh=False)
    self.state = self.program.reset_sums(self.state)

  def _validate_if_due(self):
    """Validates every `eval_every` steps and at the end, once each."""
    t = self.config.train
    due = self.step and (self.step % t.eval_every == 0 or self.step == t.steps)
    if not due or self.memory.validated_step == self.step:
      return
    self._stop_clock()
    if len(self.data.splits['val']):
      self._validate()
    self.memory.validated_step = self.step
    self._save()

  def _validate(self):
    """Scores the validation split; keeps the parameters if best so far."""
    val = self._evaluate(self._scored_part(), 'val')
    if not math.isfinite(val['loss']):
      raise _Diverged
    say(f'step {self.step}: validation accuracy {val["accuracy"]:.2%}, '
        f'loss {val["loss"]:.4f}')
    self.memory.last_val = val
    best = self.memory.best_val
    if best is None or val['accuracy'] > best['accuracy']:
      self.memory.best_val, self.memory.best_step = val, self.step
      self.checkpoints.save_best(self.step, self._scored_part())

  def _evaluate(self, scored, split):
    """Scores of a split; its time is not training time."""
    examples = self.data.splits[split]
    batches = -(-len(examples) // self.config.train.eval_batch_size)
    start = time.perf_counter()
    with bar(total=batches, what=split, unit='batch') as progress:

      def tick():
        progress.update()
        if self._stop.reason:
          self._stop_here()

      scores = evaluate.evaluate(
          self._eval_step, self.program, scored, examples, tick)
    seconds = time.perf_counter() - start
    self.memory.eval_seconds += seconds
    self.run.log(
        step=self.step, split=split, loss=scores['loss'],
        accuracy=scores['accuracy'], examples_per_s=len(examples) / seconds,
        seconds=self.memory.train_seconds)
    return scores

  def _scored_part(self):
    return {'params': self.state.params, 'variables': self.state.variables}

  def _save(self):
    """Checkpoints the state, unless its loss says that it is worthless."""
    self._stop_clock()
    if not math.isfinite(float(self.state.sums['loss'])):
      raise _Diverged
    self.checkpoints.save_last(
        self.step, self.state, dataclasses.asdict(self.memory))
    self._saved_at = time.monotonic()

  def _stop_here(self):
    self._save()
    say(f'Stopped at step {self.step} ({self._stop.reason}): the same command '
        'continues from here.')
    raise _Stopped

  def _score(self):
    """The one reading of the test split, with the chosen checkpoint."""
    scored = self._scored_part()
    if self.config.train.select == 'best' and self.memory.best_val:
      self.checkpoints.wait()
      shape = self.program.state_shape
      scored = self.checkpoints.restore_best(
          self.memory.best_step,
          {'params': shape.params, 'variables': shape.variables})
    return self._evaluate(scored, 'test')
