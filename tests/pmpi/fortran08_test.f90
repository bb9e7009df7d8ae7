! The same through the module mpi_f08, whose calls have names of their own in some MPIs, and an optional ierror.
! Usage: fortran08_test ranks [hetmpi]
program fortran08_test
    use mpi_f08
    implicit none
    integer :: rank, ranks, i
    integer :: numbers(0:63), a
    real :: x(3)
    character(len=16) :: text

    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks)
    call get_command_argument(1, text)
    read (text, *) i
    if (i /= ranks) call MPI_Abort(MPI_COMM_WORLD, 2)

    x = rank + 1
    call MPI_Allreduce(MPI_IN_PLACE, x, 3, MPI_REAL, MPI_SUM, MPI_COMM_WORLD)
    if (any(x /= ranks * (ranks + 1) / 2)) call MPI_Abort(MPI_COMM_WORLD, 3)
    numbers = -1
    a = 100 + rank
    call MPI_Allgather(a, 1, MPI_INTEGER, numbers, 1, MPI_INTEGER, MPI_COMM_WORLD)
    if (any([(numbers(i) /= 100 + i, i = 0, ranks - 1)])) call MPI_Abort(MPI_COMM_WORLD, 4)
    call MPI_Barrier(MPI_COMM_WORLD)
    if (command_argument_count() > 1) then
        write (0, '(a,i0,a)') 'expected[', rank, ']: pmpi: 3 calls on hetmpi, 0 passed on'
    end if
    call MPI_Finalize()
end program
