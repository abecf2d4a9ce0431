"""Compares a BERT with that of the package transformers."""

import jax
import numpy as np
import pytest

from lra.data import batches, wordpiece
from lra.data_prep.content import split_of
from lra.run import program, warm_start
from lra.run.experiment import resolve
from tests.helpers import peer, tiny_bert

torch = peer.torch
TEXTS = ('The bank said it, "no": cups.', 'Café NEW!', '', 'hidden 7 end',
         'storing the storing of a ' * 9, '日本 it\u200b', 'don\'t co-op\t3.1')


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
  """Returns a folder that transformers saved, and its model."""
  transformers = peer.load('transformers', 'transformers')
  folder = tmp_path_factory.mktemp('bert')
  tiny_bert.write(folder)  # for the vocabulary
  torch.manual_seed(0)
  model = transformers.BertForSequenceClassification(transformers.BertConfig(
      **{name: value for name, value in tiny_bert.CONFIG.items()
         if name != 'model_type'}, num_labels=4, initializer_range=0.3)).eval()
  for parameter in model.parameters():  # biases and norms are constant
    parameter.data += 0.1 * torch.randn_like(parameter)
  model.save_pretrained(folder)
  return folder, model


def test_logits_of_a_padded_batch(saved):
  folder, model = saved
  ids = tiny_bert.ids(4)
  with torch.no_grad():
    want = model(torch.tensor(ids).long(),
                 attention_mask=torch.tensor(ids > 0)).logits.numpy()
  made = program.make(
      resolve(tiny_bert.config('transformer', folder)), jax.devices()[:1])
  begun = warm_start.read(made.config, made)
  assert not begun.fresh and not begun.dropped
  params = begun.state(made.init()).params
  got = made.model.apply({'params': params}, ids, train=False)
  np.testing.assert_allclose(got, want, atol=1e-5)


def test_word_pieces(saved):
  transformers = peer.load('transformers', 'transformers')
  folder, _ = saved
  theirs = transformers.BertTokenizer.from_pretrained(folder)
  words = wordpiece.read(folder)
  made = words.split(split_of(
      [text.encode() for text in TEXTS], np.zeros(len(TEXTS))), 40)
  got = batches.gather(made, np.arange(len(TEXTS)), 40)['tokens']
  want = theirs(list(TEXTS), truncation=True, max_length=40,
                padding='max_length')['input_ids']
  np.testing.assert_array_equal(got, want)
  theirs.save_pretrained(folder / 'again')
  assert wordpiece.read(folder / 'again').sha256 == words.sha256
