"""Reads the documents: their commands, examples and links."""

import re

from tests.helpers.paths import ROOT

# Generated pages, and links to documents elsewhere.
GENERATED = ('docs/reference/', 'docs/leaderboard/', 'docs/pages/')


def paths():
  """Returns paths of hand-written documents, relative to the root."""
  found = ['README.md', 'CONTRIBUTING.md', 'kernels/README.md',
           'lra/recipes/README.md', *(
               str(path.relative_to(ROOT))
               for path in sorted((ROOT / 'docs').rglob('*.md')))]
  return [path for path in found if not path.startswith(GENERATED)]


def read(path):
  return (ROOT / path).read_text(encoding='utf-8')


def blocks(path):
  """Returns (mark, language, text) of each code block of a document.

  A line `<!-- test: MARK -->` above a block sets its mark. Other blocks have
  the mark ''.
  """
  return re.findall(
      r'^(?:<!-- test: (\S+) -->\n+)?```(\w*)\n(.*?)^```$', read(path),
      re.DOTALL | re.MULTILINE)


def example(name):
  """Returns the text of the only code block with this mark."""
  text, = [text for path in paths() for mark, _, text in blocks(path)
           if mark == name]
  return text


def commands(program):
  """Returns the arguments with which commands in code blocks run a program.

  Args:
    program: regular expression for the start of the command.
  """
  found = set()
  for path in paths():
    for _, _, text in blocks(path):
      lines = re.sub(r'\\?\n +--', ' --', text.replace('\\\n', ' '))
      found |= set(re.findall(
          rf"(?:^|[ /])(?:{program}) "
          r"((?:--|(?!import)[a-z]+\b)[^'\n|>&#]*(?:'[^'\n]*'[^'\n|>&#]*)*)",
          lines, re.MULTILINE))
  return sorted(line.strip() for line in found)


def links(path):
  """Returns (file, anchor) of each local link of a document.

  The file is '' if the document links to itself. The anchor is '' if the link
  has none. GitHub's pages of workflows and deployments are no files.
  """
  text = re.sub(r'^```.*?^```$', '', read(path), flags=re.DOTALL | re.MULTILINE)
  return [tuple((target + '#').split('#')[:2]) for target in re.findall(
      r'\]\(<?([^)\s>]+)>?\)', text)
          if not re.match(r'\w+:|\.\./\.\./(actions|deployments)/', target)]


def anchors(path):
  """Returns the heading anchors of a document, as GitHub generates them."""
  text = re.sub(r'^```.*?^```$', '', path.read_text(encoding='utf-8'),
                flags=re.DOTALL | re.MULTILINE)
  return {re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-')
          for heading in re.findall(r'^#+ (.*)$', text, re.MULTILINE)}
