/* The process group backend: torch.distributed's calls as hetmpi's. */
#pragma once

#include <map>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/version.h>

#include "launch.h"
#include "layout.h"
#include "work.h"

namespace hetmpi_torch {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

struct HetmpiOptions : c10d::Backend::Options {
    explicit HetmpiOptions(std::chrono::milliseconds timeout) : Options("hetmpi", timeout) {}
};

/* Calls between startCoalescing and endCoalescing. */
struct Batch {
    std::optional<Launch> launch;   /* by the first call's device */
    Tensors results;
};

/* Functions of newer torch versions have no `override`, so that older ones compile this too. */
class HetmpiBackend : public c10d::Backend {
public:
    HetmpiBackend(int rank, std::shared_ptr<Group> group);
    ~HetmpiBackend() override;

    const std::string getBackendName() const override { return "hetmpi"; }
    c10::intrusive_ptr<Options> getBackendOptions();
    c10::intrusive_ptr<HetmpiOptions> new_options() const;
    bool supportsCoalescing() const override { return true; }
    bool supportsSplitting() const override { return true; }
    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
                                            const c10::intrusive_ptr<Options> &options);
    void setSequenceNumberForGroup() override {}
    uint64_t getSequenceNumberForGroup() override { return calls_; }
    c10d::ErrorType getError() override;
    void abort() override;
    void shutdown() override;

    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
    WorkPtr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &options) override;
    WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &options) override;
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options) override;
    WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &options) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &options) override;
    WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &options) override;
    WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &options) override;
    WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                           const c10d::ReduceScatterOptions &options) override;
    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &options) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &options) override;
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_sizes,
                          std::vector<int64_t> &input_sizes, const c10d::AllToAllOptions &options) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) override;
    WorkPtr barrier(const c10d::BarrierOptions &options) override;
    void monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all_ranks) override;

    WorkPtr send(Tensors &tensors, int peer, int tag) override;
    WorkPtr recv(Tensors &tensors, int peer, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;
    void startCoalescing() override;
    WorkPtr endCoalescing() override;

private:
    friend class Call;

    /* Streams of calls that do not run on the caller's. Messages have one for each peer and direction: they must not
     * wait for each other. */
    enum { COLLECTIVES = -1, SEND = 0, RECEIVE = 1 };
    c10::Stream side_stream(c10::Device device, int peer, int direction);

    std::shared_ptr<Group> group_;
    std::optional<Batch> batch_;
    std::map<std::tuple<c10::DeviceIndex, int, int>, c10::Stream> streams_;
    uint64_t calls_ = 0;
};

}  // namespace hetmpi_torch
