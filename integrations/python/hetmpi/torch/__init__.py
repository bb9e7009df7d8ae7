"""The backend `hetmpi` of torch.distributed, for tensors on the CPU and on GPUs of any vendor:

    torch.distributed.init_process_group("hetmpi", init_method="hetmpi://")    # under mpirun

torch finds it by itself. Neither MPI nor libhetmpi is loaded before the first process group.
"""
import torch  # noqa: F401  (first, for at its end torch imports ._backend)

from ._backend import register

register()
