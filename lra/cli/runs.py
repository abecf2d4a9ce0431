"""Trains the runs of a file."""


def add_arguments(parser):
  parser.add_argument('file', metavar='FILE')


def main(args) -> int:
  raise NotImplementedError(args.file)
