/* GPUs, their drivers, and how far they are from the NICs: see doctor.h. */
#include "doctor.h"

#include <stdlib.h>
#include <string.h>

#define NVIDIA 0x10de
#define AMD 0x1002

int facts_gpus(const struct doctor *doctor, const char *vendor)
{
    struct json_object *gpus = json_object_object_get(doctor->facts, "gpus");
    int n = 0;

    for (size_t i = 0; i < json_object_array_length(gpus); i++) {
        struct json_object *gpu = json_object_array_get_idx(gpus, i);

        n += !vendor || strcmp(text_of(gpu, "vendor"), vendor) == 0;
    }
    return n;
}

/* Display controllers, and processing accelerators, which AMD's are too. */
static const char *gpu_vendor(long long vendor, long long class)
{
    bool display = class >> 16 == 0x03, accelerator = class >> 16 == 0x12;

    if (vendor == NVIDIA && display)
        return "nvidia";
    return vendor == AMD && (display || accelerator) ? "amd" : NULL;
}

static void driver_of(struct doctor *doctor, const char *vendor, char *driver, size_t bytes)
{
    char text[512];
    bool amd = strcmp(vendor, "amd") == 0;

    snprintf(driver, bytes, "none");
    if (!amd && file_text(doctor, text, sizeof(text), "/proc/driver/nvidia/version")) {
        const char *module = strstr(text, "Module");   /* "... Kernel Module for x86_64  550.54.15  Release ..." */
        const char *number = module ? strstr(module, "  ") : NULL;

        snprintf(driver, bytes, "%.*s", number ? (int)strcspn(number + 2, " ") : 5, number ? number + 2 : "there");
    } else if (amd && file_exists(doctor, "/sys/module/amdgpu")) {
        if (!file_text(doctor, driver, bytes, "/sys/module/amdgpu/version"))
            snprintf(driver, bytes, "of the kernel");
    }
}

static void check_driver(struct doctor *doctor, const char *vendor, const char *driver, int n)
{
    bool amd = strcmp(vendor, "amd") == 0;

    if (n > 0 && strcmp(driver, "none") == 0)
        find(doctor, FAULT, "driver", "ranks of these devices cannot start",
             amd ? "modprobe amdgpu (ROCm's installation guide: amdgpu-install --usecase=rocm)"
                 : "modprobe nvidia (package nvidia-open or cuda-drivers); in a container: docker run --gpus all",
             "%d %s GPU%s, but no driver for %s", n, vendor, n > 1 ? "s" : "", n > 1 ? "them" : "it");
}

void check_pci(struct doctor *doctor)
{
    struct json_object *gpus = json_object_new_array();
    char **devices, nvidia[128], amd[128];
    int n = folder_list(doctor, &devices, "/sys/bus/pci/devices");

    json_object_object_add(doctor->facts, "gpus", gpus);
    driver_of(doctor, "nvidia", nvidia, sizeof(nvidia));
    driver_of(doctor, "amd", amd, sizeof(amd));
    for (int i = 0; i < n; i++) {
        const char *vendor = gpu_vendor(file_number(doctor, 0, "/sys/bus/pci/devices/%s/vendor", devices[i]),
                                        file_number(doctor, 0, "/sys/bus/pci/devices/%s/class", devices[i]));
        struct json_object *gpu;

        if (!vendor)
            continue;
        gpu = json_object_new_object();
        add_text(gpu, "pci", devices[i]);
        add_text(gpu, "vendor", vendor);
        add_text(gpu, "driver", strcmp(vendor, "amd") == 0 ? amd : nvidia);
        json_object_object_add(gpu, "numa", json_object_new_int64(file_number(doctor, -1, "/sys/bus/pci/devices/%s/numa_node",
                                                                              devices[i])));
        json_object_array_add(gpus, gpu);
    }
    folder_free(devices, n);
    check_driver(doctor, "nvidia", nvidia, facts_gpus(doctor, "nvidia"));
    check_driver(doctor, "amd", amd, facts_gpus(doctor, "amd"));
}

/*
 * Distances. A device's folder names the bridges above it: /sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/...
 */
enum distance { SAME_SWITCH, SAME_ROOT, SAME_NODE, OTHER_NODE };
static const char *const distance_names[] = {"same switch", "same root complex", "same NUMA node", "other NUMA node"};

/* How many folders two paths have in common. */
static int common_parts(const char *a, const char *b)
{
    int n = 0;

    for (size_t i = 1;; i++) {
        n += (!a[i] || a[i] == '/') && (!b[i] || b[i] == '/');
        if (!a[i] || a[i] != b[i])
            return n;
    }
}

/* Parts: "sys", "devices", the root complex, its port, then switches. */
static enum distance distance(const struct doctor *doctor, const char *gpu, const char *nic)
{
    char a[512], b[512];
    int parts;

    if (!file_real(doctor, a, sizeof(a), "/sys/bus/pci/devices/%s", gpu) ||
        !file_real(doctor, b, sizeof(b), "/sys/bus/pci/devices/%s", nic))
        return OTHER_NODE;
    parts = common_parts(a, b);
    if (parts >= 4)
        return SAME_SWITCH;
    if (parts == 3)
        return SAME_ROOT;
    return file_number(doctor, -1, "/sys/bus/pci/devices/%s/numa_node", gpu) ==
                   file_number(doctor, -1, "/sys/bus/pci/devices/%s/numa_node", nic) ? SAME_NODE : OTHER_NODE;
}

void check_distances(struct doctor *doctor)
{
    struct json_object *gpus = json_object_object_get(doctor->facts, "gpus");
    struct json_object *nics = json_object_object_get(doctor->facts, "nics"), *all = json_object_new_array();

    json_object_object_add(doctor->facts, "distances", all);
    for (size_t g = 0; g < json_object_array_length(gpus); g++) {
        const char *gpu = text_of(json_object_array_get_idx(gpus, g), "pci"), *nearest = NULL;
        enum distance least = OTHER_NODE;

        for (size_t i = 0; i < json_object_array_length(nics); i++) {
            struct json_object *nic = json_object_array_get_idx(nics, i), *entry;
            enum distance far;

            if (!*text_of(nic, "pci"))   /* Soft-RoCE */
                continue;
            far = distance(doctor, gpu, text_of(nic, "pci"));
            entry = json_object_new_object();
            add_text(entry, "gpu", gpu);
            add_text(entry, "nic", text_of(nic, "name"));
            add_text(entry, "distance", distance_names[far]);
            json_object_array_add(all, entry);
            if (!nearest || far < least) {
                nearest = text_of(nic, "name");
                least = far;
            }
        }
        if (nearest && least == OTHER_NODE)
            find(doctor, NOTE, "distance", "its traffic crosses the link between the sockets", "a NIC in a slot of the GPU's "
                 "socket; or ranks on the GPUs that have one near", "GPU %s has no NIC on its NUMA node (the nearest: %s)",
                 gpu, nearest);
    }
}
