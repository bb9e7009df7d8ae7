/* The collectives. Each checks its tensors, says which memory they are, and calls the library. */
#include <deque>

#include "call.h"

namespace hetmpi_torch {

using c10d::OpType;

static Tensors &only(const char *name, std::vector<Tensors> &lists)
{
    TORCH_CHECK_VALUE(lists.size() == 1, "hetmpi: ", name, ": ", lists.size(), " lists of tensors were given, not one");
    return lists[0];
}

static void check_length(const char *name, const Tensors &tensors, int ranks)
{
    TORCH_CHECK_VALUE(static_cast<int>(tensors.size()) == ranks, "hetmpi: ", name, ": a list of ", tensors.size(),
                      " tensors was given to a group of ", ranks, " ranks");
}

static void check_elements(const char *name, const char *what, int64_t have, int64_t want)
{
    TORCH_CHECK_VALUE(have == want, "hetmpi: ", name, ": ", what, " has ", have, " elements where ", want, " belong");
}

static size_t count_of(const at::Tensor &tensor, Wire wire)
{
    return static_cast<size_t>(tensor.numel()) * wire.per_element;
}

/* Where a rank's own block begins. */
static const void *block(const at::Tensor &flat, size_t offset_bytes)
{
    return static_cast<const char *>(flat.const_data_ptr()) + offset_bytes;
}

/* Several calls as one, `each` once for every number below n; all has been checked before. On the CPU those that torch wants
 * to be complete are begun together too, and waited for. */
template <typename Each>
static WorkPtr together(HetmpiBackend &backend, const char *name, OpType type, const at::Device &device, bool async,
                        const Tensors &results, size_t n, Each each)
{
    bool wait = !async && device.is_cpu();
    Call call(backend, name, type, device, async || wait);
    CallGroup group;

    for (size_t i = 0; i < n; i++)
        each(call, i);
    group.end();
    WorkPtr work = call.end(results);
    if (!wait || !work)
        return work;
    work->wait();
    return nullptr;
}

WorkPtr HetmpiBackend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options)
{
    const char *name = "broadcast";
    at::Tensor &tensor = only(name, tensors);
    bool root = options.rootRank == getRank();

    root ? check_tensor(name, tensor) : check_writable(name, tensor);
    Wire wire = wire_of(name, tensor.scalar_type());
    Call call(*this, name, OpType::BROADCAST, tensor.device(), options.asyncOp);
    at::Tensor memory = root ? call.read(tensor) : call.write(tensor);
    call.run(HETMPI_FORMS(bcast), const_cast<void *>(memory.const_data_ptr()), count_of(memory, wire), wire.type,
             static_cast<int>(options.rootRank));
    return call.end(tensors);
}

static void all_reduce(Call &call, const at::Tensor &tensor, const Reduction &reduction)
{
    at::Tensor memory = call.update(tensor);

    call.run(HETMPI_FORMS(allreduce), MPI_IN_PLACE, memory.mutable_data_ptr(), static_cast<size_t>(memory.numel()),
             reduction.type, reduction.op);
}

WorkPtr HetmpiBackend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options)
{
    const char *name = "all_reduce";
    at::Tensor &tensor = only(name, tensors);

    check_writable(name, tensor);
    Reduction reduction(name, tensor.scalar_type(), options.reduceOp);
    Call call(*this, name, OpType::ALLREDUCE, tensor.device(), options.asyncOp);
    all_reduce(call, tensor, reduction);
    return call.end(tensors);
}

WorkPtr HetmpiBackend::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options)
{
    const char *name = "all_reduce_coalesced";
    std::deque<Reduction> reductions;

    TORCH_CHECK_VALUE(!tensors.empty(), "hetmpi: ", name, ": no tensors");
    for (const at::Tensor &tensor : tensors) {
        check_writable(name, tensor);
        reductions.emplace_back(name, tensor.scalar_type(), options.reduceOp);
    }
    return together(*this, name, OpType::ALLREDUCE_COALESCED, tensors[0].device(), options.asyncOp, tensors, tensors.size(),
                    [&](Call &call, size_t i) {
                        all_reduce(call, tensors[i], reductions[i]);
                    });
}

WorkPtr HetmpiBackend::reduce(Tensors &tensors, const c10d::ReduceOptions &options)
{
    const char *name = "reduce";
    at::Tensor &tensor = only(name, tensors);
    bool root = options.rootRank == getRank();

    root ? check_writable(name, tensor) : check_tensor(name, tensor);
    Reduction reduction(name, tensor.scalar_type(), options.reduceOp);
    Call call(*this, name, OpType::REDUCE, tensor.device(), options.asyncOp);
    at::Tensor memory = root ? call.update(tensor) : call.read(tensor);
    const void *input = root ? MPI_IN_PLACE : memory.const_data_ptr();
    void *output = root ? memory.mutable_data_ptr() : nullptr;
    call.run(HETMPI_FORMS(reduce), input, output, static_cast<size_t>(memory.numel()), reduction.type, reduction.op,
             static_cast<int>(options.rootRank));
    return call.end(tensors);
}

