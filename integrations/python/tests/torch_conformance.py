"""Every collective of torch.distributed with every dtype and operation, on hetmpi: the results must be those of the oracle,
and gloo's where gloo has the call. Prints what works as the tables of docs/pytorch.md.

    mpirun -np 4 python torch_conformance.py [--markdown]
"""
import collections
import datetime
import re
import sys

import torch
import torch.distributed as dist

N = 6   # elements of a block

ALL_DTYPES = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)
LEFT_OUT = {r"bits\w+|u?int[1-7]": "names of storage, on which torch has no operation, not even a copy",
            r"qu?int\w+": "quantised: hetmpi refuses it, and says to send the integers and the scales"}
DTYPES = [dtype for dtype in ALL_DTYPES
          if not any(re.fullmatch(pattern, str(dtype).removeprefix("torch.")) for pattern in LEFT_OUT)]
OPS = {name: getattr(dist.ReduceOp, name) for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")}
OPS["PREMUL_SUM"] = None   # made for each call


def reduce_op(name):
    return dist._make_nccl_premul_sum(2.0) if name == "PREMUL_SUM" else OPS[name]


def values(rank, n, op="SUM"):
    """Small whole numbers, as many as every format has exactly, sums and products of four included."""
    low, span = (1, 2) if op == "PRODUCT" else (0, 3)
    return [low + (3 * rank + 7 * i + rank * i) % span for i in range(n)]


def as_tensor(numbers, dtype):
    """Numbers in any dtype; what torch has no arithmetic for gets them as bytes."""
    try:
        whole = not (dtype.is_floating_point or dtype.is_complex)
        return torch.tensor(numbers, dtype=torch.int64 if whole else torch.float32).to(dtype)
    except (RuntimeError, TypeError, NotImplementedError):
        raw = torch.empty(len(numbers), dtype=dtype)
        raw.view(torch.uint8).copy_(torch.tensor(numbers).repeat_interleave(raw.element_size()).to(torch.uint8))
        return raw


def combine(op, size, n, dtype, offset=0):
    """The oracle of a reduction: numbers of all ranks, elements offset to offset + n."""
    columns = list(zip(*[values(rank, offset + n, op)[offset:] for rank in range(size)]))
    if dtype == torch.bool:
        logical = {"SUM": any, "MAX": any, "BOR": any, "PRODUCT": all, "MIN": all, "BAND": all,
                   "BXOR": lambda column: sum(map(bool, column)) % 2}[op]
        return [int(logical(column)) for column in columns]
    whole = not (dtype.is_floating_point or dtype.is_complex)
    result = []
    for column in columns:
        total = column[0]
        for number in column[1:]:
            total = {"PRODUCT": total * number, "MIN": min(total, number), "MAX": max(total, number),
                     "BAND": total & number, "BOR": total | number, "BXOR": total ^ number}.get(op, total + number)
        if op == "AVG":
            total = total // size if whole else total / size
        result.append(2 * total if op == "PREMUL_SUM" else total)
    return result


def equal(have, want):
    if isinstance(have, (list, tuple)):
        return len(have) == len(want) and all(map(equal, have, want))
    have, want = have.contiguous(), want.contiguous()
    return have.dtype == want.dtype and torch.equal(have.reshape(-1).view(torch.uint8), want.reshape(-1).view(torch.uint8))


# Calls that move data: (group, dtype) -> (result, expectation). `of` gives a rank's tensor.

def mine(group):
    return dist.get_rank(group), dist.get_world_size(group)


def of(dtype, rank, n=N):
    return as_tensor(values(rank, n), dtype)


def empty(dtype, n=N):
    return of(dtype, 5, n)   # something else, to be overwritten


def call_broadcast(group, dtype):
    rank, size = mine(group)
    x = of(dtype, rank)
    dist.broadcast(x, src=size - 1, group=group)
    return x, of(dtype, size - 1)


def call_all_gather(group, dtype):
    rank, size = mine(group)
    out = [empty(dtype) for _ in range(size)]
    dist.all_gather(out, of(dtype, rank), group=group)
    return out, [of(dtype, r) for r in range(size)]


def call_all_gather_uneven(group, dtype):
    rank, size = mine(group)
    out = [empty(dtype, r + 1) for r in range(size)]
    dist.all_gather(out, of(dtype, rank, rank + 1), group=group)
    return out, [of(dtype, r, r + 1) for r in range(size)]


def call_all_gather_into_tensor(group, dtype):
    rank, size = mine(group)
    out = empty(dtype, N * size)
    dist.all_gather_into_tensor(out, of(dtype, rank), group=group)
    return out.view(torch.uint8).view(size, -1), torch.stack([of(dtype, r).view(torch.uint8) for r in range(size)])


def call_all_gather_into_tensor_in_place(group, dtype):
    rank, size = mine(group)
    out = empty(dtype, N * size)
    part = out[rank * N:(rank + 1) * N]
    part.view(torch.uint8).copy_(of(dtype, rank).view(torch.uint8))
    dist.all_gather_into_tensor(out, part, group=group)
    return out.view(torch.uint8).view(size, -1), torch.stack([of(dtype, r).view(torch.uint8) for r in range(size)])


def call_all_gather_into_tensor_coalesced(group, dtype):
    rank, size = mine(group)
    outs = [empty(dtype, N * size), empty(dtype, 2 * size)]
    group.allgather_into_tensor_coalesced(outs, [of(dtype, rank), of(dtype, rank, 2)]).wait()
    return [out.view(torch.uint8).view(size, -1) for out in outs], [
        torch.stack([of(dtype, r, n).view(torch.uint8) for r in range(size)]) for n in (N, 2)]


def call_gather(group, dtype):
    rank, size = mine(group)
    out = [empty(dtype) for _ in range(size)] if rank == 1 % size else None
    dist.gather(of(dtype, rank), out, dst=1 % size, group=group)
    return out or [], [of(dtype, r) for r in range(size)] if out else []


def call_scatter(group, dtype):
    rank, size = mine(group)
    x = empty(dtype)
    dist.scatter(x, [of(dtype, r) for r in range(size)] if rank == 0 else None, src=0, group=group)
    return x, of(dtype, rank)


def call_all_to_all(group, dtype):
    rank, size = mine(group)
    out = [empty(dtype, r + 1) for r in range(size)]
    dist.all_to_all(out, [of(dtype, rank, rank + 1) for _ in range(size)], group=group)
    return out, [of(dtype, r, r + 1) for r in range(size)]


def call_all_to_all_single(group, dtype):
    rank, size = mine(group)
    out = empty(dtype, 2 * size)
    dist.all_to_all_single(out, of(dtype, rank, 2 * size), group=group)
    return out.view(torch.uint8).view(size, -1), torch.stack(
        [of(dtype, r, 2 * size).view(torch.uint8).view(size, -1)[rank] for r in range(size)])


def call_all_to_all_single_uneven(group, dtype):
    """Rank r sends r + d + 1 elements to rank d."""
    rank, size = mine(group)
    send, receive = [rank + d + 1 for d in range(size)], [r + rank + 1 for r in range(size)]
    out = empty(dtype, sum(receive))
    dist.all_to_all_single(out, of(dtype, rank, sum(send)), receive, send, group=group)
    want = []
    for r in range(size):
        sizes = [r + d + 1 for d in range(size)]
        want.append(of(dtype, r, sum(sizes))[sum(sizes[:rank]):sum(sizes[:rank + 1])].view(torch.uint8))
    return out.view(torch.uint8), torch.cat(want)


def call_send_recv(group, dtype):
    rank, size = mine(group)
    x = empty(dtype)
    if size == 1:
        return x, x
    if rank % 2 == 0 and rank + 1 < size:
        dist.send(of(dtype, rank), rank + 1, group=group, tag=3)
        return x, x
    if rank % 2:
        dist.recv(x, rank - 1, group=group, tag=3)
        return x, of(dtype, rank - 1)
    return x, x


def call_recv_any_source(group, dtype):
    rank, size = mine(group)
    if rank:
        dist.send(of(dtype, rank), 0, group=group)
        dist.barrier(group=group)   # what a rank sends for the next dtype must not be received for this one
        return [], []
    got, sources = [], []
    for _ in range(size - 1):
        got.append(empty(dtype))
        sources.append(dist.recv(got[-1], None, group=group))
    dist.barrier(group=group)
    assert sorted(sources) == list(range(1, size)), sources
    return got, [of(dtype, source) for source in sources]


def call_batch_isend_irecv(group, dtype):
    rank, size = mine(group)
    x = empty(dtype)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, of(dtype, rank), (rank + 1) % size, group),
                                    dist.P2POp(dist.irecv, x, (rank - 1) % size, group)])
    for work in works:
        work.wait()
    return x, of(dtype, (rank - 1) % size)


