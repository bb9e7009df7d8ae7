# Sourced: a machine's /proc and /sys, as hetmpi_doctor reads them. healthy_machine FOLDER makes one with an NVIDIA and an AMD
# GPU and two RDMA NICs, each near one GPU, to which nothing is wrong.

put() { mkdir -p "$(dirname "$1")"; printf '%s\n' "$2" > "$1"; }

pci_device() # root path-below-/sys/devices vendor class numa
{
    local folder=$1/sys/devices/$2
    put "$folder/vendor" "$3"
    put "$folder/class" "$4"
    put "$folder/numa_node" "$5"
    mkdir -p "$1/sys/bus/pci/devices"
    ln -s "../../../devices/$2" "$1/sys/bus/pci/devices/${2##*/}"
}

nic() # root name path-below-/sys/devices interface address
{
    local port=$1/sys/class/infiniband/$2/ports/1 number=${2##*_}
    mkdir -p "$port"
    ln -s "../../../devices/$3" "$1/sys/class/infiniband/$2/device"
    put "$port/state" "4: ACTIVE"
    put "$port/link_layer" Ethernet
    put "$port/rate" "100 Gb/sec (4X EDR)"
    put "$port/gids/0" fe80:0000:0000:0000:0000:0000:0000:0001
    put "$port/gids/1" "$5"
    put "$port/gids/2" 0000:0000:0000:0000:0000:0000:0000:0000
    put "$port/gid_attrs/types/0" "IB/RoCE v1"
    put "$port/gid_attrs/types/1" "RoCE v2"
    for counter in symbol_error link_downed port_rcv_errors port_xmit_discards; do put "$port/counters/$counter" 7; done
    put "$port/hw_counters/out_of_sequence" 3
    mkdir -p "$1/sys/devices/$3/net/$4" "$1/sys/class/infiniband_verbs/uverbs$number"
    put "$1/sys/class/net/$4/mtu" 9000
    put "$1/dev/infiniband/uverbs$number" ""
}

healthy_machine()
{
    local root=$1
    put "$root/proc/sys/kernel/osrelease" 6.1.0-test
    put "$root/proc/self/limits" "Max locked memory         unlimited            unlimited            bytes"
    put "$root/proc/mounts" "tmpfs /dev/shm tmpfs rw,size=8388608k 0 0"
    put "$root/proc/modules" "nvidia_peermem 16384 0 - Live 0x0"
    put "$root/proc/cmdline" "root=/dev/sda1 iommu=pt"
    put "$root/proc/sys/kernel/yama/ptrace_scope" 0
    put "$root/proc/driver/nvidia/version" \
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (x)"
    put "$root/sys/module/amdgpu/version" 6.7.0
    put "$root/boot/config-6.1.0-test" "CONFIG_PCI_P2PDMA=y
CONFIG_DMABUF_MOVE_NOTIFY=y"
    mkdir -p "$root/sys/class/iommu/dmar0"
    pci_device "$root" pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0 0x10de 0x030200 0
    pci_device "$root" pci0000:00/0000:00:01.0/0000:01:00.0/0000:03:00.0 0x15b3 0x020700 0
    pci_device "$root" pci0000:80/0000:80:01.0/0000:81:00.0 0x1002 0x038000 1
    pci_device "$root" pci0000:80/0000:80:02.0/0000:82:00.0 0x15b3 0x020700 1
    nic "$root" mlx5_0 pci0000:00/0000:00:01.0/0000:01:00.0/0000:03:00.0 eth0 0000:0000:0000:0000:0000:ffff:0a07:0001
    nic "$root" mlx5_1 pci0000:80/0000:80:02.0/0000:82:00.0 eth1 0000:0000:0000:0000:0000:ffff:0a08:0001
}
