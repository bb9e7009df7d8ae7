/* The log's lines and levels, and the error text of each thread. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/log.h"
#include "hetmpi.h"

static char captured[8192];
static int saved_stderr, pipe_ends[2];

static void capture(void)
{
    fflush(stderr);
    assert_int_equal(pipe(pipe_ends), 0);
    saved_stderr = dup(STDERR_FILENO);
    dup2(pipe_ends[1], STDERR_FILENO);
}

/* What was written to stderr since capture(). */
static const char *release(void)
{
    ssize_t length;

    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(pipe_ends[1]);
    length = read(pipe_ends[0], captured, sizeof(captured) - 1);
    close(pipe_ends[0]);
    captured[length > 0 ? length : 0] = '\0';
    return captured;
}

static void lines(void **state)
{
    (void)state;
    log_set_level(LOG_INFO);
    log_set_rank(-1);
    capture();
    log_warn("before MPI %d", 1);
    log_set_rank(3);
    log_at(LOG_ERROR, "an error");
    log_info("shown");
    log_debug("hidden");
    log_trace("hidden");
    assert_string_equal(release(), "hetmpi warn: before MPI 1\nhetmpi[3] error: an error\nhetmpi[3] info: shown\n");
}

static void levels(void **state)
{
    (void)state;
    for (int set = LOG_ERROR; set <= LOG_TRACE; set++) {
        int shown = 0;
        log_set_level((enum log_level)set);
        assert_int_equal(log_get_level(), set);
        capture();
        for (int level = LOG_ERROR; level <= LOG_TRACE; level++)
            log_at((enum log_level)level, "x");
        for (const char *c = release(); *c; c++)
            shown += *c == '\n';
        assert_int_equal(shown, set + 1);
    }
}

static int calls;
static int counted(void) { return ++calls; }

/* Arguments of lines that are not shown are not evaluated: trace lines cost nothing. */
static void hidden_lines_cost_nothing(void **state)
{
    (void)state;
    log_set_level(LOG_WARN);
    log_debug("%d", counted());
    assert_int_equal(calls, 0);
}

static void long_lines(void **state)
{
    char text[5000];
    const char *line;

    (void)state;
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    log_set_level(LOG_WARN);
    capture();
    log_warn("%s", text);
    line = release();
    assert_int_equal(strlen(line), 1024);
    assert_string_equal(line + 1020, "...\n");
    assert_int_equal(err_set(HETMPI_ERR_ARG, "%s", text), HETMPI_ERR_ARG);
    assert_int_equal(strlen(err_text()), 1023);
    assert_string_equal(err_text() + 1020, "...");
}

static void errors(void **state)
{
    (void)state;
    assert_int_equal(err_set(HETMPI_ERR_COUNT, "count %d", 7), HETMPI_ERR_COUNT);
    assert_string_equal(err_text(), "count 7");
    assert_int_equal(err_code(), HETMPI_ERR_COUNT);
    err_set(HETMPI_ERR_MPI, "while: %s", err_text());   /* the old message as an argument of the new */
    assert_string_equal(err_text(), "while: count 7");
    err_copy(HETMPI_ERR_PEER, err_text());
    assert_string_equal(err_text(), "while: count 7");
    assert_int_equal(err_code(), HETMPI_ERR_PEER);
    err_copy(HETMPI_ERR_PEER, "100%s");
    assert_string_equal(err_text(), "100%s");
}

static void errors_are_logged_at_debug(void **state)
{
    (void)state;
    log_set_rank(2);
    log_set_level(LOG_INFO);
    capture();
    err_set(HETMPI_ERR_COUNT, "count %d", 8);
    assert_string_equal(release(), "");
    log_set_level(LOG_DEBUG);
    capture();
    err_set(HETMPI_ERR_COUNT, "count %d", 9);
    assert_string_equal(release(), "hetmpi[2] debug: HETMPI_ERR_COUNT: count 9\n");
    log_set_level(LOG_WARN);
}

static void *other_thread(void *unused)
{
    (void)unused;
    if (*err_text() || err_code())
        return (void *)"a new thread has an error";
    err_set(HETMPI_ERR_TAG, "of the thread");
    return strcmp(err_text(), "of the thread") ? (void *)"its own error was lost" : NULL;
}

static void errors_belong_to_a_thread(void **state)
{
    pthread_t thread;
    void *complaint;

    (void)state;
    err_set(HETMPI_ERR_ROOT, "of main");
    assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, &complaint), 0);
    assert_null(complaint);
    assert_string_equal(err_text(), "of main");
    assert_int_equal(err_code(), HETMPI_ERR_ROOT);
}

/* MPI's own texts may have several lines: a message of ours is one. */
static void errors_are_one_line(void **state)
{
    (void)state;
    err_set(HETMPI_ERR_MPI, "%s", "MPI_Send: Fatal error:\nOther MPI error,\n\t error stack:\r\n x\n\n");
    assert_string_equal(err_text(), "MPI_Send: Fatal error: Other MPI error, error stack: x");
    err_copy(HETMPI_ERR_MPI, "\n\n");
    assert_string_equal(err_text(), "");
}

static void names(void **state)
{
    (void)state;
    assert_string_equal(err_name(HETMPI_SUCCESS), "HETMPI_SUCCESS");
    assert_string_equal(err_name(HETMPI_ERR_INTERNAL), "HETMPI_ERR_INTERNAL");
    assert_string_equal(err_name(HETMPI_ERR_LAST), "unknown code");
    assert_string_equal(err_name(-1), "unknown code");
    for (int i = 0; i < HETMPI_ERR_LAST; i++) {
        assert_non_null(err_name(i));
        for (int j = 0; j < i; j++)
            assert_string_not_equal(err_name(i), err_name(j));
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines), cmocka_unit_test(levels), cmocka_unit_test(hidden_lines_cost_nothing),
        cmocka_unit_test(long_lines), cmocka_unit_test(errors), cmocka_unit_test(errors_are_logged_at_debug),
        cmocka_unit_test(errors_belong_to_a_thread), cmocka_unit_test(errors_are_one_line), cmocka_unit_test(names)
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
