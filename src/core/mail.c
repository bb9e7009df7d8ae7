/* Short messages between nodes: see mail.h. */
#include "core/mail.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/proc.h"

struct mail {
    struct mail *next;
    unsigned char *data;
    int n;
    MPI_Request requests[];
};

static pthread_mutex_t lists = PTHREAD_MUTEX_INITIALIZER;   /* of all communicators: several threads may wait */

bool mail_possible(const struct comm *comm)
{
    return !comm->one_node && comm->shadow != MPI_COMM_NULL && proc_may_call_mpi();
}

static bool is_sent(struct mail *mail)
{
    int done = 1;

    for (int i = 0; i < mail->n && done; i++)
        if (MPI_Test(&mail->requests[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            done = 0;
    return done;
}

static void drop_sent(struct mail **list)
{
    while (*list) {
        struct mail *mail = *list;
        if (!is_sent(mail)) {
            list = &mail->next;
            continue;
        }
        *list = mail->next;
        free(mail->data);
        free(mail);
    }
}

void mail_send(struct comm *comm, int tag, const int *ranks, int n, const void *data, size_t bytes)
{
    struct mail *mail;

    mail = calloc(1, sizeof(*mail) + (size_t)n * sizeof(*mail->requests));
    if (mail)
        mail->data = malloc(bytes);
    if (!mail || !mail->data) {
        free(mail);
        return;   /* those who wait for it have a timeout */
    }
    memcpy(mail->data, data, bytes);
    pthread_mutex_lock(&lists);
    drop_sent(&comm->mail);
    for (int i = 0; i < n; i++)
        if (MPI_Isend(mail->data, (int)bytes, MPI_BYTE, ranks[i], tag, comm->shadow, &mail->requests[mail->n]) ==
            MPI_SUCCESS)
            mail->n++;
    mail->next = comm->mail;
    comm->mail = mail;
    pthread_mutex_unlock(&lists);
}

bool mail_look(struct comm *comm, int tag, int *from, void **data, size_t *bytes)
{
    MPI_Message message;
    MPI_Status status;
    int flag = 0, length = 0;

    if (MPI_Improbe(MPI_ANY_SOURCE, tag, comm->shadow, &flag, &message, &status) != MPI_SUCCESS || !flag)
        return false;
    MPI_Get_count(&status, MPI_BYTE, &length);
    *data = malloc((size_t)length + 1);
    if (!*data) {
        MPI_Message lost = message;   /* received into nothing: MPI cuts it, and says so, which nobody needs to know */
        MPI_Mrecv(NULL, 0, MPI_BYTE, &lost, MPI_STATUS_IGNORE);
        return false;
    }
    if (MPI_Mrecv(*data, length, MPI_BYTE, &message, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        free(*data);
        return false;
    }
    *from = status.MPI_SOURCE;
    *bytes = (size_t)length;
    return true;
}

void mail_release(struct comm *comm)
{
    static struct mail *undelivered;   /* within reach, so that tools find no leak */
    struct mail **end = &comm->mail;

    pthread_mutex_lock(&lists);
    drop_sent(&comm->mail);
    while (*end)
        end = &(*end)->next;
    *end = undelivered;
    undelivered = comm->mail;
    comm->mail = NULL;
    drop_sent(&undelivered);
    pthread_mutex_unlock(&lists);
}
