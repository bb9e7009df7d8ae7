#include "runtime.h"

#include <cstdio>
#include <functional>

#include <c10/util/Exception.h>

#include "completion.h"

namespace hetmpi_torch {

static bool started_here = false;
static bool some_group_failed = false;

static bool mpi_is_up()
{
    int initialized = 0, finalized = 0;

    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    TORCH_CHECK(!finalized, "hetmpi: MPI was finalized: there can be no process group any more");
    return initialized;
}

void start_mpi()
{
    int provided = MPI_THREAD_SINGLE;

    if (mpi_is_up()) {
        MPI_Query_thread(&provided);
    } else {
        TORCH_CHECK(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) == MPI_SUCCESS,
                    "hetmpi: MPI_Init_thread failed");
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        started_here = true;
    }
    TORCH_CHECK(provided == MPI_THREAD_MULTIPLE, "hetmpi: MPI was initialised without MPI_THREAD_MULTIPLE, which a process "
                "group needs: ask for it in MPI_Init_thread, or leave the start of MPI to hetmpi");
}

int world_rank()
{
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

int world_size()
{
    int size;

    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

bool world_on_one_node()
{
    MPI_Comm node;
    int size;

    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &size);
    MPI_Comm_free(&node);
    return size == world_size();
}

std::string share(std::string text)
{
    unsigned long long bytes = text.size();

    MPI_Bcast(&bytes, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
    text.resize(bytes);
    MPI_Bcast(&text[0], static_cast<int>(bytes), MPI_BYTE, 0, MPI_COMM_WORLD);
    return text;
}

void stop_mpi(bool failed)
{
    int finalized = 0;

    Completion::get().stop();
    MPI_Finalized(&finalized);
    if (started_here && !finalized && !failed && !some_group_failed)
        MPI_Finalize();
}

[[noreturn]] static void raise(const std::string &message, int code)
{
    switch (code) {
    case HETMPI_ERR_TYPE:
    case HETMPI_ERR_OP:
        C10_THROW_ERROR(TypeError, message);
    case HETMPI_ERR_ARG:
    case HETMPI_ERR_COUNT:
    case HETMPI_ERR_ROOT:
    case HETMPI_ERR_RANK:
    case HETMPI_ERR_TAG:
    case HETMPI_ERR_BUFFER:
        C10_THROW_ERROR(ValueError, message);
    case HETMPI_ERR_UNSUPPORTED:
        C10_THROW_ERROR(NotImplementedError, message);
    default:
        C10_THROW_ERROR(DistBackendError, message);
    }
}

void check(const char *call, int code)
{
    if (C10_LIKELY(code == HETMPI_SUCCESS))
        return;
    if (code == HETMPI_ERR_TIMEOUT || code == HETMPI_ERR_PEER)
        some_group_failed = true;
    raise(c10::str("hetmpi: ", call, ": ", hetmpi_error_string(code), ": ", hetmpi_last_error()), code);
}

static void check_mpi(const char *call, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;

    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &length);
    C10_THROW_ERROR(DistBackendError, c10::str("hetmpi: ", call, ": ", text));
}

Group::Group(std::vector<int> ranks, std::string group_name, std::chrono::milliseconds group_timeout)
    : world_ranks(std::move(ranks)), name(std::move(group_name)), timeout(group_timeout)
{
    if (world_ranks.size() > 1)
        make();
}

/* Members alone call this, so the tag tells groups apart that are made at the same time. */
void Group::make()
{
    MPI_Group world, members;
    MPI_Info info;
    char seconds[32];
    int tag = static_cast<int>(std::hash<std::string>{}(name) & 0x7fff), code;

    check_mpi("MPI_Comm_group", MPI_Comm_group(MPI_COMM_WORLD, &world));
    code = MPI_Group_incl(world, static_cast<int>(world_ranks.size()), world_ranks.data(), &members);
    MPI_Group_free(&world);
    check_mpi("MPI_Group_incl", code);
    code = MPI_Comm_create_group(MPI_COMM_WORLD, members, tag, &comm_);
    MPI_Group_free(&members);
    check_mpi("MPI_Comm_create_group", code);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);

    std::snprintf(seconds, sizeof(seconds), "%.3f", static_cast<double>(timeout.count()) / 1000);
    MPI_Info_create(&info);
    MPI_Info_set(info, "timeout", seconds);
    code = hetmpi_comm_attach(comm_, info);
    MPI_Info_free(&info);
    check("new group", code);
}

MPI_Comm Group::comm()
{
    if (C10_UNLIKELY(comm_ == MPI_COMM_NULL)) {
        TORCH_CHECK(!closed_, "hetmpi: the process group ", name, " was shut down");
        make();
    }
    return comm_;
}

void Group::abort()
{
    if (comm_ != MPI_COMM_NULL)
        hetmpi_comm_abort(comm_);
}

int Group::error()
{
    int code = HETMPI_SUCCESS;

    if (comm_ != MPI_COMM_NULL)
        hetmpi_comm_error(comm_, &code);
    return code;
}

void Group::close()
{
    int finalized = 0, code;

    closed_ = true;
    MPI_Finalized(&finalized);
    if (comm_ == MPI_COMM_NULL || finalized)
        return;
    code = hetmpi_comm_detach(comm_);
    if (code == HETMPI_ERR_TIMEOUT || code == HETMPI_ERR_PEER)
        some_group_failed = true;
    if (!some_group_failed)
        MPI_Comm_free(&comm_);
    comm_ = MPI_COMM_NULL;
}

}  // namespace hetmpi_torch
