/*
 * What a collective call says about the settings of this job: started by settings.sh with good, bad and differing
 * settings.
 *
 *     settings CODE TEXT    the call must return CODE (0 or a number of enum hetmpi_error) with TEXT in its message, on
 *                           every rank, in time
 */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    t_begin(&argc, &argv, "settings", MPI_THREAD_SINGLE);
    t_watchdog(25);
    if (argc != 3)
        t_fatal("usage: settings CODE TEXT");
    int expected = strcmp(argv[1], "CONFIG") == 0 ? HETMPI_ERR_CONFIG : atoi(argv[1]);
    int32_t x = 1;
    t_stage("allreduce");
    for (int call = 0; call < 2; call++) { /* the second must say the same */
        int code = hetmpi_allreduce(MPI_IN_PLACE, &x, 1, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
        T_CODE(expected, code);
        T_CHECK(code == HETMPI_SUCCESS || strstr(hetmpi_last_error(), argv[2]) != NULL,
                "the message does not say \"%s\": %s", argv[2], hetmpi_last_error());
        T_CHECK(x == (expected ? 1 : call ? t_ranks * t_ranks : t_ranks), "the buffer holds %d", x);
    }
    return t_end();
}
