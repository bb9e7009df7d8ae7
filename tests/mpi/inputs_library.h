/* The functions of inputs_library.c, under the names of the library that it is built into (LIBRARY: its prefix). */
#ifndef HETMPI_TESTS_MPI_INPUTS_LIBRARY_H
#define HETMPI_TESTS_MPI_INPUTS_LIBRARY_H

#include <stdint.h>

#include "hetmpi.h"

#define LIBRARY_JOIN_(prefix, name) prefix##name
#define LIBRARY_JOIN(prefix, name) LIBRARY_JOIN_(prefix, name)
#define LIBRARY_OPEN LIBRARY_JOIN(LIBRARY, _open)
#define LIBRARY_BEGIN LIBRARY_JOIN(LIBRARY, _begin)
#define LIBRARY_END LIBRARY_JOIN(LIBRARY, _end)
#define LIBRARY_CLOSE LIBRARY_JOIN(LIBRARY, _close)

int LIBRARY_OPEN(MPI_Comm parent);
int LIBRARY_BEGIN(int round);
int LIBRARY_END(int round, int *wrong);
int LIBRARY_CLOSE(void);

#endif