WorkPtr HetmpiBackend::allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &options)
{
    const char *name = "all_gather";
    Tensors &list = only(name, outputs);
    at::Tensor &tensor = only(name, inputs);

    check_length(name, list, getSize());
    check_tensor(name, tensor);
    check_writable_list(name, list, tensor);
    check_elements(name, "this rank's tensor of the output list", list[getRank()].numel(), tensor.numel());
    Wire wire = wire_of(name, tensor.scalar_type());
    Call call(*this, name, OpType::ALLGATHER, tensor.device(), options.asyncOp);
    Pieces pieces = call.write(list, wire);
    at::Tensor input = call.read(tensor);
    if (input.const_data_ptr() != block(pieces.flat, pieces.displacements[getRank()] / wire.per_element *
                                                         tensor.element_size()))
        input = call.apart(input, pieces.flat);
    call.run(HETMPI_FORMS(allgatherv), input.const_data_ptr(), count_of(input, wire), wire.type,
             pieces.flat.mutable_data_ptr(), pieces.counts.data(), pieces.displacements.data(), wire.type);
    return call.end(list);
}

/* One allgather into a tensor that has room for everybody's input, checked before. */
static void gather_all(Call &call, int rank, const at::Tensor &output, const at::Tensor &tensor, Wire wire)
{
    at::Tensor memory = call.write(output), input = call.read(tensor);

    if (input.const_data_ptr() != block(memory, rank * input.nbytes()))
        input = call.apart(input, memory);
    call.run(HETMPI_FORMS(allgather), input.const_data_ptr(), count_of(input, wire), wire.type, memory.mutable_data_ptr(),
             count_of(input, wire), wire.type);
}

static void check_gather_all(const char *name, int ranks, const at::Tensor &output, const at::Tensor &input)
{
    check_list(name, {output}, input);
    check_tensor(name, input);
    check_writable(name, output);
    check_elements(name, "the output", output.numel(), input.numel() * ranks);
}

WorkPtr HetmpiBackend::_allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options)
{
    const char *name = "all_gather_into_tensor";

    check_gather_all(name, getSize(), output, input);
    Wire wire = wire_of(name, input.scalar_type());
    Call call(*this, name, OpType::_ALLGATHER_BASE, input.device(), options.asyncOp);
    gather_all(call, getRank(), output, input, wire);
    return call.end({output});
}

WorkPtr HetmpiBackend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                       const c10d::AllgatherOptions &options)
{
    const char *name = "all_gather_into_tensor_coalesced";
    std::vector<Wire> wires;

    TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(), "hetmpi: ", name, ": ", inputs.size(),
                      " inputs and ", outputs.size(), " outputs");
    for (size_t i = 0; i < inputs.size(); i++) {
        check_gather_all(name, getSize(), outputs[i], inputs[i]);
        wires.push_back(wire_of(name, inputs[i].scalar_type()));
    }
    return together(*this, name, OpType::COALESCED, inputs[0].device(), options.asyncOp, outputs, inputs.size(),
                    [&](Call &call, size_t i) {
                        gather_all(call, getRank(), outputs[i], inputs[i], wires[i]);
                    });
}

WorkPtr HetmpiBackend::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                           const c10d::AllgatherOptions &options)
{
    const char *name = "all_gather_coalesced";
    Tensors results;

    /* One list for each rank, with a tensor for each input. */
    TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == getSize() && !inputs.empty(), "hetmpi: ", name, ": ", outputs.size(),
                      " lists for ", getSize(), " ranks, ", inputs.size(), " inputs");
    for (const Tensors &list : outputs) {
        TORCH_CHECK_VALUE(list.size() == inputs.size(), "hetmpi: ", name, ": ", inputs.size(), " inputs, and a list of ",
                          list.size(), " results");
        for (size_t i = 0; i < list.size(); i++) {
            check_tensor(name, inputs[i]);
            check_writable_list(name, {list[i]}, inputs[i]);
            wire_of(name, inputs[i].scalar_type());
        }
        results.insert(results.end(), list.begin(), list.end());
    }
    return together(
        *this, name, OpType::ALLGATHER_COALESCED, inputs[0].device(), options.asyncOp, results, inputs.size(),
        [&](Call &call, size_t i) {
            Tensors of_input;
            for (const Tensors &list : outputs)
                of_input.push_back(list[i]);
            Wire wire = wire_of(name, inputs[i].scalar_type());
            Pieces pieces = call.write(of_input, wire);
            at::Tensor input = call.apart(call.read(inputs[i]), pieces.flat);
            call.run(HETMPI_FORMS(allgatherv), input.const_data_ptr(), count_of(input, wire), wire.type,
                     pieces.flat.mutable_data_ptr(), pieces.counts.data(), pieces.displacements.data(), wire.type);
        });
}

