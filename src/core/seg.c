/* Nameless shared memory between the processes of one node: see seg.h. */
#define _GNU_SOURCE
#include "core/seg.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "core/proc.h"
#include "hetmpi.h"

/* Different for every segment that this process makes, and in practice for all others: a descriptor number that was
 * closed and used again by the same process must not pass for the old segment. */
static uint64_t make_cookie(void)
{
    static _Atomic uint64_t made;
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return ((uint64_t)getpid() << 40) ^ ((uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec) ^
           (atomic_fetch_add(&made, 1) << 56) ^ 0x68746d70u;
}

uint64_t seg_host_key(void)
{
    char boot_id[64] = "";
    struct stat pid_space;
    uint64_t key = PROC_HASH_START;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");

    if (file) {
        if (fgets(boot_id, sizeof(boot_id), file))
            key = proc_hash(key, boot_id, strlen(boot_id));
        fclose(file);
    }
    if (stat("/proc/self/ns/pid", &pid_space) == 0)
        key = proc_hash(key, &pid_space.st_ino, sizeof(pid_space.st_ino));
    return key;
}

int seg_create(struct seg *seg, size_t bytes, struct seg_name *name)
{
    struct rlimit limit;
    int error, fd;
    void *base;

    /* Beyond it comes SIGXFSZ, which ends the program. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
        return err_set(HETMPI_ERR_MEMORY, "no file, nor shared memory, may have %zu bytes here (raise ulimit -f?)", bytes);
    fd = memfd_create("hetmpi", MFD_CLOEXEC);
    if (fd < 0)
        return err_set(errno == EMFILE || errno == ENFILE ? HETMPI_ERR_MEMORY : HETMPI_ERR_INTERNAL,
                       "no descriptor for %zu bytes of shared memory: %s (raise ulimit -n?)", bytes, strerror(errno));
    /* Reserving every page now turns a full node into an error here instead of SIGBUS at some later store. */
    error = posix_fallocate(fd, 0, (off_t)bytes);
    if (error) {
        err_set(HETMPI_ERR_MEMORY, "no memory for %zu bytes of shared memory: %s", bytes, strerror(error));
        goto close_fd;
    }
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        err_set(HETMPI_ERR_MEMORY, "cannot map %zu bytes of shared memory: %s (ulimit -v?)", bytes, strerror(errno));
        goto close_fd;
    }
    *seg = (struct seg){.base = base, .bytes = bytes, .fd = fd};
    *name = (struct seg_name){.pid = getpid(), .fd = fd, .bytes = bytes, .cookie = make_cookie()};
    memcpy(base, &name->cookie, sizeof(name->cookie));
    return HETMPI_SUCCESS;

close_fd:
    close(fd);
    return HETMPI_ERR_MEMORY;
}

int seg_open(struct seg *seg, const struct seg_name *name)
{
    char path[64];
    uint64_t cookie;
    struct stat what;
    void *base;
    int fd, code;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", name->pid, name->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return err_set(HETMPI_ERR_MEMORY, "cannot open the shared memory of process %d: %s%s", name->pid,
                       strerror(errno), errno == EMFILE ? " (raise ulimit -n?)" : "");
    /* The number may name another file by now; beyond a file's end comes SIGBUS. */
    if (fstat(fd, &what) != 0 || !S_ISREG(what.st_mode) || (uint64_t)what.st_size < name->bytes ||
        name->bytes < sizeof(cookie)) {
        close(fd);
        return err_set(HETMPI_ERR_INTERNAL, "the shared memory of process %d is gone (another file has its place)",
                       name->pid);
    }
    base = mmap(NULL, name->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        code = err_set(HETMPI_ERR_MEMORY, "cannot map %zu bytes of process %d: %s (ulimit -v?)", (size_t)name->bytes,
                       name->pid, strerror(errno));
        close(fd);
        return code;
    }
    close(fd);
    memcpy(&cookie, base, sizeof(cookie));
    if (cookie != name->cookie) {
        munmap(base, name->bytes);
        return err_set(HETMPI_ERR_INTERNAL, "the shared memory of process %d is gone (another file has its place)",
                       name->pid);
    }
    *seg = (struct seg){.base = base, .bytes = name->bytes, .fd = -1};
    return HETMPI_SUCCESS;
}

void seg_clear(struct seg *seg)
{
    if (!seg->base)
        return;
    munmap(seg->base, seg->bytes);
    if (seg->fd >= 0)
        close(seg->fd);
    *seg = (struct seg){.fd = -1};
}
