/*
 * The calls that move data: every rank gives and takes pairs of int in a form of its own (plain, with gaps, with the
 * two swapped), so that types differ between the ranks while their signatures agree.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define HOLE (-7)
#ifdef MPICH_VERSION
/* MPICH 4.0 itself gives wrong answers where displacements are negative, or its ranks' receive types differ. */
#define ALLGATHERV_WORKS dropped_in
#else
#define ALLGATHERV_WORKS true
#endif
#define SHIFT 3   /* v-calls get displacements down to -SHIFT elements */

/* Where the two numbers of pair k stand: at ints k * step + at[0] and k * step + at[1]. */
struct form { MPI_Datatype type; int per_pair, step, at[2]; };
enum { FORMS = 5 };
static struct form forms[FORMS] = {
    {MPI_DATATYPE_NULL, 2, 2, {0, 1}},   /* MPI_INT */
    {MPI_DATATYPE_NULL, 1, 4, {0, 2}},   /* gaps */
    {MPI_DATATYPE_NULL, 1, 2, {1, 0}},   /* swapped */
    {MPI_DATATYPE_NULL, 1, 2, {0, 1}},   /* contiguous */
    {MPI_DATATYPE_NULL, 1, 3, {1, 2}},   /* data not at the start, gap in front */
};

static void resize(MPI_Datatype *type, int ints)
{
    MPI_Datatype old = *type;

    MPI(MPI_Type_create_resized(old, 0, (MPI_Aint)ints * 4, type));
    MPI(MPI_Type_free(&old));
    MPI(MPI_Type_commit(type));
}

void make_forms(void)
{
    MPI_Datatype inner;

    forms[0].type = MPI_INT;
    MPI(MPI_Type_vector(2, 1, 2, MPI_INT, &forms[1].type));
    resize(&forms[1].type, 4);
    MPI(MPI_Type_create_hindexed_block(2, 1, (MPI_Aint[]){4, 0}, MPI_INT, &forms[2].type));
    MPI(MPI_Type_commit(&forms[2].type));
    MPI(MPI_Type_dup(MPI_INT, &inner));
    MPI(MPI_Type_contiguous(2, inner, &forms[3].type));
    MPI(MPI_Type_free(&inner));
    MPI(MPI_Type_commit(&forms[3].type));
    MPI(MPI_Type_create_hindexed(1, (int[]){2}, (MPI_Aint[]){4}, MPI_INT, &forms[4].type));
    resize(&forms[4].type, 3);
}

void free_forms(void)
{
    for (int f = 1; f < FORMS; f++)
        MPI(MPI_Type_free(&forms[f].type));
}

/* A buffer and what it must hold in the end. */
struct buffer { const struct form *form; int pairs, *data, *wanted; };

static struct buffer make(const struct form *form, int pairs)
{
    struct buffer buffer = {form, pairs + 2 * SHIFT, NULL, NULL};
    size_t ints = (size_t)buffer.pairs * (size_t)form->step;

    buffer.data = malloc(ints * sizeof(int));
    buffer.wanted = malloc(ints * sizeof(int));
    for (size_t i = 0; i < ints; i++)
        buffer.data[i] = buffer.wanted[i] = HOLE;
    return buffer;
}

/* The address that the call gets: pair 0 stands SHIFT pairs behind the start. */
static int *start(const struct buffer *buffer)
{
    return buffer->data + SHIFT * buffer->form->step;
}

static void put(int *ints, const struct form *form, int first, int pairs, int from, int to)
{
    for (int k = 0; k < pairs; k++)
        for (int j = 0; j < 2; j++)
            ints[(SHIFT + first + k) * form->step + form->at[j]] = from * 1000000 + to * 100000 + 2 * k + j;
}

static void given(struct buffer *buffer, int first, int pairs, int from, int to)
{
    put(buffer->data, buffer->form, first, pairs, from, to);
    put(buffer->wanted, buffer->form, first, pairs, from, to);
}

static void wanted(struct buffer *buffer, int first, int pairs, int from, int to)
{
    put(buffer->wanted, buffer->form, first, pairs, from, to);
}

static void finish(struct buffer *buffer, const char *call)
{
    size_t ints = (size_t)buffer->pairs * (size_t)buffer->form->step;

    for (size_t i = 0; i < ints; i++)
        if (!CHECK(buffer->data[i] == buffer->wanted[i], "%s, form %d: int %zu is %d, not %d", call,
                   (int)(buffer->form - forms), i, buffer->data[i], buffer->wanted[i]))
            break;
    free(buffer->data);
    free(buffer->wanted);
}