WorkPtr HetmpiBackend::gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &options)
{
    const char *name = "gather";
    at::Tensor &tensor = only(name, inputs);
    bool root = options.rootRank == getRank();
    Pieces pieces;

    check_tensor(name, tensor);
    if (root) {
        check_length(name, only(name, outputs), getSize());
        check_writable_list(name, outputs[0], tensor);
        check_elements(name, "this rank's tensor of the output list", outputs[0][getRank()].numel(), tensor.numel());
    }
    Wire wire = wire_of(name, tensor.scalar_type());
    Call call(*this, name, OpType::GATHER, tensor.device(), options.asyncOp);
    at::Tensor input = call.read(tensor);
    if (root) {
        pieces = call.write(outputs[0], wire);
        input = call.apart(input, pieces.flat);
    }
    call.run(HETMPI_FORMS(gatherv), input.const_data_ptr(), count_of(input, wire), wire.type,
             root ? pieces.flat.mutable_data_ptr() : nullptr, pieces.counts.data(), pieces.displacements.data(), wire.type,
             static_cast<int>(options.rootRank));
    return call.end(root ? outputs[0] : Tensors());
}

WorkPtr HetmpiBackend::scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &options)
{
    const char *name = "scatter";
    at::Tensor &tensor = only(name, outputs);
    bool root = options.rootRank == getRank();
    Pieces pieces;

    check_writable(name, tensor);
    if (root) {
        check_length(name, only(name, inputs), getSize());
        check_list(name, inputs[0], tensor);
        check_elements(name, "this rank's tensor of the input list", inputs[0][getRank()].numel(), tensor.numel());
    }
    Wire wire = wire_of(name, tensor.scalar_type());
    Call call(*this, name, OpType::SCATTER, tensor.device(), options.asyncOp);
    at::Tensor output = call.write(tensor), input;
    if (root) {
        pieces = call.read(inputs[0], wire);
        input = call.apart(pieces.flat, output);
    }
    call.run(HETMPI_FORMS(scatterv), root ? input.const_data_ptr() : nullptr, pieces.counts.data(),
             pieces.displacements.data(), wire.type, output.mutable_data_ptr(), count_of(output, wire), wire.type,
             static_cast<int>(options.rootRank));
    return call.end(outputs);
}

WorkPtr HetmpiBackend::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                      const c10d::ReduceScatterOptions &options)
{
    const char *name = "reduce_scatter";
    at::Tensor &tensor = only(name, outputs);
    Tensors &list = only(name, inputs);

    check_writable(name, tensor);
    check_length(name, list, getSize());
    check_list(name, list, tensor);
    check_elements(name, "the output", tensor.numel(), list[getRank()].numel());
    Reduction reduction(name, tensor.scalar_type(), options.reduceOp);
    Call call(*this, name, OpType::REDUCE_SCATTER, tensor.device(), options.asyncOp);
    Pieces pieces = call.read(list, {reduction.type, 1});
    at::Tensor output = call.write(tensor), input = pieces.flat;
    if (output.const_data_ptr() != block(input, pieces.displacements[getRank()] * tensor.element_size()))
        input = call.apart(input, output);
    call.run(HETMPI_FORMS(reduce_scatter), input.const_data_ptr(), output.mutable_data_ptr(), pieces.counts.data(),
             reduction.type, reduction.op);
    return call.end(outputs);
}

/* One reduce_scatter of a tensor that has everybody's part, checked before. */
static void reduce_parts(Call &call, int rank, const at::Tensor &tensor, const at::Tensor &input_tensor,
                         const Reduction &reduction)
{
    at::Tensor output = call.write(tensor), input = call.read(input_tensor);

    if (output.const_data_ptr() != block(input, rank * output.nbytes()))
        input = call.apart(input, output);
    call.run(HETMPI_FORMS(reduce_scatter_block), input.const_data_ptr(), output.mutable_data_ptr(),
             static_cast<size_t>(output.numel()), reduction.type, reduction.op);
}

static void check_reduce_parts(const char *name, int ranks, const at::Tensor &output, const at::Tensor &input)
{
    check_list(name, {input}, output);
    check_writable(name, output);
    check_elements(name, "the input", input.numel(), output.numel() * ranks);
}

