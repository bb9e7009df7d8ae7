"""Every rank runs every test, in the same order. One rank reports, and any that fails."""
import os

import pytest

import hetmpi

WORLD = hetmpi.world()
assert WORLD.size == int(os.environ.get("HETMPI_TEST_RANKS", WORLD.size))


@pytest.fixture
def comm():
    return WORLD


@pytest.fixture(params=["host", "device"])
def where(request):
    return request.param


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    if WORLD.rank and not config.option.verbose > 0:
        config.pluginmanager.getplugin("terminalreporter")._tw._file = open(os.devnull, "w")


def pytest_runtest_logreport(report):
    if WORLD.rank and report.failed:
        os.write(2, f"rank {WORLD.rank}: {report.nodeid}\n{report.longreprtext}\n".encode())
