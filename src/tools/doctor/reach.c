/* Whether nodes reach each other by TCP, which MPI starts with: a port that is open must also answer. See doctor.h. */
#include "doctor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HELLO "hetmpi_doctor 1\n"
#define HELLO_BYTES 16
#define PATIENCE_MS 2000
#define ADDRESSES 8

static const char net_mend[] = "allow all ports between the nodes of the job ('nft list ruleset', 'iptables -S', the cloud's security "
    "groups); or keep MPI to a range that is open: OMPI_MCA_btl_tcp_port_min_v4 and _range_v4 (Open MPI), MPIEXEC_PORT_RANGE (MPICH)";

struct address { uint32_t ip, mask; };   /* network order */
struct reach_node { char host[64]; int port, n; struct address address[ADDRESSES]; };

enum outcome { PENDING, ANSWERED, REFUSED, DROPPED, SILENT, GARBLED };
struct target {
    struct sockaddr_storage to;
    socklen_t length;
    const char *host;
    char name[128];          /* address:port */
    int fd;
    bool greeted;
    size_t heard;
    char answer[HELLO_BYTES];
    enum outcome outcome;
};

static long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Says back what it hears. */
static void serve(int fd)
{
    struct timeval patience = {.tv_sec = 1};
    char hello[HELLO_BYTES];
    ssize_t n;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    n = recv(fd, hello, sizeof(hello), MSG_WAITALL);
    if (n == (ssize_t)sizeof(hello))
        (void)!send(fd, hello, sizeof(hello), MSG_NOSIGNAL);
    close(fd);
}

static void *serve_all(void *argument)
{
    int listener = *(int *)argument, fd;

    while ((fd = accept(listener, NULL, NULL)) >= 0)   /* until shutdown() */
        serve(fd);
    return NULL;
}

/* A listening socket on any address; -1: none, errno. */
static int listen_on(int *port)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
    socklen_t length = sizeof(any);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(fd, (struct sockaddr *)&any, sizeof(any)) || listen(fd, 128) ||
        getsockname(fd, (struct sockaddr *)&any, &length)) {
        close(fd);
        return -1;
    }
    *port = ntohs(any.sin_port);
    return fd;
}

int listen_until_killed(int port, double seconds)
{
    int listener = listen_on(&port);
    long end = now_ms() + (long)(seconds * 1000);
    struct pollfd wait = {.fd = listener, .events = POLLIN};

    if (listener < 0) {
        fprintf(stderr, "hetmpi_doctor: cannot listen on port %d: %s\n", port, strerror(errno));
        return EXIT_NOT_RUN;
    }
    printf("listening on port %d for %g s; on the other node: hetmpi_doctor --probe <this node>:%d\n", port, seconds, port);
    fflush(stdout);
    for (long left = end - now_ms(); left > 0; left = end - now_ms()) {
        int fd = poll(&wait, 1, (int)left) > 0 ? accept(listener, NULL, NULL) : -1;

        if (fd >= 0)
            serve(fd);
    }
    close(listener);
    return EXIT_SUCCESS;
}

/*
 * The other side: all connections at once.
 */

static void target_begin(struct target *target)
{
    target->fd = socket(target->to.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    target->outcome = PENDING;
    if (target->fd < 0 || (connect(target->fd, (struct sockaddr *)&target->to, target->length) && errno != EINPROGRESS))
        target->outcome = REFUSED;
}

static void target_ready(struct target *target)
{
    int error = 0;
    socklen_t length = sizeof(error);
    ssize_t n;

    if (!target->greeted) {
        getsockopt(target->fd, SOL_SOCKET, SO_ERROR, &error, &length);
        if (error || send(target->fd, HELLO, HELLO_BYTES, MSG_NOSIGNAL) != HELLO_BYTES)
            target->outcome = error == ETIMEDOUT ? DROPPED : REFUSED;
        target->greeted = true;
        return;
    }
    n = recv(target->fd, target->answer + target->heard, HELLO_BYTES - target->heard, 0);
    if (n <= 0)
        target->outcome = SILENT;
    else if ((target->heard += (size_t)n) == HELLO_BYTES)
        target->outcome = memcmp(target->answer, HELLO, HELLO_BYTES) == 0 ? ANSWERED : GARBLED;
}

static void targets_run(struct target *targets, int n)
{
    struct pollfd *waits = calloc((size_t)n + 1, sizeof(*waits));
    long end = now_ms() + PATIENCE_MS;
    int pending = waits ? n : 0;

    for (int i = 0; i < n; i++)
        target_begin(&targets[i]);
    while (pending > 0 && now_ms() < end) {
        pending = 0;
        for (int i = 0; i < n; i++) {
            bool waiting = targets[i].outcome == PENDING;

            waits[i] = (struct pollfd){.fd = waiting ? targets[i].fd : -1, .events = targets[i].greeted ? POLLIN : POLLOUT};
            pending += waiting;
        }
        if (pending == 0 || poll(waits, (nfds_t)n, (int)(end - now_ms()) + 1) <= 0)
            continue;
        for (int i = 0; i < n; i++)
            if (waits[i].fd >= 0 && waits[i].revents)
                target_ready(&targets[i]);
    }
    for (int i = 0; i < n; i++) {
        if (targets[i].outcome == PENDING)
            targets[i].outcome = targets[i].greeted ? SILENT : DROPPED;
        if (targets[i].fd >= 0)
            close(targets[i].fd);
    }
    free(waits);
}

static void tell(struct doctor *doctor, const struct target *target, enum severity severity)
{
    static const char *const words[] = {
        [REFUSED] = "refuses connections", [DROPPED] = "does not answer connections: packets are dropped on the way",
        [SILENT] = "is open but silent: something on the way takes connections and passes nothing on",
        [GARBLED] = "answers, but not as a hetmpi_doctor: another program, or a proxy",
    };

    find(doctor, severity, "reach", "MPI hangs at its start, or at the first message between these nodes", net_mend,
         "%s at %s %s", target->host, target->name, words[target->outcome]);
}

void check_probe(struct doctor *doctor)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    struct target target = {.host = doctor->options.probe};
    char host[256];
    const char *colon = strrchr(doctor->options.probe, ':');
    int error;

    snprintf(host, sizeof(host), "%.*s", (int)(colon - doctor->options.probe), doctor->options.probe);
    error = getaddrinfo(host, colon + 1, &hints, &found);
    if (error) {
        find(doctor, FAULT, "reach", "nodes cannot find each other by name", "add the node to DNS or /etc/hosts",
             "%s is not known: %s", host, gai_strerror(error));
        return;
    }
    memcpy(&target.to, found->ai_addr, found->ai_addrlen);
    target.length = found->ai_addrlen;
    getnameinfo(found->ai_addr, found->ai_addrlen, target.name, sizeof(target.name) - 8, NULL, 0, NI_NUMERICHOST);
    snprintf(target.name + strlen(target.name), 8, ":%.6s", colon + 1);
    freeaddrinfo(found);
    targets_run(&target, 1);
    if (target.outcome != ANSWERED)
        tell(doctor, &target, FAULT);
}

