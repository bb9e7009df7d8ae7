/*
 * The verbs wire: ranks of different nodes exchange over RDMA. Real memory of a NIC's protection domain, reliable queue
 * pairs, everything polled under the engine's lock.
 *
 * Two ranks are joined by up to VERBS_RAILS_MAX links: queue pairs between a rail (NIC port) of the one and a rail of
 * the other (verbs_rails.h). They are made at the pair's first message: addresses cross in mails over MPI, each link is
 * probed, and both ends agree on those that work.
 *
 * All that is sent is an RDMA write with immediate data; the immediate says what it was:
 *   ring    a message of up to a few KiB, or a grant, in an entry of the ring that the receiver keeps for this sender
 *           (verbs_ring.c). The sender has a copy of the ring, entry for entry: it writes entry n there and then to the
 *           peer, and may write entry n + depth when the peer has released n. Nothing is ever sent that there is no
 *           place and no receive request for.
 *   credit  how many entries of the ring have been released.
 *   data    a stripe of a larger message. The receiver begins those: when a receive is posted it grants the sender
 *           pieces of memory, registered slots or the message's own (verbs_place.c), and the sender writes there
 *           (verbs_recv.c, verbs_send.c). A piece is striped over the links by what they were measured to carry.
 *   probe   nothing.
 * So a message that nobody asked for yet can only be a small one, and is set aside.
 *
 * Messages are named by (op, chunk, channel). Each link counts what was sent and received over it: when it is lost both
 * ends close it and tell each other how much arrived, and the rest goes over the other links (verbs_loss.c).
 *
 * Whatever comes from the network is checked before it is used; keys for remote access cover a ring, a slot or what
 * was granted of a message, and are good in one communicator's protection domain only.
 */
#ifndef HETMPI_VERBS_H
#define HETMPI_VERBS_H

#include <infiniband/verbs.h>

#include "core/comm.h"
#include "mem/mem.h"
#include "wire/stage.h"
#include "wire/verbs/verbs_rails.h"
#include "wire/wire.h"

#define VERBS_RING_BYTES 8192            /* an entry of a ring */
#define VERBS_PIECES_MAX 1024            /* granted pieces of one wire */
#define VERBS_STRIPES_MAX 32             /* of a piece */
#define VERBS_STRIPE_LEAST ((size_t)16 << 10)
#define VERBS_LOOK_NS 1000000u           /* from one look at the mail, and at the NICs' events, to the next */
#define VERBS_MESSAGE_PIECES 4           /* granted of one message at once */

/* A port of this process, open for as long as it is used. See verbs_device.c. */
struct verbs_port {
    char name[64];                           /* "mlx5_0" or, with several ports, "mlx5_0:2" */
    struct ibv_context *context;
    uint8_t number;
    int gid_index;
    struct verbs_rail_facts facts;
    int max_qp_wr, max_srq_wr, max_cqe;
};

/* The immediate data: kind in the highest bits. */
enum verbs_kind { VERBS_RING, VERBS_CREDIT, VERBS_DATA, VERBS_PROBE };
#define VERBS_IMM(kind, rest) ((uint32_t)(kind) << 30 | (rest))
#define VERBS_IMM_KIND(imm) ((imm) >> 30)
#define VERBS_IMM_REST(imm) ((imm) & 0x3fffffffu)
/* data: generation (12 bits), stripe (6), piece (12) */
#define VERBS_GENERATIONS 4096u

/* What stands at the front of a ring's entry. */
enum verbs_head_type { HEAD_MESSAGE = 1, HEAD_GRANT };
struct verbs_head {
    uint64_t op;
    uint32_t chunk;
    uint16_t channel, type;
    uint32_t serial;                         /* number of the entry since the start */
    uint32_t released;                       /* entries of the other direction, as a credit says it */
    uint64_t total, bytes;                   /* of the message; of what follows, or of the piece */
};
struct verbs_grant {
    uint64_t offset, address;
    uint32_t piece, generation;
    uint32_t rkeys[VERBS_RAILS_MAX];         /* by link */
};
#define VERBS_EAGER_MOST (VERBS_RING_BYTES - sizeof(struct verbs_head))

/* What two ranks tell each other over MPI. */
enum verbs_mail_type { MAIL_HELLO = 1, MAIL_READY, MAIL_RESULT, MAIL_CLOSED, MAIL_BACK, MAIL_WRITE, MAIL_BYE };
enum verbs_back { BACK_NONE, BACK_ADDRESS, BACK_READY, BACK_PROBE, BACK_RESULT };
struct verbs_hello_link { uint32_t qp, psn, ring_rkey; };
struct verbs_mail {
    uint32_t type;
    uint32_t links;                          /* result: the good ones */
    uint32_t link;                           /* closed, back: which, */
    uint32_t step, attempt;                  /* back: enum verbs_back */
    struct verbs_hello_link address;
    uint64_t received;                       /* closed: how much came over it */
};
/* What would have been written, with its bytes behind it. */
struct verbs_write { uint32_t type, imm; uint64_t offset, bytes; };
struct verbs_hello {
    uint32_t type, links, depth, spare;
    uint64_t ring;
    struct verbs_hello_link link[VERBS_RAILS_MAX];
};