# Calls that reduce: (group, dtype, op) -> (result, expectation).

def of_op(dtype, rank, op, n=N):
    return as_tensor(values(rank, n, op), dtype)


def call_all_reduce(group, dtype, op):
    rank, size = mine(group)
    x = of_op(dtype, rank, op)
    dist.all_reduce(x, reduce_op(op), group=group)
    return x, as_tensor(combine(op, size, N, dtype), dtype)


def call_all_reduce_coalesced(group, dtype, op):
    rank, size = mine(group)
    x = [of_op(dtype, rank, op), of_op(dtype, rank, op, 2)]
    options = dist.AllreduceCoalescedOptions()
    options.reduceOp = reduce_op(op)
    group.allreduce_coalesced(x, options).wait()
    return x, [as_tensor(combine(op, size, n, dtype), dtype) for n in (N, 2)]


def call_reduce(group, dtype, op):
    rank, size = mine(group)
    x = of_op(dtype, rank, op)
    dist.reduce(x, size - 1, reduce_op(op), group=group)
    return (x, as_tensor(combine(op, size, N, dtype), dtype)) if rank == size - 1 else ([], [])


def call_reduce_scatter(group, dtype, op):
    rank, size = mine(group)
    flat, out = of_op(dtype, rank, op, N * size), empty(dtype)
    dist.reduce_scatter(out, [flat[r * N:(r + 1) * N].clone() for r in range(size)], reduce_op(op), group=group)
    return out, as_tensor(combine(op, size, N, dtype, rank * N), dtype)


