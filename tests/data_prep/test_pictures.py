"""Image files with deeper pixels or several images are refused."""

import io

import numpy as np
import pytest
from PIL import Image

from lra.core import tasks
from lra.core.errors import UserError
from lra.data_prep import cifar, encode
from lra.data_prep.source import Source

SIDE = 32
RAMP = np.linspace(0, 65535, SIDE * SIDE).reshape(SIDE, SIDE).astype(np.uint16)


def saved(image, form, **how):
  stream = io.BytesIO()
  image.save(stream, form, **how)
  return stream.getvalue()


def animated(form):
  frames = [Image.new('RGB', (SIDE, SIDE), (c, 0, 0)) for c in (0, 99, 200)]
  return saved(frames[0], form, save_all=True, append_images=frames[1:])


DEEP, SEVERAL = 'it has more than 8 bits a colour', 'it has 3 pictures instead'
FILES = {
    'grey PNG': (saved(Image.fromarray(RAMP), 'PNG'), DEEP),
    'float TIFF': (
        saved(Image.fromarray(np.float32(RAMP / 65535)), 'TIFF'), DEEP),
    'whole TIFF': (saved(Image.fromarray(np.int32(RAMP)), 'TIFF'), DEEP),
    'GIF': (animated('GIF'), SEVERAL), 'PNG': (animated('PNG'), SEVERAL),
    'TIFF of pages': (animated('TIFF'), SEVERAL)}


def by_predict(data, folder):
  path = folder / 'picture'
  path.write_bytes(data)
  encode.split(tasks.get('image'), [path])


def by_cifar(data, folder):
  path = folder / 'cifar10' / 'train' / 'airplane' / '0.png'
  path.parent.mkdir(parents=True)
  path.write_bytes(data)
  cifar.read(Source(folder / 'cifar10'))


@pytest.mark.parametrize('reader', [by_predict, by_cifar])
@pytest.mark.parametrize('file', FILES)
def test_what_would_be_cut_is_refused_everywhere(tmp_path, reader, file):
  data, why = FILES[file]
  with pytest.raises(UserError) as caught:
    reader(data, tmp_path)
  assert why in str(caught.value)
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize('form', ['PNG', 'TIFF', 'PPM', 'BMP', 'GIF', 'WEBP'])
def test_one_picture_of_8_bits_is_what_it_was(tmp_path, form):
  grey = np.arange(SIDE * SIDE, dtype=np.uint8).reshape(SIDE, SIDE)
  (tmp_path / 'x').write_bytes(saved(Image.fromarray(grey), form, **(
      {'lossless': True} if form == 'WEBP' else {})))
  found = encode.split(tasks.get('image'), [tmp_path / 'x']).tokens
  assert np.abs(found.reshape(SIDE, SIDE).astype(int) - grey).max() <= 1
