"""Checkpoints: what is on disk when."""

import numpy as np
import orbax.checkpoint as ocp

from lra.training.checkpoint import Checkpoints


def test_the_best_is_on_disk_before_the_last_names_it(tmp_path, monkeypatch):
  """The order of calls: how long a write takes is the disk's affair."""
  calls = []

  def record(name):
    call = getattr(ocp.CheckpointManager, name)

    def recorded(self, *args, **kwargs):
      folder = self.directory.name
      calls.append(f'{folder} {name}')
      done = call(self, *args, **kwargs)
      calls.append(f'{folder} {name} returned')
      return done

    monkeypatch.setattr(ocp.CheckpointManager, name, recorded)

  record('save')
  record('wait_until_finished')
  checkpoints = Checkpoints(tmp_path)
  state = {'w': np.arange(3.0)}
  checkpoints.save_best(4, state)
  checkpoints.save_last(4, state, {'best_step': 4})
  checkpoints.close()
  between = calls[calls.index('best save returned'):calls.index('last save')]
  assert 'best wait_until_finished returned' in between
