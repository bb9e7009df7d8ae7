"""hetmpi against gloo in one run: the time of a tiny all_reduce, and of a DDP step and its communication.

    mpirun -np 2 python torch_bench.py [tiny] [ddp]
"""
import datetime
import statistics
import sys
import time

import torch
import torch.distributed as dist


def clock(function, calls):
    began = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - began) / calls * 1e6


def interleaved(functions, calls, blocks=9):
    """Microseconds of each, medians over blocks that take turns."""
    times = [[] for _ in functions]
    for function in functions:
        clock(function, calls // 4 + 1)
    for _ in range(blocks):
        for side, function in enumerate(functions):
            dist.barrier()
            times[side].append(clock(function, calls))
    return [statistics.median(side) for side in times]


def report(name, hetmpi, other, bar):
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks: {name}: hetmpi {hetmpi:.2f} us, gloo {other:.2f} us, ratio {hetmpi / other:.3f}"
              f" (bar {bar})", flush=True)


def tiny(groups):
    """dist.all_reduce of 8 bytes; then what of it is the backend's, without torch.distributed's Python."""
    x = torch.ones(2)
    calls = 100 if dist.get_world_size() > 1 else 1000
    pair = [lambda group=group: dist.all_reduce(x, op=dist.ReduceOp.MAX, group=group) for group in groups]
    report("all_reduce of 8 bytes", *interleaved(pair, calls), "0.25")
    backend = groups[0]._get_backend(torch.device("cpu"))
    options = dist.AllreduceOptions()
    options.asyncOp = False
    alone = statistics.median(clock(lambda: backend.allreduce([x], options), 2000) for _ in range(9))
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks: Backend.allreduce of 8 bytes from Python: {alone:.2f} us", flush=True)


def ddp(groups):
    """A step of DDP, whole; then what it waits for: its gradients in buckets of 25 MiB, reduced as DDP has them reduced."""
    torch.manual_seed(1)
    layers = [torch.nn.Linear(1000, 1000) for _ in range(10)]   # 10 M parameters
    x = torch.randn(4, 1000)

    def step(net):
        net(x).sum().backward()

    nets = []
    for group in groups:
        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), process_group=group)
        step(net)   # buckets are rebuilt after the first
        nets.append(net)
    report("DDP step of 10 M parameters", *interleaved([lambda net=net: step(net) for net in nets], 3), "none")

    buckets = [torch.zeros(elements) for elements in (6553600, 10010000 - 6553600)]

    def exchange(group):
        for future in [dist.all_reduce(bucket, group=group, async_op=True).get_future() for bucket in buckets]:
            future.wait()

    report("its communication", *interleaved([lambda group=group: exchange(group) for group in groups], 3), "0.9")


def main():
    dist.init_process_group("hetmpi", init_method="hetmpi://", timeout=datetime.timedelta(seconds=100))
    groups = [dist.group.WORLD, dist.new_group(backend="gloo")]
    for name in sys.argv[1:] or (["tiny", "ddp"] if dist.get_world_size() > 1 else ["tiny"]):
        {"tiny": tiny, "ddp": ddp}[name](groups)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
