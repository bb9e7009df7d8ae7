/* Settings: parsers, defaults, file, environment, info keys, and what each error says. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/comm.h"
#include "core/config.h"
#include "core/log.h"
#include "hetmpi.h"

static struct cfg cfg;

#define load(...) cfg_load(&cfg, (char *const[]){__VA_ARGS__, NULL})

static void refused(int code, const char *part1, const char *part2)
{
    if (code != HETMPI_ERR_CONFIG || !strstr(err_text(), part1) || !strstr(err_text(), part2))
        fail_msg("code %d, \"%s\" should name \"%s\" and \"%s\"", code, err_text(), part1, part2);
}

static void sizes(void **state)
{
    static const struct { const char *text; size_t bytes; } good[] = {
        {"0", 0}, {"1", 1}, {"64K", 65536}, {"64k", 65536}, {"3M", 3 << 20}, {"2G", (size_t)2 << 30},
        {"1T", (size_t)1 << 40}, {"1.5K", 1536}, {"0.5M", 524288}, {"18446744073709551615", SIZE_MAX}
    };
    static const char *const bad[] = {
        "", "K", "-1", "+1", " 1", "1 ", "1KK", "1B", "1.K", ".5K", "1.5", "0x10", "1e3", "18446744073709551616",
        "99999999999999999999999", "17179869184G"
    };
    size_t bytes;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        bytes = 77;
        assert_true(cfg_parse_size(good[i].text, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        bytes = 77;
        if (cfg_parse_size(bad[i], &bytes) || bytes != 77)
            fail_msg("\"%s\" was taken as %zu", bad[i], bytes);
    }
}

static void times(void **state)
{
    static const struct { const char *text; double seconds; } good[] = {
        {"0", 0}, {"2", 2}, {"2s", 2}, {"1.5ms", 0.0015}, {"20us", 20e-6}, {"0.25", 0.25}, {"7ns", 7e-9}
    };
    static const char *const bad[] = {"", "s", "-1", "1m", "1 s", "1S", "1.s", "inf", "nan", "1e9", "5min"};
    double seconds;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(cfg_parse_time(good[i].text, &seconds));
        assert_true(fabs(seconds - good[i].seconds) <= 1e-12 * good[i].seconds);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (cfg_parse_time(bad[i], &seconds))
            fail_msg("\"%s\" was taken as %g", bad[i], seconds);
    }
}

static void lists(void **state)
{
    char item[8];

    (void)state;
    assert_int_equal(cfg_list_length(""), 0);
    assert_int_equal(cfg_list_length("a"), 1);
    assert_int_equal(cfg_list_length("a,b,"), 3);
    assert_true(cfg_list_item("n,amd,x", 0, item, sizeof(item)));
    assert_string_equal(item, "n");
    assert_true(cfg_list_item("n,amd,x", 1, item, sizeof(item)));
    assert_string_equal(item, "amd");
    assert_true(cfg_list_item("n,amd,x", 2, item, sizeof(item)));
    assert_string_equal(item, "x");
    assert_false(cfg_list_item("n,amd,x", 3, item, sizeof(item)));
    assert_false(cfg_list_item("n,amd,x", -1, item, sizeof(item)));
    assert_false(cfg_list_item("", 0, item, sizeof(item)));
    assert_true(cfg_list_item("1234567", 0, item, sizeof(item)));
    assert_false(cfg_list_item("12345678", 0, item, sizeof(item)));   /* does not fit: never cut */
}

static void defaults(void **state)
{
    (void)state;
    assert_int_equal(load("HOME=/root"), 0);
    assert_string_equal(cfg.islands, "auto");
    assert_string_equal(cfg.rails, "auto");
    assert_int_equal(cfg.wire, CFG_WIRE_AUTO);
    assert_int_equal(cfg.provider, CFG_PROVIDER_AUTO);
    assert_int_equal(cfg.progress, CFG_PROGRESS_AUTO);
    assert_int_equal(cfg.wire_precision, CFG_PRECISION_ELEMENT);
    assert_int_equal(cfg.log, LOG_WARN);
    assert_int_equal(cfg.chunk, 0);
    assert_int_equal(cfg.small, 16384);
    assert_int_equal(cfg.staging, 64 << 20);
    assert_int_equal(cfg.mpi_piece, 56 << 10);
    assert_int_equal(cfg.window, 0);
    assert_true(cfg.timeout == 0);
    assert_true(cfg.check);
    assert_int_equal(cfg.spin, -1);
    assert_int_equal(cfg.device, -1);
    assert_string_equal(cfg.sim_vendors, "");
    assert_string_equal(cfg.sim_nodes, "");
    assert_string_equal(cfg.sim_fault, "");
    assert_string_equal(cfg.pmpi, "all");
    assert_int_equal(cfg.gid_index, -1);
    assert_int_equal(cfg.retry_count, 6);   /* 7 is for ever */
    assert_true(cfg.sim_bandwidth == 0 && cfg.sim_peer_bandwidth == 0 && cfg.sim_latency == 0);
}

