/* The file of settings that HETMPI_CONFIG names: the input is the file. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cfg cfg, before;
    char entry[64];
    char *const environment[] = {entry, NULL};
    int fd = memfd_create("settings", MFD_CLOEXEC), code;

    FUZZ_CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(entry, sizeof(entry), "HETMPI_CONFIG=/proc/self/fd/%d", fd);
    memset(&cfg, 0x5a, sizeof(cfg));
    before = cfg;
    code = cfg_load(&cfg, environment);
    FUZZ_CHECK(code || !memchr(data, 0, size));   /* text behind a zero would not be seen */
    settings_judge(code, &cfg, &before);
    close(fd);
    return 0;
}
