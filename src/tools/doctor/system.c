/* Limits, shared memory, kernel modules, IOMMU: see doctor.h. */
#include "doctor.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#define GIB (1ll << 30)

static const char memlock_mend[] = "'ulimit -l unlimited' where ranks are started; '* - memlock unlimited' in "
    "/etc/security/limits.d/rdma.conf; LimitMEMLOCK=infinity for sshd, slurmd; docker run --ulimit memlock=-1";

/* Bytes that a process may lock; -1: no limit, -2: not known. */
static long long memlock(const struct doctor *doctor)
{
    char line[256], soft[64];

    if (!file_line(doctor, line, sizeof(line), "Max locked memory", "/proc/self/limits") ||
        sscanf(line, "Max locked memory %63s", soft) != 1)
        return -2;
    return strcmp(soft, "unlimited") == 0 ? -1 : atoll(soft);
}

static void check_memlock(struct doctor *doctor)
{
    long long bytes = memlock(doctor);

    json_object_object_add(doctor->facts, "memlock_bytes", json_object_new_int64(bytes));
    if (bytes >= 0 && bytes < GIB)
        find(doctor, facts_nics(doctor) ? WARNING : NOTE, "memlock",
             "RDMA NICs cannot reach more host memory than that: registration fails, and data are copied through small buffers",
             memlock_mend, "a process may lock %lld KiB of memory (ulimit -l)", bytes >> 10);
}

/* Of the mount's option, as a container sees it; else of the file system itself. -1: there is none. */
static long long shm_bytes(const struct doctor *doctor)
{
    char line[512], *size, *end;
    struct statvfs whole;
    long long bytes;

    if (!file_line(doctor, line, sizeof(line), "tmpfs /dev/shm ", "/proc/mounts") &&
        !file_line(doctor, line, sizeof(line), "shm /dev/shm ", "/proc/mounts"))
        return -1;
    size = strstr(line, "size=");
    if (!size)
        return !*doctor->options.root && statvfs("/dev/shm", &whole) == 0 ? (long long)(whole.f_blocks * whole.f_frsize) : -2;
    bytes = strtoll(size + 5, &end, 10);
    return *end == 'k' ? bytes << 10 : *end == 'm' ? bytes << 20 : *end == 'g' ? bytes << 30 : bytes;
}

static void check_shm(struct doctor *doctor)
{
    static const char cost[] = "MPI and the vendors' libraries keep shared buffers there: they fail or die by SIGBUS when it "
                               "is full (hetmpi itself does not need it)";
    static const char mend[] = "mount -o remount,size=8G /dev/shm; in a container: docker run --shm-size=8g, or --ipc=host";
    long long bytes = shm_bytes(doctor);

    json_object_object_add(doctor->facts, "shm_bytes", json_object_new_int64(bytes));
    if (bytes == -1)
        find(doctor, WARNING, "shm", cost, "mount -t tmpfs -o size=8G tmpfs /dev/shm", "/dev/shm is not there");
    else if (bytes >= 0 && bytes < GIB)
        find(doctor, WARNING, "shm", cost, mend, "/dev/shm has %lld MiB", bytes >> 20);
}

static void check_ptrace(struct doctor *doctor)
{
    if (file_number(doctor, 0, "/proc/sys/kernel/yama/ptrace_scope") > 0)
        find(doctor, NOTE, "ptrace", "MPI copies each message of a node twice instead of once",
             "sysctl -w kernel.yama.ptrace_scope=0; in a container: docker run --cap-add=SYS_PTRACE",
             "processes may not read each other's memory (yama/ptrace_scope)");
}

static bool module_loaded(const struct doctor *doctor, const char *name)
{
    char line[256], begin[64];

    snprintf(begin, sizeof(begin), "%s ", name);
    return file_line(doctor, line, sizeof(line), begin, "/proc/modules") || file_exists(doctor, "/sys/module/%s", name);
}

static bool kernel_at_least(const struct doctor *doctor, int major, int minor)
{
    char release[128];
    int have_major = 0, have_minor = 0;

    file_text(doctor, release, sizeof(release), "/proc/sys/kernel/osrelease");
    sscanf(release, "%d.%d", &have_major, &have_minor);
    return have_major > major || (have_major == major && have_minor >= minor);
}

static const char staged_cost[] = "device memory is copied through host memory on its way to the NIC: more latency, less than "
                                  "the NIC's bandwidth, and a busy CPU";

