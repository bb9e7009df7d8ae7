#include "call.h"

#include <cstring>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace hetmpi_torch {

/* Streams of torch mean something to a library that was built for the same kind of device only. */
static void check_device(const char *call, c10::Device device)
{
    static const bool has_device = std::strstr(hetmpi_build_info(), "backend cuda") ||
                                   std::strstr(hetmpi_build_info(), "backend hip");

    TORCH_CHECK_NOT_IMPLEMENTED(has_device, "hetmpi: ", call, ": the tensor is on ", device, ", and this libhetmpi was not "
                                "built for GPUs (", hetmpi_build_info(), ")");
}

/* A side stream begins after what the caller's stream has to do. */
static void order_after_current(c10::Stream stream)
{
    c10::impl::VirtualGuardImpl guard(stream.device_type());
    c10::Event event(stream.device_type());

    event.record(guard.getStream(stream.device()));
    event.block(stream);
}

static Launch new_launch(const std::shared_ptr<Group> &group, const char *name, c10::Device device,
                         std::optional<c10::Stream> side, bool async)
{
    if (device.is_cpu())
        return Launch(group, name, async ? Mode::REQUESTS : Mode::BLOCKING);
    if (side)
        order_after_current(*side);
    else
        side = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
    return Launch(group, name, Mode::STREAM, side);
}

Call::Call(HetmpiBackend &backend, const char *name, c10d::OpType type, c10::Device device, bool async, int peer,
           int direction)
    : backend_(backend), type_(type), async_(async || backend.batch_)
{
    std::optional<Launch> &launch = backend.batch_ ? backend.batch_->launch : own_;

    if (!device.is_cpu())
        check_device(name, device);
    if (!launch) {
        std::optional<c10::Stream> side;
        if (async_ && !device.is_cpu())
            side = backend.side_stream(device, backend.batch_ ? HetmpiBackend::COLLECTIVES : peer, direction);
        launch.emplace(new_launch(backend.group_, name, device, side, async_));
    }
    TORCH_CHECK_VALUE((launch->mode == Mode::STREAM) == !device.is_cpu(), "hetmpi: ", name,
                      ": calls on cpu and cuda tensors cannot be coalesced");
    launch_ = &*launch;
    if (launch_->mode == Mode::STREAM)
        guard_.reset_stream(*launch_->stream);
    backend.calls_++;
}

/* On a side stream the allocator must know of it; what was allocated under it needs nothing. */
void Call::hold(const at::Tensor &tensor)
{
    if (launch_->mode == Mode::REQUESTS)
        launch_->held.push_back(tensor);
    else if (launch_->mode == Mode::STREAM && async_ && tensor.has_storage())
        c10::impl::VirtualGuardImpl(launch_->stream->device_type())
            .recordDataPtrOnStream(tensor.storage().data_ptr(), *launch_->stream);
}

at::Tensor Call::read(const at::Tensor &tensor)
{
    at::Tensor memory = packed(tensor);

    hold(tensor);
    if (!memory.is_same(tensor))
        hold(memory);
    return memory;
}

at::Tensor Call::write(const at::Tensor &tensor)
{
    hold(tensor);
    if (is_plain(tensor))
        return tensor;
    at::Tensor memory = at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
    launch_->copies.emplace_back(tensor, memory);
    return memory;
}

at::Tensor Call::update(const at::Tensor &tensor)
{
    at::Tensor memory = read(tensor);

    if (!memory.is_same(tensor))
        launch_->copies.emplace_back(tensor, memory);
    return memory;
}

/* The tensors follow one another in one storage. */
static bool consecutive(const Tensors &tensors)
{
    int64_t next = tensors[0].storage_offset();

    for (const at::Tensor &tensor : tensors) {
        if (!is_plain(tensor) || !tensor.is_alias_of(tensors[0]) || (tensor.numel() && tensor.storage_offset() != next))
            return false;
        next += tensor.numel();
    }
    return true;
}

Pieces Call::pieces_of(const Tensors &tensors, Wire wire)
{
    Pieces pieces;
    size_t elements = 0;

    for (const at::Tensor &tensor : tensors) {
        size_t count = static_cast<size_t>(tensor.numel()) * wire.per_element;
        pieces.counts.push_back(count);
        pieces.displacements.push_back(elements);
        elements += count;
        hold(tensor);
    }
    elements /= wire.per_element;
    pieces.copied = !consecutive(tensors);
    if (pieces.copied)
        pieces.flat = at::empty({static_cast<int64_t>(elements)}, tensors[0].options());
    else
        pieces.flat = tensors[0].detach().as_strided({static_cast<int64_t>(elements)}, {1}, tensors[0].storage_offset());
    hold(pieces.flat);
    return pieces;
}

/* The part of the flat memory that belongs to a tensor of the list. */
static at::Tensor part(const Pieces &pieces, size_t index, Wire wire, const at::Tensor &tensor)
{
    return pieces.flat.narrow(0, static_cast<int64_t>(pieces.displacements[index] / wire.per_element), tensor.numel())
        .view(tensor.sizes());
}

Pieces Call::read(const Tensors &tensors, Wire wire)
{
    at::NoGradGuard no_grad;
    Pieces pieces = pieces_of(tensors, wire);

    for (size_t i = 0; pieces.copied && i < tensors.size(); i++)
        part(pieces, i, wire, tensors[i]).copy_(tensors[i].detach());
    return pieces;
}

Pieces Call::write(const Tensors &tensors, Wire wire)
{
    Pieces pieces = pieces_of(tensors, wire);

    for (size_t i = 0; pieces.copied && i < tensors.size(); i++)
        launch_->copies.emplace_back(tensors[i], part(pieces, i, wire, tensors[i]));
    return pieces;
}

at::Tensor Call::apart(const at::Tensor &input, const at::Tensor &output)
{
    if (!overlap(input, output))
        return input;
    at::Tensor copy = input.detach().clone();
    hold(copy);
    return copy;
}

WorkPtr Call::end(const Tensors &results)
{
    if (backend_.batch_) {
        Tensors &all = backend_.batch_->results;
        all.insert(all.end(), results.begin(), results.end());
        return nullptr;
    }
    if (launch_->mode == Mode::REQUESTS)
        return c10::make_intrusive<HostWork>(std::move(*own_), type_, results);
    launch_->copy_back();
    if (!async_)
        return nullptr;
    return c10::make_intrusive<DeviceWork>(*own_, type_, results);
}

void CallGroup::end()
{
    open_ = false;
    check("coalesced call", hetmpi_group_end());
}

CallGroup::~CallGroup()
{
    if (open_)
        hetmpi_group_end();
}

}  // namespace hetmpi_torch
