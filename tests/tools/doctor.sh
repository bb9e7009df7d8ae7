#!/bin/bash
# hetmpi_doctor on a healthy machine, and on machines to which this and that was done: each is found, with the exit code of the
# worst. Usage: doctor.sh DOCTOR MPIEXEC [LIBRARY-THAT-SPOILS-DATA]
set -uo pipefail
doctor=$1 mpiexec=$2 spoiler=${3:-}
. "$(dirname "$0")/fake_machine.sh"
work=$(mktemp -d)
helper=
trap '[ -z "$helper" ] || kill $helper 2>/dev/null; rm -rf "$work"' EXIT
export HETMPI_SIM_VENDORS=nvidia,amd
failed=0
fail() { echo "FAILED: $*" >&2; failed=1; }

# expect CODE NAME COMMAND...: runs it; its report is in $work/NAME.json, and is JSON.
expect()
{
    local code=$1 name=$2 got
    shift 2
    "$@" > "$work/$name.json" 2> "$work/$name.err"
    got=$?
    [ "$got" = "$code" ] || { fail "$name: exit code $got, not $code"; cat "$work/$name.json" "$work/$name.err"; }
    python3 -m json.tool "$work/$name.json" > /dev/null || fail "$name: no JSON"
}

# has NAME SEVERITY TOPIC WORDS: the report has such a finding, with a cost and what mends it.
has()
{
    python3 - "$work/$1.json" "$2" "$3" "$4" <<'P' || { fail "$1: no $2 on $3 that says '$4'"; grep '"what"' "$work/$1.json"; }
import json, sys
path, severity, topic, words = sys.argv[1:]
found = [f for f in json.load(open(path))["findings"] if f["severity"] == severity and f["topic"] == topic]
sys.exit(not any(words in f["what"] and f["cost"] and f["mend"] and f["nodes"] for f in found))
P
}

# value NAME EXPRESSION-ON-r
value() { python3 -c "import json,sys; r=json.load(open(sys.argv[1])); print($2)" "$work/$1.json"; }

healthy_machine "$work/healthy"
expect 0 healthy "$doctor" --json --seconds 0.1 --root "$work/healthy"
[ "$(value healthy "r['verdict'], len(r['findings'])")" = "healthy 0" ] || fail "a healthy machine has findings"
[ "$(value healthy "[(d['gpu'][5:7], d['nic'], d['distance']) for d in r['nodes'][0]['distances']]")" = \
  "[('02', 'mlx5_0', 'same switch'), ('02', 'mlx5_1', 'other NUMA node'), ('81', 'mlx5_0', 'other NUMA node'), ('81', 'mlx5_1', 'same root complex')]" ] ||
    fail "distances: $(value healthy "r['nodes'][0]['distances']")"
[ "$(value healthy "[(g['vendor'], g['driver']) for g in r['nodes'][0]['gpus']]")" = "[('nvidia', '550.54.15'), ('amd', '6.7.0')]" ] ||
    fail "GPUs: $(value healthy "r['nodes'][0]['gpus']")"
"$doctor" --seconds 0.1 --root "$work/healthy" | grep -q "NIC mlx5_1 port 1: 4: ACTIVE, Ethernet, 100 Gb/sec" || fail "text"

# What makes it slow.
slow=$work/slow
healthy_machine "$slow"
put "$slow/proc/self/limits" "Max locked memory         65536                65536                bytes"
put "$slow/proc/mounts" "shm /dev/shm tmpfs rw,size=65536k 0 0"
put "$slow/proc/modules" "nvidia 16384 0 - Live 0x0"
put "$slow/proc/driver/nvidia/version" "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug"
put "$slow/boot/config-6.1.0-test" "CONFIG_PCI_P2PDMA=y"
put "$slow/proc/cmdline" "root=/dev/sda1"
put "$slow/proc/sys/kernel/yama/ptrace_scope" 1
put "$slow/sys/class/net/eth1/mtu" 1500
put "$slow/sys/class/infiniband/mlx5_0/ports/1/gids/1" 0000:0000:0000:0000:0000:0000:0000:0000
put "$slow/sys/devices/pci0000:80/0000:80:02.0/0000:82:00.0/numa_node" 0
mv "$slow/sys/devices/pci0000:80/0000:80:02.0" "$slow/sys/devices/pci0000:00/"
for link in sys/bus/pci/devices/0000:82:00.0 sys/class/infiniband/mlx5_1/device; do
    ln -sfn ../../../devices/pci0000:00/0000:80:02.0/0000:82:00.0 "$slow/$link"
