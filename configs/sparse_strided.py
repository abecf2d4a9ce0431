from configs import base


def get_config(arg='listops'):
  config = base.get_config(arg)
  config.model.name = 'sparse_strided'
  return config
