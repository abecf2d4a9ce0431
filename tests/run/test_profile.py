"""Tests that a profile traces exactly the requested updates."""

import gzip
import json

import pytest

from lra.core.errors import UserError
from lra.run import profile, train
from tests.helpers import small


def _traced(folder):
  """Returns the sorted numbers of the updates in the Perfetto trace."""
  path, = folder.glob('plugins/profile/*/perfetto_trace.json.gz')
  assert list(path.parent.glob('*.xplane.pb'))  # XProf opens this file
  events = json.loads(gzip.decompress(path.read_bytes()))['traceEvents']
  return sorted(int(event['args']['step_num']) for event in events
                if event.get('name', '').split('#')[0] == profile.STEP)


@pytest.mark.full
def test_these_updates_are_in_the_trace(mini_data, tmp_path, capfd):
  c = small.config('simpletron', 'listops_mini', steps=6, eval_every=6)
  c.data_dir = str(mini_data)
  train.train(small.experiment(c, tmp_path), profiled=range(3, 6))
  assert _traced(tmp_path / 'profile') == [3, 4, 5]
  assert f'profile is in {tmp_path / "profile"}' in capfd.readouterr().err


@pytest.mark.full
def test_updates_that_are_made_already_are_refused(mini_data, tmp_path):
  c = small.config('simpletron', 'listops_mini', steps=6, eval_every=6)
  c.data_dir = str(mini_data)
  trainer = train.Trainer(small.experiment(c, tmp_path))
  state = trainer.restore()
  trainer.compile()
  for step in range(3):
    state = trainer.update(state, trainer.put(trainer.batch(step)))
  trainer.save(state)
  trainer.close()
  with pytest.raises(UserError, match=f'{tmp_path} has made 3 updates.*=3:4'):
    train.train(small.experiment(c, tmp_path), profiled=range(3, 5))
  train.train(small.experiment(c, tmp_path), profiled=range(4, 5))


def test_a_run_that_ends_before_keeps_what_there_is(tmp_path):
  p = profile.Profile(tmp_path, range(1, 9))
  for step in (1, 2):
    with p.update(step, lambda: None):
      pass
  p.close()
  p.close()
  assert _traced(tmp_path / 'profile') == [1, 2]


@pytest.mark.parametrize('text', [
    '', '3', '3:', ':3', '3-5', '0:2', '5:3', '5:7', '-1:3', 'a:b', '1:2:3',
    '1.0:2', f'1:{10**30}', '٣:٤'])
def test_what_is_no_part_of_the_run_is_refused(text):
  with pytest.raises(UserError, match=r'--profile=.*1 to 6 \(config'):
    profile.steps(text, 6)
