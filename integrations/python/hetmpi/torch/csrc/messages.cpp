/* Messages between two ranks, and the barriers. */
#include <algorithm>
#include <chrono>
#include <thread>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "call.h"

namespace hetmpi_torch {

using c10d::OpType;

/* The forms of a message are not those of a collective: nothing is blocking. */
#define MESSAGE_FORMS(name, ...)                                                                                     \
    [](auto...) { return HETMPI_ERR_INTERNAL; },                                                                     \
        [=](MPI_Comm comm, hetmpi_request_t *request) { return hetmpi_i##name(__VA_ARGS__, comm, request); },        \
        [=](MPI_Comm comm, hetmpi_stream_t stream) { return hetmpi_##name##_on_stream(__VA_ARGS__, comm, stream); }

WorkPtr HetmpiBackend::send(Tensors &tensors, int peer, int tag)
{
    const char *name = "send";
    at::Tensor &tensor = only(name, tensors);

    check_tensor(name, tensor);
    Wire wire = wire_of(name, tensor.scalar_type());
    Call call(*this, name, OpType::SEND, tensor.device(), true, peer, SEND);
    at::Tensor memory = call.read(tensor);
    const void *data = memory.const_data_ptr();
    size_t count = static_cast<size_t>(memory.numel()) * wire.per_element;
    call.run(MESSAGE_FORMS(send, data, count, wire.type, peer, tag));
    return call.end(tensors);
}

static WorkPtr receive(Call &call, const char *name, Tensors &tensors, int peer, int tag)
{
    Wire wire = wire_of(name, tensors[0].scalar_type());
    at::Tensor memory = call.update(tensors[0]);   /* a message may be shorter */
    void *data = memory.mutable_data_ptr();
    size_t count = static_cast<size_t>(memory.numel()) * wire.per_element;

    call.run(MESSAGE_FORMS(recv, data, count, wire.type, peer, tag));
    return call.end(tensors);
}

WorkPtr HetmpiBackend::recv(Tensors &tensors, int peer, int tag)
{
    const char *name = "recv";

    check_writable(name, only(name, tensors));
    Call call(*this, name, OpType::RECV, tensors[0].device(), true, peer, RECEIVE);
    return receive(call, name, tensors, peer, tag);
}

WorkPtr HetmpiBackend::recvAnysource(Tensors &tensors, int tag)
{
    const char *name = "recv";

    check_writable(name, only(name, tensors));
    TORCH_CHECK_NOT_IMPLEMENTED(tensors[0].is_cpu(), "hetmpi: recv: from any source only CPU tensors can be received: a stream "
                                "cannot learn who sent");
    Call call(*this, name, OpType::RECVANYSOURCE, tensors[0].device(), true);
    return receive(call, name, tensors, MPI_ANY_SOURCE, tag);
}

/* The device whose stream a barrier stands in. With none, or one that torch only names, it is the host's. */
static c10::Device barrier_device(const c10d::BarrierOptions &options)
{
    c10::Device device = options.device.value_or(c10::Device(c10::kCPU));

    if (!options.device && !options.device_ids.empty())
        device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(options.device_ids[0]));
    if (!device.is_cuda() || !c10::impl::hasDeviceGuardImpl(c10::kCUDA))
        return c10::Device(c10::kCPU);
    c10::impl::VirtualGuardImpl guard(c10::kCUDA);
    if (guard.deviceCount() == 0)
        return c10::Device(c10::kCPU);
    return device.has_index() ? device : guard.getDevice();
}

/* As NCCL's: the host waits, and on a device for what its stream had to do before. */
WorkPtr HetmpiBackend::barrier(const c10d::BarrierOptions &options)
{
    c10::Device device = barrier_device(options);
    Call call(*this, "barrier", OpType::BARRIER, device, options.asyncOp || !device.is_cpu());

    call.run(HETMPI_FORMS(barrier));
    WorkPtr work = call.end({});
    if (options.asyncOp || !work)
        return work;
    work->wait();
    return nullptr;
}

static const int monitor_tag = 32767;   /* a tag that every MPI has */

static void give_up(std::vector<hetmpi_request_t> &requests)
{
    for (hetmpi_request_t &request : requests)
        hetmpi_request_free(&request);
}

/* True: complete before the end. */
static bool wait_until(hetmpi_request_t *request, std::chrono::steady_clock::time_point end)
{
    int flag = 0;

    for (;;) {
        check("monitored_barrier", hetmpi_test(request, &flag, MPI_STATUS_IGNORE));
        if (flag || std::chrono::steady_clock::now() > end)
            return flag;
        std::this_thread::yield();
    }
}

/* Rank 0 hears of every rank, then tells them. A rank that is not heard of in time ends the group, and is named: the
 * others give rank 0, which may have come later, twice the time. */
void HetmpiBackend::monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all_ranks)
{
    bool set = options.timeout != c10d::kUnsetTimeout && options.timeout.count() > 0;
    auto end = std::chrono::steady_clock::now() + (set ? options.timeout : group_->timeout) * (getRank() ? 2 : 1);
    MPI_Comm comm = group_->comm();
    std::vector<hetmpi_request_t> requests(std::max(getSize(), 2), HETMPI_REQUEST_NULL);
    std::vector<int> missing;
    const char *name = "monitored_barrier";

    if (getRank() != 0) {
        check(name, hetmpi_isend(nullptr, 0, MPI_BYTE, 0, monitor_tag, comm, &requests[0]));
        check(name, hetmpi_irecv(nullptr, 0, MPI_BYTE, 0, monitor_tag, comm, &requests[1]));
        if (wait_until(&requests[0], end) && wait_until(&requests[1], end))
            return;
        group_->abort();
        give_up(requests);
        C10_THROW_ERROR(DistBackendError, c10::str("hetmpi: ", name, ": rank 0 has not answered rank ", getRank(), " in time"));
    }
    for (int rank = 1; rank < getSize(); rank++)
        check(name, hetmpi_irecv(nullptr, 0, MPI_BYTE, rank, monitor_tag, comm, &requests[rank]));
    for (int rank = 1; rank < getSize() && (missing.empty() || wait_all_ranks); rank++)
        if (!wait_until(&requests[rank], end))
            missing.push_back(rank);
    if (!missing.empty()) {
        group_->abort();
        give_up(requests);
        C10_THROW_ERROR(DistBackendError, c10::str("hetmpi: ", name, ": not reached in time by rank(s) ", missing));
    }
    for (int rank = 1; rank < getSize(); rank++)
        check(name, hetmpi_isend(nullptr, 0, MPI_BYTE, rank, monitor_tag, comm, &requests[rank]));
    check(name, hetmpi_waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE));
}

}  // namespace hetmpi_torch