WorkPtr HetmpiBackend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                            const c10d::ReduceScatterOptions &options)
{
    const char *name = "reduce_scatter_tensor";

    check_reduce_parts(name, getSize(), output, input);
    Reduction reduction(name, output.scalar_type(), options.reduceOp);
    Call call(*this, name, OpType::_REDUCE_SCATTER_BASE, output.device(), options.asyncOp);
    reduce_parts(call, getRank(), output, input, reduction);
    return call.end({output});
}

WorkPtr HetmpiBackend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                       const c10d::ReduceScatterOptions &options)
{
    const char *name = "reduce_scatter_tensor_coalesced";
    std::deque<Reduction> reductions;

    TORCH_CHECK_VALUE(!inputs.empty() && inputs.size() == outputs.size(), "hetmpi: ", name, ": ", inputs.size(),
                      " inputs and ", outputs.size(), " outputs");
    for (size_t i = 0; i < inputs.size(); i++) {
        check_reduce_parts(name, getSize(), outputs[i], inputs[i]);
        reductions.emplace_back(name, outputs[i].scalar_type(), options.reduceOp);
    }
    return together(*this, name, OpType::COALESCED, inputs[0].device(), options.asyncOp, outputs, inputs.size(),
                    [&](Call &call, size_t i) {
                        reduce_parts(call, getRank(), outputs[i], inputs[i], reductions[i]);
                    });
}

/* How many elements of a tensor go to, or come from, each rank: rows of its first dimension; none given: even parts. */
static void parts_of(const char *name, const at::Tensor &tensor, const std::vector<int64_t> &rows, int ranks, Wire wire,
                     Pieces *pieces)
{
    int64_t all = tensor.dim() ? tensor.size(0) : 1, row = all ? tensor.numel() / all : 0, sum = 0;
    size_t at = 0;

    TORCH_CHECK_VALUE(rows.empty() || static_cast<int>(rows.size()) == ranks, "hetmpi: ", name, ": ", rows.size(),
                      " split sizes for ", ranks, " ranks");
    TORCH_CHECK_VALUE(!rows.empty() || all % ranks == 0, "hetmpi: ", name, ": the first dimension, ", all,
                      ", does not divide by ", ranks, " ranks: give split sizes");
    for (int r = 0; r < ranks; r++) {
        int64_t part = rows.empty() ? all / ranks : rows[r];
        TORCH_CHECK_VALUE(part >= 0, "hetmpi: ", name, ": a split size is ", part);
        sum += part;
        pieces->counts.push_back(static_cast<size_t>(part * row) * wire.per_element);
        pieces->displacements.push_back(at);
        at += pieces->counts.back();
    }
    TORCH_CHECK_VALUE(sum == all, "hetmpi: ", name, ": the split sizes add up to ", sum, ", and the first dimension is ", all);
}

static void exchange(Call &call, const Pieces &in, const Pieces &out, Wire wire)
{
    at::Tensor input = call.apart(in.flat, out.flat);

    call.run(HETMPI_FORMS(alltoallv), input.const_data_ptr(), in.counts.data(), in.displacements.data(), wire.type,
             out.flat.mutable_data_ptr(), out.counts.data(), out.displacements.data(), wire.type);
}

WorkPtr HetmpiBackend::alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_sizes,
                                     std::vector<int64_t> &input_sizes, const c10d::AllToAllOptions &options)
{
    const char *name = "all_to_all_single";
    Pieces in, out;

    check_list(name, {output}, input);
    check_tensor(name, input);
    check_writable(name, output);
    Wire wire = wire_of(name, input.scalar_type());
    parts_of(name, input, input_sizes, getSize(), wire, &in);
    parts_of(name, output, output_sizes, getSize(), wire, &out);
    Call call(*this, name, OpType::ALLTOALL_BASE, input.device(), options.asyncOp);
    out.flat = call.write(output);
    in.flat = call.read(input);
    exchange(call, in, out, wire);
    return call.end({output});
}

WorkPtr HetmpiBackend::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options)
{
    const char *name = "all_to_all";

    check_length(name, outputs, getSize());
    check_length(name, inputs, getSize());
    check_list(name, inputs, inputs[0]);
    check_writable_list(name, outputs, inputs[0]);
    Wire wire = wire_of(name, inputs[0].scalar_type());
    Call call(*this, name, OpType::ALLTOALL, inputs[0].device(), options.asyncOp);
    Pieces out = call.write(outputs, wire), in = call.read(inputs, wire);
    exchange(call, in, out, wire);
    return call.end(outputs);
}

}  // namespace hetmpi_torch
