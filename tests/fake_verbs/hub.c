/* The shared memory of a process, and how others reach it: see fake.h. */
#define _GNU_SOURCE   /* memfd_create */
#include "fake.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC 0x7362726576656b61ull
#define NAME "fake_verbs"
#define PAGE ((uint64_t)4096)

static struct {
    pthread_mutex_t lock;
    struct fake_peer *self, *others;
} peers = {.lock = PTHREAD_MUTEX_INITIALIZER};

void fake_lock(pthread_mutex_t *lock)
{
    if (pthread_mutex_lock(lock) == EOWNERDEAD)   /* a number at most is wrong, in the queue of a process that dies too */
        pthread_mutex_consistent(lock);
}

uint32_t fake_number(uint32_t place, uint32_t places)
{
    return (atomic_fetch_add(&fake_self()->hub->last_number, 1) + 1) * places + place;
}

static void locks_init(struct fake_hub *hub)
{
    pthread_mutexattr_t shared;

    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    for (int i = 0; i < FAKE_CQS; i++)
        pthread_mutex_init(&hub->cq[i].lock, &shared);
    for (int i = 0; i < FAKE_SRQS; i++)
        pthread_mutex_init(&hub->srq[i].lock, &shared);
    pthread_mutexattr_destroy(&shared);
}

static struct fake_hub *hub_map(int fd)
{
    void *hub = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct fake_hub), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return hub == MAP_FAILED ? NULL : hub;
}

static struct fake_hub *hub_make(void)
{
    int fd = memfd_create(NAME, MFD_CLOEXEC);   /* stays open: others find it by its name */
    struct fake_hub *hub = fd >= 0 && ftruncate(fd, sizeof(*hub)) == 0 ? hub_map(fd) : NULL;

    if (!hub)
        return NULL;
    hub->pid = (int32_t)getpid();
    locks_init(hub);
    hub->magic = MAGIC;
    return hub;
}

int fake_open(int pid, int fd, int flags)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    return open(path, flags | O_CLOEXEC);
}

static struct fake_hub *hub_find(int pid)
{
    char path[64], link[64];
    struct fake_hub *hub = NULL;
    struct dirent *entry;
    DIR *folder;

    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    folder = opendir(path);
    while (folder && !hub && (entry = readdir(folder))) {
        ssize_t n = readlinkat(dirfd(folder), entry->d_name, link, sizeof(link) - 1);
        int fd;

        link[n < 0 ? 0 : n] = '\0';
        if (strncmp(link, "/memfd:" NAME, strlen("/memfd:" NAME)) != 0)
            continue;
        fd = fake_open(pid, atoi(entry->d_name), O_RDWR);
        hub = hub_map(fd);
        if (fd >= 0)
            close(fd);
    }
    if (folder)
        closedir(folder);
    return hub && hub->magic == MAGIC && hub->pid == pid ? hub : NULL;
}

static struct fake_peer *peer_new(int pid, struct fake_hub *hub)
{
    struct fake_peer *made = hub ? calloc(1, sizeof(*made)) : NULL;

    if (!made)
        return NULL;
    made->pid = pid;
    made->hub = hub;
    pthread_mutex_init(&made->lock, NULL);
    return made;
}

struct fake_peer *fake_self(void)
{
    pthread_mutex_lock(&peers.lock);
    if (!peers.self)
        peers.self = peer_new(getpid(), hub_make());
    pthread_mutex_unlock(&peers.lock);
    if (!peers.self) {
        perror("fake_verbs: no hub");
        abort();
    }
    return peers.self;
}

struct fake_peer *fake_peer_of(int pid)
{
    struct fake_peer *peer;

    if (pid == fake_self()->pid)
        return fake_self();
    pthread_mutex_lock(&peers.lock);
    for (peer = peers.others; peer && peer->pid != pid; peer = peer->next)
        ;
    if (!peer && (peer = peer_new(pid, hub_find(pid)))) {
        peer->next = peers.others;
        peers.others = peer;
    }
    pthread_mutex_unlock(&peers.lock);
    return peer;
}

const struct fake_region *fake_find(struct fake_peer *peer, uint32_t key, uint64_t at, uint64_t bytes, unsigned access,
                                    uint32_t pd)
{
    const struct fake_region *region = &peer->hub->region[key % FAKE_REGIONS];

    if (key == 0 || atomic_load(&region->key) != key || at < region->base || at - region->base > region->bytes ||
        bytes > region->bytes - (at - region->base) || (region->access & access) != access || (pd && region->pd != pd))
        return NULL;
    return region;
}

char *fake_touch(struct fake_peer *peer, const struct fake_region *region, uint64_t at)
{
    struct fake_mapping *mapping = &peer->mapping[region - peer->hub->region];
    uint32_t key = atomic_load(&region->key);
    char *found;

    pthread_mutex_lock(&peer->lock);
    if (mapping->key != key) {
        int fd = fake_open(peer->pid, region->fd, O_RDWR);
        void *made;

        if (mapping->key)
            munmap(mapping->at, mapping->bytes);
        mapping->first = region->offset - region->offset % PAGE;
        mapping->bytes = region->offset + region->bytes - mapping->first;
        made = fd < 0 ? MAP_FAILED : mmap(NULL, mapping->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)mapping->first);
        if (fd >= 0)
            close(fd);
        mapping->at = made;
        mapping->key = made == MAP_FAILED ? 0 : key;
    }
    found = mapping->key ? mapping->at + (region->offset - mapping->first) + (at - region->base) : NULL;
    pthread_mutex_unlock(&peer->lock);
    return found;
}
