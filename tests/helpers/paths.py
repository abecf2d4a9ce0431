"""Defines ROOT, the folder of the repository."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
