"""A small GPT of megatron-core over bytes of English, whose weights and batches do not depend on how it is cut: the same
losses, up to rounding, on one rank and on many."""
import pydoc_data.topics
import zlib

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build

BYTES = 256
LENGTH = 32          # of a sequence
GLOBAL_BATCH = 8     # sequences of a step, on all ranks together


class Norm(torch.nn.LayerNorm):
    """Megatron's own fall-back refuses sequence parallelism; there the gradients of its weights are summed over the group."""

    def __init__(self, config, hidden_size, eps=1e-5):
        super().__init__(hidden_size, eps=eps)
        for parameter in self.parameters():
            parameter.sequence_parallel = config.sequence_parallel


def text():
    topics = pydoc_data.topics.topics
    return torch.frombuffer(bytearray("\n".join(topics[name] for name in sorted(topics)).encode()), dtype=torch.uint8)


def share(shares):
    """The first sequence of a step that is this rank's, and how many are. shares: of the data parallel ranks; None: equal."""
    ranks, rank = parallel_state.get_data_parallel_world_size(), parallel_state.get_data_parallel_rank()
    shares = shares or [GLOBAL_BATCH // ranks] * ranks
    if len(shares) != ranks or sum(shares) != GLOBAL_BATCH:
        raise SystemExit(f"shares {shares}: {ranks} numbers are wanted, {GLOBAL_BATCH} together")
    return sum(shares[:rank]), shares[rank]


def batches(arguments, step=0):
    """This rank's micro-batches, for ever. Sequence i of a step is the same text however the ranks share the step."""
    device = torch.cuda.current_device()
    data = text().long()
    first, own = share(arguments.shares)
    while True:
        for at in range(first, first + own, arguments.micro_batch):
            begin = [(step * GLOBAL_BATCH + i) * 997 % (len(data) - LENGTH - 1) for i in range(at, at + arguments.micro_batch)]
            yield torch.stack([data[b:b + LENGTH + 1] for b in begin]).to(device)
        step += 1


def config(arguments):
    options = {}
    if arguments.experts:
        # What Megatron-core 0.16 uses of Transformer Engine here, and does not define without it.
        if not hasattr(moe_utils, "te_general_gemm"):
            moe_utils.te_general_gemm = None
        options.update(num_moe_experts=arguments.experts, moe_router_topk=2, moe_router_load_balancing_type="none",
                       moe_token_dispatcher_type="alltoall", add_bias_linear=False)
    if arguments.vpp:
        # With two stages the next rank is the previous one too: a batch of messages would take one for the other.
        options.update(overlap_p2p_comm=True, batch_p2p_comm=False)
    if arguments.layout:
        options["pipeline_model_parallel_layout"] = arguments.layout
    return TransformerConfig(
        num_layers=arguments.layers, hidden_size=64, num_attention_heads=4, ffn_hidden_size=256, use_cpu_initialization=True,
        hidden_dropout=0.0, attention_dropout=0.0, persist_layer_norm=False, gradient_accumulation_fusion=False,
        tensor_model_parallel_size=arguments.tp, sequence_parallel=arguments.sp,
        pipeline_model_parallel_size=arguments.pp, pipeline_dtype=torch.float32,
        virtual_pipeline_model_parallel_size=arguments.vpp, expert_model_parallel_size=arguments.ep,
        expert_tensor_parallel_size=arguments.tp, **options)


def spec(settings, experts, virtual):
    """Megatron's layers without Transformer Engine, with the norm above."""
    layer = get_gpt_layer_local_spec(num_experts=experts or None)
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = Norm
    return TransformerBlockSubmodules(layer_specs=[layer] * get_num_layers_to_build(settings, **virtual), layer_norm=Norm)


def full_name(name, layer_from, expert_from):
    """The parameter's name in a model on one rank."""
    words = name.split(".")
    for before, base in (("layers", layer_from), ("local_experts", expert_from)):
        if before in words:
            at = words.index(before) + 1
            words[at] = str(int(words[at]) + base)
    return ".".join(words)


@torch.no_grad()
def set_weights(module, layer_from, experts):
    """Weights by name: a rank's part of a tensor is that part of the tensor that one rank would have."""
    expert_from = parallel_state.get_expert_model_parallel_rank() * experts // parallel_state.get_expert_model_parallel_world_size()
    for name, parameter in module.named_parameters():
        if parameter.dim() < 2:
            continue                                   # norms are ones, biases are zeros
        expert = "local_experts" in name
        ranks = parallel_state.get_expert_tensor_parallel_world_size() if expert else parallel_state.get_tensor_model_parallel_world_size()
        rank = parallel_state.get_expert_tensor_parallel_rank() if expert else parallel_state.get_tensor_model_parallel_rank()
        shape, dim = list(parameter.shape), getattr(parameter, "partition_dim", -1)
        cut = getattr(parameter, "tensor_model_parallel", False) and dim >= 0
        if cut:
            shape[dim] *= ranks
        whole_name = "output_layer.weight" if "word_embeddings" in name else full_name(name, layer_from, expert_from)
        generator = torch.Generator().manual_seed(zlib.crc32(whole_name.encode()))
        whole = torch.randn(shape, generator=generator) * 0.02
        parameter.copy_(whole.chunk(ranks, dim)[rank] if cut else whole)


def build(arguments):
    """The chunks of the model that this rank has, each under Megatron's data parallel wrapper."""
    model_parallel_cuda_manual_seed(1234)
    settings = config(arguments)
    chunks = []
    for stage in range(arguments.vpp or 1):
        virtual = {"vp_stage": stage} if arguments.vpp else {}
        chunk = GPTModel(settings, spec(settings, arguments.experts, virtual), BYTES, LENGTH, position_embedding_type="learned_absolute",
                         pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=not arguments.vpp, **virtual),
                         post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=not arguments.vpp, **virtual),
                         share_embeddings_and_output_weights=True, **virtual)
        layers = chunk.decoder.layers
        set_weights(chunk, layers[0].layer_number - 1 if len(layers) else 0, arguments.experts)
        chunks.append(chunk)
    ddp = DistributedDataParallelConfig(use_distributed_optimizer=arguments.distributed_optimizer,
                                        overlap_grad_reduce=arguments.overlap,
                                        overlap_param_gather=arguments.overlap and arguments.distributed_optimizer,
                                        bucket_size=20000)
    model = [DistributedDataParallel(settings, ddp, chunk, disable_bucketing=i > 0) for i, chunk in enumerate(chunks)]
    settings.finalize_model_grads_func = finalize_model_grads
    if arguments.overlap:
        settings.no_sync_func = [chunk.no_sync for chunk in model] if len(model) > 1 else model[0].no_sync
    return model


def forward_step(weight):
    """The function that Megatron calls with a micro-batch. weight: of this rank's mean loss in the mean over the ranks."""
    def forward(iterator, model):
        tokens = next(iterator)
        positions = torch.arange(LENGTH, device=tokens.device).expand(len(tokens), LENGTH)
        mask = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool, device=tokens.device).triu(1)     # true: not seen
        losses = model(tokens[:, :-1].contiguous(), positions, mask, labels=tokens[:, 1:].contiguous())
        return losses, mean

    def mean(losses):
        loss = losses.float().mean() * weight
        return loss, {"loss": loss.detach().clone()}   # Megatron scales the other in place

    return forward
