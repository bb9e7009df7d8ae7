/* What must hold of settings that were read, however they were given. */
#ifndef HETMPI_FUZZ_SETTINGS_H
#define HETMPI_FUZZ_SETTINGS_H

#include "core/config.h"
#include "core/log.h"
#include "fuzz.h"
#include "hetmpi.h"

/* Every value is read back from how it is written. */
static inline void settings_check(const struct cfg *cfg)
{
    static char entry[sizeof(cfg->islands) + 64], again[sizeof(cfg->islands)];
    static struct cfg read;
    char *const environment[] = {entry, NULL};

    for (size_t i = 0; i < cfg_rows(); i++) {
        int n = snprintf(entry, sizeof(entry), "HETMPI_%s=", cfg_row(i)->name);
        cfg_value(cfg, i, entry + n, sizeof(entry) - (size_t)n);
        if (cfg_load(&read, environment)) {
            fprintf(stderr, "%s: %s\n", entry, err_text());
            abort();
        }
        cfg_value(&read, i, again, sizeof(again));
        FUZZ_CHECK(strcmp(entry + n, again) == 0);
    }
}

/* Either all is right, or *cfg is as it was and the message says what is wrong. */
static inline void settings_judge(int code, const struct cfg *cfg, const struct cfg *before)
{
    if (code) {
        FUZZ_CHECK(code == HETMPI_ERR_CONFIG && err_code() == code && err_text()[0]);
        FUZZ_CHECK(memcmp(cfg, before, sizeof(*cfg)) == 0);
    } else {
        settings_check(cfg);
    }
}

#endif
