"""Tests the values that the filters of the HTML page use."""

from lra.board import catalogue, inputs, render
from lra.core import paths


def test_a_published_row_has_the_family_of_the_model_here():
  families = {entry.name: entry.family for entry in catalogue.read()}
  papers = inputs.published(paths.PACKAGED / 'published.csv')
  here = [paper for paper in papers if paper.here]
  assert here and {paper.model for paper in here} != {
      paper.here for paper in here}
  for paper in here:
    assert render._about(paper, families)['family'] == families[paper.here]
