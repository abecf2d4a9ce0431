"""A local server that answers like Hugging Face's hub for one model."""

import contextlib
import hashlib
import http.server
import json
import pathlib
import threading

_COMMIT = 'a' * 40


@contextlib.contextmanager
def serving(folder: pathlib.Path, name: str):
  """Serves the files of a folder as the model `name`; yields the address."""

  class Handler(http.server.BaseHTTPRequestHandler):

    def do_GET(self):
      body = self._body()
      if body is None:
        self.send_response(404)
        self.send_header('X-Error-Code', 'RepoNotFound')
        body = b'{}'
      else:
        self.send_response(200)
        self.send_header('X-Repo-Commit', _COMMIT)
        self.send_header('ETag', f'"{hashlib.sha256(body).hexdigest()}"')
      self.send_header('Content-Length', str(len(body)))
      self.end_headers()
      if self.command == 'GET':
        self.wfile.write(body)

    do_HEAD = do_GET

    def _body(self):
      place, files = self.path.partition('?')[0], sorted(folder.iterdir())
      if place == f'/api/models/{name}/revision/main':
        return json.dumps({'id': name, 'sha': _COMMIT, 'siblings': [
            {'rfilename': path.name} for path in files]}).encode()
      if place == f'/api/models/{name}/tree/{_COMMIT}':
        return json.dumps([
            {'type': 'file', 'path': path.name, 'oid': 'b' * 40,
             'size': path.stat().st_size} for path in files]).encode()
      start = f'/{name}/resolve/{_COMMIT}/'
      if place.startswith(start):
        return (folder / place.removeprefix(start)).read_bytes()
      return None

    def log_message(self, *_):
      pass

  server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
  thread = threading.Thread(target=server.serve_forever)
  thread.start()
  try:
    yield f'http://127.0.0.1:{server.server_port}'
  finally:
    server.shutdown()
    thread.join()
    server.server_close()