done
(while sleep 0.1; do
    counter=$slow/sys/class/infiniband/mlx5_1/ports/1/counters/symbol_error
    read -r now < "$counter"; echo $((now + 1)) > "$counter.new"; mv "$counter.new" "$counter"
done) & helper=$!
expect 1 slow "$doctor" --json --seconds 1 --root "$slow"
kill $helper; helper=
has slow warning memlock "64 KiB"
has slow warning shm "64 MiB"
has slow warning gpu-direct "no nvidia-peermem"
has slow warning gpu-direct "lacks CONFIG_DMABUF_MOVE_NOTIFY"
has slow warning iommu "translates"
has slow note ptrace "ptrace_scope"
has slow note mtu "mlx5_1 (eth1) has MTU 1500"
has slow warning gid "mlx5_0 port 1"
has slow warning nic-errors "mlx5_1 port 1: symbol_error grew"
has slow note distance "0000:81:00.0 has no NIC"
[ "$(value slow "sum(f['topic'] == 'nic-errors' for f in r['findings'])")" = 1 ] || fail "a counter that stands still is reported"

# What keeps it from working; and a copy of the device that fails.
broken=$work/broken
healthy_machine "$broken"
rm -r "$broken/proc/driver/nvidia" "$broken/sys/module/amdgpu" "$broken/dev/infiniband/uverbs1"
put "$broken/sys/class/infiniband/mlx5_0/ports/1/state" "2: INIT"
put "$broken/sys/class/infiniband/mlx5_1/ports/1/state" "1: DOWN"
put "$broken/proc/mounts" "proc /proc proc rw 0 0"
HETMPI_SIM_FAULT=copy@1 expect 2 broken "$doctor" --json --seconds 0.1 --root "$broken"
has broken fault driver "1 nvidia GPU, but no driver"
has broken fault driver "1 amd GPU, but no driver"
has broken fault nic-access "/dev/infiniband/uverbs1"
has broken fault nic "mlx5_0 port 1 is in state 2: INIT"
has broken warning nic "mlx5_1 port 1 is in state 1: DOWN"
has broken warning shm "not there"
has broken fault test "injected fault"

# A job: pairs, nodes; then a wire that spoils data.
HETMPI_SIM_NODES=0,1 expect 1 job "$mpiexec" -n 2 "$doctor" --json --seconds 0.3 --root "$work/healthy"
has job warning wire "the wire between nodes is"
[ "$(value job "[(p['a'], p['b'], p['same_node'], p['right'], p['gb_s'] > 0, p['latency_us'] > 0) for p in r['pairs']], len(r['ranks']), len(r['nodes'])")" = \
  "[(0, 1, False, True, True, True)] 2 1" ] || fail "pairs: $(value job "r['pairs']")"
if [ -n "$spoiler" ]; then
    LD_PRELOAD=$spoiler expect 2 spoilt "$doctor" --json --seconds 0.1 --root "$work/healthy"
    has spoilt fault data "arrived wrong"
fi

# Ports: closed, open but silent, a doctor behind it.
read -r closed silent open < <(python3 -c "
import socket
s = [socket.socket() for _ in range(3)]
for x in s: x.bind(('127.0.0.1', 0))
print(*[x.getsockname()[1] for x in s])")
expect 2 closed "$doctor" --json --probe "127.0.0.1:$closed"
has closed fault reach "refuses"
"$doctor" --listen "$open" --seconds 30 > "$work/listen" & helper=$!
python3 -c "
import socket, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('127.0.0.1', $silent)); s.listen(5); print('ready', flush=True); time.sleep(30)" > "$work/silent" & helper="$helper $!"
for _ in $(seq 100); do [ -s "$work/listen" ] && [ -s "$work/silent" ] && break; sleep 0.1; done
expect 2 silent "$doctor" --json --probe "127.0.0.1:$silent"
has silent fault reach "open but silent"
expect 0 open "$doctor" --json --probe "localhost:$open"

for wrong in --nonsense "--seconds" "--seconds never" "--seconds 0" "--probe host" "--listen 70000" "--root /nowhere"; do
    $doctor $wrong > /dev/null 2>&1
    [ $? = 3 ] || fail "'$wrong' is taken"
done
exit $failed
