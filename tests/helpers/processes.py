"""Waits for processes that tests start, and finds ports for them."""

import socket
import subprocess


def end(process: subprocess.Popen) -> tuple[int, str, str]:
  """Returns exit code, stdout and stderr; asserts there is no traceback."""
  out, errors = process.communicate(timeout=300)
  assert 'Traceback' not in errors, errors
  return process.returncode, out, errors


def free_port() -> int:
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    return free.getsockname()[1]
