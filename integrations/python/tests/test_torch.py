"""hetmpi.torch on CPU tensors. (torch_conformance.py goes through calls, dtypes and operations.)"""
import datetime
import gc
import time

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("hetmpi", init_method="hetmpi://", timeout=datetime.timedelta(seconds=30))
RANK, SIZE = dist.get_rank(), dist.get_world_size()
several = pytest.mark.skipif(SIZE < 2, reason="needs several ranks")


def total(function):
    return sum(function(rank) for rank in range(SIZE))


def numbers(rank, *shape):
    return torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float32).view(shape) * (rank + 1)


# Works


def test_work_wait_and_result():
    x = numbers(RANK, 5)
    work = dist.all_reduce(x, async_op=True)
    assert work.wait()
    assert work.is_completed() and work.is_success()
    assert torch.equal(x, total(lambda r: numbers(r, 5)))
    assert work.result()[0].data_ptr() == x.data_ptr()


def test_work_is_completed_without_wait():
    x = numbers(RANK, 5)
    work = dist.all_reduce(x, async_op=True)
    end = time.monotonic() + 20
    while not work.is_completed():
        assert time.monotonic() < end
    assert torch.equal(x, total(lambda r: numbers(r, 5)))


def test_futures_complete_by_themselves_and_in_any_order():
    tensors = [numbers(RANK, 1000 + i) for i in range(8)]
    futures = [dist.all_reduce(x, async_op=True).get_future() for x in tensors]
    doubled = futures[-1].then(lambda future: future.value()[0] * 2)
    for future in reversed(futures):
        future.wait()
    for i, x in enumerate(tensors):
        assert torch.equal(x, total(lambda r: numbers(r, 1000 + i)))
    assert torch.equal(doubled.wait(), tensors[-1] * 2)


def test_future_of_a_completed_work():
    x = numbers(RANK, 3)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    assert torch.equal(work.get_future().value()[0], x)


@several
def test_a_future_that_depends_on_a_later_call():
    """The receive can end only after another work of this rank, whose future is asked for later."""
    x, y = torch.zeros(3), numbers(RANK, 4)
    receive = dist.irecv(x, (RANK - 1) % SIZE).get_future()
    reduce = dist.all_reduce(y, async_op=True).get_future()
    reduce.wait()
    dist.send(torch.full((3,), float(RANK)), (RANK + 1) % SIZE)
    receive.wait()
    assert torch.equal(x, torch.full((3,), float((RANK - 1) % SIZE)))


def test_dropped_works_keep_their_memory():
    for i in range(20):
        dist.all_reduce(torch.ones(3000), async_op=True)
    gc.collect()
    x = torch.ones(3000)
    dist.all_reduce(x)
    assert torch.equal(x, torch.full((3000,), float(SIZE)))


@several
def test_wait_with_a_timeout():
    x = torch.zeros(2)
    if RANK == 0:
        work = dist.irecv(x, 1, tag=9)
        with pytest.raises(RuntimeError, match="recv: wait: not complete after 50 ms"):
            work.wait(datetime.timedelta(milliseconds=50))
    dist.barrier()
    if RANK == 1:
        dist.send(torch.ones(2), 0, tag=9)
    if RANK == 0:
        work.wait(datetime.timedelta(seconds=20))
        assert torch.equal(x, torch.ones(2))


# Groups


def test_groups():
    reversed_ranks = list(reversed(range(SIZE)))
    group = dist.new_group(reversed_ranks)   # torch sorts them
    x = numbers(RANK, 2)
    dist.all_reduce(x, group=group)
    assert torch.equal(x, total(lambda r: numbers(r, 2)))
    halves = [dist.new_group(list(range(first, SIZE, 2))) for first in range(min(2, SIZE))]
    mine = halves[RANK % 2]
    out = [torch.zeros(1) for _ in range(dist.get_world_size(mine))]
    dist.all_gather(out, torch.tensor([float(RANK)]), group=mine)
    assert out == [torch.tensor([float(r)]) for r in range(RANK % 2, SIZE, 2)]
    alone = [dist.new_group([rank]) for rank in range(SIZE)][RANK]
    y = numbers(RANK, 3)
    dist.all_reduce(y, group=alone, op=dist.ReduceOp.AVG)
    assert torch.equal(y, numbers(RANK, 3))
    for group in [group, mine, alone]:
        dist.destroy_process_group(group)


