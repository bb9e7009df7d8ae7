"""Programs that test_torch_launch.py starts under mpirun, or without it: torch_job.py NAME [FOLDER]."""
import datetime
import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist


def start(seconds=20, **more):
    dist.init_process_group("hetmpi", timeout=datetime.timedelta(seconds=seconds),
                            **(more or {"init_method": "hetmpi://"}))
    return dist.get_rank(), dist.get_world_size()


def world(_):
    """Ends without destroy_process_group, as many scripts do."""
    rank, size = start()
    x = torch.tensor([rank + 1.0])
    dist.all_reduce(x)
    assert x.item() == size * (size + 1) / 2


def environment(_):
    """env://, with torch's ranks in another order than MPI's."""
    size = int(os.environ["OMPI_COMM_WORLD_SIZE"])
    os.environ.update(RANK=str(size - 1 - int(os.environ["OMPI_COMM_WORLD_RANK"])), WORLD_SIZE=str(size),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["PORT"])
    rank, size = start(init_method="env://")
    out = torch.zeros(size)
    dist.all_gather_into_tensor(out, torch.tensor([float(rank)]))
    assert out.tolist() == list(range(size)), out
    dist.destroy_process_group()


def again(_):
    """A second default group after the first is gone."""
    for _ in range(2):
        world(_)
        dist.destroy_process_group()


def alone(_):
    """As torchrun starts it: ranks of torch's, each the only one of its MPI."""
    store = dist.TCPStore("127.0.0.1", int(os.environ["PORT"]), 2, True, wait_for_workers=False)
    try:
        start(store=store, rank=0, world_size=2)
    except RuntimeError as error:
        assert "MPI started 1 process(es) here: start the program with mpirun -np 2 (torchrun" in str(error), error
        return
    raise AssertionError("a group of two was made in one process")


def unloaded(_):
    """Nothing of MPI before the first group; nor does the order of imports matter."""
    import hetmpi.torch  # noqa: F401
    assert "hetmpi" in dist.Backend.backend_list
    with open("/proc/self/maps") as maps:
        assert "libmpi" not in maps.read()


def exception(_):
    """One rank raises while the others wait for it: the job ends."""
    rank, _ = start(100)
    if rank == 1:
        raise ValueError("on purpose")
    dist.barrier()


def death(folder):
    """Rank 1 is killed in training; what the others raise goes to a file each."""
    rank, size = start(10)
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(300, 300))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    # Neither the parent's death signal nor MPI's kill may end the survivors before they have seen what happened.
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        for step in range(1000000):
            if rank == 1 and step == 20:
                os.kill(os.getpid(), signal.SIGKILL)
            began = time.monotonic()
            optimizer.zero_grad()
            net(torch.ones(2, 300)).sum().backward()
            optimizer.step()
    except Exception as error:
        report = pathlib.Path(folder, f"new.{rank}")
        report.write_text(f"{time.monotonic() - began:.2f} {type(error).__name__}: {error}")
        report.rename(pathlib.Path(folder, f"rank.{rank}"))
        os._exit(0)


def flat(_):
    """Memory, descriptors and threads stay as they are while groups come and go, and over many calls."""
    rank, size = start(60)
    x = torch.ones(100)

    def use(groups, calls):
        for i in range(groups):
            group = dist.new_group(list(range(size)))
            dist.all_reduce(x, op=dist.ReduceOp.AVG, group=group)
            dist.all_reduce(x, op=dist.ReduceOp.AVG, group=group, async_op=True).wait()
            dist.destroy_process_group(group)
        for i in range(calls):
            dist.all_reduce(x, op=dist.ReduceOp.AVG)
            if i % 10 == 0:
                dist.all_reduce(x, op=dist.ReduceOp.AVG, async_op=True).get_future().wait()

    def state():
        with open("/proc/self/status") as status:
            lines = dict(line.split(":", 1) for line in status)
        return {"KiB": int(lines["VmRSS"].split()[0]), "descriptors": len(os.listdir("/proc/self/fd")),
                "threads": int(lines["Threads"]), "shm": len([f for f in os.listdir("/dev/shm") if "hetmpi" in f])}

    use(60, 1000)
    before = state()
    use(500, 10000)
    after = state()
    print(f"rank {rank}: {before} -> {after}", flush=True)
    assert after["descriptors"] <= before["descriptors"] and after["threads"] <= before["threads"]
    assert after["shm"] <= before["shm"]
    assert after["KiB"] - before["KiB"] < 4096, (before, after)
    dist.destroy_process_group()


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2] if len(sys.argv) > 2 else None)