struct test {
    MPI_Comm comm;
    int rank, n, root, pairs;
    const struct form *in, *out;
    int counts[64], displs[64];     /* in the receiver's or root's own units */
};

/* Blocks of different lengths, the last one first, from -SHIFT on. */
static int pairs_between(const struct test *t, int from, int to) { return (from * 2 + to + 1) % 3 * t->pairs; }

static int place(const struct test *t, int block) { return (t->n - 1 - block) * (2 * t->pairs + 1) - SHIFT; }

static void fill_table(struct test *t, const struct form *form, int from, int to)
{
    for (int r = 0; r < t->n; r++) {
        t->counts[r] = pairs_between(t, from < 0 ? r : from, to < 0 ? r : to) * form->per_pair;
        t->displs[r] = place(t, r) * form->per_pair;
    }
}

static void bcast(struct test *t)
{
    struct buffer b = make(t->in, t->pairs);

    if (t->rank == t->root)
        given(&b, 0, t->pairs, t->root, 0);
    wanted(&b, 0, t->pairs, t->root, 0);
    ON(MPI_Bcast(start(&b), t->pairs * t->in->per_pair, t->in->type, t->root, t->comm));
    finish(&b, "bcast");
}

static void gathers(struct test *t, bool all, bool in_place)
{
    struct buffer in = make(t->in, t->pairs), out = make(t->out, t->n * t->pairs);
    bool receives = all || t->rank == t->root, place_in = in_place && receives;
    const void *send = place_in ? MPI_IN_PLACE : start(&in);

    given(&in, 0, t->pairs, t->rank, 0);
    if (place_in)
        given(&out, t->rank * t->pairs, t->pairs, t->rank, 0);
    for (int r = 0; r < t->n && receives; r++)
        wanted(&out, r * t->pairs, t->pairs, r, 0);
    if (all)
        ON(MPI_Allgather(send, place_in ? -1 : t->pairs * t->in->per_pair, place_in ? MPI_DATATYPE_NULL : t->in->type,
                         start(&out), t->pairs * t->out->per_pair, t->out->type, t->comm));
    else
        ON(MPI_Gather(send, t->pairs * t->in->per_pair, t->in->type, receives ? start(&out) : NULL,
                      receives ? t->pairs * t->out->per_pair : -1, receives ? t->out->type : MPI_DATATYPE_NULL,
                      t->root, t->comm));
    finish(&in, "send side of a gather");
    finish(&out, all ? "allgather" : "gather");
}

static void gathers_v(struct test *t, bool all, bool in_place)
{
    struct buffer in = make(t->in, 2 * t->pairs), out = make(t->out, t->n * (2 * t->pairs + 1));
    bool receives = all || t->rank == t->root, place_in = in_place && receives;
    const void *send = place_in ? MPI_IN_PLACE : start(&in);
    int mine = pairs_between(t, t->rank, 0);

    given(&in, 0, mine, t->rank, 0);
    fill_table(t, t->out, -1, 0);
    if (place_in)
        given(&out, place(t, t->rank), mine, t->rank, 0);
    for (int r = 0; r < t->n && receives; r++)
        wanted(&out, place(t, r), pairs_between(t, r, 0), r, 0);
    if (all)
        ON(MPI_Allgatherv(send, mine * t->in->per_pair, t->in->type, start(&out), t->counts, t->displs, t->out->type,
                          t->comm));
    else
        ON(MPI_Gatherv(send, mine * t->in->per_pair, t->in->type, receives ? start(&out) : NULL,
                       receives ? t->counts : NULL, receives ? t->displs : NULL,
                       receives ? t->out->type : MPI_DATATYPE_NULL, t->root, t->comm));
    finish(&in, "send side of a gatherv");
    finish(&out, all ? "allgatherv" : "gatherv");
}

static void scatter(struct test *t, bool in_place)
{
    struct buffer in = make(t->in, t->n * t->pairs), out = make(t->out, t->pairs);
    bool root = t->rank == t->root, place_in = in_place && root;

    for (int r = 0; r < t->n; r++)
        given(&in, r * t->pairs, t->pairs, t->rank, r);
    if (!place_in)
        wanted(&out, 0, t->pairs, t->root, t->rank);
    ON(MPI_Scatter(root ? start(&in) : NULL, root ? t->pairs * t->in->per_pair : -1,
                   root ? t->in->type : MPI_DATATYPE_NULL, place_in ? MPI_IN_PLACE : start(&out),
                   t->pairs * t->out->per_pair, t->out->type, t->root, t->comm));
    finish(&in, "send side of a scatter");
    finish(&out, "scatter");
}

