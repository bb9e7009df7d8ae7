#include "launch.h"

#include <ATen/ATen.h>
#include <torch/csrc/utils/pybind.h>

#include "completion.h"
#include "work.h"

namespace hetmpi_torch {

Launch::~Launch()
{
    if (!requests.empty())
        Completion::get().watch(c10::make_intrusive<HostWork>(std::move(*this), c10d::OpType::UNKNOWN,
                                                              std::vector<at::Tensor>()));
}

void Launch::copy_back()
{
    at::NoGradGuard no_grad;

    for (auto &[to, from] : copies)
        to.detach().copy_(from);
    copies.clear();
}

/* Torch before 2.9 tells the handle in Python alone. */
template <class Stream>
static auto handle_of(const Stream &stream, int) -> decltype(stream.native_handle())
{
    return stream.native_handle();
}

template <class Stream>
[[maybe_unused]] static void *handle_of(const Stream &stream, long)
{
    pybind11::gil_scoped_acquire locked;
    pybind11::object wrapper = pybind11::module_::import("torch").attr("cuda").attr("Stream")(
        pybind11::arg("stream_id") = stream.id(), pybind11::arg("device_index") = static_cast<int>(stream.device_index()),
        pybind11::arg("device_type") = static_cast<int>(stream.device_type()));

    return reinterpret_cast<void *>(wrapper.attr("cuda_stream").cast<uintptr_t>());
}

hetmpi_stream_t Launch::stream_handle() const
{
    return handle_of(*stream, 0);
}

}  // namespace hetmpi_torch