static void environment(void **state)
{
    (void)state;
    assert_int_equal(load("HETMPI_ISLANDS=n,n,a", "HETMPI_WIRE=shm", "HETMPI_PROVIDER=mpi", "HETMPI_CHUNK=64K",
                          "HETMPI_TIMEOUT=1.5", "HETMPI_CHECK=0", "HETMPI_WIRE_PRECISION=exact", "HETMPI_LOG=trace",
                          "HETMPI_DEVICE=3", "HETMPI_SIM_VENDORS=nvidia,amd", "HETMPI_SIM_NODES=0,1",
                          "HETMPI_SIM_BANDWIDTH=200M", "HETMPI_SIM_LATENCY=5us", "HETMPI_SPIN=0",
                          "HETMPI_PROGRESS=wait", "HETMPI_TEST_RANKS=4", "HETMPI_TEST_ANYTHING=x",
                          "HETMPI_ROOT=/opt/hetmpi", "HETMPIX=not ours", "hetmpi_wire=nor this"), 0);
    assert_string_equal(cfg.islands, "n,n,a");
    assert_int_equal(cfg.wire, CFG_WIRE_SHM);
    assert_int_equal(cfg.provider, CFG_PROVIDER_MPI);
    assert_int_equal(cfg.chunk, 65536);
    assert_true(cfg.timeout == 1.5);
    assert_false(cfg.check);
    assert_int_equal(cfg.wire_precision, CFG_PRECISION_EXACT);
    assert_int_equal(cfg.log, LOG_TRACE);
    assert_int_equal(cfg.device, 3);
    assert_string_equal(cfg.sim_vendors, "nvidia,amd");
    assert_string_equal(cfg.sim_nodes, "0,1");
    assert_true(cfg.sim_bandwidth == 200.0 * 1048576);
    assert_true(fabs(cfg.sim_latency - 5e-6) < 1e-15);
    assert_int_equal(cfg.spin, 0);
    assert_int_equal(cfg.progress, CFG_PROGRESS_WAIT);
}

static void unknown_names(void **state)
{
    (void)state;
    refused(load("HETMPI_TIMOUT=1"), "HETMPI_TIMOUT", "HETMPI_TIMEOUT");
    refused(load("HETMPI_CHUNKS=1"), "HETMPI_CHUNKS", "HETMPI_CHUNK ");
    refused(load("HETMPI_VENDORS=amd"), "HETMPI_VENDORS", "HETMPI_SIM_VENDORS");
    refused(load("HETMPI_wire=shm"), "HETMPI_wire", "HETMPI_WIRE ");
    refused(load("HETMPI_=1"), "HETMPI_:", "there is no such setting");
    refused(load("HETMPI_A_NAME_LONGER_THAN_ANY_SETTING_COULD_EVER_BE_OR_ITS_BUFFER_HERE=1"), "HETMPI_A_NAME",
            "there is no such setting");
}