def call_reduce_scatter_uneven(group, dtype, op):
    rank, size = mine(group)
    lengths = [r + 1 for r in range(size)]
    begins = [sum(lengths[:r]) for r in range(size)]
    flat, out = of_op(dtype, rank, op, sum(lengths)), empty(dtype, rank + 1)
    dist.reduce_scatter(out, [flat[b:b + n].clone() for b, n in zip(begins, lengths)], reduce_op(op), group=group)
    return out, as_tensor(combine(op, size, rank + 1, dtype, begins[rank]), dtype)


def call_reduce_scatter_tensor(group, dtype, op):
    rank, size = mine(group)
    out = empty(dtype)
    dist.reduce_scatter_tensor(out, of_op(dtype, rank, op, N * size), reduce_op(op), group=group)
    return out, as_tensor(combine(op, size, N, dtype, rank * N), dtype)


def call_reduce_scatter_tensor_in_place(group, dtype, op):
    rank, size = mine(group)
    flat = of_op(dtype, rank, op, N * size)
    kept = flat.clone()
    out = flat[rank * N:(rank + 1) * N]
    dist.reduce_scatter_tensor(out, flat, reduce_op(op), group=group)
    want = kept.clone()
    want[rank * N:(rank + 1) * N] = as_tensor(combine(op, size, N, dtype, rank * N), dtype)
    return flat, want   # the other parts stay


def call_reduce_scatter_tensor_coalesced(group, dtype, op):
    rank, size = mine(group)
    out = [empty(dtype), empty(dtype, 2)]
    options = dist.ReduceScatterOptions()
    options.reduceOp = reduce_op(op)
    group.reduce_scatter_tensor_coalesced(out, [of_op(dtype, rank, op, n * size) for n in (N, 2)], options).wait()
    return out, [as_tensor(combine(op, size, n, dtype, rank * n), dtype) for n in (N, 2)]


MOVES = [call_broadcast, call_all_gather, call_all_gather_uneven, call_all_gather_into_tensor,
         call_all_gather_into_tensor_in_place, call_all_gather_into_tensor_coalesced, call_gather, call_scatter, call_all_to_all,
         call_all_to_all_single, call_all_to_all_single_uneven, call_send_recv, call_recv_any_source, call_batch_isend_irecv]
REDUCES = [call_all_reduce, call_all_reduce_coalesced, call_reduce, call_reduce_scatter, call_reduce_scatter_uneven,
           call_reduce_scatter_tensor, call_reduce_scatter_tensor_in_place, call_reduce_scatter_tensor_coalesced]


def name_of(call):
    return call.__name__.removeprefix("call_")


def shown(tensors):
    return [shown(tensor) for tensor in tensors] if isinstance(tensors, (list, tuple)) else tensors.view(torch.uint8).tolist()


def attempt(call, group, *args):
    """("yes", ""), or (who refuses, the message)."""
    try:
        have, want = call(group, *args)
    except (RuntimeError, TypeError, ValueError, NotImplementedError, KeyError) as error:
        return ("hetmpi" if str(error).startswith("hetmpi: ") else "torch"), f"{type(error).__name__}: {error}".split("\n")[0]
    if not equal(have, want):
        return "WRONG", f"{shown(have)} instead of {shown(want)}"
    return "yes", ""


