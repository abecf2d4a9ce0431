"""Kinds of expressions, against their texts."""

from data_prep import listops, parts
from data_prep.content import split_of

EXPRESSIONS = (
    ('[MAX 1 2 ]', 'MAX', 1), ('[SM 1 [MIN 2 3 ] 4 ]', 'SM', 2),
    ('7', 'none', 0),
    ('[MED [MAX 1 [SM 2 2 ] ] [MIN 0 1 ] ]', 'MED', 3),
    ('[MAX 3 3 ]', 'MAX', 1), ('[MIN [MIN [MIN 1 1 ] 1 ] 1 ]', 'MIN', 3))


def _split(expressions, labels):
  return split_of([listops.encode(e) for e in expressions], labels)


def test_operators_and_depths():
  split = _split([e for e, _, _ in EXPRESSIONS], [0] * len(EXPRESSIONS))
  assert parts.root_operators(split).tolist() == [o for _, o, _ in EXPRESSIONS]
  assert parts.depths(split).tolist() == [d for _, _, d in EXPRESSIONS]


def test_operators_and_depths_of_generated_expressions():
  """Read from their text, bracket by bracket."""
  variant = listops.Variant(listops.trees.Process(4, 5, 5, 80), (300, 1, 1))
  split = listops.generate(variant).splits['train']
  depths, roots = [], []
  for i in range(len(split)):
    depth = deepest = 0
    words = listops.decode(split.document(i)).split()
    for word in words:
      depth += word.startswith('[') - (word == ']')
      deepest = max(deepest, depth)
    depths.append(deepest)
    roots.append(words[0].strip('['))
  assert parts.depths(split).tolist() == depths
  assert parts.root_operators(split).tolist() == roots
  assert len(set(depths)) >= 3 and len(set(roots)) == 4
