"""Trains a small network with FSDP2 (fully_shard): each rank keeps its part of every weight, whatever its vendor:

    mpirun -n 4 python train_fsdp2.py                   # or --backend gloo, nccl, ... to compare

The loss of each step is printed. CPU tensors, unless --cuda (torch.cuda, on either vendor's GPU)."""
import common
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main():
    arguments = common.options(__doc__)
    device = common.start(arguments)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    model = common.model(arguments.width).to(device)
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    common.train(model, torch.optim.AdamW(model.parameters(), lr=1e-3), arguments, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
