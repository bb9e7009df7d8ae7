#include "completion.h"

#include <chrono>

#include "work.h"

namespace hetmpi_torch {

/* Never destroyed: works may end after main. */
Completion &Completion::get()
{
    static Completion *completion = new Completion;

    return *completion;
}

void Completion::watch(c10::intrusive_ptr<HostWork> work)
{
    std::lock_guard<std::mutex> lock(mutex_);

    if (stopped_) {
        work.release();
        return;
    }
    works_.push_back(std::move(work));
    if (!thread_.joinable())
        thread_ = std::thread([this] { run(); });
    changed_.notify_one();
}

/* Works may depend on one another, through other ranks: all are looked at in turn. */
void Completion::run()
{
    constexpr auto eager = std::chrono::milliseconds(2);
    constexpr auto nap = std::chrono::microseconds(50);
    auto moved = std::chrono::steady_clock::now();
    std::vector<c10::intrusive_ptr<HostWork>> works, open;
    std::unique_lock<std::mutex> lock(mutex_);

    while (!stopped_) {
        if (works_.empty()) {
            changed_.wait(lock);
            moved = std::chrono::steady_clock::now();
            continue;
        }
        works.swap(works_);
        lock.unlock();
        size_t all = works.size();
        for (auto &work : works)
            if (!work->isCompleted())
                open.push_back(std::move(work));
        works.clear();
        if (open.size() < all)
            moved = std::chrono::steady_clock::now();
        else if (std::chrono::steady_clock::now() - moved < eager)
            std::this_thread::yield();
        else
            std::this_thread::sleep_for(nap);
        lock.lock();
        open.insert(open.end(), std::make_move_iterator(works_.begin()), std::make_move_iterator(works_.end()));
        works_.clear();
        works_.swap(open);
    }
}

void Completion::stop()
{
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stopped_ = true;
        changed_.notify_one();
    }
    if (thread_.joinable())
        thread_.join();
    for (auto &work : works_)
        work.release();
    works_.clear();
}

}  // namespace hetmpi_torch