def test_group_order_is_the_callers():
    """Ranks in an order of the caller's own, below torch's sorting."""
    from hetmpi.torch import _backend
    ranks = list(reversed(range(SIZE)))
    backend = _backend._load().Backend(rank=ranks.index(RANK), world_ranks=ranks, name="reversed",
                                       timeout=datetime.timedelta(seconds=30))
    x = torch.tensor([float(RANK)])
    options = dist.BroadcastOptions()
    options.rootRank = 0
    backend.broadcast([x], options).wait()
    assert x.item() == SIZE - 1
    backend.shutdown()
    with pytest.raises(RuntimeError, match="the process group reversed was shut down"):
        backend.broadcast([x], options)


@several
def test_members_only():
    """Ranks outside a group take no part in its making."""
    if RANK < 2:
        group = dist.new_group([0, 1], use_local_synchronization=True)
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        assert x.item() == 2
        dist.destroy_process_group(group)


@several
def test_split_group():
    low, high = list(range(SIZE // 2)), list(range(SIZE // 2, SIZE))
    dist.group.WORLD.bound_device_id = torch.device("cuda", 0)   # split_group wants one, and uses its name alone
    try:
        group = dist.split_group(split_ranks=[low, high])
    finally:
        dist.group.WORLD.bound_device_id = None
    x = torch.tensor([float(RANK)])
    dist.all_reduce(x, group=group)
    assert x.item() == sum(low if RANK in low else high)
    dist.destroy_process_group(group)


def test_devices_with_backends_of_their_own():
    group = dist.new_group(list(range(SIZE)), backend="cpu:gloo,cuda:hetmpi")
    x = torch.ones(2)
    dist.all_reduce(x, group=group)
    assert torch.equal(x, torch.full((2,), float(SIZE)))
    assert type(group._get_backend(torch.device("cuda"))).__module__ == "_hetmpi_torch"
    dist.destroy_process_group(group)


def test_any_options():
    group = dist.new_group(list(range(SIZE)), pg_options=object())
    dist.barrier(group=group)
    dist.destroy_process_group(group)


# Layouts


@pytest.mark.parametrize("layout", [
    lambda x: x.t(), lambda x: x[:, ::2], lambda x: x[1:, 2:], lambda x: x.reshape(-1)[3:9], lambda x: x[2],
    lambda x: x[0, 0], lambda x: x[:0], lambda x: x.permute(1, 0)[1::2]])
def test_layouts_in_place(layout):
    x = numbers(RANK, 4, 6)
    want = numbers(RANK, 4, 6)
    layout(want).copy_(total(lambda r: layout(numbers(r, 4, 6))))
    dist.all_reduce(layout(x))
    assert torch.equal(x, want)   # the elements between stay
    x = numbers(RANK, 4, 6)
    work = dist.all_reduce(layout(x), async_op=True)
    work.wait()
    assert torch.equal(x, want)


def test_ranks_with_different_layouts():
    x = numbers(RANK, 4, 4)
    y = x.t().contiguous().t() if RANK % 2 else x.clone()
    dist.all_reduce(y)
    assert torch.equal(y, total(lambda r: numbers(r, 4, 4)))


def test_layouts_of_inputs_and_outputs():
    expanded = torch.tensor([float(RANK)]).expand(4)
    out = torch.zeros(4, 2 * SIZE)[:, ::2].t()
    dist.all_gather_into_tensor(out, expanded)
    assert torch.equal(out, torch.arange(SIZE).float().view(-1, 1).expand(SIZE, 4))
    grid = torch.zeros(3, SIZE)
    dist.all_gather(list(grid.unbind(1)), torch.full((3,), float(RANK)))   # columns, interleaved
    assert torch.equal(grid, torch.arange(SIZE).float().expand(3, SIZE))
    part = torch.zeros(2, 2)
    dist.reduce_scatter_tensor(part.t(), numbers(RANK, SIZE, 2, 2).transpose(1, 2))
    assert torch.equal(part.t(), total(lambda r: numbers(r, SIZE, 2, 2).transpose(1, 2)[RANK]))


def test_conjugates_and_negatives():
    x = torch.complex(numbers(RANK, 3), numbers(RANK, 3))
    out = [torch.zeros(3, dtype=torch.complex64) for _ in range(SIZE)]
    dist.all_gather_object(objects := [None] * SIZE, 1)
    assert objects == [1] * SIZE
    dist.distributed_c10d._get_default_group().allgather([out], [x.conj()]).wait()
    for rank in range(SIZE):
        assert torch.equal(out[rank], torch.complex(numbers(rank, 3), -numbers(rank, 3)))
    imaginary = x.conj().imag   # a view that says "negative"
    assert imaginary.is_neg()
    real = [torch.zeros(3) for _ in range(SIZE)]
    dist.all_gather(real, imaginary)
    assert torch.equal(real[RANK], -numbers(RANK, 3))


def test_inputs_that_share_memory_with_outputs():
    x = numbers(RANK, SIZE * 2 + 1)
    want = torch.stack([numbers(r, SIZE * 2 + 1)[1:3] for r in range(SIZE)]).view(-1)
    dist.all_gather_into_tensor(x[:-1], x[1:3])   # not this rank's place
    assert torch.equal(x[:-1], want)
    y = numbers(RANK, SIZE, 2)
    dist.all_to_all_single(y, y)
    assert torch.equal(y, torch.stack([numbers(r, SIZE, 2)[RANK] for r in range(SIZE)]))
    z = numbers(RANK, SIZE * 2)
    dist.reduce_scatter_tensor(z[:2], z)
    assert torch.equal(z[:2], total(lambda r: numbers(r, SIZE * 2))[2 * RANK:2 * RANK + 2])


@pytest.mark.parametrize("make, words", [
    (lambda: torch.ones(1).expand(3), r"shape \[3\] with strides \[0\] has elements that share memory"),
    (lambda: torch.ones(6).as_strided((3, 3), (1, 1)), r"shape \[3, 3\] with strides \[1, 1\]"),
    (lambda: torch.eye(3).to_sparse(), "layout is Sparse")])
def test_layouts_that_are_refused(make, words):
    with pytest.raises((ValueError, RuntimeError), match=words):
        dist.all_reduce(make())


def test_zero_size_and_zero_dim():
    dist.all_reduce(torch.zeros(0))
    dist.all_reduce(x := torch.tensor(1.0))
    assert x.item() == SIZE
    out = torch.zeros(SIZE)
    dist.all_gather_into_tensor(out, torch.tensor(float(RANK)))
    assert torch.equal(out, torch.arange(SIZE).float())
    dist.all_to_all_single(torch.zeros(0, 3), torch.zeros(0, 3))


def test_parameters_that_require_grad():
    x = torch.ones(3, 2, requires_grad=True)
    dist.broadcast(x.t(), src=0)
    dist.all_reduce(x)
    assert torch.equal(x.detach(), torch.full((3, 2), float(SIZE))) and x.requires_grad


# Errors


@several
def test_ranks_that_call_different_things():
    with pytest.raises(RuntimeError, match="the ranks called different things"):
        dist.all_reduce(torch.ones(3 + RANK % 2))
    with pytest.raises(RuntimeError, match="the ranks called different things"):
        dist.all_reduce(torch.ones(3, dtype=torch.float32 if RANK % 2 else torch.int32))
    work = dist.all_reduce(torch.ones(3 + RANK % 2), async_op=True)
    with pytest.raises(RuntimeError, match="all_reduce: the ranks called different things"):
        work.wait()
    future = dist.all_reduce(torch.ones(3 + RANK % 2), async_op=True).get_future()
    with pytest.raises(RuntimeError, match="the ranks called different things"):
        future.wait()
    x = torch.ones(3)
    dist.all_reduce(x)   # the group goes on
    assert x[0].item() == SIZE


@pytest.mark.parametrize("call, kind, words", [
    (lambda: dist.all_reduce(torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG), TypeError, "no AVG of Bool"),
    (lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND), TypeError, "all_reduce: there is no BAND of Float"),
    (lambda: dist.all_gather([torch.ones(2)] * (SIZE + 1), torch.ones(2)), ValueError, "a list of .* tensors was given"),
    (lambda: dist.all_gather_into_tensor(torch.ones(2 * SIZE + 1), torch.ones(2)), ValueError, "the output has"),
    (lambda: dist.reduce_scatter_tensor(torch.ones(2), torch.ones(2 * SIZE + 1)), ValueError, "the input has"),
    (lambda: dist.all_to_all_single(torch.ones(2), torch.ones(2), [1] * (SIZE + 1), [2]), ValueError, "split sizes"),
    (lambda: dist.all_to_all_single(torch.ones(2), torch.ones(SIZE), [3] * SIZE, [1] * SIZE), ValueError, "add up to"),
    (lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), dist._make_nccl_premul_sum(0.5)), ValueError, "no Int"),
    (lambda: dist.all_gather(list(torch.ones(2).expand(SIZE, 2)) if SIZE > 1 else [torch.ones(1).expand(2)], torch.ones(2)),
     ValueError, "share memory")])
