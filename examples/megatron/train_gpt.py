"""Trains the small GPT of gpt.py with megatron-core on any backend of torch.distributed, cut in any of Megatron's ways:

    mpirun -n 4 python train_gpt.py --backend hetmpi --tp 2 --sp --distributed-optimizer

Prints the loss of every step. CPU tensors, unless --cuda."""
import argparse
import os
import time

import torch
import torch.distributed as dist


def options(words=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="hetmpi")
    parser.add_argument("--cuda", action="store_true", help="on this rank's GPU (torch.cuda, of either vendor)")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--layout", help="layers of the pipeline's stages, as Megatron writes them: Et*3|t*5L")
    parser.add_argument("--micro-batch", type=int, default=2)
    parser.add_argument("--shares", type=lambda text: [int(n) for n in text.split(",")],
                        help="sequences of a step for each data parallel rank: 6,2")
    parser.add_argument("--tp", type=int, default=1, help="ranks that share each tensor")
    parser.add_argument("--sp", action="store_true", help="... and the sequence between")
    parser.add_argument("--pp", type=int, default=1, help="stages of the pipeline")
    parser.add_argument("--vpp", type=int, help="parts of the model that each stage has")
    parser.add_argument("--ep", type=int, default=1, help="ranks that share the experts")
    parser.add_argument("--experts", type=int, default=0)
    parser.add_argument("--distributed-optimizer", action="store_true")
    parser.add_argument("--overlap", action="store_true", help="gradients travel while the rest is computed")
    parser.add_argument("--save", help="folder for a checkpoint at the end")
    parser.add_argument("--load", help="folder of a checkpoint to go on from")
    return parser.parse_args(words)


def start(backend, cuda=False):
    """Sets the device and the backend up. Rank, size and the store's address come from MPI, for every backend."""
    if cuda:
        torch.cuda.set_device(int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", 0)) % torch.cuda.device_count())
    else:
        import cpu_device
        cpu_device.use_cpu()
    dist.init_process_group(backend, init_method="hetmpi://")


def state(model, optimizer, loading=False):
    """What a checkpoint holds, as Megatron's distributed checkpoints want it: whole tensors, whoever has which part."""
    parts = {f"model{i}": chunk.module.sharded_state_dict() for i, chunk in enumerate(model)}
    return parts | {"optimizer": optimizer.sharded_state_dict(parts if len(model) > 1 else parts["model0"], is_loading=loading)}


def load(folder, model, optimizer):
    """Returns the step to go on from."""
    from megatron.core import dist_checkpointing
    loaded = dist_checkpointing.load(state(model, optimizer, loading=True) | {"step": 0}, folder)
    for i, chunk in enumerate(model):
        chunk.module.load_state_dict(loaded[f"model{i}"])
    optimizer.load_state_dict(loaded["optimizer"])
    return loaded["step"]


def save(folder, model, optimizer, step):
    from megatron.core import dist_checkpointing
    os.makedirs(folder, exist_ok=True)
    dist.barrier()
    dist_checkpointing.save(state(model, optimizer) | {"step": step}, folder)


def train(arguments, speak=print):
    """Cuts the model over the ranks as the arguments say, and trains it. Returns the losses of all steps on the rank that has
    them first, None on others."""
    import gpt                                # Megatron, after the patches of torch.cuda
    from megatron.core import parallel_state
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.pipeline_parallel import get_forward_backward_func
    parallel_state.initialize_model_parallel(
        arguments.tp, arguments.pp, arguments.vpp, expert_model_parallel_size=arguments.ep,
        expert_tensor_parallel_size=arguments.tp, create_gloo_process_groups=False)
    model = gpt.build(arguments)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=2e-3, weight_decay=0.01, clip_grad=1.0,
                        use_distributed_optimizer=arguments.distributed_optimizer),
        model, use_gloo_process_groups=False)
    first = load(arguments.load, model, optimizer) if arguments.load else 0

    iterators = [gpt.batches(arguments, first) for _ in model]
    _, own = gpt.share(arguments.shares)
    run = get_forward_backward_func()
    ranks = parallel_state.get_data_parallel_world_size()
    last = parallel_state.is_pipeline_last_stage(ignore_virtual=True)
    speaks = last and parallel_state.get_data_parallel_rank() == 0 and parallel_state.get_tensor_model_parallel_rank() == 0
    losses, began = [], time.perf_counter()
    for step in range(first, first + arguments.steps):
        for chunk in model:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        results = run(forward_step_func=gpt.forward_step(own * ranks / gpt.GLOBAL_BATCH),
                      data_iterator=iterators if arguments.vpp else iterators[0],
                      model=model if arguments.vpp else model[0], seq_length=gpt.LENGTH,
                      num_microbatches=own // arguments.micro_batch, micro_batch_size=arguments.micro_batch,
                      forward_only=False)
        optimizer.step()
        if last:
            loss = torch.stack([result["loss"] for result in results]).mean()
            dist.all_reduce(loss, group=parallel_state.get_data_parallel_group())
            losses.append(loss.item() / ranks)
        if speaks:
            speak(f"step {step} loss {losses[-1]:.6f}")
    if speaks:
        speak(f"{(time.perf_counter() - began) / max(arguments.steps, 1) * 1e3:.1f} ms a step")
    if arguments.save:
        save(arguments.save, model, optimizer, first + arguments.steps)
    parallel_state.destroy_model_parallel()
    return losses if speaks else None


if __name__ == "__main__":
    arguments = options()
    start(arguments.backend, arguments.cuda)
    train(arguments, lambda text: print(text, flush=True))
    dist.destroy_process_group()
