/* One call of torch.distributed on its way into the library: which form it takes, and the memory that it works on. */
#pragma once

#include <c10/core/StreamGuard.h>

#include "backend.h"

namespace hetmpi_torch {

/* torch gives lists of tensors to calls that take one. */
inline at::Tensor &only(const char *name, Tensors &tensors)
{
    TORCH_CHECK_VALUE(tensors.size() == 1, "hetmpi: ", name, ": ", tensors.size(), " tensors were given, not one");
    return tensors[0];
}

/* Tensors one after another in one piece of memory; counts and displacements in elements as they travel. */
struct Pieces {
    at::Tensor flat;
    bool copied;                 /* the memory is not the tensors' own */
    std::vector<size_t> counts, displacements;
};

class Call {
public:
    /* peer, direction: of a message (see HetmpiBackend::side_stream). */
    Call(HetmpiBackend &backend, const char *name, c10d::OpType type, c10::Device device, bool async,
         int peer = HetmpiBackend::COLLECTIVES, int direction = HetmpiBackend::SEND);

    /* Plain memory with a tensor's elements; to be written; both. Results go to the tensor at the end. */
    at::Tensor read(const at::Tensor &tensor);
    at::Tensor write(const at::Tensor &tensor);
    at::Tensor update(const at::Tensor &tensor);
    /* The same for lists. */
    Pieces read(const Tensors &tensors, Wire wire);
    Pieces write(const Tensors &tensors, Wire wire);
    /* What read() gave, or a copy where it shares memory with the output: the library allows that only where it sees a
     * call in place. */
    at::Tensor apart(const at::Tensor &input, const at::Tensor &output);

    template <class... Arguments>
    void run(Arguments... arguments)
    {
        launch_->run(arguments...);
    }

    /* What torch gets: a work, or nothing where the call is complete or ordered already. */
    WorkPtr end(const Tensors &results);

private:
    void hold(const at::Tensor &tensor);
    Pieces pieces_of(const Tensors &tensors, Wire wire);

    HetmpiBackend &backend_;
    c10d::OpType type_;
    bool async_;
    std::optional<Launch> own_;
    Launch *launch_;             /* own_, or that of the batch */
    c10::OptionalStreamGuard guard_;
};

/* hetmpi_group_start and hetmpi_group_end, whatever happens between. */
class CallGroup {
public:
    CallGroup() { check("coalesced call", hetmpi_group_start()); }
    ~CallGroup();
    CallGroup(const CallGroup &) = delete;
    CallGroup &operator=(const CallGroup &) = delete;
    void end();

private:
    bool open_ = true;
};

}  // namespace hetmpi_torch