static void bad_values(void **state)
{
    char many[20000];

    (void)state;
    refused(load("HETMPI_WIRE=tcp"), "HETMPI_WIRE = \"tcp\"", "auto mpi shm verbs");
    refused(load("HETMPI_WIRE=auto mpi"), "HETMPI_WIRE", "one of");
    refused(load("HETMPI_WIRE="), "HETMPI_WIRE", "one of");
    refused(load("HETMPI_CHECK=yes"), "HETMPI_CHECK", "1 0");
    refused(load("HETMPI_CHUNK=-1"), "HETMPI_CHUNK", "bytes");
    refused(load("HETMPI_CHUNK=1023"), "HETMPI_CHUNK", "at least 1K");
    refused(load("HETMPI_TIMEOUT=5min"), "HETMPI_TIMEOUT", "seconds");
    refused(load("HETMPI_TIMEOUT=2000000000"), "HETMPI_TIMEOUT", "seconds");
    refused(load("HETMPI_STAGING=1K"), "HETMPI_STAGING", "at least 64K");
    refused(load("HETMPI_WINDOW=-1"), "HETMPI_WINDOW", "chunks");
    refused(load("HETMPI_DEVICE=-2"), "HETMPI_DEVICE", "number");
    refused(load("HETMPI_DEVICE=99999999999"), "HETMPI_DEVICE", "number");
    refused(load("HETMPI_DEVICE=1x"), "HETMPI_DEVICE", "number");
    refused(load("HETMPI_ISLANDS=a,,b"), "HETMPI_ISLANDS", "one label a rank");
    refused(load("HETMPI_ISLANDS=a, b"), "HETMPI_ISLANDS", "one label a rank");
    refused(load("HETMPI_ISLANDS="), "HETMPI_ISLANDS", "one label a rank");
    refused(load("HETMPI_SIM_VENDORS=nvidia,intel"), "HETMPI_SIM_VENDORS", "nvidia");
    refused(load("HETMPI_SIM_NODES=0,b"), "HETMPI_SIM_NODES", "one a rank");
    memcpy(many, "HETMPI_ISLANDS=", 15);
    memset(many + 15, 'a', sizeof(many) - 16);
    many[sizeof(many) - 1] = '\0';
    refused(load(many), "HETMPI_ISLANDS", "at most 16383");
}

/* The names of PMPI are those of the collectives. */
static void lists_of_calls(void **state)
{
    char entry[64];

    (void)state;
    for (int kind = 0; kind < COLL_KINDS; kind++) {
        snprintf(entry, sizeof(entry), "HETMPI_PMPI=all,-%s,%s", coll_name((enum coll_kind)kind),
                 coll_name((enum coll_kind)kind));
        assert_int_equal(load(entry), 0);
        assert_string_equal(cfg.pmpi, strchr(entry, '=') + 1);
    }
    assert_int_equal(load("HETMPI_PMPI=none,bcast"), 0);
    refused(load("HETMPI_PMPI="), "HETMPI_PMPI", "reduce_scatter_block");
    refused(load("HETMPI_PMPI=brodcast"), "brodcast", "reduce_scatter_block");
    refused(load("HETMPI_PMPI=all,-none"), "HETMPI_PMPI", "all none");
    refused(load("HETMPI_PMPI=bcast,"), "HETMPI_PMPI", "all none");
    refused(load("HETMPI_PMPI=bcast, reduce"), "HETMPI_PMPI", "all none");
    refused(load("HETMPI_PMPI=--bcast"), "HETMPI_PMPI", "all none");
}

/* The bounds of the table fit those of the code. */
static void small_fits_a_meeting(void **state)
{
    char entry[64];

    (void)state;
    snprintf(entry, sizeof(entry), "HETMPI_SMALL=%d", CTL_SMALL_MAX);
    assert_int_equal(load(entry), 0);
    assert_int_equal(cfg.small, CTL_SMALL_MAX);
    snprintf(entry, sizeof(entry), "HETMPI_SMALL=%d", CTL_SMALL_MAX + 1);
    refused(load(entry), "HETMPI_SMALL", "at most 16K");
}

static void error_leaves_all_as_it_was(void **state)
{
    (void)state;
    assert_int_equal(load("HETMPI_CHUNK=1K"), 0);
    refused(load("HETMPI_CHUNK=2K", "HETMPI_WIRE=tcp"), "HETMPI_WIRE", "tcp");
    assert_int_equal(cfg.chunk, 1024);
    refused(cfg_set_info(&cfg, "chunk", "many"), "info key chunk", "many");
    assert_int_equal(cfg.chunk, 1024);
}

/* Loads a file with this text, and the environment entry, if any. */
static int load_text(const char *text, char *entry)
{
    char path[] = "/tmp/hetmpi-config-XXXXXX", variable[64];
    int fd = mkstemp(path), code;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    snprintf(variable, sizeof(variable), "HETMPI_CONFIG=%s", path);
    code = cfg_load(&cfg, (char *const[]){entry ? entry : "A=b", variable, NULL});
    unlink(path);
    return code;
}

