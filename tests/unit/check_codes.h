/* Checks of a code that the library returned. CMocka's headers come first. */
#ifndef HETMPI_TESTS_CHECK_CODES_H
#define HETMPI_TESTS_CHECK_CODES_H

#include <string.h>

#include "core/log.h"
#include "hetmpi.h"

static inline void ok(int rc)
{
    if (rc)
        print_error("%s\n", err_text());
    assert_int_equal(rc, HETMPI_SUCCESS);
}

/* `part` is in the message. */
static inline void fails(int rc, int code, const char *part)
{
    assert_int_equal(rc, code);
    if (!strstr(err_text(), part))
        fail_msg("\"%s\" does not say \"%s\"", err_text(), part);
}

#endif
