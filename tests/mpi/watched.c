/* Watching allocations and system calls of one thread: see watched.h. */
#define _GNU_SOURCE
#include "watched.h"

#include <stdlib.h>   /* says whose C library this is */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif

#if defined(SANITIZED) || !defined(__linux__) || !defined(__GLIBC__)

const char *watched_open(void)
{
    return "a sanitizer has the memory functions, or this is not Linux with the GNU C library";
}

void watched_begin(bool system_calls) { (void)system_calls; }
struct watched watched_end(void) { return (struct watched){0, -1}; }

#else

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_ON 1
#endif
enum { ALLOW = 0, BLOCK = 1 };   /* what the kernel reads from `gate` */

static _Thread_local volatile unsigned char gate;
static _Thread_local bool counting;
static _Thread_local long allocations;
static _Thread_local volatile long first_call = -1;

/* The C library's own names of what is defined below. */
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);
void *__libc_memalign(size_t, size_t);

static void note(void)
{
    allocations += counting;
}

void *malloc(size_t bytes)
{
    note();
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    note();
    return __libc_calloc(n, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    note();
    return __libc_realloc(memory, bytes);
}

void free(void *memory)
{
    if (memory)
        note();
    __libc_free(memory);
}

void *memalign(size_t alignment, size_t bytes)
{
    note();
    return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    note();
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    note();
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    note();
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

int munmap(void *at, size_t bytes)
{
    note();
    return (int)syscall(SYS_munmap, at, bytes);
}

/* The first system call opens the gate, is noted, and is made here instead. */
static void on_call(int signal, siginfo_t *info, void *context)
{
    ucontext_t *machine = context;

    (void)signal;
    gate = ALLOW;
    first_call = info->si_syscall;
#if defined(__x86_64__)
    greg_t *r = machine->uc_mcontext.gregs;
    long result = syscall(info->si_syscall, r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], r[REG_R9]);
    r[REG_RAX] = result == -1 ? -errno : result;
#else
    (void)machine;
#endif
}

void watched_begin(bool system_calls)
{
    allocations = 0;
    first_call = -1;
    counting = true;
    gate = system_calls ? BLOCK : ALLOW;
}

struct watched watched_end(void)
{
    gate = ALLOW;
    counting = false;
    return (struct watched){allocations, first_call};
}

const char *watched_open(void)
{
#if defined(__x86_64__)
    struct sigaction action = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO};
    struct watched seen;

    if (sigaction(SIGSYS, &action, NULL) ||
        prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0L, 0L, &gate))
        return "the kernel has no system call user dispatch, or it is not allowed here";
    watched_begin(true);
    void *volatile memory = malloc(100);
    pid_t parent = getppid();
    free(memory);
    seen = watched_end();
    if (seen.allocations != 2 || seen.first_call != SYS_getppid || parent != getppid())
        return "a planted allocation and system call were not seen";
    watched_begin(true);
    seen = watched_end();
    return seen.allocations || seen.first_call != -1 ? "calls are seen where there are none" : NULL;
#else
    return "system calls can be watched on x86-64 only";
#endif
}

#endif