static void files(void **state)
{
    (void)state;
    assert_int_equal(load_text("# a comment\n\n  TIMEOUT = 3s  # seconds\nWIRE=mpi\n\tSIM_VENDORS = amd,cpu\n"
                               "CHUNK = 1M", NULL), 0);
    assert_true(cfg.timeout == 3);
    assert_int_equal(cfg.wire, CFG_WIRE_MPI);
    assert_string_equal(cfg.sim_vendors, "amd,cpu");
    assert_int_equal(cfg.chunk, 1 << 20);
    assert_int_equal(load_text("WIRE = mpi\n", "HETMPI_WIRE=shm"), 0);   /* the environment wins */
    assert_int_equal(cfg.wire, CFG_WIRE_SHM);

    refused(load_text("\nTIMEOUT = 1\nWIER = shm\n", NULL), ":3: WIER", "WIRE");
    refused(load_text("WIRE = shm\nWIRE = mpi\n", NULL), ":2: WIRE", "second time");
    refused(load_text("WIRE shm\n", NULL), ":1:", "NAME = value");
    refused(load_text("WIRE = tcp\n", NULL), ":1: WIRE", "auto mpi shm verbs");
    refused(load_text("HETMPI_WIRE = shm\n", NULL), ":1: HETMPI_WIRE", "WIRE");
    refused(load("HETMPI_CONFIG=/nonexistent/file"), "/nonexistent/file", "No such file");
    refused(load("HETMPI_CONFIG=/tmp"), "/tmp", "directory");
    assert_int_equal(load("HETMPI_CONFIG="), 0);
}

static void info_keys(void **state)
{
    (void)state;
    assert_int_equal(load("HETMPI_CHUNK=1K"), 0);
    assert_int_equal(cfg_set_info(&cfg, "timeout", "250ms"), 0);
    assert_true(fabs(cfg.timeout - 0.25) < 1e-12);
    assert_int_equal(cfg_set_info(&cfg, "wire_precision", "exact"), 0);
    assert_int_equal(cfg.wire_precision, CFG_PRECISION_EXACT);
    assert_int_equal(cfg.chunk, 1024);
    refused(cfg_set_info(&cfg, "wires", "mpi"), "info key wires", "is wire ");
    refused(cfg_set_info(&cfg, "log", "debug"), "info key log", "process");
    refused(cfg_set_info(&cfg, "sim_vendors", "amd"), "info key sim_vendors", "process");
    refused(cfg_set_info(&cfg, "wire", "tcp"), "info key wire", "tcp");
}

/* Every value that is listed can be read again, and means the same. */
static void values_round_trip(void **state)
{
    static struct cfg again;
    char text[17000], entry[17100];

    (void)state;
    assert_int_equal(load("HETMPI_CHUNK=3000000", "HETMPI_SMALL=1000", "HETMPI_STAGING=1G", "HETMPI_TIMEOUT=1500us",
                          "HETMPI_SIM_LATENCY=1.5us", "HETMPI_SIM_BANDWIDTH=300M", "HETMPI_SPIN=12",
                          "HETMPI_ISLANDS=a,b,a", "HETMPI_SIM_FAULT=copy@3", "HETMPI_CHECK=0", "HETMPI_LOG=info"), 0);
    assert_int_equal(cfg_load(&again, (char *const[]){NULL}), 0);
    for (size_t i = 0; i < cfg_rows(); i++) {
        char before[17000];
        char *const one[] = {entry, NULL};

        cfg_value(&cfg, i, before, sizeof(before));
        if (!*before)
            continue;
        snprintf(entry, sizeof(entry), "HETMPI_%s=%s", cfg_row(i)->name, before);
        assert_int_equal(cfg_load(&again, one), 0);
        cfg_value(&again, i, text, sizeof(text));
        assert_string_equal(text, before);
        assert_true(strlen(cfg_row(i)->values) && strlen(cfg_row(i)->help));
    }
    assert_int_equal(load("HETMPI_TIMEOUT=1500us"), 0);
    for (size_t i = 0; i < cfg_rows(); i++) {
        if (strcmp(cfg_row(i)->name, "TIMEOUT") == 0) {
            cfg_value(&cfg, i, text, sizeof(text));
            assert_string_equal(text, "1500us");
            cfg_value(&cfg, i, text, 3);
            assert_string_equal(text, "15");
        }
    }
}