/* This node's IPv4 addresses. */
static void own_addresses(struct reach_node *node)
{
    struct ifaddrs *all = NULL;

    if (getifaddrs(&all))
        return;
    for (struct ifaddrs *at = all; at && node->n < ADDRESSES; at = at->ifa_next)
        if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET && (at->ifa_flags & IFF_UP) && !(at->ifa_flags & IFF_LOOPBACK))
            node->address[node->n++] = (struct address){((struct sockaddr_in *)at->ifa_addr)->sin_addr.s_addr,
                                                        ((struct sockaddr_in *)at->ifa_netmask)->sin_addr.s_addr};
    freeifaddrs(all);
}

/* An address of theirs in a network of ours. A bridge that both have by the same address (docker0) leads nowhere. */
static bool shared_network(const struct reach_node *ours, const struct address *theirs)
{
    bool shared = false;

    for (int i = 0; i < ours->n; i++) {
        if (ours->address[i].ip == theirs->ip)
            return false;
        shared = shared || (ours->address[i].ip & ours->address[i].mask) == (theirs->ip & ours->address[i].mask);
    }
    return shared;
}

static int targets_of(const struct reach_node *ours, const struct reach_node *theirs, struct target *targets)
{
    int n = 0;

    for (int i = 0; i < theirs->n; i++) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)theirs->port),
                                 .sin_addr.s_addr = theirs->address[i].ip};
        char ip[INET_ADDRSTRLEN];

        if (!shared_network(ours, &theirs->address[i]))
            continue;
        targets[n] = (struct target){.length = sizeof(to), .host = theirs->host};
        memcpy(&targets[n].to, &to, sizeof(to));
        inet_ntop(AF_INET, &to.sin_addr, ip, sizeof(ip));
        snprintf(targets[n++].name, sizeof(targets[0].name), "%s:%d", ip, theirs->port);
    }
    return n;
}

static void try_all(struct doctor *doctor, const struct reach_node *ours, const struct reach_node *nodes, int n)
{
    struct target *targets = calloc((size_t)n * ADDRESSES, sizeof(*targets));
    int n_targets = 0;

    if (!targets)
        return;
    for (int i = 0; i < n; i++)
        if (&nodes[i] != ours && nodes[i].port)
            n_targets += targets_of(ours, &nodes[i], targets + n_targets);
    targets_run(targets, n_targets);
    for (int i = 0; i < n_targets; i++)
        if (targets[i].outcome != ANSWERED)
            tell(doctor, &targets[i], WARNING);
    free(targets);
}

void check_reach(struct doctor *doctor)
{
    struct reach_node mine = {.port = 0}, *nodes = NULL;
    int n, me, listener;
    pthread_t thread;

    MPI_Comm_size(doctor->leaders, &n);
    MPI_Comm_rank(doctor->leaders, &me);
    if (n == 1)
        return;
    nodes = calloc((size_t)n, sizeof(*nodes));
    if (!nodes)
        MPI_Abort(MPI_COMM_WORLD, EXIT_NOT_RUN);
    listener = listen_on(&mine.port);
    if (listener >= 0 && pthread_create(&thread, NULL, serve_all, &listener)) {
        close(listener);
        listener = -1;
        mine.port = 0;
    }
    snprintf(mine.host, sizeof(mine.host), "%s", doctor->host);
    own_addresses(&mine);
    MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, nodes, sizeof(mine), MPI_BYTE, doctor->leaders);
    try_all(doctor, &nodes[me], nodes, n);
    MPI_Barrier(doctor->leaders);   /* nobody is being asked any more */
    if (listener >= 0) {
        shutdown(listener, SHUT_RDWR);
        pthread_join(thread, NULL);
        close(listener);
    }
    free(nodes);
}
