/* MPI and libhetmpi under the backend: start, communicators of groups, errors as torch's exceptions. */
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <hetmpi.h>

namespace hetmpi_torch {

/* Starts MPI unless somebody has, with MPI_THREAD_MULTIPLE. */
void start_mpi();
/* This process among those that MPI started. */
int world_rank();
int world_size();
bool world_on_one_node();
/* The text of rank 0, on every rank of MPI_COMM_WORLD. */
std::string share(std::string text);
/* Ends the completion thread, and MPI if start_mpi started it. After a failure (of a communicator here, or the
 * caller's) MPI is left as it is: its end would wait for ranks that no longer come. */
void stop_mpi(bool failed);

/* A group's communicator. It is made at once, by all members together; that of one rank when it is first used. */
class Group {
public:
    Group(std::vector<int> world_ranks, std::string name, std::chrono::milliseconds timeout);
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;

    /* Throws after close(). */
    MPI_Comm comm();
    void abort();
    /* Collective over the members; throws nothing. Without it the communicator stays until the end of MPI: members
     * whose objects die in different orders cannot free it together. */
    void close();
    /* What ended the communicator's use; 0: nothing. */
    int error();

    const std::vector<int> world_ranks;
    const std::string name;
    const std::chrono::milliseconds timeout;

private:
    void make();

    MPI_Comm comm_ = MPI_COMM_NULL;
    bool closed_ = false;
};

/* Throws what fits the code: TypeError, ValueError, NotImplementedError or torch.distributed.DistBackendError, with
 * hetmpi's message. `call` is the name that torch.distributed has for what was done. */
void check(const char *call, int code);

}  // namespace hetmpi_torch
