/*
 * A rank is killed (or stopped) at a random moment of a random sequence of set-ups, short and pipelined collectives in
 * several forms, messages, barriers and detachments. Started by kill_random.sh, which judges by the files that the
 * survivors leave (see death.h):
 *
 *     kill_random FOLDER SEED [stop]
 *
 * SEED gives the victim, the moment and the sequence. FOLDER/rank.R: "CODE SECONDS LATER_SECONDS CALL: MESSAGE" of rank R,
 * seconds since the victim's death; CODE is WRONG where a result was, a later call did not fail at once (it took
 * LATER_SECONDS), or a communicator without the victim did not go on working.
 */
#include "common.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "death.h"

#define LIFE_S 0.5           /* at most, of the victim */
#define MOST 400009
#define AT_ONCE_S 0.25

static MPI_Comm comm;
static int32_t *x, *y;
static hetmpi_stream_t stream;
static bool wrong;
static _Atomic int phase;    /* what this rank is in, for the file "death" */

static size_t draw_count(uint64_t number)
{
    static const size_t counts[] = { 7, 900, 20011, 100003, MOST };
    return counts[number % (sizeof counts / sizeof *counts)];
}

static void fill(size_t n, int round)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (int32_t)i + round;
}

static void check(int32_t got, int32_t want)
{
    wrong |= got != want;
}

/* Round `round` of each phase; the count is drawn. Results are looked at in their last element. */
static int do_setup(size_t n, int round)
{
    (void)n, (void)round;
    return hetmpi_comm_attach(comm, MPI_INFO_NULL); /* new after a detachment */
}

static int do_short(size_t n, int round)
{
    int code = HETMPI_SUCCESS;
    (void)n;
    for (int i = 0; i < 300 && !code; i++) {
        fill(7, round + i);
        code = hetmpi_allreduce(MPI_IN_PLACE, x, 7, MPI_INT32_T, MPI_SUM, comm);
        if (!code)
            check(x[6], (6 + round + i) * t_ranks);
    }
    return code;
}

static int do_allreduce(size_t n, int round)
{
    fill(n, round);
    int code = hetmpi_allreduce(x, y, n, MPI_INT32_T, MPI_SUM, comm);
    if (!code)
        check(y[n - 1], ((int32_t)(n - 1) + round) * t_ranks);
    return code;
}

static int do_several(size_t n, int round)
{
    hetmpi_request_t requests[3] = { HETMPI_REQUEST_NULL, HETMPI_REQUEST_NULL, HETMPI_REQUEST_NULL };
    size_t part = n / 4 + 1;
    fill(n, round);
    int32_t *out = y + part;
    int code = hetmpi_ibcast(y, part, MPI_INT32_T, 0, comm, &requests[0]);
    if (!code)
        code = hetmpi_iscan(x, out, part, MPI_INT32_T, MPI_SUM, comm, &requests[1]);
    if (!code)
        code = hetmpi_ireduce(x, out + part, part, MPI_INT32_T, MPI_MAX, t_ranks - 1, comm, &requests[2]);
    int ended = hetmpi_waitall(3, requests, MPI_STATUSES_IGNORE);
    if (!code && !ended)
        check(out[part - 1], ((int32_t)(part - 1) + round) * (t_rank + 1));
    return code ? code : ended;
}

static int do_blocks(size_t n, int round)
{
    size_t block = n / (size_t)t_ranks + 1;
    fill(block * (size_t)t_ranks, round);
    int code = hetmpi_alltoall(x, block, MPI_INT32_T, y, block, MPI_INT32_T, comm);
    if (!code)
        check(y[block - 1], (int32_t)(block - 1 + block * (size_t)t_rank) + round);
    return code;
}

static int do_stream(size_t n, int round)
{
    int error = HETMPI_SUCCESS;
    fill(n, round);
    int code = hetmpi_allreduce_on_stream(x, y, n, MPI_INT32_T, MPI_SUM, comm, stream);
    int synced = hetmpi_stream_synchronize(stream);
    wrong |= hetmpi_comm_error(comm, &error) != HETMPI_SUCCESS;
    code = code ? code : error ? error : synced;
    if (!code)
        check(y[n - 1], ((int32_t)(n - 1) + round) * t_ranks);
    return code;
}

static int do_messages(size_t n, int round)
{
    int right = (t_rank + 1) % t_ranks, left = (t_rank + t_ranks - 1) % t_ranks, code = HETMPI_SUCCESS;
    for (int i = 0; i < 5 && !code; i++) {
        fill(n, round + i);
        code = hetmpi_sendrecv(x, n, MPI_INT32_T, right, i, y, n, MPI_INT32_T, left, i, comm, MPI_STATUS_IGNORE);
        if (!code)
            check(y[n - 1], (int32_t)(n - 1) + round + i);
    }
    return code;
}

