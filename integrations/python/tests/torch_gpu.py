"""hetmpi.torch on CUDA tensors, for scripts/gpu_check.sh: streams, memory, DDP and FSDP2 against one rank, and the time of
an all_reduce of 64 MiB.

    HETMPI_ISLANDS=a,b mpirun -np 2 python torch_gpu.py
"""
import datetime
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

torch.cuda.set_device(int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", 0)) % torch.cuda.device_count())
dist.init_process_group("hetmpi", init_method="hetmpi://", timeout=datetime.timedelta(seconds=60))
RANK, SIZE = dist.get_rank(), dist.get_world_size()
SPIN = 20_000_000   # cycles that a stream is kept busy for


def ordered_after_the_current_stream():
    """What the stream still has to compute is in the sum."""
    for async_op in (False, True):
        x = torch.zeros(1 << 20, device="cuda")
        torch.cuda._sleep(SPIN)
        x.fill_(RANK + 1)
        work = dist.all_reduce(x, async_op=async_op)
        if async_op:
            work.wait()
        y = x * 2   # read on the current stream at once
        assert torch.all(y == SIZE * (SIZE + 1)), y[:4]


def wait_does_not_block_the_host():
    x = torch.ones(1 << 20, device="cuda")
    torch.cuda.synchronize()
    began = time.perf_counter()
    torch.cuda._sleep(20 * SPIN)
    dist.all_reduce(x, async_op=True).wait()
    issued = time.perf_counter() - began
    torch.cuda.synchronize()
    assert issued < (time.perf_counter() - began) / 2, issued


def memory_lives_until_the_device_is_done():
    for i in range(50):
        x = torch.full((1 << 18,), 1.0, device="cuda")
        work = dist.all_reduce(x, async_op=True)
        del x   # the allocator would give it to the next tensor
        torch.full((1 << 18,), float("nan"), device="cuda")
        work.wait()
        assert torch.all(work.result()[0] == SIZE)


def a_future_orders_the_stream_that_uses_it():
    x = torch.ones(1 << 20, device="cuda")
    torch.cuda._sleep(SPIN)
    future = dist.all_reduce(x, async_op=True).get_future()
    other = torch.cuda.Stream()
    other.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(other):
        future.wait()
        y = future.value()[0] + 1
    other.synchronize()
    assert torch.all(y == SIZE + 1)


def messages():
    x, left, right = torch.empty(1 << 20, device="cuda"), (RANK - 1) % SIZE, (RANK + 1) % SIZE
    for work in [dist.isend(torch.full_like(x, RANK), right), dist.irecv(x, left)]:   # unbatched, both send first
        work.wait()
    assert torch.all(x == left)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full_like(x, RANK + 5), right),
                                        dist.P2POp(dist.irecv, x, left)]):
        work.wait()
    assert torch.all(x == left + 5)


def barrier_waits_for_the_device():
    end = torch.cuda.Event()
    torch.cuda._sleep(SPIN)
    end.record()
    dist.barrier()
    assert end.query()


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 8)).cuda()


def losses(net, ranks, steps=10):
    optimizer, result = torch.optim.SGD(net.parameters(), lr=0.05), []
    for step in range(steps):
        optimizer.zero_grad()
        loss = 0
        for rank in ranks:
            generator = torch.Generator().manual_seed(1000 * step + rank)
            x, y = (torch.randn(16, n, generator=generator).cuda() for n in (64, 8))
            loss = loss + torch.nn.functional.mse_loss(net(x), y) / len(ranks)
        loss.backward()
        optimizer.step()
        result.append(loss.detach())
    return torch.stack(result)


def training_gives_the_losses_of_one_rank():
    alone = losses(model(), range(SIZE))
    mesh = init_device_mesh("cuda", (SIZE,))
    sharded = model()
    for layer in sharded:
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    for net in (DistributedDataParallel(model()), sharded):
        mine = losses(net, [RANK])
        dist.all_reduce(mine, dist.ReduceOp.AVG)
        assert torch.allclose(mine, alone, rtol=1e-4), (mine, alone)


def time_of_64_mib():
    x = torch.ones(16 << 20, device="cuda")
    times = []
    for _ in range(20):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    if RANK == 0:
        print(f"all_reduce of 64 MiB from torch: {statistics.median(times[5:]) * 1e6:.0f} us (the C benchmark's line of 67108864 "
              "bytes must be no less than 0.95 of it)", flush=True)


if __name__ == "__main__":
    for test in (ordered_after_the_current_stream, wait_does_not_block_the_host, memory_lives_until_the_device_is_done,
                 a_future_orders_the_stream_that_uses_it, messages, barrier_waits_for_the_device,
                 training_gives_the_losses_of_one_rank, time_of_64_mib):
        test()
        if RANK == 0:
            print(f"torch: {test.__name__} passed", flush=True)
    dist.destroy_process_group()
