#include "backend.h"

#include <algorithm>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "call.h"

namespace hetmpi_torch {

HetmpiBackend::HetmpiBackend(int rank, std::shared_ptr<Group> group)
    : Backend(rank, static_cast<int>(group->world_ranks.size())), group_(std::move(group))
{
}

HetmpiBackend::~HetmpiBackend() = default;

c10::intrusive_ptr<c10d::Backend::Options> HetmpiBackend::getBackendOptions()
{
    return new_options();
}

c10::intrusive_ptr<HetmpiOptions> HetmpiBackend::new_options() const
{
    return c10::make_intrusive<HetmpiOptions>(group_->timeout);
}

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 10
/* ranks: of this group. */
c10::intrusive_ptr<c10d::Backend> HetmpiBackend::split(const c10::intrusive_ptr<c10d::Store> &,
                                                       const std::vector<int> &ranks,
                                                       const c10::intrusive_ptr<Options> &options)
{
    auto me = std::find(ranks.begin(), ranks.end(), getRank());
    std::vector<int> world_ranks;

    if (me == ranks.end())
        return nullptr;
    for (int rank : ranks)
        world_ranks.push_back(group_->world_ranks.at(rank));
    return c10::make_intrusive<HetmpiBackend>(
        static_cast<int>(me - ranks.begin()),
        std::make_shared<Group>(std::move(world_ranks), options->group_name, options->timeout));
}
#endif

c10d::ErrorType HetmpiBackend::getError()
{
    switch (group_->error()) {
    case HETMPI_SUCCESS: return c10d::ErrorType::SUCCESS;
    case HETMPI_ERR_TIMEOUT: return c10d::ErrorType::TIMEOUT;
    case HETMPI_ERR_PEER: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
    }
}

void HetmpiBackend::abort() { group_->abort(); }
void HetmpiBackend::shutdown() { group_->close(); }

c10::Stream HetmpiBackend::side_stream(c10::Device device, int peer, int direction)
{
    auto key = std::make_tuple(device.index(), peer, direction);
    auto found = streams_.find(key);

    if (found == streams_.end())
        found = streams_.emplace(key, c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true)).first;
    return found->second;
}

void HetmpiBackend::startCoalescing()
{
    if (batch_) {   /* an exception has left it open */
        batch_.reset();
        hetmpi_group_end();
    }
    check("coalesced call", hetmpi_group_start());
    batch_.emplace();
}

WorkPtr HetmpiBackend::endCoalescing()
{
    TORCH_CHECK(batch_, "hetmpi: the coalesced calls end, and were not begun");
    Batch batch = std::move(*batch_);
    batch_.reset();
    check("coalesced call", hetmpi_group_end());
    if (!batch.launch)
        return nullptr;
    if (batch.launch->mode == Mode::REQUESTS)
        return c10::make_intrusive<HostWork>(std::move(*batch.launch), c10d::OpType::COALESCED, std::move(batch.results));
    c10::StreamGuard guard(*batch.launch->stream);
    batch.launch->copy_back();
    return c10::make_intrusive<DeviceWork>(*batch.launch, c10d::OpType::COALESCED, std::move(batch.results));
}

}  // namespace hetmpi_torch
