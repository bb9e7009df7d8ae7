#!/bin/bash
# Runs a command in a small virtual machine that has RDMA NICs (Soft-RoCE): two emulated hosts, several rails, this
# machine's files. What the command writes is lost, but for what it puts into $RDMA_OUT.
# Usage: rdma_vm.sh [-r RAILS] [-m MiB] [-c CPUS] [-t SECONDS] [-o FOLDER] COMMAND...
#   -r  rails between the two hosts (2)            -t  the whole takes no longer (300)
#   -m  memory of the machine in MiB (3072)        -o  the folder that the command sees as $RDMA_OUT
# The command runs in this folder, as root, on host h1, with RDMA_RAILS=<rails> in its environment: its NICs are rxa0,
# rxa1, ..., those of h2 rxb0, rxb1, ...; tests/rdma/mpirun_hosts.sh starts MPI ranks on both.
# Ends with the command's status; 77 and the reason where there can be no such machine; 125 if it broke twice.
# The kernel comes from Debian's package, unpacked into $RDMA_CACHE (build/rdma): nothing is installed.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
rails=2 memory=3072 seconds=300 out='' cpus=2
while getopts r:m:t:o:c: option; do
    case $option in
    r) rails=$OPTARG ;;
    m) memory=$OPTARG ;;
    c) cpus=$OPTARG ;;
    t) seconds=$OPTARG ;;
    o) out=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || { sed -n 's/^# Usage: /usage: /p' "$0" >&2; exit 2; }

skip() { echo "rdma_vm: skipped: $*"; exit 77; }
for program in qemu-system-x86_64 busybox xz rdma dpkg; do
    command -v "$program" >/dev/null || PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null ||
        skip "$program is not installed (scripts/setup.sh check)"
done
[ "$(uname -m)" = x86_64 ] || skip "the machine is made for x86-64 hosts, this one is $(uname -m)"

# The kernel and the modules that the guest needs, in the order in which they are loaded.
modules=(virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci 9pnet 9pnet_virtio netfs fscache 9p overlay
         crc32_generic veth dummy udp_tunnel ip6_udp_tunnel ib_core ib_uverbs rdma_rxe sch_netem sch_tbf)
cache=${RDMA_CACHE:-$root/build/rdma}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
exec 9>"$cache/lock"
flock 9

get_kernel() {
    local package work=$cache/work
    rm -rf "$work" && mkdir -p "$work"
    # Not the cloud flavour (no rxe, no 9p), and 6.1: newer ones break now and then under emulation.
    package=$(apt-cache search --names-only '^linux-image-6\.1\.0-[0-9]+-amd64$' | cut -d' ' -f1 | sort -V | tail -1)
    [ -n "$package" ] || skip "no package linux-image-6.1.0-*-amd64 (apt-get update?)"
    (cd "$work" && apt-get download -qq "$package" 2>/dev/null) || skip "the package $package cannot be downloaded"
    dpkg --fsys-tarfile "$work"/*.deb | tar -x -C "$work" --wildcards './boot/vmlinuz-*' \
        $(printf -- '--wildcards */%s.ko ' "${modules[@]}")
    local image
    image=$(echo "$work"/boot/vmlinuz-*)
    # The kernel unpacks itself more slowly than xz does; what follows the compressed part does not matter.
    tail -c +"$(($(LC_ALL=C grep -abo -m1 -P '\xFD7zXZ\x00' "$image" | head -1 | cut -d: -f1) + 1))" "$image" |
        xz -dc --single-stream >"$cache/vmlinux" 2>/dev/null || true
    [ "$(head -c 4 "$cache/vmlinux" | tail -c 3)" = ELF ] || { echo "rdma_vm: $image holds no kernel" >&2; exit 125; }
    mkdir -p "$cache/modules"
    find "$work" -name '*.ko' -exec cp {} "$cache/modules/" \;
    rm -rf "$work"
    echo "$package" >"$cache/kernel"
}
[ -s "$cache/kernel" ] || get_kernel

make_initrd() {
    local tree=$cache/tree module
    rm -rf "$tree" && mkdir -p "$tree/bin" "$tree/modules"
    cp "$(command -v busybox)" "$tree/bin/busybox"
    for module in "${modules[@]}"; do
        [ ! -e "$cache/modules/$module.ko" ] || { cp "$cache/modules/$module.ko" "$tree/modules/"; echo "$module"; }
    done >"$tree/modules/order"
    cp "$root/tests/rdma/guest/init" "$tree/init"
    chmod +x "$tree/init"
    (cd "$tree" && find . | busybox cpio -o -H newc 2>/dev/null) >"$cache/initrd.new"
    mv "$cache/initrd.new" "$cache/initrd"
    rm -rf "$tree"
}
[ "$cache/initrd" -nt "$root/tests/rdma/guest/init" ] && [ "$cache/initrd" -nt "$0" ] || make_initrd
flock -u 9

share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
[ -n "$out" ] || out=$share/out
mkdir -p "$out" "$share/run"
out=$(cd "$out" && pwd)
{
    # The variables that a command may need; those of this machine's session would only mislead it.
    export -p | grep -E '^declare -x (PATH|HETMPI_[A-Z_]*|OMPI_[A-Za-z_]*|MPI[A-Z_]*|RDMA_[A-Z_]*|LD_LIBRARY_PATH|ASAN_OPTIONS|UBSAN_OPTIONS|TSAN_OPTIONS|CTEST_[A-Z_]*)=' || true
    printf 'export RDMA_RAILS=%d RDMA_OUT=/rdma_out HOME=/root TMPDIR=/tmp\n' "$rails"
    printf '. %q\ncd %q\n' "$root/tests/rdma/guest/setup.sh" "$PWD"
    printf '%q ' "$@"
    echo
} >"$share/run/command"

boot() {
    rm -f "$share/run/status"
    timeout --foreground -k 5 "$seconds" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi -cpu max -smp "$cpus" -m "$memory" \
        -nodefaults -no-reboot -display none -serial stdio -device isa-debug-exit,iobase=0xf4,iosize=4 \
        -kernel "$cache/vmlinux" -initrd "$cache/initrd" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr cryptomgr.notests no_timer_check tsc=reliable random.trust_cpu=on" \
        -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
        -device virtio-9p-pci,fsdev=root,mount_tag=root \
        -fsdev "local,id=run,path=$share/run,security_model=none" -device virtio-9p-pci,fsdev=run,mount_tag=run \
        -fsdev "local,id=out,path=$out,security_model=none" -device virtio-9p-pci,fsdev=out,mount_tag=out \
        </dev/null
}
for attempt in 1 2; do
    started=$SECONDS
    boot || true
    [ ! -s "$share/run/status" ] || exit "$(cat "$share/run/status")"
    [ $((SECONDS - started)) -lt "$seconds" ] || { echo "rdma_vm: the command did not end within $seconds s" >&2; exit 124; }
    echo "rdma_vm: the machine broke (attempt $attempt)" >&2
done
exit 125
