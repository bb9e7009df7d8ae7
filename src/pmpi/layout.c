/*
 * Data types as bytes. A type is plain where this can be seen from how it was made; any other is packed and unpacked by
 * MPI itself, whose packed form is the data's bytes in the order of the type's signature.
 */
#include "pmpi/layout.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hetmpi.h"
#include "pmpi/pmpi.h"

#define PIECE (1 << 30)   /* bytes for one call of MPI_Pack, which counts in int */

static struct {
    pthread_mutex_t lock;
    int keyval;            /* on derived types: their struct layout */
} layouts = {.lock = PTHREAD_MUTEX_INITIALIZER, .keyval = MPI_KEYVAL_INVALID};

/* The last predefined type of this thread: it cannot be freed. */
static _Thread_local struct { struct layout layout; bool valid; } last;

static int on_type_end(MPI_Datatype type, int keyval, void *value, void *extra)
{
    (void)type, (void)keyval, (void)extra;
    free(value);
    return MPI_SUCCESS;
}

int layout_start(void)
{
    return PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, on_type_end, &layouts.keyval, NULL);
}

void layout_stop(void)
{
    PMPI_Type_free_keyval(&layouts.keyval);
}

/* Handles of these are MPI's own: not made of others, and never freed. */
static bool of_mpi(int combiner)
{
    switch (combiner) {
    case MPI_COMBINER_NAMED:
    case MPI_COMBINER_F90_REAL:
    case MPI_COMBINER_F90_COMPLEX:
    case MPI_COMBINER_F90_INTEGER:
        return true;
    default:
        return false;
    }
}

/* Whether a type's data, in its order, is what stands in memory from its address on. */
static bool in_order(MPI_Datatype type, int combiner, int n_ints, int n_aints, int n_types)
{
    int ints[1], inner, dummy[3];
    MPI_Aint aints[2];
    MPI_Datatype of[1];
    bool plain;

    if (of_mpi(combiner))
        return true;   /* pairs have gaps: their sizes tell */
    if (combiner != MPI_COMBINER_DUP && combiner != MPI_COMBINER_CONTIGUOUS && combiner != MPI_COMBINER_RESIZED)
        return false;
    if (n_ints > 1 || n_aints > 2 || n_types != 1 ||
        PMPI_Type_get_contents(type, n_ints, n_aints, n_types, ints, aints, of) != MPI_SUCCESS)
        return false;
    PMPI_Type_get_envelope(of[0], &dummy[0], &dummy[1], &dummy[2], &inner);
    plain = in_order(of[0], inner, dummy[0], dummy[1], dummy[2]);
    if (plain) {
        MPI_Count size, lower, extent;
        PMPI_Type_size_x(of[0], &size);
        PMPI_Type_get_extent_x(of[0], &lower, &extent);
        plain = lower == 0 && extent == size;
    }
    if (!of_mpi(inner))
        PMPI_Type_free(&of[0]);
    return plain;
}

/* *predefined: it needs no attribute. */
static int examine(MPI_Datatype type, struct layout *layout, bool *predefined)
{
    int n_ints, n_aints, n_types, combiner, code;
    MPI_Count size, lower, extent, true_lower, true_extent;

    code = PMPI_Type_get_envelope(type, &n_ints, &n_aints, &n_types, &combiner);
    if (!code)
        code = PMPI_Type_size_x(type, &size);
    if (!code)
        code = PMPI_Type_get_extent_x(type, &lower, &extent);
    if (!code)
        code = PMPI_Type_get_true_extent_x(type, &true_lower, &true_extent);
    if (code)
        return code;
    *predefined = combiner == MPI_COMBINER_NAMED;
    *layout = (struct layout){.type = type, .size = (size_t)size, .extent = (MPI_Aint)extent,
                              .first = (MPI_Aint)true_lower, .last = (MPI_Aint)(true_lower + true_extent)};
    layout->plain = lower == 0 && extent == size && in_order(type, combiner, n_ints, n_aints, n_types);
    return MPI_SUCCESS;
}

int layout_of(MPI_Comm comm, MPI_Datatype type, struct layout *layout)
{
    struct layout *kept = NULL;
    bool predefined;
    int found = 0, code;

    if (last.valid && last.layout.type == type) {
        *layout = last.layout;
        return MPI_SUCCESS;
    }
    code = PMPI_Type_get_attr(type, layouts.keyval, &kept, &found);
    if (code)
        return code;
    if (found) {
        *layout = *kept;
        return MPI_SUCCESS;
    }
    code = examine(type, layout, &predefined);
    if (code)
        return code;
    if (predefined) {
        last.layout = *layout;
        last.valid = true;
        return MPI_SUCCESS;
    }
    /* Another thread may do the same: the second would free what the first still reads. */
    pthread_mutex_lock(&layouts.lock);
    code = PMPI_Type_get_attr(type, layouts.keyval, &kept, &found);
    if (!code && !found) {
        kept = malloc(sizeof(*kept));
        if (kept) {
            *kept = *layout;
            code = PMPI_Type_set_attr(type, layouts.keyval, kept);
        } else {
            code = pmpi_error(comm, MPI_ERR_NO_MEM, "pmpi: no memory for a data type's layout");
        }
    }
    pthread_mutex_unlock(&layouts.lock);
    return code;
}