def test_wrong_arguments(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


@several
def test_abort_ends_calls_of_every_rank():
    group = dist.new_group(list(range(SIZE)))
    backend = group._get_backend(torch.device("cpu"))
    assert backend.get_error() == torch._C._distributed_c10d.ErrorType.SUCCESS
    if RANK == 0:
        time.sleep(0.1)
        backend.abort()
    with pytest.raises(RuntimeError, match="communicator aborted"):
        dist.all_reduce(torch.ones(4), group=group)
        dist.all_reduce(torch.ones(4), group=group)
    assert backend.get_error() != torch._C._distributed_c10d.ErrorType.SUCCESS
    dist.destroy_process_group(group)


# Messages and barriers


@several
def test_unbatched_messages_in_both_directions():
    x = torch.zeros(50000)
    works = [dist.isend(torch.full((50000,), float(RANK)), (RANK + 1) % SIZE), dist.irecv(x, (RANK - 1) % SIZE)]
    for work in works:
        work.wait()
    assert torch.equal(x, torch.full((50000,), float((RANK - 1) % SIZE)))


@several
def test_batches_of_several_messages():
    sizes, left, right = [1, 7, 5000], (RANK - 1) % SIZE, (RANK + 1) % SIZE
    received = [torch.zeros(2 * n)[::2] for n in sizes]
    ops = [dist.P2POp(dist.irecv, x, left) for x in received]
    ops += [dist.P2POp(dist.isend, torch.full((n,), float(RANK)), right) for n in sizes]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    for x in received:
        assert torch.equal(x, torch.full_like(x, float(left)))


def test_coalesced_calls():
    tensors = [numbers(RANK, n) for n in (1, 2000, 3)]
    with dist._coalescing_manager() as manager:
        for x in tensors:
            dist.all_reduce(x)
    for x, n in zip(tensors, (1, 2000, 3)):
        assert torch.equal(x, total(lambda r: numbers(r, n)))
    out, x = [torch.zeros(2) for _ in range(SIZE)], numbers(RANK, 4)
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.all_gather(out, torch.full((2,), float(RANK)))
        dist.broadcast(x, src=SIZE - 1)
    manager.wait()
    assert out == [] or all(out[r][0].item() == r for r in range(SIZE))
    assert torch.equal(x, numbers(SIZE - 1, 4))


def test_objects():
    objects = [None] * SIZE
    dist.all_gather_object(objects, {"rank": RANK, "text": "x" * RANK})
    assert [o["rank"] for o in objects] == list(range(SIZE))
    values = [RANK, "of rank 0"] if RANK == 0 else [None, None]
    dist.broadcast_object_list(values, src=0)
    assert values == [0, "of rank 0"]
    mine = [None]
    dist.scatter_object_list(mine, [("for", r) for r in range(SIZE)] if RANK == 0 else None, src=0)
    assert mine == [("for", RANK)]
    gathered = [None] * SIZE if RANK == SIZE - 1 else None
    dist.gather_object(RANK, gathered, dst=SIZE - 1)
    assert gathered in (None, list(range(SIZE)))


def test_barriers():
    dist.barrier()
    work = dist.barrier(async_op=True)
    work.wait()
    dist.group.WORLD.monitored_barrier(timeout=datetime.timedelta(seconds=20))
    with pytest.raises(ValueError, match="only implemented for GLOO"):
        dist.monitored_barrier()   # torch's own word


@several
def test_monitored_barrier_names_who_is_missing():
    group = dist.new_group(list(range(SIZE)))
    if RANK == SIZE - 1:
        with pytest.raises(RuntimeError, match="aborted"):
            while True:
                time.sleep(0.05)
                group.send([torch.ones(1)], 0, 5).wait()
    else:
        words = rf"rank\(s\) {SIZE - 1}" if RANK == 0 else "aborted|has not answered"
        with pytest.raises(RuntimeError, match=words):
            group.monitored_barrier(timeout=datetime.timedelta(seconds=0.3))
    dist.destroy_process_group(group)


# What is built on it


def test_functional_collectives():
    group = dist.group.WORLD
    assert torch.equal(functional.all_reduce(numbers(RANK, 3), "sum", group).clone(), total(lambda r: numbers(r, 3)))
    gathered = functional.all_gather_tensor(numbers(RANK, 2, 2), 0, group)
    assert torch.equal(gathered.clone(), torch.cat([numbers(r, 2, 2) for r in range(SIZE)]))
    part = functional.reduce_scatter_tensor(numbers(RANK, SIZE, 2), "avg", 0, group)
    assert torch.allclose(part.clone(), (total(lambda r: numbers(r, SIZE, 2)) / SIZE)[RANK:RANK + 1])
    pair = functional.all_reduce_coalesced([numbers(RANK, 1), numbers(RANK, 2)], "sum", group)
    assert torch.equal(pair[1].clone(), total(lambda r: numbers(r, 2)))
    moved = functional.all_to_all_single(numbers(RANK, SIZE), None, None, group)
    assert torch.equal(moved.clone(), torch.stack([numbers(r, SIZE)[RANK] for r in range(SIZE)]))


def test_compiled_functions():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(x):
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    assert torch.equal(step(numbers(RANK, 4)), total(lambda r: numbers(r, 4)) * 2 + 1)


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


def batch(rank):
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)


def trained_alone(steps=3):
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        (sum(torch.nn.functional.mse_loss(net(x), y) for x, y in map(batch, range(SIZE))) / SIZE).backward()
        optimizer.step()
    return net


def trained(net, steps=3):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        x, y = batch(RANK)
        torch.nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()


def test_data_parallel():
    net = DistributedDataParallel(model(), bucket_cap_mb=0.0005)
    trained(net)
    for have, want in zip(net.module.parameters(), trained_alone().parameters()):
        assert torch.allclose(have, want, atol=1e-6)


def test_fully_sharded():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    net = model()
    mesh = init_device_mesh("cpu", (SIZE,))
    for layer in net:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    trained(net)
    for have, want in zip(net.parameters(), trained_alone().parameters()):
        assert torch.allclose(have.full_tensor(), want, atol=1e-6)


def test_tensor_parallel():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cpu", (SIZE,))
    net = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x, _ = batch(0)
    assert torch.allclose(net(x), model()(x), atol=1e-6)
    whole = torch.arange(8.0 * SIZE).view(SIZE, 8)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(sharded.redistribute(placements=[Shard(1)]).redistribute(placements=[Replicate()]).to_local(), whole)
