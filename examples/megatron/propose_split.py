"""Proposes how much work devices of different speed should get, from 20 steps of a transformer layer on each rank alone:

    mpirun -n 2 python propose_split.py --layers 32 --hidden 4096 --length 4096 --cuda

prints the layers of each pipeline stage, as Megatron's --pipeline-model-parallel-layout wants them, and, for data parallel groups,
the share of the batch of each rank. Rank r is stage r of --pp stages (default: one a rank); the ranks of a stage work together, so
the slowest of them counts."""
import argparse
import time

import torch
import torch.distributed as dist

import train_gpt


def shares(times, total):
    """How many of `total` equal pieces each gets, at least one, so that the last to finish is as early as can be. times: that one
    piece takes on each."""
    if total < len(times):
        raise ValueError(f"{total} pieces for {len(times)}: fewer than one each")
    counts = [1] * len(times)
    for _ in range(total - len(times)):
        ends = [(counts[i] + 1) * times[i] for i in range(len(times))]
        counts[ends.index(min(ends))] += 1
    return counts


def layout(counts):
    """In Megatron's words: E the embedding, t a layer, L the loss, | between stages."""
    return "E" + "|".join(f"t*{n}" for n in counts) + "L"


def measure(arguments, device):
    """Seconds of one layer, forward and backward; the median of the steps."""
    layer = torch.nn.TransformerEncoderLayer(arguments.hidden, arguments.heads, 4 * arguments.hidden, dropout=0.0, batch_first=True,
                                             norm_first=True, device=device)
    x = torch.randn(arguments.micro_batch, arguments.length, arguments.hidden, device=device, requires_grad=True)
    took = []
    for _ in range(arguments.steps + 3):
        began = time.perf_counter()
        layer(x).sum().backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return sorted(took[3:])[arguments.steps // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="hetmpi")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--pp", type=int, help="stages; neighbouring ranks are of one stage")
    parser.add_argument("--batch", type=int, help="sequences of a step; default: 8 a rank")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--micro-batch", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    train_gpt.start(arguments.backend, arguments.cuda)
    ranks = dist.get_world_size()
    device = torch.device("cuda", torch.cuda.current_device()) if arguments.cuda else torch.device("cpu")
    mine = torch.tensor([measure(arguments, device)], dtype=torch.float64, device=device)
    all_times = torch.empty(ranks, dtype=torch.float64, device=device)
    dist.all_gather_into_tensor(all_times, mine)
    if dist.get_rank() == 0:
        times, stages = all_times.tolist(), arguments.pp or ranks
        per_stage = [max(times[i * ranks // stages:(i + 1) * ranks // stages]) for i in range(stages)]
        counts, batch = shares(per_stage, arguments.layers), shares(times, arguments.batch or 8 * ranks)
        print("a layer takes", ", ".join(f"{1e3 * t:.3f}" for t in times), "ms on the ranks")
        print(f"layers of the {stages} stages: {layout(counts)}")
        print(f"a step's busiest stage: {max(n * t for n, t in zip(counts, per_stage)) * 1e3:.3f} ms of layers; cut evenly "
              f"{max(-(-arguments.layers // stages) * t for t in per_stage) * 1e3:.3f} ms")
        print(f"sequences of the data parallel ranks: {','.join(map(str, batch))}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
