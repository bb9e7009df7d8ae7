/* What messages need: duplicate communicators, pinned buffers, words for streams, and the list of MPI requests. */
#include <stdlib.h>
#include <string.h>

#include "core/engine.h"
#include "core/log.h"
#include "core/p2p_state.h"
#include "core/proc.h"
#include "hetmpi.h"

#define PIECE_MAX (1u << 20)           /* of staged messages, without a setting */
#define PIECE_LOW 4096u
#define PIECE_HIGH (16u << 20)
#define CHANNELS (1 << 20)             /* more messages than these are never under way between two ranks */
#define GIVE_UP_NS 200000000u          /* how long MPI gets to end its requests after a failure */

/* Memory taken at once, and the buffers or words in it. */
struct p2p_slab {
    struct p2p_slab *next;
    void *memory;
    int n;
    void *items;   /* struct p2p_buf or p2p_word [n], behind this struct */
};

static int make_slab(struct p2p_slab **list, int n, size_t item, size_t each)
{
    struct p2p_slab *slab = calloc(1, sizeof(*slab) + (size_t)n * item);
    int code;

    if (!slab)
        return err_set(HETMPI_ERR_MEMORY, "no memory for the buffers of messages");
    code = mem_host_alloc((size_t)n * each, &slab->memory);
    if (code) {
        free(slab);
        return code;
    }
    slab->n = n;
    slab->items = slab + 1;
    slab->next = *list;
    *list = slab;
    return HETMPI_SUCCESS;
}

int p2p_take(struct p2p_pool *pool, struct p2p_buf **buf)
{
    if (!pool->free) {
        int code = make_slab(&pool->slabs, pool->per_slab, sizeof(struct p2p_buf), pool->each);
        if (code)
            return code;
        for (int i = 0; i < pool->per_slab; i++) {
            struct p2p_buf *made = (struct p2p_buf *)pool->slabs->items + i;
            made->memory = (char *)pool->slabs->memory + (size_t)i * pool->each;
            made->next = pool->free;
            pool->free = made;
        }
    }
    *buf = pool->free;
    pool->free = (*buf)->next;
    pool->taken++;
    return HETMPI_SUCCESS;
}

void p2p_give(struct p2p_pool *pool, struct p2p_buf *buf)
{
    buf->next = pool->free;
    pool->free = buf;
    pool->taken--;
}

static void clear_pool(struct p2p_pool *pool, bool abandoned)
{
    for (struct p2p_slab *slab = pool->slabs, *next; slab; slab = next) {
        next = slab->next;
        for (struct p2p_buf *buf = slab->items; buf < (struct p2p_buf *)slab->items + slab->n; buf++)
            if (buf->event)
                mem_event_destroy(buf->event);
        if (!abandoned)
            mem_host_free(slab->memory);
        free(slab);
    }
}

int p2p_take_word(struct p2p *p2p, struct p2p_word **word)
{
    enum { WORDS = 64, LINE = 64 };

    if (!p2p->words) {
        int code = make_slab(&p2p->word_slabs, WORDS, sizeof(struct p2p_word), LINE);
        if (code)
            return code;
        memset(p2p->word_slabs->memory, 0, WORDS * LINE);
        for (int i = 0; i < WORDS; i++) {
            struct p2p_word *made = (struct p2p_word *)p2p->word_slabs->items + i;
            made->word = (_Atomic uint64_t *)(void *)((char *)p2p->word_slabs->memory + i * LINE);
            made->next = p2p->words;
            p2p->words = made;
        }
    }
    *word = p2p->words;
    p2p->words = (*word)->next;
    return HETMPI_SUCCESS;
}

static bool grow(void **array, int room, size_t each)
{
    void *larger = realloc(*array, (size_t)room * each);

    if (larger)
        *array = larger;
    return larger != NULL;
}

int p2p_reserve(struct p2p *p2p, int more)
{
    int room = p2p->room;

    if (p2p->n + more <= room)
        return HETMPI_SUCCESS;
    while (room < p2p->n + more)
        room = room ? 2 * room : 64;
    if (!grow((void **)&p2p->requests, room, sizeof(*p2p->requests)) ||
        !grow((void **)&p2p->uses, room, sizeof(*p2p->uses)) ||
        !grow((void **)&p2p->indices, room, sizeof(*p2p->indices)) ||
        !grow((void **)&p2p->statuses, room, sizeof(*p2p->statuses)))
        return err_set(HETMPI_ERR_MEMORY, "no memory for %d MPI requests", room);
    p2p->room = room;
    return HETMPI_SUCCESS;
}

void p2p_add(struct p2p *p2p, MPI_Request request, struct op *op, int what)
{
    p2p->requests[p2p->n] = request;
    p2p->uses[p2p->n++] = (struct p2p_use){op, what};
}

