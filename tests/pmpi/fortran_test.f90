! A Fortran program of MPI alone (module mpi): the entry points and the constants MPI_IN_PLACE and MPI_BOTTOM.
! Usage: fortran_test ranks [hetmpi]; with hetmpi it says what the drop-in should have counted.
program fortran_test
    use mpi
    implicit none
    integer :: rank, ranks, ierr, i, failures, total, both, on, off
    integer :: numbers(0:63), counts(0:63), displs(0:63), lengths(2), pair(2), least(2)
    integer, volatile :: a, b   ! written behind the compiler's back
    integer(kind=MPI_ADDRESS_KIND) :: places(2)
    double precision :: x(5000), y(5000)
    character(len=16) :: text

    call MPI_Init(ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
    failures = 0
    call get_command_argument(1, text)
    read (text, *) i
    if (i /= ranks) call MPI_Abort(MPI_COMM_WORLD, 2, ierr)

    x = rank + 1
    call MPI_Allreduce(x, y, 5000, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
    call expect(ierr == MPI_SUCCESS .and. all(y == ranks * (ranks + 1) / 2), 'allreduce')
    call MPI_Allreduce(MPI_IN_PLACE, x, 5000, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
    call expect(ierr == MPI_SUCCESS .and. all(x == ranks * (ranks + 1) / 2), 'allreduce in place')
    a = rank
    call MPI_Reduce(a, b, 1, MPI_INTEGER, MPI_MAX, ranks - 1, MPI_COMM_WORLD, ierr)
    if (rank == ranks - 1) call expect(b == ranks - 1, 'reduce')

    do i = 0, ranks - 1
        counts(i) = 1
        displs(i) = ranks - 1 - i
    end do
    numbers = -1
    numbers(displs(rank)) = rank
    call MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, numbers, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, ierr)
    call expect(all([(numbers(displs(i)) == i, i = 0, ranks - 1)]), 'allgatherv in place')
    numbers = -1
    if (rank == 0) then
        numbers(displs(0)) = 100
        call MPI_Gatherv(MPI_IN_PLACE, 0, MPI_INTEGER, numbers, counts, displs, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
        call expect(all([(numbers(displs(i)) == 100 + i, i = 0, ranks - 1)]), 'gatherv in place')
        call MPI_Scatter(numbers, 1, MPI_INTEGER, MPI_IN_PLACE, 0, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
    else
        a = 100 + rank
        call MPI_Gatherv(a, 1, MPI_INTEGER, numbers, counts, displs, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
        call MPI_Scatter(numbers, 1, MPI_INTEGER, a, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
        call expect(a == 100 + ranks - 1 - rank, 'scatter in place')
    end if

    call MPI_Get_address(a, places(1), ierr)
    call MPI_Get_address(b, places(2), ierr)
    lengths = 1
    call MPI_Type_create_hindexed(2, lengths, places, MPI_INTEGER, both, ierr)
    call MPI_Type_commit(both, ierr)
    a = merge(11, 0, rank == 0)
    b = merge(22, 0, rank == 0)
    call MPI_Bcast(MPI_BOTTOM, 1, both, 0, MPI_COMM_WORLD, ierr)
    call expect(a == 11 .and. b == 22, 'bcast at MPI_BOTTOM')
    call MPI_Type_free(both, ierr)

    pair = [10 - rank, rank]
    call MPI_Allreduce(pair, least, 1, MPI_2INTEGER, MPI_MINLOC, MPI_COMM_WORLD, ierr)
    call expect(least(1) == 10 - (ranks - 1) .and. least(2) == ranks - 1, 'MPI_MINLOC')
    call MPI_Barrier(MPI_COMM_WORLD, ierr)

    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, ierr)
    call MPI_Bcast(a, -1, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
    call MPI_Error_class(ierr, i, total)
    call expect(i == MPI_ERR_COUNT, 'a negative count')

    call MPI_Allreduce(failures, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
    on = 9
    off = 2
    if (command_argument_count() > 1) then
        write (0, '(a,i0,a,i0,a,i0,a)') 'expected[', rank, ']: pmpi: ', on, ' calls on hetmpi, ', off, ' passed on'
    end if
    call MPI_Finalize(ierr)
    if (total /= 0) stop 1

contains
    subroutine expect(right, what)
        logical, intent(in) :: right
        character(len=*), intent(in) :: what

        if (right) return
        failures = failures + 1
        write (0, '(a,i0,2a)') 'rank ', rank, ': wrong: ', what
    end subroutine
end program
