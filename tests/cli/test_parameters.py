"""Tests of the parameter counts, which trace only the first two blocks."""

import importlib
import subprocess
import sys

import pytest

from lra import models
from lra.board import inputs
from lra.cli import list as words
from lra.cli import parameters
from lra.configs import transformer
from lra.configs.protocols import PROTOCOLS
from lra.core.tasks import TASKS
from lra.run import program
from tests.helpers import small


@pytest.mark.parametrize('model, task', [
    ('super', 'retrieval'), ('generative_rks', 'text'), ('hgrn2', 'text')])
def test_equals_the_count_of_the_whole_model(model, task):
  config = importlib.import_module(f'lra.configs.{model}').get_config(task)
  whole = program.count_parameters(small.make(config).state_shape)
  assert parameters.parameters(model, task) == whole['num_params']


def test_retrieval_transformer_by_hand():
  # Embeddings: 257 ids, 4000 positions, CLS. Each of four blocks: attention
  # 4 D^2 + 4 D, MLP 2 D F + D + F, two norms. Then a norm and a head with
  # layers of F, F / 2 and 2 units.
  D, F = 128, 512
  block = 4 * D**2 + 4 * D + 2 * D * F + D + F + 4 * D
  head = (2 * D + 1) * F + (F + 1) * F // 2 + (F // 2 + 1) * 2
  assert parameters.parameters('transformer', 'retrieval') == (
      (257 + 4000 + 1) * D + 4 * block + 2 * D + head)


QUICK = 'cross', 'linformer'
_RUN = 'python -m lra.cli.parameters'


@pytest.mark.parametrize('model', [
    pytest.param(m, marks=[] if m in QUICK else [pytest.mark.full])
    for m in models.names()])
def test_the_committed_counts_are_true(model):
  committed = parameters.read()
  if model not in committed and len(committed) > 1:
    pytest.skip(f'{model} is not in parameters.csv yet: run `{_RUN}`')
  assert committed[model] == parameters.count(model), f'run `{_RUN}`'
  known = parameters.state_sizes().get(model)
  assert known == parameters.state_size(model), f'run `{_RUN}`'


def test_every_protocol_has_a_counted_transformer():
  known = inputs.budgets()
  assert set(known) == {(protocol, task) for protocol, of in PROTOCOLS.items()
                        for task in of if task in TASKS}, f'run `{_RUN}`'
  whole = program.count_parameters(small.make(
      transformer.get_config('pathfinder,protocol=nystrom')).state_shape)
  assert known['nystrom', 'pathfinder'] == whole['num_params']


@pytest.mark.full
def test_the_committed_budgets_are_true():
  assert inputs.budgets() == parameters.count_budgets(), f'run `{_RUN}`'


@pytest.mark.full
def test_a_model_that_was_not_counted_is(tmp_path, monkeypatch):
  parameters.write(tmp_path, ['local'])
  path = tmp_path / 'parameters.csv'
  assert path.read_text().startswith(
      'model,listops,text,retrieval,state_size\nlocal,')
  counted = parameters.read(path)
  assert counted == {'local': parameters.read()['local']}
  assert inputs.budgets(tmp_path / inputs.BUDGETS.name) == inputs.budgets()
  asked = []
  monkeypatch.setattr(parameters, 'read', lambda: counted)
  monkeypatch.setattr(
      parameters, 'parameters', lambda *of: asked.append(of) or 7)
  found, problems = parameters.table()
  assert not problems and list(found) == list(models.names())
  assert found['local'] == counted['local']
  assert found['gqa'] == dict.fromkeys(parameters.TASKS, 7)
  assert not any(model == 'local' for model, _ in asked)


@pytest.mark.parametrize('text', [
    '', 'model,listops\na,3\n', 'model,listops,text,retrieval\na,b,c,d\n',
    'model,listops,text,retrieval\na\n', '\0'])
def test_a_damaged_table_is_counted_again(tmp_path, text):
  (tmp_path / 'parameters.csv').write_text(text)
  assert parameters.read(tmp_path / 'parameters.csv') == {}
  assert parameters.read(tmp_path / 'none.csv') == {}
  assert inputs.budgets(tmp_path / 'parameters.csv') == {}
  assert inputs.budgets(tmp_path / 'none.csv') == {}


def test_listing_needs_no_jax():
  code = ("import sys; from lra.cli import list as words; words.listing(); "
          "assert 'jax' not in sys.modules")
  subprocess.run([sys.executable, '-c', code], check=True)


@pytest.mark.parametrize('what, of, others', [
    ('state space', {'s4d', 'mamba2'}, {'transformer', 'text'}),
    ('*delta*', {'deltanet', 'gated_deltanet', 'deltaproduct'}, {'text'}),
    ('text*', {'text', 'text_mini'}, {'transformer'}),
    ('gla', {'gla'}, {'s4d', 'text'})])
def test_a_filter_lists_the_named_and_nothing_else(what, of, others):
  """Models and tasks are the first words of lines."""
  every = {line.split()[0] for line in words.listing().splitlines() if line}
  found = {line.split()[0]
           for line in words.listing(what).splitlines() if line}
  assert of <= found <= every and others <= every - found