static void scatter_v(struct test *t, bool in_place)
{
    struct buffer in = make(t->in, t->n * (2 * t->pairs + 1)), out = make(t->out, 2 * t->pairs);
    bool root = t->rank == t->root, place_in = in_place && root;
    int mine = pairs_between(t, t->root, t->rank);

    fill_table(t, t->in, t->root, -1);
    for (int r = 0; r < t->n; r++)
        given(&in, place(t, r), pairs_between(t, t->root, r), t->rank, r);
    if (!place_in)
        wanted(&out, 0, mine, t->root, t->rank);
    ON(MPI_Scatterv(root ? start(&in) : NULL, root ? t->counts : NULL, root ? t->displs : NULL, t->in->type,
                    place_in ? MPI_IN_PLACE : start(&out), mine * t->out->per_pair, t->out->type, t->root, t->comm));
    finish(&in, "send side of a scatterv");
    finish(&out, "scatterv");
}

static void alltoall(struct test *t, bool in_place)
{
    struct buffer in = make(t->in, t->n * t->pairs), out = make(t->out, t->n * t->pairs);

    for (int r = 0; r < t->n; r++) {
        given(in_place ? &out : &in, r * t->pairs, t->pairs, t->rank, r);
        wanted(&out, r * t->pairs, t->pairs, r, t->rank);
    }
    ON(MPI_Alltoall(in_place ? MPI_IN_PLACE : start(&in), t->pairs * t->in->per_pair, t->in->type, start(&out),
                    t->pairs * t->out->per_pair, t->out->type, t->comm));
    finish(&in, "send side of an alltoall");
    finish(&out, "alltoall");
}

static void alltoall_v(struct test *t)
{
    struct buffer in = make(t->in, t->n * (2 * t->pairs + 1)), out = make(t->out, t->n * (2 * t->pairs + 1));
    int send_counts[64], send_displs[64];

    fill_table(t, t->in, t->rank, -1);
    memcpy(send_counts, t->counts, sizeof(send_counts));
    memcpy(send_displs, t->displs, sizeof(send_displs));
    fill_table(t, t->out, -1, t->rank);
    for (int r = 0; r < t->n; r++) {
        given(&in, place(t, r), pairs_between(t, t->rank, r), t->rank, r);
        wanted(&out, place(t, r), pairs_between(t, r, t->rank), r, t->rank);
    }
    ON(MPI_Alltoallv(start(&in), send_counts, send_displs, t->in->type, start(&out), t->counts, t->displs,
                     t->out->type, t->comm));
    finish(&in, "send side of an alltoallv");
    finish(&out, "alltoallv");
}

/* In place, what two ranks exchange has one length. */
static void alltoall_v_in_place(struct test *t)
{
    struct buffer out = make(t->out, t->n * (2 * t->pairs + 1));

    for (int r = 0; r < t->n; r++) {
        int pairs = (r + t->rank) % 3 * t->pairs;
        t->counts[r] = pairs * t->out->per_pair;
        t->displs[r] = place(t, r) * t->out->per_pair;
        given(&out, place(t, r), pairs, t->rank, r);
        wanted(&out, place(t, r), pairs, r, t->rank);
    }
    ON(MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, start(&out), t->counts, t->displs, t->out->type,
                     t->comm));
    finish(&out, "alltoallv in place");
}

void check_moves(MPI_Comm comm, int elements, int round)
{
    struct test t = {.comm = comm, .pairs = elements};

    MPI_Comm_rank(comm, &t.rank);
    MPI_Comm_size(comm, &t.n);
    t.root = round % t.n;
    t.in = &forms[(t.rank + round) % FORMS];
    t.out = &forms[(2 * t.rank + round / 2 + 1) % FORMS];
    bcast(&t);
    for (int in_place = 0; in_place < 2; in_place++) {
        gathers(&t, false, in_place);
        gathers(&t, true, in_place);
        gathers_v(&t, false, in_place);
        if (ALLGATHERV_WORKS)
            gathers_v(&t, true, in_place);
        scatter(&t, in_place);
        scatter_v(&t, in_place);
        alltoall(&t, in_place);
    }
    alltoall_v(&t);
    alltoall_v_in_place(&t);
}