def with_gloo(groups, wrong):
    """Real numbers of float32 at random, where rounding shows: a sum of two is the same in any order."""
    size = dist.get_world_size()
    pair = groups["hetmpi pair"], groups["gloo pair"]
    if size < 2 or dist.get_rank() > 1:
        return 0
    count = 0
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8):
        for op in ("SUM", "PRODUCT", "MIN", "MAX"):
            generator = torch.Generator().manual_seed(dist.get_rank())
            x = (torch.rand(1000, generator=generator) * 10 - (0 if dtype == torch.uint8 else 5)).to(dtype)
            results = []
            for group in pair:
                y = x.clone()
                dist.all_reduce(y, OPS[op], group=group)
                results.append(y)
            count += 1
            if not equal(*results):
                wrong.append(f"all_reduce {dtype} {op}: gloo has other bits")
    return count


def main():
    dist.init_process_group("hetmpi", init_method="hetmpi://", timeout=datetime.timedelta(seconds=60))
    rank = dist.get_rank()
    groups = {"hetmpi": dist.group.WORLD}
    pair = list(range(min(2, dist.get_world_size())))
    for backend in ("hetmpi", "gloo"):
        groups[f"{backend} pair"] = dist.new_group(pair, backend=backend)
    cases = [(call, dtype) for call in MOVES for dtype in DTYPES]
    cases += [(call, dtype, op) for call in REDUCES for dtype in DTYPES for op in OPS]
    wrong, results = [], {}

    for call, *args in cases:
        verdict, detail = attempt(call, groups["hetmpi"], *args)
        results[name_of(call), *args] = verdict, detail
        if verdict == "WRONG":
            wrong.append(f"{name_of(call)} {args}: {detail}")
    tried = collections.Counter(verdict for verdict, _ in results.values())
    against_gloo = with_gloo(groups, wrong)
    dist.barrier()
    if rank == 0 and "--markdown" in sys.argv:
        print_tables({key: verdict for key, (verdict, _) in results.items()})
    if rank == 0 and "--details" in sys.argv:
        for key, (verdict, detail) in results.items():
            if verdict != "yes":
                print(*key, verdict, detail)
    print(f"rank {rank}: {tried['yes']} calls right, {tried['hetmpi']} refused by hetmpi, {tried['torch']} by torch, "
          f"{len(wrong)} wrong; {against_gloo} the same as gloo's", flush=True)
    for line in wrong[:20]:
        print("WRONG:", line, flush=True)
    dist.destroy_process_group()
    sys.exit(1 if wrong or tried["yes"] < 1300 else 0)


def merged(rows):
    """{row: columns} with equal rows as one."""
    by_columns = collections.OrderedDict()
    for row, columns in rows.items():
        by_columns.setdefault(tuple(columns), []).append(row)
    return [(rows, columns) for columns, rows in by_columns.items()]


def short(dtype):
    return f"`{str(dtype).removeprefix('torch.')}`"


def print_tables(verdicts):
    print("| calls that move data | dtypes | |\n|---|---|---|")
    for calls, columns in merged({name_of(call): [verdicts[name_of(call), dtype] for dtype in DTYPES] for call in MOVES}):
        for verdict in dict.fromkeys(columns):
            dtypes = [short(dtype) for dtype, column in zip(DTYPES, columns) if column == verdict]
            print(f"| {', '.join(f'`{call}`' for call in calls)} | {', '.join(dtypes)} | {verdict} |")
    print("\n| calls that reduce | dtypes | " + " | ".join(OPS) + " |\n|---|---|" + "---|" * len(OPS))
    for calls, rows in merged({name_of(call): [tuple(verdicts[name_of(call), dtype, op] for op in OPS) for dtype in DTYPES]
                               for call in REDUCES}):
        for dtypes, columns in merged(dict(zip(DTYPES, rows))):
            print(f"| {', '.join(f'`{call}`' for call in calls)} | {', '.join(map(short, dtypes))} | {' | '.join(columns)} |")
    print()
    for pattern, reason in LEFT_OUT.items():
        dtypes = [short(dtype) for dtype in ALL_DTYPES if re.fullmatch(pattern, str(dtype).removeprefix("torch."))]
        print(f"Left out: {', '.join(dtypes)} ({reason}).")


if __name__ == "__main__":
    main()
