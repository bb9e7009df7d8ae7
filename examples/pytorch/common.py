"""What the examples share: how a job starts under mpirun, a network that predicts the next byte of English, and its training."""
import argparse
import os
import pydoc_data.topics
import time

import torch
import torch.distributed as dist

CONTEXT = 16         # bytes from which the next one is told
BATCH = 256          # examples of a step, on all ranks together


def options(text):
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="hetmpi")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--width", type=int, default=128)
    return parser.parse_args()


def start(arguments):
    """Returns this rank's device. Rank, size and the store's address come from MPI, for every backend."""
    dist.init_process_group(arguments.backend, init_method="hetmpi://")
    torch.manual_seed(1)
    if not arguments.cuda:
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", 0)) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def model(width):
    return torch.nn.Sequential(torch.nn.Embedding(256, 16), torch.nn.Flatten(), torch.nn.Linear(16 * CONTEXT, width), torch.nn.GELU(),
                               torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, 256))


def train(model, optimizer, arguments, device):
    """Each rank takes its part of every step's batch, which is the same text however many share it."""
    topics = pydoc_data.topics.topics
    text = torch.frombuffer(bytearray("\n".join(topics[name] for name in sorted(topics)).encode()), dtype=torch.uint8).long()
    ranks, rank = dist.get_world_size(), dist.get_rank()
    own = BATCH // ranks
    began = time.perf_counter()
    for step in range(arguments.steps):
        at = (step * BATCH + rank * own + torch.arange(own)) * 997 % (len(text) - CONTEXT)
        x = text[at[:, None] + torch.arange(CONTEXT)].to(device)
        loss = torch.nn.functional.cross_entropy(model(x), text[at + CONTEXT].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"step {step} loss {mean.item() / ranks:.6f}", flush=True)
    if rank == 0:
        print(f"{(time.perf_counter() - began) / max(arguments.steps, 1) * 1e3:.1f} ms a step on {ranks} ranks", flush=True)
