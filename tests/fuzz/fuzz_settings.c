/* Settings given by the environment and by MPI_Info entries. The first byte says which; lines follow. */
#include "settings.h"

#define ENTRIES 8

/* Cuts the input at newlines and zeroes; returns how many lines there are. */
static int lines(char *text, size_t size, char *line[ENTRIES])
{
    int n = 0;

    for (size_t i = 0; i < size && n < ENTRIES; i++) {
        if (i == 0 || text[i - 1] == '\0')
            line[n++] = text + i;
        if (text[i] == '\n')
            text[i] = '\0';
    }
    return n;
}

static void environment(char *line[], int n)
{
    static struct cfg cfg, before;
    char *entries[ENTRIES + 1] = {NULL};
    int used = 0;

    for (int i = 0; i < n; i++) {
        if (strncmp(line[i], "CONFIG=", 7) == 0)
            continue;   /* no file of this machine */
        entries[used] = malloc(strlen(line[i]) + 8);
        FUZZ_CHECK(entries[used]);
        sprintf(entries[used++], "HETMPI_%s", line[i]);
    }
    memset(&cfg, 0x5a, sizeof(cfg));
    before = cfg;
    settings_judge(cfg_load(&cfg, entries), &cfg, &before);
    for (int i = 0; i < used; i++)
        free(entries[i]);
}

static void info(char *line[], int n)
{
    static struct cfg cfg, before;
    char *const nothing[] = {NULL};

    FUZZ_CHECK(!cfg_load(&cfg, nothing));
    for (int i = 0; i + 1 < n; i += 2) {
        before = cfg;
        settings_judge(cfg_set_info(&cfg, line[i], line[i + 1]), &cfg, &before);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    uint8_t how = fuzz_byte(&in);
    char *text = calloc(1, in.size + 1), *line[ENTRIES];
    int n;

    FUZZ_CHECK(text);
    memcpy(text, in.data, in.size);
    n = lines(text, in.size, line);
    if (how & 1)
        info(line, n);
    else
        environment(line, n);
    free(text);
    return 0;
}
