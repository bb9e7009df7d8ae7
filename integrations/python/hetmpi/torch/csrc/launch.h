/* What a call of the library needs until it is complete, and how it is made: blocking, with a request, or on a stream. */
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "runtime.h"

namespace hetmpi_torch {

enum class Mode { BLOCKING, REQUESTS, STREAM };

class Launch {
public:
    Launch(std::shared_ptr<Group> of_group, const char *call_name, Mode how, std::optional<c10::Stream> on = {})
        : group(std::move(of_group)), call(call_name), mode(how), stream(on)
    {
    }
    Launch(Launch &&) = default;
    Launch(const Launch &) = delete;
    Launch &operator=(const Launch &) = delete;
    /* The memory of what is still under way is kept until that has ended. */
    ~Launch();

    /* Starts a call, given as its three forms (HETMPI_FORMS) and the arguments that they share. */
    template <class Blocking, class Nonblocking, class OnStream, class... Arguments>
    void run(Blocking blocking, Nonblocking nonblocking, OnStream on_stream, Arguments... arguments)
    {
        MPI_Comm comm = group->comm();

        if (mode == Mode::BLOCKING) {
            check(call, blocking(arguments..., comm));
        } else if (mode == Mode::STREAM) {
            check(call, on_stream(arguments..., comm, stream_handle()));
        } else {
            requests.push_back(HETMPI_REQUEST_NULL);
            check(call, nonblocking(arguments..., comm, &requests.back()));
        }
    }

    hetmpi_stream_t stream_handle() const;
    /* Brings results into tensors that the library could not write itself. */
    void copy_back();

    std::shared_ptr<Group> group;
    const char *call;
    Mode mode;
    std::optional<c10::Stream> stream;
    std::vector<hetmpi_request_t> requests;
    std::vector<at::Tensor> held;
    std::vector<std::pair<at::Tensor, at::Tensor>> copies;   /* (to, from) */
};

#define HETMPI_FORMS(name) hetmpi_##name, hetmpi_i##name, hetmpi_##name##_on_stream

}  // namespace hetmpi_torch
