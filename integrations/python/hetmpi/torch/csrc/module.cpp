/* What Python sees of the backend. */
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "backend.h"

namespace hetmpi_torch {

static c10::intrusive_ptr<HetmpiBackend> new_backend(int rank, std::vector<int> world_ranks, std::string name,
                                                     std::chrono::milliseconds timeout)
{
    return c10::make_intrusive<HetmpiBackend>(rank, std::make_shared<Group>(std::move(world_ranks), std::move(name), timeout));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module)
{
    using Unlocked = pybind11::call_guard<pybind11::gil_scoped_release>;

    module.def("start_mpi", start_mpi, Unlocked());
    module.def("stop_mpi", stop_mpi, Unlocked());
    module.def("world_rank", world_rank);
    module.def("world_size", world_size);
    module.def("world_on_one_node", world_on_one_node, Unlocked());
    module.def("share", share, Unlocked());
    /* torch copies those of a group for the groups that are split off. */
    pybind11::class_<HetmpiOptions, c10::intrusive_ptr<HetmpiOptions>, c10d::Backend::Options>(module, "Options")
        .def("__deepcopy__", [](const HetmpiOptions &options, const pybind11::dict &) {
            return c10::make_intrusive<HetmpiOptions>(options);
        });
    pybind11::class_<HetmpiBackend, c10::intrusive_ptr<HetmpiBackend>, c10d::Backend>(module, "Backend")
        .def(pybind11::init(&new_backend), Unlocked(), pybind11::arg("rank"), pybind11::arg("world_ranks"),
             pybind11::arg("name"), pybind11::arg("timeout"))
        .def_property_readonly("options", &HetmpiBackend::new_options)
        .def("get_error", &HetmpiBackend::getError, Unlocked())
        /* torch calls it on ranks that are not in a split; only NCCL's needs them. */
        .def("perform_nocolor_split", [](HetmpiBackend &, const pybind11::object &) {});
}

}  // namespace hetmpi_torch
