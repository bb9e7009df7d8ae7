/*
 * Messages between two ranks: contents from and to every kind of memory, statuses, order, wildcards, truncation,
 * groups, streams, messages to oneself, wrong arguments, and messages among collectives.
 *
 *     p2p [multiple]    at MPI_THREAD_MULTIPLE, where calls on streams work
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1u << 20)
#define LARGEST (8 * MIB)

static unsigned char *image, *expected;   /* LARGEST bytes each */
static bool multiple;

static void pattern(unsigned char *bytes, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(i * 31 + (i >> 8) * 7 + seed * 101 + 1);
}

static void fill(struct t_buf *buf, size_t bytes, unsigned seed)
{
    t_buf_use(buf, bytes, 8 * (seed % 3));
    pattern(image, bytes, seed);
    t_buf_put(buf, image);
}

static void check_bytes(const struct t_buf *buf, size_t bytes, unsigned seed)
{
    t_buf_get(buf, image);
    pattern(expected, bytes, seed);
    if (memcmp(image, expected, bytes) != 0) {
        size_t at = 0;
        while (image[at] == expected[at])
            at++;
        t_fail(__FILE__, __LINE__, "byte %zu of %zu is 0x%02x, not 0x%02x", at, bytes, image[at], expected[at]);
    }
    t_buf_guards(buf);
}

static void check_status(const MPI_Status *status, int source, int tag, size_t bytes)
{
    int count = -1;
    MPI_Get_count((MPI_Status *)(uintptr_t)status, MPI_BYTE, &count);
    T_CHECK(status->MPI_SOURCE == source && status->MPI_TAG == tag && count == (int)bytes,
            "the status has source %d, tag %d, %d bytes, not %d, %d, %zu", status->MPI_SOURCE, status->MPI_TAG, count,
            source, tag, bytes);
}

/* Every rank to its right neighbour, blocking, from every kind of memory to every kind, around every limit. */
static void check_contents(MPI_Comm comm)
{
    static const size_t sizes[] = { 0, 1, 8, 4096, 8191, 8192, 8193, 65536, 300001, 3 * MIB + 5 };
    int right = (t_rank + 1) % t_ranks, left = (t_rank + t_ranks - 1) % t_ranks;
    for (int from = 0; from < T_PLACES; from++)
        for (int to = 0; to < T_PLACES; to++) {
            struct t_buf out, in;
            t_buf_new(&out, (enum t_place)from, 4 * MIB);
            t_buf_new(&in, (enum t_place)to, 4 * MIB);
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                size_t bytes = sizes[s];
                MPI_Status status = { .MPI_ERROR = -1 };
                t_stage("%zu bytes from %s to %s memory", bytes, t_place_name(out.place), t_place_name(in.place));
                fill(&out, bytes, (unsigned)(t_rank + 10 * s));
                t_buf_use(&in, bytes, 0);
                t_buf_fill(&in, 0xEE);
                /* Rank 0 sends first: the ring cannot deadlock. */
                if (t_rank == 0)
                    T_OK(hetmpi_send(out.data, bytes, MPI_BYTE, right, 7, comm));
                T_OK(hetmpi_recv(in.data, bytes, MPI_BYTE, left, 7, comm, &status));
                if (t_rank != 0)
                    T_OK(hetmpi_send(out.data, bytes, MPI_BYTE, right, 7, comm));
                check_status(&status, left, 7, bytes);
                check_bytes(&in, bytes, (unsigned)(left + 10 * s));
            }
            t_buf_free(&out);
            t_buf_free(&in);
        }
}

