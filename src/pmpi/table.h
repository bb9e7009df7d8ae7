/* The parameters of MPI's own calls, by the table of collectives (core/collectives.h): counts are int, and MPI_Count in
 * MPI 4's calls of large counts. They are named as the fields of struct pmpi_args. */
#ifndef HETMPI_PMPI_TABLE_H
#define HETMPI_PMPI_TABLE_H

#include "core/collectives.h"

#define PMPI_DECLARE(kind, name) COLL_DECLARE(kind, name, int, int)
#define PMPI_DECLARE_LARGE(kind, name) COLL_DECLARE(kind, name, MPI_Count, MPI_Aint)
#define PMPI_NAME(kind, name) name

#endif
