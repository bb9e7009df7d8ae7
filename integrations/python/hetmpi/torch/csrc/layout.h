/* What tensors are to the library: MPI types and operations, and memory in one piece. */
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <hetmpi.h>

namespace hetmpi_torch {

/* How elements travel: `count` of them are count * per_element of `type`. */
struct Wire {
    MPI_Datatype type;
    size_t per_element;
};

/* For calls that only move data. Formats that the library does not know go as bytes. */
Wire wire_of(const char *call, at::ScalarType dtype);
/* For reductions. Throws, naming dtype and operation, where there is none. */
MPI_Datatype reduced_type(const char *call, at::ScalarType dtype);

/* An MPI_Op, made for one call where it is a premultiplied sum. */
class Reduction {
public:
    Reduction(const char *call, at::ScalarType dtype, const c10d::ReduceOp &op);
    ~Reduction();
    Reduction(const Reduction &) = delete;
    Reduction &operator=(const Reduction &) = delete;

    MPI_Datatype type;
    MPI_Op op = MPI_OP_NULL;

private:
    bool own_ = false;
};

/* Throws unless the tensor is dense memory on the CPU or a CUDA (HIP) device. */
void check_tensor(const char *call, const at::Tensor &tensor);
/* Throws where elements of a tensor that is to be written share memory. */
void check_writable(const char *call, const at::Tensor &tensor);
/* The same for all of a list, which must have one dtype and device, and, to be written, share no memory. */
void check_list(const char *call, const std::vector<at::Tensor> &tensors, const at::Tensor &like);
void check_writable_list(const char *call, const std::vector<at::Tensor> &tensors, const at::Tensor &like);
/* The elements lie in order, in one piece, and are what the memory says. */
bool is_plain(const at::Tensor &tensor);
/* The tensor, or a plain copy of it. */
at::Tensor packed(const at::Tensor &tensor);
/* Both are plain: do they share memory? */
bool overlap(const at::Tensor &a, const at::Tensor &b);

}  // namespace hetmpi_torch