struct verbs;
struct verbs_peer;
struct verbs_link;

/* Registered memory of one piece, known to every rail. */
struct verbs_slot {
    char *base;
    struct ibv_mr *mr[VERBS_RAILS_MAX];      /* by rail */
    bool busy;
    uint64_t op;                             /* of the holder */
    uint32_t chunk;
    mem_event_t *event;
};
struct verbs_pool {
    struct verbs_slot **slots;
    int n, most, room;
    size_t slot_bytes;
    int access;
    bool full;                               /* no more memory may be registered */
};

/* A message of the caller's. */
struct reg;
struct verbs_place {                         /* registered memory of a message: verbs_place.c */
    char *base;                              /* NULL: none, staged */
    const struct reg *reg[VERBS_RAILS_MAX];  /* by rail */
};
struct verbs_message {
    struct verbs_peer *peer;
    uint64_t op;
    uint32_t chunk;
    uint16_t channel;
    bool eager, device, staged;              /* staged: not registered, whatever its size */
    struct sched_view view;
    size_t first, length, total;             /* elements, elements, bytes */
    size_t asked;                            /* bytes that were granted (receives) */
    size_t moved;
    int in[VERBS_MESSAGE_PIECES];            /* pieces granted and not yet done, -1: none */
    struct verbs_entry *entry;               /* a small one that came: where it is copied from, */
    struct verbs_stray *stray;               /* or there */
    struct verbs_message *next;              /* of the peer's sends or receives; or the free list */
    struct verbs_message *older;
};

/* A piece that this rank granted. */
struct verbs_in {
    enum { IN_FREE, IN_GRANTED, IN_COPYING, IN_COPIED } state;
    struct verbs_message *message;
    size_t offset, bytes, arrived;
    uint64_t stripes;                        /* those that came */
    uint32_t generation;
    struct verbs_slot *slot;                 /* or */
    struct verbs_place place;
    int next_free;
};

/* A piece that a peer granted: waits for its message, then is sent in stripes. */
struct verbs_out {
    struct verbs_head head;
    struct verbs_grant grant;
    struct verbs_message *message;           /* NULL: not yet posted */
    size_t issued, done;
    size_t shares[VERBS_RAILS_MAX];          /* of the bytes not issued, by link */
    int stripes;
    struct verbs_place place;                /* what is sent from it; or slots are */
    struct verbs_out *next, *older;
};
struct verbs_stripe {
    enum { STRIPE_COPYING, STRIPE_READY, STRIPE_POSTED } state;
    struct verbs_out *out;
    size_t offset, bytes;                    /* within the piece */
    int number, link;
    struct verbs_slot *slot;
    struct verbs_stripe *next, *older;       /* of the peer's stripes that are not posted */
};

/* A small message that came before its receive. */
struct verbs_stray {
    struct verbs_head head;
    char data[VERBS_EAGER_MOST];
    mem_event_t *event;
    struct verbs_stray *next, *older;
};

/* Something posted on a link whose end is not known. */
struct verbs_posted {
    enum verbs_kind kind;
    uint32_t serial;                         /* ring */
    struct verbs_stripe *stripe;             /* data */
    size_t bytes;
    bool wanted;                             /* somebody waits for its end */
};

struct verbs_link {
    enum { LINK_NONE, LINK_PROBED, LINK_UP, LINK_CLOSING, LINK_CLOSED, LINK_DOWN } state;
    struct verbs_peer *peer;
    struct verbs_rail *rail;
    int number, theirs;                      /* theirs: the peer's rail */
    struct ibv_qp *qp;
    uint32_t psn, max_inline;
    uint32_t ring_rkey;                      /* of the ring that we write to */
    struct verbs_posted *posted;             /* [depth] what number n was stands in posted[n % depth] */
    uint32_t depth;
    uint64_t sent, retired, signalled;       /* numbers of requests; those below retired are done */
    uint64_t received;
    bool probe_done;
    size_t backlog;                          /* bytes of data under way */
    uint64_t busy_ns;                        /* since when it carries data without a pause, or since the last end */
    double rate;                             /* bytes/s */
    /* Lost: see verbs_loss.c, */
    uint64_t closed_ns, arrived;             /* arrived: of what we sent, as the peer says */
    bool told;                               /* it has said so */
    /* and on its way back: see verbs_return.c. */
    enum verbs_back back;
    uint32_t attempt;
    uint64_t again_ns, pause_ns, back_until_ns;
    bool got_address, got_ready, got_result, good;
    struct verbs_hello_link address;
};

