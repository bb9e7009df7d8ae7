/* Which device's memory the library was built for, in DLPack's terms. */
#include "core.h"

#include <string.h>

/* The back end is the first thing that the library says of itself after its version: "hetmpi 0.1.0; backend sim; ...". */
static bool backend_is(const char *name)
{
    static const char before[] = "backend ";
    const char *text = strstr(hetmpi_build_info(), before);

    return text && strncmp(text + strlen(before), name, strlen(name)) == 0 && text[strlen(before) + strlen(name)] == ';';
}

int device_type(void)
{
    return backend_is("cuda") ? DL_CUDA : backend_is("hip") ? DL_ROCM : backend_is("sim") ? DL_EXT : DL_CPU;
}

bool device_fits(int type)
{
    switch (type) {
    case DL_CPU: case DL_CUDA_HOST: case DL_ROCM_HOST: return true;
    case DL_CUDA: case DL_CUDA_MANAGED: return device_type() == DL_CUDA;
    case DL_EXT: return device_type() == DL_EXT;
    case DL_ROCM: return device_type() == DL_ROCM;
    default: return false;
    }
}

int device_number(void)
{
    hetmpi_comm_info_t info;
    int code;

    UNLOCKED(code = hetmpi_comm_info(MPI_COMM_SELF, &info));
    if (code) {
        error_raise(code, "comm_info");
        return -1;
    }
    return info.device < 0 ? 0 : info.device;
}

const char *device_name(int type)
{
    switch (type) {
    case DL_CPU: return "the CPU";
    case DL_CUDA: case DL_CUDA_HOST: case DL_CUDA_MANAGED: return "a CUDA device";
    case DL_ROCM: case DL_ROCM_HOST: return "a ROCm device";
    case DL_EXT: return "a simulated device";
    default: return "a device that hetmpi does not know";
    }
}