static int do_barrier(size_t n, int round)
{
    int code = HETMPI_SUCCESS;
    (void)n, (void)round;
    for (int i = 0; i < 300 && !code; i++)
        code = hetmpi_barrier(comm);
    return code;
}

static int do_detach(size_t n, int round)
{
    (void)n, (void)round;
    return hetmpi_comm_detach(comm);
}

static const struct { const char *name; int (*run)(size_t n, int round); } phases[] = {
    { "set-up", do_setup }, { "short", do_short }, { "allreduce", do_allreduce }, { "several", do_several },
    { "alltoall", do_blocks }, { "stream", do_stream }, { "messages", do_messages }, { "barrier", do_barrier },
    { "detach", do_detach },
};
enum { PHASES = sizeof phases / sizeof *phases, SETUP = 0, DETACH = PHASES - 1 };

static const char *phase_name(void)
{
    return phases[phase].name;
}

/* The sequence: after a detachment always a set-up. */
static int run_until_failure(uint64_t seed)
{
    int code = HETMPI_SUCCESS;
    for (int round = 0; code == HETMPI_SUCCESS && !wrong; round++) {
        uint64_t drawn = t_hash64(seed, 17, (uint64_t)round);
        phase = phase == DETACH ? SETUP : 1 + (int)(drawn % (PHASES - 1));
        t_stage("round %d: %s", round, phase_name());
        code = phases[phase].run(draw_count(drawn >> 32), round);
    }
    return code;
}

/* Those that live go on without the victim. */
static bool others_work(MPI_Comm others)
{
    for (int round = 0; round < 3; round++) {
        size_t n = round == 1 ? MOST : 7;
        for (size_t i = 0; i < n; i++)
            x[i] = 1;
        if (hetmpi_allreduce(MPI_IN_PLACE, x, n, MPI_INT32_T, MPI_SUM, others) || x[n - 1] != t_ranks - 1)
            return false;
    }
    return true;
}

static void leave_report(int code, int victim, MPI_Comm others)
{
    char text[900], name[32], message[512];
    const char *call = phase_name();
    double now = t_now(), death;
    int victim_pid;
    bool died = death_happened(&death, &victim_pid);
    snprintf(message, sizeof message, "%s", hetmpi_last_error());
    message[strcspn(message, "\n")] = '\0'; /* MPI's own texts may have several lines */
    double start = t_now();
    int later = hetmpi_barrier(comm);
    double later_seconds = t_now() - start;
    const char *why = wrong ? "a result is wrong; " : !died ? "nobody has died; " : later == HETMPI_SUCCESS ?
        "a later call works; " : later_seconds > AT_ONCE_S ? "a later call waits; " : "";
    if (!*why && !others_work(others))
        why = "the communicator without the victim does not work; ";
    snprintf(text, sizeof text, "%s %.3f %.3f %s: %s%s\n", *why ? "WRONG" : t_code_name(code), now - death,
             later_seconds, call, why, message);
    snprintf(name, sizeof name, "rank.%d", t_rank);
    death_write(name, text);
    death_leave(victim);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        death_prepare(argv[1], argc > 3 && strcmp(argv[3], "stop") == 0 ? SIGSTOP : SIGKILL);
    t_begin(&argc, &argv, "kill_random", MPI_THREAD_MULTIPLE);
    t_watchdog(60);
    if (argc < 3 || t_ranks < 3)
        t_fatal("usage: kill_random FOLDER SEED [stop], on 3 ranks or more");
    uint64_t seed = strtoull(argv[2], NULL, 10);
    int victim = (int)(t_hash64(seed, 1, 0) % (uint64_t)t_ranks);
    MPI_Comm others;
    x = t_malloc((MOST + 64) * sizeof *x);
    y = t_malloc((MOST + 64) * sizeof *y);
    T_OK(hetmpi_stream_create(&stream));
    T_MPI(MPI_Comm_split(MPI_COMM_WORLD, t_rank == victim, t_rank, &others));
    T_MPI(MPI_Comm_set_errhandler(others, MPI_ERRORS_RETURN));
    T_OK(hetmpi_comm_attach(others, MPI_INFO_NULL));
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    phase = DETACH; /* the first is a set-up */
    T_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (t_rank == victim)
        death_plan(LIFE_S * (double)(t_hash64(seed, 2, 0) % 1000) / 1000, phase_name);
    int code = run_until_failure(seed);
    leave_report(code, victim, others);
    return 1;
}