/* Messages of one source and tag arrive in the order of the calls, whatever their sizes and memories. */
static void check_order(MPI_Comm comm)
{
    enum { N = 60 };
    hetmpi_request_t requests[2 * N];
    struct t_buf out[N], in[N];
    int right = (t_rank + 1) % t_ranks, left = (t_rank + t_ranks - 1) % t_ranks;
    t_stage("order");
    for (int i = 0; i < N; i++) {
        size_t bytes = i % 7 == 3 ? 100000 : (size_t)(1 + t_hash64(1, (uint64_t)i, 2) % 9000);
        t_buf_new(&out[i], (enum t_place)(i % T_PLACES), bytes);
        t_buf_new(&in[i], (enum t_place)(i / 2 % T_PLACES), 100000);
        fill(&out[i], bytes, (unsigned)(i + t_rank));
        T_OK(hetmpi_isend(out[i].data, bytes, MPI_BYTE, right, 3, comm, &requests[i]));
    }
    for (int i = 0; i < N; i++) {
        t_buf_use(&in[i], 100000, 0);
        T_OK(hetmpi_irecv(in[i].data, 100000, MPI_BYTE, i % 2 ? left : MPI_ANY_SOURCE, i % 3 ? 3 : MPI_ANY_TAG, comm,
                          &requests[N + i]));
    }
    for (int i = N - 1; i >= 0; i--) {
        MPI_Status status;
        T_OK(hetmpi_wait(&requests[N + i], &status));
        check_status(&status, left, 3, out[i].bytes);
        t_buf_use(&in[i], 100000, 0);
        t_buf_get(&in[i], image);
        pattern(expected, out[i].bytes, (unsigned)(i + left));
        T_CHECK(memcmp(image, expected, out[i].bytes) == 0, "message %d is not the one sent as number %d", i, i);
    }
    T_OK(hetmpi_waitall(N, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < N; i++) {
        t_buf_free(&out[i]);
        t_buf_free(&in[i]);
    }
}

/* Both ranks of a pair send 8 MiB first; then the same in a group with the receives behind the sends. */
static void check_both_first(MPI_Comm comm, enum t_place place)
{
    hetmpi_request_t requests[4];
    int peer = t_rank ^ 1;
    if (peer >= t_ranks)
        return;
    struct t_buf out, in, in2;
    t_buf_new(&out, place, LARGEST);
    t_buf_new(&in, place, LARGEST);
    t_buf_new(&in2, place, LARGEST);
    for (int grouped = 0; grouped < 2; grouped++) {
        t_stage("both send first, %s memory%s", t_place_name(place), grouped ? ", in a group" : "");
        fill(&out, LARGEST, (unsigned)t_rank);
        t_buf_use(&in, LARGEST, 0);
        t_buf_use(&in2, LARGEST, 0);
        if (grouped)
            T_OK(hetmpi_group_start());
        T_OK(hetmpi_isend(out.data, LARGEST / 8, MPI_DOUBLE, peer, 1, comm, &requests[0]));
        T_OK(hetmpi_isend(out.data, LARGEST / 8, MPI_DOUBLE, peer, 2, comm, &requests[1]));
        T_OK(hetmpi_irecv(in2.data, LARGEST / 8, MPI_DOUBLE, peer, 2, comm, &requests[2]));
        T_OK(hetmpi_irecv(in.data, LARGEST / 8, MPI_DOUBLE, peer, 1, comm, &requests[3]));
        if (grouped)
            T_OK(hetmpi_group_end());
        T_OK(hetmpi_waitall(4, requests, MPI_STATUSES_IGNORE));
        check_bytes(&in, LARGEST, (unsigned)peer);
        check_bytes(&in2, LARGEST, (unsigned)peer);
    }
    t_buf_free(&out);
    t_buf_free(&in);
    t_buf_free(&in2);
}

static void check_any_source(MPI_Comm comm)
{
    t_stage("any source");
    if (t_rank == 0) {
        int seen = 0;
        for (int i = 1; i < t_ranks; i++) {
            MPI_Status status;
            double values[3] = { 0 };
            int count = -1;
            T_OK(hetmpi_recv(values, 3, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &status));
            MPI_Get_count(&status, MPI_DOUBLE, &count);
            T_CHECK(count == 2 && status.MPI_TAG == 40 + status.MPI_SOURCE && values[1] == status.MPI_SOURCE,
                    "from %d: tag %d, count %d, value %g", status.MPI_SOURCE, status.MPI_TAG, count, values[1]);
            seen |= 1 << status.MPI_SOURCE;
        }
        T_CHECK(seen == (1 << t_ranks) - 2, "sources seen: 0x%x", seen);
    } else {
        double values[2] = { 0.5, t_rank };
        t_sleep(0.002 * (t_ranks - t_rank));
        T_OK(hetmpi_send(values, 2, MPI_DOUBLE, 0, 40 + t_rank, comm));
    }
}

/* The receiver gets the code, both sizes in the text, an untouched buffer, and the next message; the sender nothing. */
static void check_truncation(MPI_Comm comm)
{
    static const size_t sizes[] = { 200, 6000, 1000001 };
    int peer = t_rank ^ 1;
    if (peer >= t_ranks)
        return;
    for (int place = 0; place < T_PLACES; place++)
        for (int s = 0; s < 3; s++) {
            hetmpi_request_t request;
            size_t bytes = sizes[s], room = bytes - 1 - 50 * (size_t)s;
            MPI_Status status = { .MPI_ERROR = -1 };
            char want[2][32];
            int value = t_rank, got = -1;
            struct t_buf out, in;
            t_stage("truncation of %zu bytes, %s memory", bytes, t_place_name((enum t_place)place));
            t_buf_new(&out, (enum t_place)place, bytes);
            t_buf_new(&in, (enum t_place)(T_PLACES - 1 - place), bytes);
            fill(&out, bytes, 4);
            t_buf_use(&in, room, 0);
            t_buf_fill(&in, 0x5A);
            T_OK(hetmpi_isend(out.data, bytes, MPI_BYTE, peer, 11, comm, &request));
            T_CODE(HETMPI_ERR_TRUNCATE, hetmpi_recv(in.data, room, MPI_BYTE, peer, 11, comm, &status));
            snprintf(want[0], sizeof want[0], "%zu bytes", bytes);
            snprintf(want[1], sizeof want[1], "room for %zu", room);
            T_CHECK(strstr(hetmpi_last_error(), want[0]) && strstr(hetmpi_last_error(), want[1]),
                    "the message does not name %zu and %zu: %s", bytes, room, hetmpi_last_error());
            T_CHECK(status.MPI_SOURCE == peer && status.MPI_TAG == 11 && status.MPI_ERROR == HETMPI_ERR_TRUNCATE,
                    "the status has source %d, tag %d, error %d", status.MPI_SOURCE, status.MPI_TAG, status.MPI_ERROR);
            T_OK(hetmpi_wait(&request, MPI_STATUS_IGNORE));
            t_buf_get(&in, image);
            T_CHECK(image[0] == 0x5A && memcmp(image, image + 1, room - 1) == 0, "the buffer was written");
            t_buf_guards(&in);
            T_OK(hetmpi_sendrecv(&value, 1, MPI_INT, peer, 11, &got, 1, MPI_INT, peer, 11, comm, MPI_STATUS_IGNORE));
            T_CHECK(got == peer, "the next message is %d", got);
            t_buf_free(&out);
            t_buf_free(&in);
        }
}

static void check_nobody(MPI_Comm comm)
{
    hetmpi_request_t request = HETMPI_REQUEST_NULL;
    MPI_Status status;
    int x = 5;
    t_stage("MPI_PROC_NULL");
    T_OK(hetmpi_send(&x, 1, MPI_INT, MPI_PROC_NULL, 1, comm));
    T_OK(hetmpi_recv(&x, 1, MPI_INT, MPI_PROC_NULL, 1, comm, &status));
    check_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    T_OK(hetmpi_irecv(&x, 1, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, comm, &request));
    T_OK(hetmpi_wait(&request, &status));
    check_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    T_OK(hetmpi_isend(&x, 1, MPI_INT, MPI_PROC_NULL, 1, comm, &request));
    T_OK(hetmpi_request_free(&request));
    T_OK(hetmpi_sendrecv(&x, 1, MPI_INT, MPI_PROC_NULL, 1, &x, 1, MPI_INT, MPI_PROC_NULL, 1, comm, &status));
    check_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    /* A line of ranks: the ends have one neighbour only. */
    int up = t_rank + 1 < t_ranks ? t_rank + 1 : MPI_PROC_NULL, down = t_rank ? t_rank - 1 : MPI_PROC_NULL, got = -1;
    T_OK(hetmpi_sendrecv(&t_rank, 1, MPI_INT, up, 2, &got, 1, MPI_INT, down, 2, comm, MPI_STATUS_IGNORE));
    T_CHECK(got == (t_rank ? t_rank - 1 : -1) && x == 5, "got %d, x %d", got, x);
}

static void check_self(MPI_Comm comm, int me)
{
    static const size_t sizes[] = { 0, 100, 8000, 2 * MIB + 1 };
    for (int place = 0; place < T_PLACES; place++)
        for (int s = 0; s < 4; s++) {
            hetmpi_request_t requests[2];
            MPI_Status statuses[2];
            struct t_buf out, in;
            t_stage("%zu bytes to oneself, %s memory", sizes[s], t_place_name((enum t_place)place));
            t_buf_new(&out, (enum t_place)place, sizes[s]);
            t_buf_new(&in, (enum t_place)((place + 1) % T_PLACES), sizes[s]);
            fill(&out, sizes[s], 9);
            t_buf_use(&in, sizes[s], 0);
            T_OK(hetmpi_isend(out.data, sizes[s], MPI_BYTE, me, 6, comm, &requests[0]));
            T_OK(hetmpi_irecv(in.data, sizes[s], MPI_BYTE, MPI_ANY_SOURCE, 6, comm, &requests[1]));
            T_OK(hetmpi_waitall(2, requests, statuses));
            check_status(&statuses[1], me, 6, sizes[s]);
            check_bytes(&in, sizes[s], 9);
            t_buf_fill(&in, 0);
            T_OK(hetmpi_sendrecv(out.data, sizes[s], MPI_BYTE, me, 6, in.data, sizes[s], MPI_BYTE, me, 6, comm,
                                 &statuses[0]));
            check_status(&statuses[0], me, 6, sizes[s]);
            check_bytes(&in, sizes[s], 9);
            t_buf_free(&out);
            t_buf_free(&in);
        }
}

/* Many messages at once, received in another order than they were sent in (by tag), completed one by one. */
static void check_many(MPI_Comm comm)
{
    enum { N = 400 };
    static int32_t out[N][4], in[N][4];
    hetmpi_request_t requests[2 * N];
    int peer = t_rank ^ 1, completed = 0, index;
    if (peer >= t_ranks)
        return;
    t_stage("many in flight");
    for (int i = 0; i < N; i++) {
        out[i][0] = out[i][3] = 1000 * t_rank + i;
        T_OK(hetmpi_isend(out[i], 4, MPI_INT32_T, peer, i, comm, &requests[i]));
    }
    for (int i = 0; i < N; i++) {
        int tag = (i * 37 + 11) % N;
        T_OK(hetmpi_irecv(in[tag], 4, MPI_INT32_T, peer, tag, comm, &requests[N + i]));
    }
    for (;; completed++) {
        T_OK(hetmpi_waitany(2 * N, requests, &index, MPI_STATUS_IGNORE));
        if (index == MPI_UNDEFINED)
            break;
    }
    T_CHECK(completed == 2 * N, "%d requests completed", completed);
    for (int i = 0; i < N; i++)
        T_CHECK(in[i][0] == 1000 * peer + i && in[i][3] == in[i][0], "message %d holds %d", i, in[i][0]);
}

/* Neither waits for the other. */
static void check_among_collectives(MPI_Comm comm, MPI_Comm other)
{
    hetmpi_request_t sum, message;
    int32_t one = 1, got = -1, flag = 0;
    int peer = t_rank ^ 1;
    struct t_buf out, in;
    t_stage("a message while a collective is pending");
    if (t_rank == 0) {
        T_OK(hetmpi_iallreduce(MPI_IN_PLACE, &one, 1, MPI_INT32_T, MPI_SUM, comm, &sum));
        T_OK(hetmpi_recv(&got, 1, MPI_INT32_T, 1, 5, comm, MPI_STATUS_IGNORE));
        T_CHECK(got == 77, "got %d", got);
        T_OK(hetmpi_send(&got, 1, MPI_INT32_T, 1, 5, comm));
        T_OK(hetmpi_wait(&sum, MPI_STATUS_IGNORE));
    } else {
        got = 77;
        if (t_rank == 1) {
            T_OK(hetmpi_send(&got, 1, MPI_INT32_T, 0, 5, comm));
            T_OK(hetmpi_recv(&got, 1, MPI_INT32_T, 0, 5, comm, MPI_STATUS_IGNORE));
        }
        T_OK(hetmpi_allreduce(MPI_IN_PLACE, &one, 1, MPI_INT32_T, MPI_SUM, comm));
    }
    T_CHECK(one == t_ranks, "sum of ones is %d", one);

    t_stage("a collective while a message is pending");
    T_OK(hetmpi_irecv(&got, 1, MPI_INT32_T, peer < t_ranks ? peer : MPI_PROC_NULL, 8, comm, &message));
    one = 1;
    T_OK(hetmpi_allreduce(MPI_IN_PLACE, &one, 1, MPI_INT32_T, MPI_SUM, comm));
    T_OK(hetmpi_test(&message, &flag, MPI_STATUS_IGNORE));
    T_CHECK(one == t_ranks && (flag || message), "sum of ones is %d", one);
    T_OK(hetmpi_send(&t_rank, 1, MPI_INT32_T, peer < t_ranks ? peer : MPI_PROC_NULL, 8, comm));
    T_OK(hetmpi_wait(&message, MPI_STATUS_IGNORE));
    T_CHECK(peer >= t_ranks || got == peer, "got %d", got);

    /* The sender must move its message on while it waits in a short collective, here and on another communicator. */
    for (int round = 0; round < 4; round++) {
        MPI_Comm where = round % 2 ? other : comm;
        size_t bytes = 4 * MIB;
        t_stage("a long message while its sender waits in a barrier (%d)", round);
        t_buf_new(&out, round / 2 ? T_DEVICE : T_PAGEABLE, bytes);
        t_buf_new(&in, round / 2 ? T_DEVICE : T_PAGEABLE, bytes);
        if (t_rank == 0) {
            fill(&out, bytes, (unsigned)round);
            T_OK(hetmpi_isend(out.data, bytes, MPI_BYTE, 1, 9, comm, &message));
            T_OK(hetmpi_barrier(where));
            T_OK(hetmpi_wait(&message, MPI_STATUS_IGNORE));
        } else {
            if (t_rank == 1) {
                t_buf_use(&in, bytes, 0);
                T_OK(hetmpi_recv(in.data, bytes, MPI_BYTE, 0, 9, comm, MPI_STATUS_IGNORE));
                check_bytes(&in, bytes, (unsigned)round);
            }
            T_OK(hetmpi_barrier(where));
        }
        t_buf_free(&out);
        t_buf_free(&in);
    }
}

/* A communicator is freed while messages are under way: they complete. */
static void check_freed(void)
{
    MPI_Comm comm;
    hetmpi_request_t requests[2];
    int peer = t_rank ^ 1;
    struct t_buf out, in;
    t_stage("communicator freed while messages are pending");
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_OK(hetmpi_comm_attach(comm, MPI_INFO_NULL));
    t_buf_new(&out, T_DEVICE, MIB);
    t_buf_new(&in, T_DEVICE, MIB);
    fill(&out, MIB, (unsigned)t_rank);
    t_buf_use(&in, MIB, 0);
    if (peer >= t_ranks)
        peer = t_rank;
    T_OK(hetmpi_isend(out.data, MIB, MPI_BYTE, peer, 1, comm, &requests[0]));
    T_OK(hetmpi_irecv(in.data, MIB, MPI_BYTE, peer, 1, comm, &requests[1]));
    T_OK(hetmpi_request_free(&requests[0]));
    T_MPI(MPI_Comm_free(&comm));
    T_OK(hetmpi_wait(&requests[1], MPI_STATUS_IGNORE));
    check_bytes(&in, MIB, (unsigned)peer);
    t_buf_free(&out);
    t_buf_free(&in);
}

/* A ring on streams, nothing waited for on the host but the end: what comes is passed on, with a collective between. */
static void check_streams(MPI_Comm comm)
{
    static const size_t sizes[] = { 40, 4000, 100000, 2 * MIB };
    hetmpi_stream_t stream;
    int right = (t_rank + 1) % t_ranks, left = (t_rank + t_ranks - 1) % t_ranks;
    struct t_buf token, sums;
    T_OK(hetmpi_stream_create(&stream));
    if (!multiple) {
        int x = 0;
        t_stage("streams below MPI_THREAD_MULTIPLE");
        T_CODE(HETMPI_ERR_UNSUPPORTED, hetmpi_send_on_stream(&x, 1, MPI_INT, right, 1, comm, stream));
        T_CODE(HETMPI_ERR_UNSUPPORTED, hetmpi_recv_on_stream(&x, 1, MPI_INT, left, 1, comm, stream));
        T_OK(hetmpi_stream_destroy(stream));
        return;
    }
    for (int place = 0; place < T_PLACES; place++)
        for (int s = 0; s < 4; s++) {
            t_stage("ring on streams, %zu bytes, %s memory", sizes[s], t_place_name((enum t_place)place));
            t_buf_new(&token, (enum t_place)place, sizes[s]);
            t_buf_new(&sums, (enum t_place)place, 400);
            fill(&token, sizes[s], t_rank == 0 ? 12 : 99);
            t_buf_use(&sums, 400, 0);
            t_buf_fill(&sums, 0);
            if (t_rank == 0)
                T_OK(hetmpi_send_on_stream(token.data, sizes[s], MPI_BYTE, right, 1, comm, stream));
            T_OK(hetmpi_recv_on_stream(token.data, sizes[s], MPI_BYTE, left, 1, comm, stream));
            if (t_rank != 0)
                T_OK(hetmpi_send_on_stream(token.data, sizes[s], MPI_BYTE, right, 1, comm, stream));
            T_OK(hetmpi_allreduce_on_stream(MPI_IN_PLACE, sums.data, 100, MPI_INT32_T, MPI_SUM, comm, stream));
            /* Both first, in a group. */
            T_OK(hetmpi_group_start());
            T_OK(hetmpi_send_on_stream(token.data, sizes[s], MPI_BYTE, right, 2, comm, stream));
            T_OK(hetmpi_recv_on_stream(sums.data, 400, MPI_BYTE, left, 3, comm, stream));
            T_OK(hetmpi_recv_on_stream(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 2, comm, stream));
            T_OK(hetmpi_send_on_stream(token.data, 40, MPI_BYTE, right, 3, comm, stream));
            hetmpi_request_t request;
            struct t_buf in;
            t_buf_new(&in, (enum t_place)place, sizes[s]);
            t_buf_use(&in, sizes[s], 0);
            T_OK(hetmpi_irecv(in.data, sizes[s], MPI_BYTE, left, 2, comm, &request));
            T_OK(hetmpi_group_end());
            T_OK(hetmpi_wait(&request, MPI_STATUS_IGNORE));
            T_OK(hetmpi_stream_synchronize(stream));
            check_bytes(&token, sizes[s], 12);
            check_bytes(&in, sizes[s], 12);
            t_buf_get(&sums, image);
            pattern(expected, 40, 12);
            T_CHECK(memcmp(image, expected, 40) == 0 && image[40] == 0, "what the group received last is wrong");
            t_buf_free(&in);
            t_buf_free(&token);
            t_buf_free(&sums);
        }
    t_stage("truncation on a stream");
    int32_t out[4] = { 1, 2, 3, 4 }, in[2] = { 7, 7 }, error = 0;
    T_OK(hetmpi_group_start());
    T_OK(hetmpi_send_on_stream(out, 4, MPI_INT32_T, right, 4, comm, stream));
    T_OK(hetmpi_recv_on_stream(in, 2, MPI_INT32_T, left, 4, comm, stream));
    T_OK(hetmpi_group_end());
    T_OK(hetmpi_stream_synchronize(stream));
    T_OK(hetmpi_comm_error(comm, &error));
    T_CODE(HETMPI_ERR_TRUNCATE, error);
    T_CODE(HETMPI_ERR_TRUNCATE, hetmpi_send(out, 1, MPI_INT32_T, MPI_PROC_NULL, 4, comm));
    T_OK(hetmpi_send(out, 1, MPI_INT32_T, MPI_PROC_NULL, 4, comm));
    T_CODE(HETMPI_ERR_RANK, hetmpi_recv_on_stream(in, 2, MPI_INT32_T, MPI_ANY_SOURCE, 4, comm, stream));
    T_CODE(HETMPI_ERR_TAG, hetmpi_recv_on_stream(in, 2, MPI_INT32_T, left, MPI_ANY_TAG, comm, stream));
    T_OK(hetmpi_stream_destroy(stream));
}

/* Collectives and messages in one group, in another order on each rank. */
static void check_group(MPI_Comm comm, MPI_Comm other)
{
    hetmpi_request_t r[4] = { HETMPI_REQUEST_NULL };
    int32_t a = 1, b = 2, got = -1, flag;
    int right = (t_rank + 1) % t_ranks, left = (t_rank + t_ranks - 1) % t_ranks, index;
    t_stage("a group of collectives and messages");
    T_OK(hetmpi_group_start());
    T_OK(hetmpi_group_start());
    if (t_rank % 2)
        T_OK(hetmpi_iallreduce(MPI_IN_PLACE, &b, 1, MPI_INT32_T, MPI_SUM, other, &r[1]));
    T_OK(hetmpi_iallreduce(MPI_IN_PLACE, &a, 1, MPI_INT32_T, MPI_SUM, comm, &r[0]));
    if (t_rank % 2 == 0)
        T_OK(hetmpi_iallreduce(MPI_IN_PLACE, &b, 1, MPI_INT32_T, MPI_SUM, other, &r[1]));
    T_OK(hetmpi_isend(&t_rank, 1, MPI_INT32_T, right, 1, comm, &r[2]));
    T_OK(hetmpi_irecv(&got, 1, MPI_INT32_T, left, 1, comm, &r[3]));
    T_OK(hetmpi_group_end());
    t_stage("calls that wait, inside a group");
    T_CODE(HETMPI_ERR_STATE, hetmpi_wait(&r[0], MPI_STATUS_IGNORE));
    T_CODE(HETMPI_ERR_STATE, hetmpi_test(&r[3], &flag, MPI_STATUS_IGNORE));
    T_CODE(HETMPI_ERR_STATE, hetmpi_waitany(4, r, &index, MPI_STATUS_IGNORE));
    T_CODE(HETMPI_ERR_STATE, hetmpi_request_free(&r[2]));
    T_CODE(HETMPI_ERR_STATE, hetmpi_recv(&got, 1, MPI_INT32_T, left, 1, comm, MPI_STATUS_IGNORE));
    T_CODE(HETMPI_ERR_STATE, hetmpi_barrier(comm));
    T_OK(hetmpi_group_end());
    T_CODE(HETMPI_ERR_STATE, hetmpi_group_end());
    T_OK(hetmpi_waitall(4, r, MPI_STATUSES_IGNORE));
    T_CHECK(a == t_ranks && b == 2 * t_ranks && got == left, "sums %d and %d, message %d", a, b, got);
}

static void check_errors(MPI_Comm comm)
{
    MPI_Comm fresh;
    hetmpi_request_t request = HETMPI_REQUEST_NULL;
    char x[64] = { 0 };
    MPI_Status s;
    t_stage("wrong arguments");
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &fresh));
    T_CODE(HETMPI_ERR_STATE, hetmpi_send(x, 1, MPI_INT, 0, 1, fresh));
    T_CODE(HETMPI_ERR_STATE, hetmpi_irecv(x, 1, MPI_INT, 0, 1, fresh, &request));
    T_MPI(MPI_Comm_free(&fresh));
    T_CODE(HETMPI_ERR_ARG, hetmpi_send(x, 1, MPI_INT, 0, 1, MPI_COMM_NULL));
    T_CODE(HETMPI_ERR_ARG, hetmpi_isend(x, 1, MPI_INT, 0, 1, comm, NULL));
    T_CODE(HETMPI_ERR_RANK, hetmpi_send(x, 1, MPI_INT, t_ranks, 1, comm));
    T_CODE(HETMPI_ERR_RANK, hetmpi_send(x, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm));
    T_CODE(HETMPI_ERR_RANK, hetmpi_recv(x, 1, MPI_INT, -77, 1, comm, &s));
    T_CODE(HETMPI_ERR_TAG, hetmpi_send(x, 1, MPI_INT, 0, -1, comm));
    T_CODE(HETMPI_ERR_TAG, hetmpi_send(x, 1, MPI_INT, 0, MPI_ANY_TAG, comm));
    T_CODE(HETMPI_ERR_TAG, hetmpi_irecv(x, 1, MPI_INT, 0, -99, comm, &request));
    T_CODE(HETMPI_ERR_COUNT, hetmpi_send(x, SIZE_MAX / 2, MPI_INT, 0, 1, comm));
    T_CODE(HETMPI_ERR_BUFFER, hetmpi_send(NULL, 1, MPI_INT, 0, 1, comm));
    T_CODE(HETMPI_ERR_BUFFER, hetmpi_recv(MPI_IN_PLACE, 1, MPI_INT, 0, 1, comm, &s));
    T_CODE(HETMPI_ERR_TYPE, hetmpi_send(x, 1, MPI_LONG_DOUBLE, 0, 1, comm));
    T_CODE(HETMPI_ERR_TYPE, hetmpi_recv(x, 1, MPI_DATATYPE_NULL, 0, 1, comm, &s));
    T_CODE(HETMPI_ERR_BUFFER, hetmpi_sendrecv(x, 8, MPI_INT, t_rank, 1, x + 31, 4, MPI_INT, t_rank, 1, comm, &s));
    T_CODE(HETMPI_ERR_TAG, hetmpi_sendrecv(x, 1, MPI_INT, t_rank, 1, x + 31, 4, MPI_INT, t_rank, -2, comm, &s));
    T_CHECK(request == HETMPI_REQUEST_NULL, "a refused call gave a request");
}

