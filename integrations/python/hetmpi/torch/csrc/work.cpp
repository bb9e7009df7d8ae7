#include "work.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "completion.h"

namespace hetmpi_torch {

using Clock = std::chrono::steady_clock;

static c10::intrusive_ptr<c10::ivalue::Future> new_future(std::vector<c10::Device> devices)
{
    return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::move(devices));
}

HostWork::HostWork(Launch launch, c10d::OpType type, std::vector<at::Tensor> results)
    : Work(-1, type), launch_(std::move(launch)), results_(std::move(results))
{
}

/* Under driving_: goes on to the first request that has not ended. True: all have. */
bool HostWork::advance(bool block)
{
    while (next_ < launch_.requests.size()) {
        hetmpi_request_t *request = &launch_.requests[next_];
        MPI_Status status;
        int flag = 1, code;
        code = block ? hetmpi_wait(request, &status) : hetmpi_test(request, &flag, &status);
        if (!flag)
            return false;
        try {
            check(launch_.call, code);
        } catch (...) {
            if (!failure_)
                failure_ = std::current_exception();
        }
        source_ = status.MPI_SOURCE;
        next_++;
    }
    return finish_calls();
}

bool HostWork::finish_calls()
{
    if (ended_)
        return true;
    try {
        if (!failure_)
            launch_.copy_back();
    } catch (...) {
        failure_ = std::current_exception();
    }
    launch_.requests.clear();
    launch_.held.clear();
    next_ = 0;
    ended_ = true;
    return true;
}

void HostWork::complete(c10::ivalue::Future &future)
{
    if (failure_)
        future.setError(failure_);
    else
        future.markCompleted(c10::IValue(results_));
}

/* Tells those who wait, once; without driving_, because callbacks of futures run here. */
void HostWork::publish()
{
    c10::intrusive_ptr<c10::ivalue::Future> future;
    {
        std::lock_guard<std::mutex> lock(publishing_);
        if (published_)
            return;
        published_ = true;
        future = future_;
        finish(failure_);
    }
    if (future)
        complete(*future);
}

bool HostWork::isCompleted()
{
    std::unique_lock<std::mutex> driving(driving_, std::try_to_lock);

    if (!driving)
        return Work::isCompleted();
    if (!advance(false))
        return false;
    driving.unlock();
    publish();
    return true;
}

bool HostWork::wait(std::chrono::milliseconds timeout)
{
    if (timeout == kNoTimeout || timeout == c10d::kUnsetTimeout) {
        std::unique_lock<std::mutex> driving(driving_);
        advance(true);
        driving.unlock();
        publish();
    } else {
        auto end = Clock::now() + timeout;
        while (!isCompleted()) {
            if (Clock::now() > end)
                C10_THROW_ERROR(DistBackendError, c10::str("hetmpi: ", launch_.call, ": wait: not complete after ",
                                                           timeout.count(), " ms"));
            std::this_thread::yield();
        }
    }
    if (failure_)
        std::rethrow_exception(failure_);
    return true;
}

c10::intrusive_ptr<c10::ivalue::Future> HostWork::getFuture()
{
    c10::intrusive_ptr<c10::ivalue::Future> future;
    {
        std::lock_guard<std::mutex> lock(publishing_);
        if (future_)
            return future_;
        future = future_ = new_future({});
        if (!published_) {
            Completion::get().watch(c10::intrusive_ptr<HostWork>::reclaim_copy(this));
            return future;
        }
    }
    complete(*future);
    return future;
}

DeviceWork::DeviceWork(const Launch &launch, c10d::OpType type, std::vector<at::Tensor> results)
    : Work(-1, type), group_(launch.group), call_(launch.call), stream_(*launch.stream), end_(stream_.device_type()),
      results_(std::move(results))
{
    end_.record(stream_);
}

void DeviceWork::throw_if_failed() const
{
    check(call_, group_->error());
}

bool DeviceWork::isCompleted()
{
    return end_.query();
}

bool DeviceWork::isSuccess() const
{
    return group_->error() == HETMPI_SUCCESS;
}

void DeviceWork::synchronize()
{
    c10::impl::VirtualGuardImpl guard(stream_.device_type());

    end_.block(guard.getStream(stream_.device()));
    throw_if_failed();
}

bool DeviceWork::wait(std::chrono::milliseconds timeout)
{
    auto end = Clock::now() + timeout;
    bool limited = timeout != kNoTimeout && timeout != c10d::kUnsetTimeout;

    synchronize();
    while (limited && !end_.query()) {
        if (Clock::now() > end)
            C10_THROW_ERROR(DistBackendError, c10::str("hetmpi: ", call_, ": wait: not complete after ", timeout.count(),
                                                       " ms"));
        std::this_thread::yield();
    }
    if (opType_ == c10d::OpType::BARRIER)
        end_.synchronize();
    throw_if_failed();
    return true;
}

/* Complete at once, under the side stream: whoever uses the value has his stream wait for that one. */
c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::getFuture()
{
    if (!future_) {
        c10::StreamGuard guard(stream_);
        future_ = new_future({stream_.device()});
        future_->markCompleted(c10::IValue(results_));
    }
    return future_;
}

}  // namespace hetmpi_torch
