"""Trains a small network with DistributedDataParallel, on ranks of any vendors:

    mpirun -n 4 python train_ddp.py                     # or --backend gloo, nccl, ... to compare

The loss of each step is printed. CPU tensors, unless --cuda (torch.cuda, on either vendor's GPU)."""
import common
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    arguments = common.options(__doc__)
    device = common.start(arguments)
    model = common.model(arguments.width).to(device)
    model = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
    common.train(model, torch.optim.AdamW(model.parameters(), lr=1e-3), arguments, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