int main(int argc, char **argv)
{
    MPI_Comm comm, other;
    int provided = 0;
    t_begin(&argc, &argv, "p2p", argc > 1 && !strcmp(argv[1], "multiple") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
    MPI_Query_thread(&provided);
    multiple = provided == MPI_THREAD_MULTIPLE;
    image = t_malloc(LARGEST);
    expected = t_malloc(LARGEST);
    T_OK(hetmpi_comm_attach(MPI_COMM_SELF, MPI_INFO_NULL));
    check_self(MPI_COMM_SELF, 0);
    T_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    T_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    T_MPI(MPI_Comm_dup(comm, &other));
    T_OK(hetmpi_comm_attach(comm, MPI_INFO_NULL));
    check_self(comm, t_rank);
    check_nobody(comm);
    check_errors(comm);
    if (t_ranks > 1) {
        check_contents(comm);
        T_MPI(MPI_Barrier(comm)); /* any source must not take what comes before or after */
        check_order(comm);
        T_MPI(MPI_Barrier(comm));
        check_both_first(comm, T_PAGEABLE);
        check_both_first(comm, T_DEVICE);
        T_MPI(MPI_Barrier(comm));
        check_any_source(comm);
        T_MPI(MPI_Barrier(comm));
        check_truncation(comm);
        check_many(comm);
        check_among_collectives(comm, other);
        check_group(comm, other);
        check_streams(comm);
        check_freed();
    }
    T_MPI(MPI_Comm_free(&comm));
    T_MPI(MPI_Comm_free(&other));
    free(image);
    free(expected);
    return t_end();
}
