/*
 * The Fortran entry points, made from the same table: arguments by reference, handles as integers, MPI_IN_PLACE and
 * MPI_BOTTOM as addresses of variables that each MPI has in places of its own. Every way in which compilers write
 * a Fortran name has an alias, and so has the name that Open MPI's module mpi_f08 calls.
 */
#include <stddef.h>

#include "pmpi/pmpi.h"

/* Open MPI: each constant is a common block, named as the compiler names it. */
#define WEAK extern __attribute__((weak))
WEAK int MPI_FORTRAN_IN_PLACE, mpi_fortran_in_place, mpi_fortran_in_place_, mpi_fortran_in_place__;
WEAK int MPI_FORTRAN_BOTTOM, mpi_fortran_bottom, mpi_fortran_bottom_, mpi_fortran_bottom__;

/* MPICH and what is made of it: pointers, set by a Fortran routine the first time. */
WEAK void *MPIR_F_MPI_IN_PLACE, *MPIR_F_MPI_BOTTOM;
WEAK int MPIR_F_NeedInit;
WEAK void mpirinitf_(void);

static void *variable(void *const *pointer)
{
    if (!pointer)
        return NULL;
    if (&MPIR_F_NeedInit && MPIR_F_NeedInit && mpirinitf_) {
        mpirinitf_();
        MPIR_F_NeedInit = 0;
    }
    return *pointer;
}

static void *buffer(const void *at)
{
    const void *const in_place[] = {&MPI_FORTRAN_IN_PLACE, &mpi_fortran_in_place, &mpi_fortran_in_place_,
                                    &mpi_fortran_in_place__, variable(&MPIR_F_MPI_IN_PLACE)};
    const void *const bottom[] = {&MPI_FORTRAN_BOTTOM, &mpi_fortran_bottom, &mpi_fortran_bottom_,
                                  &mpi_fortran_bottom__, variable(&MPIR_F_MPI_BOTTOM)};

    for (size_t i = 0; i < sizeof(in_place) / sizeof(in_place[0]) && at; i++) {
        if (at == in_place[i])
            return MPI_IN_PLACE;
        if (at == bottom[i])
            return MPI_BOTTOM;
    }
    return (void *)at;
}

#define DECLARE(kind, name) DECLARE_##kind(name)
#define DECLARE_IN(name) void *name
#define DECLARE_OUT(name) void *name
#define DECLARE_BUFFER(name) void *name
#define DECLARE_COUNT(name) const MPI_Fint *name
#define DECLARE_COUNTS(name) const MPI_Fint *name
#define DECLARE_DISPLS(name) const MPI_Fint *name
#define DECLARE_TYPE(name) const MPI_Fint *name
#define DECLARE_OP(name) const MPI_Fint *name
#define DECLARE_ROOT(name) const MPI_Fint *name
#define DECLARE_COMM(name) const MPI_Fint *name

#define GIVE(kind, name) GIVE_##kind(name)
#define GIVE_IN(name) buffer(name)
#define GIVE_OUT(name) buffer(name)
#define GIVE_BUFFER(name) buffer(name)
#define GIVE_COUNT(name) *name
#define GIVE_COUNTS(name) name
#define GIVE_DISPLS(name) name
#define GIVE_TYPE(name) MPI_Type_f2c(*name)
#define GIVE_OP(name) MPI_Op_f2c(*name)
#define GIVE_ROOT(name) *name
#define GIVE_COMM(name) MPI_Comm_f2c(*name)

/* ierror is optional in mpi_f08. */
#define ENTRY(function, parameters, result)                                                                 \
    static void function parameters                                                                         \
    {                                                                                                       \
        int code = result;                                                                                  \
                                                                                                            \
        if (ierror)                                                                                         \
            *ierror = code;                                                                                 \
    }

#define ALIASES(function, name, NAME, parameters)                                                           \
    void NAME parameters __attribute__((alias(#function)));                                                 \
    void name parameters __attribute__((alias(#function)));                                                 \
    void name##_ parameters __attribute__((alias(#function)));                                              \
    void name##__ parameters __attribute__((alias(#function)));                                             \
    void name##_f08_ parameters __attribute__((alias(#function)));

#define CALL(Name, name, NAME, traits, ...)                                                                 \
    ENTRY(fortran_##name, (COLL_EACH(DECLARE, __VA_ARGS__), MPI_Fint *ierror),                              \
          entry_##name(COLL_EACH(GIVE, __VA_ARGS__)))                                                        \
    ALIASES(fortran_##name, mpi_##name, MPI_##NAME, (COLL_EACH(DECLARE, __VA_ARGS__), MPI_Fint *ierror))
COLL_ALL(CALL)
#undef CALL

ENTRY(fortran_finalize, (MPI_Fint *ierror), entry_finalize())
ALIASES(fortran_finalize, mpi_finalize, MPI_FINALIZE, (MPI_Fint *ierror))
