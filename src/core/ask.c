/* Asking other nodes what their ranks are doing: see ask.h. */
#include "core/ask.h"

#include <stdlib.h>
#include <string.h>

#include "core/mail.h"
#include "core/notice.h"
#include "core/proc.h"
#include "hetmpi.h"

struct question { uint64_t id, number; };
struct answer { uint64_t id, n; struct status_rank ranks[]; };

static void answer(struct comm *comm, int to, const struct question *question)
{
    size_t bytes = sizeof(struct answer) + (size_t)comm->size * sizeof(struct status_rank);
    struct answer *answer = malloc(bytes);

    if (!answer)
        return;
    *answer = (struct answer){.id = question->id};
    for (int r = 0; r < comm->size; r++) {
        status_read(comm, r, question->number, &answer->ranks[answer->n]);
        answer->n += answer->ranks[answer->n].life != LIFE_UNKNOWN;
    }
    mail_send(comm, TAG_TELL, &to, 1, answer, sizeof(*answer) + answer->n * sizeof(struct status_rank));
    free(answer);
}

static void serve(struct comm *comm)
{
    struct question question;
    size_t bytes;
    void *data;
    int from;

    while (mail_possible(comm) && mail_look(comm, TAG_ASK, &from, &data, &bytes)) {
        if (bytes == sizeof(question)) {
            memcpy(&question, data, sizeof(question));
            answer(comm, from, &question);
        }
        free(data);
    }
}

void ask_serve(void)
{
    for (struct comm *comm = comm_first(); comm; comm = comm->next)
        serve(comm);
}

static bool leads(const struct comm *comm, int rank)
{
    for (int g = 0; g < comm->n_groups; g++)
        if (comm->leaders[g] == rank)
            return true;
    return false;
}

/* Sends the question to those of whom nothing is known: leaders, or the others. */
static void ask(struct comm *comm, const struct status_rank *all, const struct question *question, bool leaders)
{
    int *ranks = malloc((size_t)comm->size * sizeof(*ranks)), n = 0;

    if (!ranks)
        return;
    for (int r = 0; r < comm->size; r++)
        if (all[r].life == LIFE_UNKNOWN && leads(comm, r) == leaders)
            ranks[n++] = r;
    if (n)
        mail_send(comm, TAG_ASK, ranks, n, question, sizeof(*question));
    free(ranks);
}

void ask_read_answer(const struct comm *comm, const void *data, size_t bytes, uint64_t id, struct status_rank *all)
{
    const struct answer *answer = data;
    size_t n = bytes < sizeof(*answer) ? 0 : (bytes - sizeof(*answer)) / sizeof(struct status_rank);

    /* One to an earlier question may come late. */
    if (bytes != sizeof(*answer) + n * sizeof(struct status_rank) || answer->id != id || answer->n != n)
        return;
    for (size_t i = 0; i < n; i++) {
        const struct status_rank *s = &answer->ranks[i];
        if (s->rank >= 0 && s->rank < comm->size && !comm_is_local(comm, s->rank) && s->rank != comm->rank &&
            s->life <= LIFE_ENDED)
            all[s->rank] = *s;
    }
}

/* Takes answers in; returns how many ranks are unknown still. */
static int take_answers(struct comm *comm, struct status_rank *all, uint64_t id)
{
    size_t bytes;
    void *data;
    int from, unknown = 0;

    while (mail_look(comm, TAG_TELL, &from, &data, &bytes)) {
        ask_read_answer(comm, data, bytes, id, all);
        free(data);
    }
    for (int r = 0; r < comm->size; r++)
        unknown += all[r].life == LIFE_UNKNOWN;
    return unknown;
}

int ask_nodes(struct comm *comm, uint64_t number, struct status_rank *all, double seconds)
{
    static _Atomic uint64_t ids;
    const struct question question = {.id = atomic_fetch_add(&ids, 1) + 1, .number = number};
    uint64_t began = proc_now_ns(), patience = (uint64_t)(seconds * 1e9);
    bool asked_all = false;
    int code;

    if (!mail_possible(comm))
        return HETMPI_SUCCESS;
    ask(comm, all, &question, true);
    while (take_answers(comm, all, question.id) && proc_now_ns() - began < patience) {
        /* A leader may be the one that is stuck: its neighbours know as much. */
        if (!asked_all && proc_now_ns() - began > patience / 2) {
            ask(comm, all, &question, false);
            asked_all = true;
        }
        code = comm_failed(comm);
        if (!code)
            code = notice_look(comm);
        if (code)
            return code;
        serve(comm);   /* who asks this rank may be who has to answer */
        proc_nap(200000);
    }
    return HETMPI_SUCCESS;
}
