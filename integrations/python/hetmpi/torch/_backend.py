"""Registers the backend, starts it, and tells it which rank is where."""
import atexit
import os
import sys

import torch
import torch.distributed as dist

_extension = None
_world_ranks = []   # MPI's rank of each rank of the default group


def register():
    """What torch calls at the end of its own import."""
    if not dist.is_available() or hasattr(dist.Backend, "HETMPI"):
        return
    from torch.distributed.rendezvous import register_rendezvous_handler
    dist.Backend.register_backend("hetmpi", _new_backend, extended_api=True, devices=["cpu", "cuda"])
    register_rendezvous_handler("hetmpi", _rendezvous)


def _load():
    """The compiled backend, with MPI started."""
    global _extension
    if _extension is None:
        from ._build import load
        if torch.cuda.is_initialized():
            os.environ.setdefault("HETMPI_DEVICE", str(torch.cuda.current_device()))
        extension = load()
        extension.start_mpi()
        atexit.register(_stop)
        _extension = extension
    return _extension


def _stop():
    # A script that ends by an exception must not wait in MPI_Finalize for ranks that wait for it: mpirun ends them.
    _extension.stop_mpi(hasattr(sys, "last_value"))


def _rendezvous(url, **_):
    """hetmpi://: rank and size are MPI's, and torch's store is on rank 0, at an address that MPI tells the others."""
    extension = _load()
    rank, size = extension.world_rank(), extension.world_size()
    one_node = extension.world_on_one_node()
    address, store = "", None
    if rank == 0:
        host = "127.0.0.1" if one_node else _address()
        store = dist.TCPStore(host, 0, size, is_master=True, wait_for_workers=False)
        address = f"{host} {store.port}"
    host, port = extension.share(address).split()
    if rank != 0:
        store = dist.TCPStore(host, int(port), size, is_master=False, wait_for_workers=False)
    yield store, rank, size
    raise RuntimeError("hetmpi:// has no second rendezvous: the ranks of an MPI job stay the same")


def _address():
    """One of this node that other nodes reach: of the interface that leads outside, or what its name stands for."""
    import socket
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))   # sends nothing
            return probe.getsockname()[0]
        except OSError:
            return socket.gethostbyname(socket.gethostname())


def _learn_world(extension, store, rank, size):
    """Which rank of MPI each rank of the default group is."""
    if extension.world_size() < size:
        raise RuntimeError(
            f"hetmpi: the process group has {size} ranks, but MPI started {extension.world_size()} process(es) here: start the "
            f"program with mpirun -np {size} (torchrun starts processes of which MPI does not know)")
    store.set(f"mpi/{rank}", str(extension.world_rank()))
    return [int(store.get(f"mpi/{other}")) for other in range(size)]


def _new_backend(options, _pg_options):
    global _world_ranks
    extension = _load()
    members = options.global_ranks_in_group
    if not members:   # the default group
        _world_ranks = _learn_world(extension, options.store, options.group_rank, options.group_size)
        members = range(options.group_size)
    return extension.Backend(rank=options.group_rank, world_ranks=[_world_ranks[member] for member in members],
                             name=options.group_id, timeout=options.timeout)