/* Settings that must agree each have one hash, which differs exactly where the value does; the others have none. */
static void agreement(void **state)
{
    static const struct { char *entry; const char *name; } cases[] = {
        {"HETMPI_CHUNK=1K", "CHUNK"}, {"HETMPI_SMALL=1K", "SMALL"}, {"HETMPI_STAGING=1M", "STAGING"},
        {"HETMPI_EAGER=4K", "EAGER"}, {"HETMPI_LEVELS=2", "LEVELS"}, {"HETMPI_MPI_PIECE=8K", "MPI_PIECE"},
        {"HETMPI_WINDOW=3", "WINDOW"}, {"HETMPI_WIRE=mpi", "WIRE"}, {"HETMPI_PROVIDER=mpi", "PROVIDER"},
        {"HETMPI_WIRE_PRECISION=exact", "WIRE_PRECISION"}, {"HETMPI_CHECK=0", "CHECK"},
        {"HETMPI_ISLANDS=a,b", "ISLANDS"}, {"HETMPI_SIM_VENDORS=amd", "SIM_VENDORS"},
        {"HETMPI_SIM_NODES=1", "SIM_NODES"}, {"HETMPI_QUEUE_DEPTH=8", "QUEUE_DEPTH"},
        {"HETMPI_RAILS_LOST=error", "RAILS_LOST"},
        {"HETMPI_PMPI=none", "PMPI"}
    };
    static char *const free_choice[] = {
        "HETMPI_TIMEOUT=3", "HETMPI_SPIN=3", "HETMPI_PROGRESS=wait", "HETMPI_LOG=info", "HETMPI_DEVICE=1",
        "HETMPI_SIM_BANDWIDTH=1M", "HETMPI_SIM_PEER_BANDWIDTH=1M", "HETMPI_SIM_LATENCY=1us", "HETMPI_SIM_FAULT=x",
        "HETMPI_REPORT=r", "HETMPI_DUMP=SIGUSR2", "HETMPI_RAILS=x", "HETMPI_STRIPE=1M", "HETMPI_ZERO_COPY=1M", "HETMPI_GID_INDEX=3",
        "HETMPI_SERVICE_LEVEL=1", "HETMPI_TRAFFIC_CLASS=1", "HETMPI_PKEY_INDEX=1", "HETMPI_RETRY_COUNT=1",
        "HETMPI_RETRY_TIMEOUT=10"
    };
    enum { CASES = sizeof(cases) / sizeof(cases[0]), FREE = sizeof(free_choice) / sizeof(free_choice[0]) };
    unsigned plain[CFG_AGREE_MAX], other[CFG_AGREE_MAX];

    (void)state;
    assert_int_equal(CASES + FREE, cfg_rows());
    assert_int_equal(load("A=b"), 0);
    cfg_agree(&cfg, plain);
    for (int i = 0; i < CFG_AGREE_MAX; i++)
        assert_int_equal(plain[i] != 0, i < CASES);
    assert_null(cfg_agree_name(CASES));
    for (int c = 0; c < CASES; c++) {
        assert_int_equal(load(cases[c].entry), 0);
        cfg_agree(&cfg, other);
        for (int i = 0; i < CASES; i++) {
            if ((plain[i] != other[i]) != (strcmp(cfg_agree_name((size_t)i), cases[c].name) == 0))
                fail_msg("%s: hash of %s", cases[c].entry, cfg_agree_name((size_t)i));
        }
    }
    for (int c = 0; c < FREE; c++) {
        assert_int_equal(load(free_choice[c]), 0);
        cfg_agree(&cfg, other);
        assert_memory_equal(plain, other, sizeof(plain));
    }
}

/* Writes the answer that this thread gets. */
static void *ask(void *answer)
{
    snprintf(answer, 512, "%s", cfg_process() ? "settings" : err_text());
    return NULL;
}

/* The first call decides; an error is told to every thread that asks. (One state per process: broken here.) */
static void process_settings(void **state)
{
    pthread_t thread;
    char answer[512];

    (void)state;
    setenv("HETMPI_WIRE", "tcp", 1);
    assert_null(cfg_process());
    refused(HETMPI_ERR_CONFIG, "HETMPI_WIRE", "tcp");
    setenv("HETMPI_WIRE", "shm", 1);
    assert_null(cfg_process());
    err_set(HETMPI_ERR_ARG, "something else");
    assert_null(cfg_process());
    refused(err_code(), "HETMPI_WIRE", "tcp");
    assert_int_equal(pthread_create(&thread, NULL, ask, answer), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_non_null(strstr(answer, "HETMPI_WIRE"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes), cmocka_unit_test(times), cmocka_unit_test(lists), cmocka_unit_test(defaults),
        cmocka_unit_test(environment), cmocka_unit_test(unknown_names), cmocka_unit_test(bad_values),
        cmocka_unit_test(lists_of_calls), cmocka_unit_test(small_fits_a_meeting), cmocka_unit_test(error_leaves_all_as_it_was),
        cmocka_unit_test(files), cmocka_unit_test(info_keys), cmocka_unit_test(values_round_trip),
        cmocka_unit_test(agreement), cmocka_unit_test(process_settings)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
