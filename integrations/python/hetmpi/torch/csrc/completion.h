/* The thread that completes works nobody waits for: those whose future was asked for, and those that were dropped. */
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include <c10/util/intrusive_ptr.h>

namespace hetmpi_torch {

class HostWork;

class Completion {
public:
    static Completion &get();
    /* Looks after a work until it is complete. Starts the thread at its first use. */
    void watch(c10::intrusive_ptr<HostWork> work);
    /* Ends the thread. What it still watched, and whatever comes later, is kept for ever. */
    void stop();

private:
    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<c10::intrusive_ptr<HostWork>> works_;
    std::thread thread_;
    bool stopped_ = false;
};

}  // namespace hetmpi_torch