static void check_nvidia_direct(struct doctor *doctor)
{
    char version[512];
    bool open, dmabuf;
    bool peer = module_loaded(doctor, "nvidia_peermem") || module_loaded(doctor, "nv_peer_mem");

    file_text(doctor, version, sizeof(version), "/proc/driver/nvidia/version");
    open = strstr(version, "Open Kernel Module") != NULL;
    dmabuf = open && kernel_at_least(doctor, 5, 12);
    json_object_object_add(doctor->facts, "nvidia_dmabuf", json_object_new_boolean(dmabuf));
    json_object_object_add(doctor->facts, "nvidia_peermem", json_object_new_boolean(peer));
    if (!dmabuf && !peer)
        find(doctor, WARNING, "gpu-direct", staged_cost, "modprobe nvidia-peermem; or NVIDIA's open kernel modules on Linux 5.12 "
             "or newer", "the NICs cannot reach the memory of NVIDIA GPUs: no dma-buf (%s), no nvidia-peermem",
             open ? "the kernel is older than 5.12" : "not the open kernel modules");
    else if (!dmabuf)
        find(doctor, NOTE, "gpu-direct", "none; dma-buf needs no extra module", "NVIDIA's open kernel modules on Linux 5.12 or "
             "newer", "NVIDIA GPUs are reached by nvidia-peermem, not by dma-buf");
}

/* 1: set, 0: not, -1: not known. */
static int kernel_option(const struct doctor *doctor, const char *option)
{
    char release[128], line[256], begin[128];

    file_text(doctor, release, sizeof(release), "/proc/sys/kernel/osrelease");
    if (!file_exists(doctor, "/boot/config-%s", release))
        return -1;
    snprintf(begin, sizeof(begin), "%s=y", option);
    return file_line(doctor, line, sizeof(line), begin, "/boot/config-%s", release);
}

static void check_amd_direct(struct doctor *doctor)
{
    int p2p = kernel_option(doctor, "CONFIG_PCI_P2PDMA"), notify = kernel_option(doctor, "CONFIG_DMABUF_MOVE_NOTIFY");
    bool peer = file_exists(doctor, "/sys/kernel/mm/memory_peers/amdkfd/version");
    bool dmabuf = p2p > 0 && notify > 0;

    if (p2p >= 0)
        json_object_object_add(doctor->facts, "amd_dmabuf", json_object_new_boolean(dmabuf));
    json_object_object_add(doctor->facts, "amd_peer", json_object_new_boolean(peer));
    if (dmabuf || peer)
        return;
    if (p2p < 0)
        find(doctor, NOTE, "gpu-direct", staged_cost, "grep -E 'P2PDMA|MOVE_NOTIFY' in the kernel's configuration: both =y",
             "whether the NICs can reach the memory of AMD GPUs is not known: no /boot/config of this kernel");
    else
        find(doctor, WARNING, "gpu-direct", staged_cost, "a kernel with CONFIG_PCI_P2PDMA=y and CONFIG_DMABUF_MOVE_NOTIFY=y",
             "the NICs cannot reach the memory of AMD GPUs: the kernel lacks %s%s%s", p2p ? "" : "CONFIG_PCI_P2PDMA",
             p2p || notify ? "" : " and ", notify ? "" : "CONFIG_DMABUF_MOVE_NOTIFY");
}

static void check_iommu(struct doctor *doctor)
{
    char **units, line[1024];
    int n = folder_list(doctor, &units, "/sys/class/iommu");

    folder_free(units, n);
    file_text(doctor, line, sizeof(line), "/proc/cmdline");
    if (n > 0 && !strstr(line, "iommu=pt") && !strstr(line, "iommu.passthrough=1"))
        find(doctor, WARNING, "iommu", "what GPUs and NICs send each other goes by way of the root complex: a fraction of the "
             "bandwidth, or errors", "kernel argument iommu=pt (GRUB_CMDLINE_LINUX in /etc/default/grub, update-grub, reboot)",
             "the IOMMU translates between devices");
}

void check_system(struct doctor *doctor)
{
    char release[128];

    file_text(doctor, release, sizeof(release), "/proc/sys/kernel/osrelease");
    add_text(doctor->facts, "kernel", release);
    check_memlock(doctor);
    check_shm(doctor);
    check_ptrace(doctor);
    if (facts_nics(doctor) == 0)
        return;
    if (facts_gpus(doctor, "nvidia") > 0)
        check_nvidia_direct(doctor);
    if (facts_gpus(doctor, "amd") > 0)
        check_amd_direct(doctor);
    if (facts_gpus(doctor, NULL) > 0)
        check_iommu(doctor);
}