/* An entry of our copy of a peer's ring, or of the ring that it writes to. */
struct verbs_entry {
    enum { ENTRY_FREE, ENTRY_POSTED, ENTRY_READY, ENTRY_COPYING, ENTRY_HELD, ENTRY_DONE } state;
    uint32_t serial, bytes;                  /* bytes: with the head */
    struct verbs_message *message;
    mem_event_t *event;
};
struct verbs_ring {
    char *base;
    struct ibv_mr *mr[VERBS_RAILS_MAX];
    struct verbs_entry *entries;
    uint32_t depth;
    uint32_t next;                           /* out: number of the next entry. in: of the first not released */
    uint32_t released;                       /* out: as the peer said. in: as we told it */
    uint32_t unposted;                       /* out: entries that wait for a copy, or for a place in a link's queue */
};

struct verbs_peer {
    int rank;
    enum { PEER_NEW, PEER_GREETED, PEER_CONNECTED, PEER_PROBING, PEER_AGREEING, PEER_UP, PEER_REFUSED } state;
    struct verbs *verbs;
    int n_links;
    struct verbs_link links[VERBS_RAILS_MAX];
    bool failed, got_hello, got_ready, got_result;   /* failed: our end could not be made */
    bool got_bye;                            /* its last mail has come */
    struct verbs_hello hello;                /* the peer's */
    uint32_t good, result;                   /* links that our probes, and the peer's, found good */
    uint64_t ring_address;
    struct verbs_ring out, in;
    struct verbs_message *sends, *receives;
    struct verbs_out *grants;                /* that wait for their sends; those of sends under way are there too */
    int n_grants;                            /* the peer's, not finished */
    struct verbs_stripe *unposted;
    struct verbs_stray *strays;
    int n_lost;                              /* links that may come back */
    bool over_mpi;                           /* none is left */
    bool credit_due;                         /* a credit was lost */
};

/* A rail of ours, as this communicator uses it. */
struct verbs_rail {
    const struct verbs_port *port;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct reg_cache *cache;
    int used;                                /* receive requests to be posted again */
    struct verbs_link **links, **table;      /* all of this rail; by number of their queue pairs */
    uint32_t n_links, table_room;
};

struct verbs {
    struct wire wire;
    int n_rails;
    struct verbs_rail rails[VERBS_RAILS_MAX];
    struct verbs_peer **peers;               /* [size] NULL: nothing was exchanged with it yet */
    struct verbs_peer **list;                /* [n_list] those that there are */
    int n_list, n_connecting, n_closing;     /* ... and whose links are being made; closed */
    int n_over_mpi;                          /* ... that have none left */
    bool parted;                             /* no mail is sent any more */
    struct verbs_pool out, in;
    struct stage_lane out_lane, in_lane;
    struct verbs_in pieces[VERBS_PIECES_MAX];
    int piece_free;                          /* first of the free ones, -1: none */
    struct verbs_message *free_messages, *all_messages;
    size_t n_messages;
    struct verbs_out *free_outs, *all_outs;
    struct verbs_stripe *free_stripes, *all_stripes;
    struct verbs_stray *free_strays, *all_strays;
    uint64_t looked_ns;
    struct verbs_write *letter;              /* room for one mail */
    size_t letter_room;
    size_t straight, by_device, by_cpu;      /* bytes of larger messages: not copied, copied */
    int ring_depth;
    struct wire *mpi;                        /* for peers that cannot be reached over verbs */
};

/* verbs_device.c: ports, found once a process. */
int verbs_ports(const struct verbs_port **ports);
/* Those that RAILS names, or all: indices of ports; HETMPI_ERR_CONFIG for a name that there is not. */
int verbs_ports_chosen(const struct cfg *cfg, int chosen[VERBS_RAILS_MAX], int *n);

/* verbs_queue.c: a rail's queues, a link's queue pair. */
int verbs_rail_open(struct verbs *v, struct verbs_rail *rail, const struct verbs_port *port);
void verbs_rail_close(struct verbs_rail *rail);
int verbs_link_create(struct verbs_link *link);
int verbs_link_connect(struct verbs_link *link, const struct verbs_hello_link *to,
                       const struct verbs_rail_facts *facts);
void verbs_link_end(struct verbs_link *link);
void verbs_link_destroy(struct verbs_link *link);
bool verbs_link_has_room(const struct verbs_link *link);
/* A write of `bytes` at `local` with the immediate `imm`; what is remembered until it is done. */
int verbs_link_post(struct verbs_link *link, const void *local, size_t bytes, uint32_t lkey, uint64_t address,
                    uint32_t rkey, uint32_t imm, const struct verbs_posted *what);
