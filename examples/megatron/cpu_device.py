"""Lets Megatron-core run on CPU tensors, for tests: it says torch.cuda where it means the device, and here the device is the
CPU. Only torch is patched, nothing inside Megatron. Import this before megatron; use_cpu() once, before a model is made."""
import contextlib

import torch
from torch.overrides import TorchFunctionMode


class _Generators:
    """torch.cuda.default_generators of one device."""

    def __getitem__(self, device):
        return torch.default_generator


class _Stream:
    """A stream or event of a device whose work is done when it is asked for."""

    def __init__(self, *unused, **named):
        pass

    def nothing(self, *unused):
        return self

    wait_stream = wait_event = record = record_event = synchronize = wait = nothing


class _CudaMeansCpu(TorchFunctionMode):
    """device="cuda" is the CPU, x.cuda() is x, and tensors say that they are CUDA's, as Megatron asks some."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = torch.device("cpu")
        if function is torch.Tensor.cuda:
            return args[0]
        if function == torch.Tensor.is_cuda.__get__:
            return True
        result = function(*args, **kwargs)
        if function is torch.Tensor.type and isinstance(result, str):
            result = result.replace("torch.", "torch.cuda.")
        return result


def use_cpu():
    cuda = torch.cuda
    cuda.current_device = lambda: torch.device("cpu")
    cuda.synchronize = cuda.empty_cache = lambda *unused: None
    cuda.Stream = cuda.Event = _Stream
    cuda.current_stream = cuda.default_stream = lambda *unused: _Stream()
    torch.Tensor.record_stream = lambda tensor, stream: None
    cuda.stream = lambda stream: contextlib.nullcontext()
    cuda.default_generators = _Generators()
    cuda._lazy_init = lambda: None
    cuda._lazy_call = lambda call, **unused: call()
    cuda.manual_seed = torch.manual_seed
    cuda.get_rng_state = cuda.random.get_rng_state = lambda device=None: torch.get_rng_state()
    cuda.set_rng_state = cuda.random.set_rng_state = lambda state, device=None: torch.set_rng_state(state)
    _CudaMeansCpu().__enter__()
