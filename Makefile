# The front door: `make demo` and `make check` on a fresh Debian 12 (as root, with sudo, or as anyone where the packages
# are present). The build itself is CMake's: see CMakePresets.json and CONTRIBUTING.md.

# Builds that `make check` makes and tests: both backends, both MPIs. CI has more (.ci/run).
PRESETS ?= host sim sim-mpich
JOBS ?= $(shell nproc)
HETMPI_WERROR ?= OFF
# A setting of the build, not of the library, which refuses names that it does not know.
unexport HETMPI_WERROR
MAKEOVERRIDES =

.PHONY: all demo check clean
all:
	cmake --preset sim
	cmake --build --preset sim -j $(JOBS)

# On simulated devices where the machine has no GPU; `make demo BACKEND=cuda` (hip, sim) forces one.
demo: DEMO := $(or $(BACKEND),$(shell scripts/backend.sh))
demo:
	scripts/setup.sh demo
	cmake --preset $(DEMO)
	cmake --build --preset $(DEMO) -j $(JOBS) --target train_digits
	scripts/demo.sh $(DEMO)

check:
	scripts/setup.sh check
	WERROR=$(HETMPI_WERROR) JOBS=$(JOBS) scripts/check.sh $(PRESETS)

clean:
	rm -rf build