void *layout_at(const void *buffer, const struct layout *layout, long long elements)
{
    return (void *)((uintptr_t)buffer + (uintptr_t)(elements * (long long)layout->extent));
}

/* ---- packing ---- */

/* Data in device memory, which MPI may not be able to read, as it lies there, in host memory. `at` is the address of
 * element 0 in it, or the caller's own where that is host memory. */
struct window { void *at, *device, *memory; size_t bytes; };

static int open_window(MPI_Comm comm, const struct layout *layout, const void *buffer, size_t count,
                       struct window *window)
{
    long long jump = (long long)layout->extent * (long long)(count - 1);
    long long first = layout->first + (jump < 0 ? jump : 0), last_byte = layout->last + (jump > 0 ? jump : 0);
    hetmpi_mem_t where = HETMPI_MEM_HOST;
    int code;

    *window = (struct window){.at = (void *)(uintptr_t)buffer};
    window->device = (void *)((uintptr_t)buffer + (uintptr_t)first);
    code = hetmpi_mem_where(window->device, &where);
    if (code)
        return pmpi_answer(code);
    if (where == HETMPI_MEM_HOST)
        return MPI_SUCCESS;
    window->bytes = (size_t)(last_byte - first);
    window->memory = malloc(window->bytes);
    if (!window->memory)
        return pmpi_error(comm, MPI_ERR_NO_MEM, "pmpi: no memory (%zu bytes) to stage a data type with gaps",
                          window->bytes);
    window->at = (void *)((uintptr_t)window->memory - (uintptr_t)first);
    code = hetmpi_memcpy(window->memory, window->device, window->bytes);
    if (code) {
        free(window->memory);
        return pmpi_answer(code);
    }
    return MPI_SUCCESS;
}

static int close_window(struct window *window, bool written)
{
    int code = HETMPI_SUCCESS;

    if (window->memory && written)
        code = hetmpi_memcpy(window->device, window->memory, window->bytes);
    free(window->memory);
    return pmpi_answer(code);
}

/* MPI_Pack or MPI_Unpack of n elements at `at`. */
static int copy_piece(MPI_Comm comm, MPI_Datatype type, void *at, int n, char *bytes, int room, int *position,
                      bool packs)
{
    return packs ? PMPI_Pack(at, n, type, bytes, room, position, comm)
                 : PMPI_Unpack(bytes, room, position, at, n, type, comm);
}

/* The same at MPI_BOTTOM, which not every MPI takes in these calls: seen from an address of ours. */
static int copy_bottom(MPI_Comm comm, MPI_Datatype type, int n, char *bytes, int room, int *position, bool packs)
{
    MPI_Aint origin;
    MPI_Datatype seen;
    int code = PMPI_Get_address(bytes, &origin);

    origin = PMPI_Aint_diff(0, origin);
    if (!code)
        code = PMPI_Type_create_hindexed(1, &n, &origin, type, &seen);
    if (code)
        return code;
    code = PMPI_Type_commit(&seen);
    if (!code)
        code = copy_piece(comm, seen, bytes, 1, bytes, room, position, packs);
    PMPI_Type_free(&seen);
    return code;
}

static int copy(MPI_Comm comm, const struct layout *layout, void *data, size_t count, char *bytes, bool packs)
{
    size_t most = layout->size <= PIECE ? PIECE / layout->size : 0;
    int code = MPI_SUCCESS;

    if (!most)
        return pmpi_error(comm, MPI_ERR_TYPE, "pmpi: a data type with gaps has %zu bytes of data: at most 1 GiB can be "
                          "packed; leave this call to MPI (HETMPI_PMPI)", layout->size);
    for (size_t done = 0; done < count && !code;) {
        int n = (int)(count - done < most ? count - done : most), position = 0;
        int room = n * (int)layout->size;
        void *at = layout_at(data, layout, (long long)done);

        code = at ? copy_piece(comm, layout->type, at, n, bytes, room, &position, packs)
                  : copy_bottom(comm, layout->type, n, bytes, room, &position, packs);
        if (!code && position != room)
            return pmpi_error(comm, MPI_ERR_INTERN, "pmpi: MPI packs %d bytes of data as %d: leave calls with derived "
                              "data types to MPI (HETMPI_PMPI)", room, position);
        done += (size_t)n;
        bytes += room;
    }
    return code;
}

int layout_pack(MPI_Comm comm, const struct layout *layout, const void *from, size_t count, void *bytes)
{
    struct window window;
    int code;

    if (!count || !layout->size)
        return MPI_SUCCESS;
    code = open_window(comm, layout, from, count, &window);
    if (code)
        return code;
    code = copy(comm, layout, window.at, count, bytes, true);
    close_window(&window, false);
    return code;
}

int layout_unpack(MPI_Comm comm, const struct layout *layout, const void *bytes, size_t count, void *to)
{
    struct window window;
    int code, closed;

    if (!count || !layout->size)
        return MPI_SUCCESS;
    code = open_window(comm, layout, to, count, &window);
    if (code)
        return code;
    code = copy(comm, layout, window.at, count, (char *)(uintptr_t)bytes, false);
    closed = close_window(&window, !code);
    return code ? code : closed;
}
