#include "layout.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "runtime.h"

namespace hetmpi_torch {

/* MPI_DATATYPE_NULL: the library does not know the format. */
static MPI_Datatype known_type(at::ScalarType dtype)
{
    switch (dtype) {
    case at::kByte: return MPI_UINT8_T;
    case at::kChar: return MPI_INT8_T;
    case at::kShort: return MPI_INT16_T;
    case at::kInt: return MPI_INT32_T;
    case at::kLong: return MPI_INT64_T;
    case at::kUInt16: return MPI_UINT16_T;
    case at::kUInt32: return MPI_UINT32_T;
    case at::kUInt64: return MPI_UINT64_T;
    case at::kHalf: return HETMPI_FLOAT16;
    case at::kBFloat16: return HETMPI_BFLOAT16;
    case at::kFloat: return MPI_FLOAT;
    case at::kDouble: return MPI_DOUBLE;
    case at::kComplexFloat: return MPI_C_FLOAT_COMPLEX;
    case at::kComplexDouble: return MPI_C_DOUBLE_COMPLEX;
    case at::kBool: return MPI_C_BOOL;
    case at::kFloat8_e4m3fn: return HETMPI_FLOAT8_E4M3;
    case at::kFloat8_e5m2: return HETMPI_FLOAT8_E5M2;
    case at::kFloat8_e4m3fnuz: return HETMPI_FLOAT8_E4M3_FNUZ;
    case at::kFloat8_e5m2fnuz: return HETMPI_FLOAT8_E5M2_FNUZ;
    default: return MPI_DATATYPE_NULL;
    }
}

Wire wire_of(const char *call, at::ScalarType dtype)
{
    MPI_Datatype type = known_type(dtype);

    if (type != MPI_DATATYPE_NULL)
        return {type, 1};
    TORCH_CHECK_TYPE(!c10::isQIntType(dtype), "hetmpi: ", call, ": ", dtype, " is not supported: send the int_repr() and the "
                     "scales");
    return {MPI_BYTE, c10::elementSize(dtype)};
}

MPI_Datatype reduced_type(const char *call, at::ScalarType dtype)
{
    MPI_Datatype type = known_type(dtype);

    TORCH_CHECK_TYPE(type != MPI_DATATYPE_NULL, "hetmpi: ", call, ": ", dtype, " tensors can be moved but not reduced");
    return type;
}

static const char *op_name(c10d::ReduceOp::RedOpType op)
{
    static const char *const names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};

    return op < sizeof(names) / sizeof(names[0]) ? names[op] : "(unknown)";
}

/* Of truth values, torch's sum and maximum are "or", its product and minimum "and". */
static MPI_Op logical_op(c10d::ReduceOp::RedOpType op)
{
    switch (op) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR: return MPI_LOR;
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND: return MPI_LAND;
    case c10d::ReduceOp::BXOR: return MPI_LXOR;
    default: return MPI_OP_NULL;
    }
}

static MPI_Op plain_op(c10d::ReduceOp::RedOpType op)
{
    switch (op) {
    case c10d::ReduceOp::SUM: return MPI_SUM;
    case c10d::ReduceOp::AVG: return HETMPI_AVG;
    case c10d::ReduceOp::PRODUCT: return MPI_PROD;
    case c10d::ReduceOp::MIN: return MPI_MIN;
    case c10d::ReduceOp::MAX: return MPI_MAX;
    case c10d::ReduceOp::BAND: return MPI_BAND;
    case c10d::ReduceOp::BOR: return MPI_BOR;
    case c10d::ReduceOp::BXOR: return MPI_BXOR;
    default: return MPI_OP_NULL;
    }
}

/* The factor of a premultiplied sum as one element of the tensors' type. */
static at::Tensor factor_of(const char *call, at::ScalarType dtype, const c10d::ReduceOp &op)
{
    const auto *premul = dynamic_cast<const c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());

    TORCH_CHECK_VALUE(premul, "hetmpi: ", call, ": this PREMUL_SUM has no factor");
    if (premul->tensor_factor.defined())
        return premul->tensor_factor.to(at::kCPU, dtype).contiguous();
    TORCH_CHECK_VALUE(!c10::isIntegralType(dtype, true) ||
                          premul->double_factor == static_cast<double>(static_cast<int64_t>(premul->double_factor)),
                      "hetmpi: ", call, ": the factor ", premul->double_factor, " of a PREMUL_SUM is no ", dtype);
    return at::full({}, premul->double_factor, at::kDouble).to(dtype);
}

