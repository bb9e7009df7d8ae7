/* Calls under way, as torch sees them. */
#pragma once

#include <mutex>

#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "launch.h"

namespace hetmpi_torch {

/* Calls on CPU tensors: a set of requests. Whoever waits or looks drives them, one thread at a time. */
class HostWork : public c10d::Work {
public:
    HostWork(Launch launch, c10d::OpType type, std::vector<at::Tensor> results);

    bool isCompleted() override;
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void synchronize() override { wait(); }
    void abort() override { launch_.group->abort(); }
    std::vector<at::Tensor> result() override { return results_; }
    int sourceRank() const override { return source_; }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

private:
    bool advance(bool block);
    bool finish_calls();
    void publish();
    void complete(c10::ivalue::Future &future);

    Launch launch_;
    std::vector<at::Tensor> results_;
    std::mutex driving_;                 /* launch_ and the next three */
    size_t next_ = 0;                    /* requests before this one have ended */
    std::exception_ptr failure_;
    bool ended_ = false;
    int source_ = -1;
    std::mutex publishing_;              /* the next two */
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    bool published_ = false;
};

/* Calls on a side stream of a device. */
class DeviceWork : public c10d::Work {
public:
    /* All that the work consists of stands on the stream. */
    DeviceWork(const Launch &launch, c10d::OpType type, std::vector<at::Tensor> results);

    bool isCompleted() override;
    bool isSuccess() const override;
    /* The current stream waits; after a barrier, or with a timeout, the host does. */
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void synchronize() override;
    void blockCurrentStream() { synchronize(); }
    void abort() override { group_->abort(); }
    std::vector<at::Tensor> result() override { return results_; }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

private:
    void throw_if_failed() const;

    std::shared_ptr<Group> group_;
    const char *call_;
    c10::Stream stream_;
    c10::Event end_;
    std::vector<at::Tensor> results_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace hetmpi_torch