void p2p_compact(struct p2p *p2p)
{
    int kept = 0;

    for (int i = 0; i < p2p->n; i++) {
        if (p2p->requests[i] == MPI_REQUEST_NULL)
            continue;
        p2p->requests[kept] = p2p->requests[i];
        p2p->uses[kept++] = p2p->uses[i];
    }
    p2p->n = kept;
}

void p2p_abandon(struct p2p *p2p)
{
    uint64_t began = proc_now_ns();

    for (int i = 0; i < p2p->n; i++) {
        const struct p2p_msg *m = &p2p->uses[i].op->message;
        /* A send cannot be cancelled; receives are a receiver's envelope and pieces, and a sender's go. */
        if (m->send == (p2p->uses[i].what == P2P_GO))
            MPI_Cancel(&p2p->requests[i]);
    }
    do {
        for (int i = 0; i < p2p->n; i++) {
            int done = 0;
            if (MPI_Test(&p2p->requests[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
                p2p->requests[i] = MPI_REQUEST_NULL;
        }
        p2p_compact(p2p);
    } while (p2p->n && proc_now_ns() - began < GIVE_UP_NS);
    if (!p2p->n)
        return;
    log_debug("%d parts of messages given up", p2p->n);
    for (int i = 0; i < p2p->n; i++)
        MPI_Request_free(&p2p->requests[i]);
    p2p->n = 0;
    p2p->abandoned = true;
}

/* Both duplicates or none, on this rank; every rank makes the same calls, until one is lost. */
static int duplicate_both(struct comm *comm, struct p2p *p2p)
{
    int first = comm_duplicate(comm, &p2p->match), second;

    if (comm->stillborn)
        return first;
    second = comm_duplicate(comm, &p2p->bulk);
    return first ? first : second;
}

int p2p_open(struct comm *comm)
{
    struct p2p *p2p = calloc(1, sizeof(*p2p));
    size_t piece = comm->cfg->chunk ? comm->cfg->chunk : PIECE_MAX;
    int *tag_max, found = 0, code;

    if (p2p)
        p2p->channel = calloc((size_t)comm->size, sizeof(*p2p->channel));
    if (!p2p || !p2p->channel) {
        free(p2p);
        return err_set(HETMPI_ERR_MEMORY, "no memory for the messages of a communicator of %d ranks", comm->size);
    }
    p2p->match = p2p->bulk = MPI_COMM_NULL;
    p2p->look_end = &p2p->look;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_max, &found);
    p2p->tag_max = found ? *tag_max : 32767;
    p2p->channels = p2p->tag_max / 2 < CHANNELS ? p2p->tag_max / 2 : CHANNELS;
    piece = piece < PIECE_LOW ? PIECE_LOW : piece > PIECE_HIGH ? PIECE_HIGH : piece;
    p2p->slots = (struct p2p_pool){.each = piece, .per_slab = P2P_WINDOW};
    p2p->slots_max = comm->cfg->staging / piece;
    /* Buffers begin on lines of their own. */
    p2p->bounces.each = (sizeof(struct p2p_envelope) + comm->cfg->eager + 63) / 64 * 64;
    p2p->bounces.per_slab = p2p->bounces.each > 64 << 10 ? 4 : 32;
    comm->p2p = p2p;
    code = duplicate_both(comm, p2p);
    if (code)
        p2p_close(comm);
    return code;
}

int p2p_want(struct comm *comm)
{
    int code = HETMPI_SUCCESS;

    if (comm->p2p)
        return HETMPI_SUCCESS;
    engine_lock();
    if (!comm->p2p)
        code = p2p_open(comm);
    engine_unlock();
    return code;
}

int p2p_tag_max(const struct comm *comm) { return comm->p2p->tag_max; }
int p2p_pending(const struct comm *comm) { return comm->p2p ? atomic_load(&comm->p2p->n_ops) : 0; }

void p2p_close(struct comm *comm)
{
    struct p2p *p2p = comm->p2p;
    bool lost;

    if (!p2p)
        return;
    comm->p2p = NULL;
    if (p2p->out)
        mem_stream_destroy(p2p->out);
    if (p2p->in)
        mem_stream_destroy(p2p->in);
    clear_pool(&p2p->bounces, p2p->abandoned);
    clear_pool(&p2p->slots, p2p->abandoned);
    for (struct p2p_slab *slab = p2p->word_slabs, *next; slab; slab = next) {
        next = slab->next;
        mem_host_free(slab->memory);
        free(slab);
    }
    /* After a failure MPI_Comm_free might wait for the dead: the handles are left to MPI_Finalize. */
    lost = comm->stillborn || atomic_load(&comm->failed);
    if (p2p->match != MPI_COMM_NULL && !lost)
        MPI_Comm_free(&p2p->match);
    if (p2p->bulk != MPI_COMM_NULL && !lost)
        MPI_Comm_free(&p2p->bulk);
    free(p2p->requests);
    free(p2p->uses);
    free(p2p->indices);
    free(p2p->statuses);
    free(p2p->channel);
    free(p2p);
}
