"""Describes NVIDIA GPUs, to compile for them without the hardware."""

import contextlib
import dataclasses
import importlib.metadata
import importlib.util

import jax
from jax.experimental import topologies
from jax.sharding import AbstractDevice, AbstractMesh

_TARGET = """
gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared_per_core}
  shared_memory_per_block_optin: {shared}
  threads_per_core_limit: {threads} core_count: {cores}
  fpus_per_core: {fpus}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: {bandwidth} l2_cache_size: {l2}
  clock_rate_ghz: {clock} device_memory_size: {memory}
  cuda_compute_capability {{ major: {major} minor: {minor} {features} }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  device_vendor: "NVIDIA Corporation" device_address_bits: 64
  name: "{kind}"
  driver_version: "13.0.0" runtime_version: "13.0.0"
  compile_time_toolkit_version: "13.0.0" dnn_version: "9.12.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 12 patch: 0 }}
device_description_str: "{kind}"
"""


def missing():
  """Returns why nothing can be compiled for a GPU here, or None."""
  find = importlib.util.find_spec
  # find_spec of a submodule imports its parent, which may be missing.
  if not (find('jax_plugins') and find('jax_plugins.xla_cuda13')):
    return 'jax-cuda13-plugin is not installed (extra aot-cuda)'
  found = importlib.metadata.version('jax-cuda13-plugin')
  if found != jax.__version__:
    return f'jax-cuda13-plugin is {found}, jax is {jax.__version__}'
  if find('nvidia.cu13') is None:
    return 'nvidia-cuda-nvcc is not installed (extra aot-cuda)'
  return None


@dataclasses.dataclass(frozen=True)
class Card:
  """Data of a GPU, from its data sheet and the CUDA programming guide.

  Threads, float32 units and KiB of shared memory (a block may use all but 1)
  are those of one of its `cores` multiprocessors. l2, memory, bandwidth and
  clock are in MiB, GB, GB/s and GHz (boost). `alias` is a GPU of this
  capability that jax knows, if it does not know `kind`.
  """
  kind: str
  capability: tuple
  cores: int
  shared: int
  l2: int
  bandwidth: int
  memory: int
  clock: float
  threads: int = 2048
  fpus: int = 128
  alias: str = ''

  @property
  def arch(self):
    """Returns ptxas's name of the architecture, for example 'sm_90a'."""
    major, minor = self.capability
    return f'sm_{major}{minor}{"a" if major >= 9 else ""}'

  def target(self):
    """Returns the text of XLA's GpuTargetConfigProto."""
    major, minor = self.capability
    return _TARGET.format(
        kind=self.kind, major=major, minor=minor,
        features='feature_extension: ACCELERATED_FEATURES' * (major >= 9),
        cores=self.cores, fpus=self.fpus, threads=self.threads,
        shared_per_core=self.shared * 1024, shared=(self.shared - 1) * 1024,
        l2=self.l2 * 2**20, bandwidth=self.bandwidth * 10**9,
        memory=self.memory * 10**9, clock=self.clock)

  def device(self):
    """Returns a jax device to compile for; raises RuntimeError if it cannot."""
    reason = missing()
    if reason:
      raise RuntimeError(reason)
    try:
      topology = topologies.get_topology_desc(
          platform='cuda', target_config=self.target(), topology='1x1x1')
    except Exception as error:  # jax raises several kinds
      raise RuntimeError(f'no {self.kind} to compile for: {error}') from error
    return topology.devices[0]

  @contextlib.contextmanager
  def lowering(self):
    """Lowers programs in this context for this card, on any local device.

    Jax 0.12 takes a Triton kernel's compute capability from a mesh, and
    `lra.kernels.triton` takes the number of multiprocessors from it.
    """
    device = AbstractDevice(self.alias or self.kind, self.cores, 'gpu')
    mesh = AbstractMesh((), (), abstract_device=device)
    with jax.sharding.use_abstract_mesh(mesh):
      yield


CARDS = {
    'a100': Card('NVIDIA A100', (8, 0), 108, 164, 40, 2039, 80, 1.41, fpus=64),
    'l40s': Card('NVIDIA L40S', (8, 9), 142, 100, 48, 864, 48, 2.52, 1536,
                 alias='NVIDIA L40'),
    'rtx4090': Card('NVIDIA GeForce RTX 4090', (8, 9), 128, 100, 72, 1008, 24,
                    2.52, 1536),
    'h200': Card('NVIDIA H200', (9, 0), 132, 228, 50, 4800, 141, 1.98),
    'b200': Card('NVIDIA B200', (10, 0), 148, 228, 126, 8000, 180, 1.97),
    'rtx5090': Card('NVIDIA GeForce RTX 5090', (12, 0), 170, 100, 96, 1792, 32,
                    2.41, 1536, alias='NVIDIA RTX PRO 6000')}