int verbs_link_probe(struct verbs_link *link);
void verbs_link_retire(struct verbs_link *link, uint64_t end);
int verbs_poll_queues(struct verbs *v);      /* takes completions in, and has them handled */

/* verbs_connect.c */
int verbs_peer_want(struct verbs *v, int rank, struct verbs_peer **peer);   /* COMM_AGAIN until it can be sent to */
int verbs_mail_progress(struct verbs *v, bool look);   /* look: time to, though nothing is expected */
void verbs_part(struct verbs *v);
void verbs_wait_parted(struct verbs *v);     /* until nothing can come any more that would outlive the communicator */
void verbs_say(struct verbs_peer *peer, const struct verbs_mail *mail);
const struct verbs_facts *verbs_facts_of(const struct verbs *v, int rank);
void verbs_peer_free(struct verbs_peer *peer);

/* verbs_pool.c */
int verbs_register(struct verbs *v, void *base, size_t bytes, int access, struct ibv_mr *mr[VERBS_RAILS_MAX]);
void verbs_unregister(struct ibv_mr *mr[VERBS_RAILS_MAX]);
void verbs_pools_open(struct verbs *v);
int verbs_slot_take(struct verbs *v, struct verbs_pool *pool, const struct verbs_message *m, struct verbs_slot **slot);
void verbs_pool_clear(struct verbs_pool *pool);

/* verbs_ring.c */
int verbs_ring_open(struct verbs_peer *peer, uint32_t depth);
void verbs_ring_clear(struct verbs_ring *ring);
bool verbs_ring_has_room(const struct verbs_peer *peer);
int verbs_ring_send(struct verbs_peer *peer, struct verbs_message *m);
int verbs_ring_grant(struct verbs_peer *peer, const struct verbs_message *m, const struct verbs_in *in, uint32_t piece);
int verbs_ring_progress(struct verbs_peer *peer);
int verbs_ring_came(struct verbs_peer *peer, uint32_t rest, uint32_t bytes);
void verbs_ring_credit(struct verbs_peer *peer, uint32_t released);
void verbs_ring_arrived(struct verbs_peer *peer, uint32_t serial);
void verbs_ring_again(struct verbs_peer *peer, uint32_t serial);
int verbs_ring_mailed(struct verbs_peer *peer, uint32_t rest, const void *data, size_t bytes);
int verbs_ring_claim(struct verbs_message *m);       /* a receive may find its message here already */
int verbs_ring_delivered(struct verbs_message *m);

/* verbs_send.c */
int verbs_send_granted(struct verbs_peer *peer, const struct verbs_head *head, const void *grant);
int verbs_send_begin(struct verbs_message *m);
int verbs_send_progress(struct verbs_peer *peer);
void verbs_stripe_arrived(struct verbs_stripe *stripe);
void verbs_stripe_again(struct verbs_stripe *stripe);

/* verbs_recv.c */
void verbs_recv_open(struct verbs *v);
int verbs_recv_begin(struct verbs_message *m);
int verbs_recv_progress(struct verbs_message *m);
int verbs_recv_data(struct verbs_peer *peer, uint32_t rest, uint32_t bytes);
int verbs_recv_mailed(struct verbs_peer *peer, uint32_t rest, uint64_t offset, const void *data, size_t bytes);

/* verbs_place.c */
int verbs_place_begin(struct verbs_message *m, size_t offset, size_t bytes, unsigned access, struct verbs_place *place);
void verbs_place_end(struct verbs_peer *peer, struct verbs_place *place);
void verbs_place_tell(const struct verbs *v);

/* verbs_loss.c */
int verbs_link_lost(struct verbs_link *link, const char *why);
int verbs_link_up(struct verbs_link *link);
int verbs_loss_told(struct verbs_peer *peer, const struct verbs_mail *mail);
int verbs_loss_progress(struct verbs_peer *peer);
void verbs_events(struct verbs *v);
int verbs_mail_write(struct verbs_peer *peer, uint32_t imm, size_t offset, const void *data, size_t bytes);
int verbs_mail_written(struct verbs_peer *peer, const void *data, size_t bytes);

/* verbs_return.c */
void verbs_return_later(struct verbs_link *link);
int verbs_return_progress(struct verbs_peer *peer);
void verbs_return_told(struct verbs_peer *peer, const struct verbs_mail *mail);

/* verbs.c */
int verbs_progress(struct verbs *v);
struct verbs_link *verbs_best_link(struct verbs_peer *peer, size_t bytes);   /* with room, or NULL */

/* Which of our rails a link is on: the index of what is kept by rail. */
static inline size_t verbs_rail_of(const struct verbs_link *link)
{
    return (size_t)(link->rail - link->peer->verbs->rails);
}

static inline bool verbs_same(const struct verbs_message *m, const struct verbs_head *head)
{
    return m->op == head->op && m->chunk == head->chunk && m->channel == head->channel;
}

#endif