Reduction::Reduction(const char *call, at::ScalarType dtype, const c10d::ReduceOp &reduce)
    : type(reduced_type(call, dtype))
{
    int exists = 0;

    if (reduce.op_ == c10d::ReduceOp::PREMUL_SUM && dtype != at::kBool) {
        at::Tensor factor = factor_of(call, dtype, reduce);
        check(call, hetmpi_op_create_premul_sum(factor.const_data_ptr(), type, &op));
        own_ = true;
        return;
    }
    op = dtype == at::kBool ? logical_op(reduce.op_) : plain_op(reduce.op_);
    if (op != MPI_OP_NULL)
        hetmpi_op_supported(type, op, &exists);
    TORCH_CHECK_TYPE(exists, "hetmpi: ", call, ": there is no ", op_name(reduce.op_), " of ", dtype, " tensors");
}

/* Calls under way keep what they took from it. */
Reduction::~Reduction()
{
    if (own_)
        hetmpi_op_free(&op);
}

void check_tensor(const char *call, const at::Tensor &tensor)
{
    TORCH_CHECK_VALUE(tensor.defined(), "hetmpi: ", call, ": a tensor is undefined");
    TORCH_CHECK_VALUE(tensor.layout() == at::kStrided, "hetmpi: ", call, ": the tensor's layout is ", tensor.layout(),
                      ", only dense (strided) tensors can be used");
    TORCH_CHECK_VALUE(tensor.is_cpu() || tensor.is_cuda(), "hetmpi: ", call, ": the tensor is on ", tensor.device(),
                      ", only those of cpu and cuda devices can be used");
    TORCH_CHECK_VALUE(!tensor._is_zerotensor(), "hetmpi: ", call, ": the tensor is a zero tensor, which has no memory: "
                      "clone it first");
}

/* Sorted by stride, each dimension steps over all that the smaller ones reach: then no two elements meet. */
static bool may_overlap_itself(const at::Tensor &tensor)
{
    std::vector<std::pair<int64_t, int64_t>> dims;
    int64_t reach = 0;

    for (int64_t d = 0; d < tensor.dim(); d++)
        if (tensor.size(d) > 1)
            dims.emplace_back(tensor.stride(d), tensor.size(d));
    std::sort(dims.begin(), dims.end());
    for (auto [stride, size] : dims) {
        if (stride <= reach)
            return true;
        reach += stride * (size - 1);
    }
    return false;
}

void check_writable(const char *call, const at::Tensor &tensor)
{
    check_tensor(call, tensor);
    if (tensor.is_contiguous() || tensor.numel() == 0)
        return;
    TORCH_CHECK_VALUE(!may_overlap_itself(tensor), "hetmpi: ", call, ": a tensor of shape ", tensor.sizes(), " with strides ",
                      tensor.strides(), " has elements that share memory: it cannot take a result, clone it first");
}

void check_list(const char *call, const std::vector<at::Tensor> &tensors, const at::Tensor &like)
{
    for (const at::Tensor &tensor : tensors) {
        check_tensor(call, tensor);
        TORCH_CHECK_TYPE(tensor.scalar_type() == like.scalar_type(), "hetmpi: ", call, ": there are tensors of ",
                         like.scalar_type(), " and of ", tensor.scalar_type());
        TORCH_CHECK_VALUE(tensor.device() == like.device(), "hetmpi: ", call, ": there are tensors on ", like.device(),
                          " and on ", tensor.device());
    }
}

void check_writable_list(const char *call, const std::vector<at::Tensor> &tensors, const at::Tensor &like)
{
    std::vector<std::pair<const char *, const char *>> extents;

    check_list(call, tensors, like);
    for (const at::Tensor &tensor : tensors) {
        check_writable(call, tensor);
        const char *begin = static_cast<const char *>(tensor.const_data_ptr());
        if (tensor.is_contiguous() && tensor.nbytes())
            extents.emplace_back(begin, begin + tensor.nbytes());
    }
    std::sort(extents.begin(), extents.end());
    for (size_t i = 1; i < extents.size(); i++)
        TORCH_CHECK_VALUE(extents[i - 1].second <= extents[i].first, "hetmpi: ", call, ": two tensors of the list of results "
                          "share memory");
}

bool is_plain(const at::Tensor &tensor)
{
    return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

at::Tensor packed(const at::Tensor &tensor)
{
    return is_plain(tensor) ? tensor : tensor.detach().resolve_conj().resolve_neg().contiguous();
}

bool overlap(const at::Tensor &a, const at::Tensor &b)
{
    const char *begin_a = static_cast<const char *>(a.const_data_ptr()), *end_a = begin_a + a.nbytes();
    const char *begin_b = static_cast<const char *>(b.const_data_ptr()), *end_b = begin_b + b.nbytes();

    return a.nbytes() && b.nbytes() && begin_a < end_b && begin_b < end_a;
}

}  // namespace hetmpi_torch
