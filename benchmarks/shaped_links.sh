#!/bin/bash
# Two hosts with slow links on one machine: two network namespaces, joined by two pairs of interfaces of 1 Gbit/s each
# way, one pair a rail. Measures allreduce of 64 MiB over 1+1, 2+2 and 3+1 ranks with one rail and with two, against the
# bytes that each host must send and receive, with MPI's own allreduce beside it, and what plain TCP takes for these bytes
# just after (one connection a rail, both ways at once): the limit of anything that goes over TCP.
#   benchmarks/shaped_links.sh [BUILD] [FOLDER]     BUILD: tree with the benchmarks (default build/release), FOLDER: for
#                                                   the JSON lines and logs (default BUILD/shaped_links)
# SHAPED_BYTES, SHAPED_RANKS="1+1 2+2", SHAPED_RAILS="1 2" and SHAPED_MTU=9000 choose other runs; SHAPED_PREFIX="nice -n -15"
# puts the ranks before what else a shared machine is doing (real-time ranks that spin would starve the kernel's own
# threads, which move the packets). Prints a markdown table. Exit 77: cannot be done here, with the reason.
#
# Each host is a namespace for the network, the host name and process numbers, so MPI and hetmpi find two hosts by
# themselves, as with two containers; nothing tells them. The kernel, its clock and the cores are shared, so latency and
# CPU time are not those of two hosts. The shaper hands out bytes every few milliseconds: bandwidth, not latency.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-build/release}
out=${2:-$build/shaped_links}
bytes=${SHAPED_BYTES:-64M}
rate=125000000      # bytes a second and rail: 1 Gbit/s
tag=hm$$
temporary=

skip() { echo "shaped_links: skipped: $*" >&2; exit 77; }
fail() { echo "shaped_links: $*" >&2; exit 1; }

clean_up() {
    trap - EXIT INT TERM HUP
    # What still runs in a namespace would keep it alive.
    for host in a b; do
        # The list of process numbers is words on purpose.
        # shellcheck disable=SC2046
        kill -9 $(ip netns pids "$tag$host" 2>/dev/null) 2>/dev/null
        ip netns del "$tag$host" 2>/dev/null
    done
    [ -z "$temporary" ] || rm -rf "$temporary"
}

check() {
    [ "$(id -u)" = 0 ] || skip "network namespaces need root"
    for tool in ip tc unshare mpirun.openmpi python3; do
        command -v $tool >/dev/null || skip "$tool is missing"
    done
    unshare --net --uts --pid --fork --mount-proc true 2>/dev/null || skip "namespaces are not allowed here"
    [ -x "$build/benchmarks/hetmpi_allreduce_bench" ] || fail "$build/benchmarks/hetmpi_allreduce_bench is missing: build it"
}

on() { host=$1; shift; ip netns exec "$tag$host" "$@"; }

make_hosts() {
    for host in a b; do
        ip netns add "$tag$host" 2>/dev/null || skip "a network namespace cannot be made"
        on $host ip link set lo up || skip "an interface cannot be started"
    done
    for rail in 1 2; do
        ip link add "r$rail" netns "${tag}a" type veth peer name "r$rail" netns "${tag}b" 2>/dev/null ||
            skip "the kernel has no veth"
        for host in a b; do
            number=1
            [ $host = a ] || number=2
            on $host ip addr add "10.77.$rail.$number/24" dev "r$rail" &&
                on $host ip link set "r$rail" mtu "${SHAPED_MTU:-1500}" up || skip "no address"
            on $host tc qdisc add dev "r$rail" root tbf rate 1gbit burst 256kb latency 50ms 2>/dev/null ||
                skip "the kernel cannot shape links (tbf)"
        done
    done
}

# How mpirun starts its daemon on the other host: AGENT HOST COMMAND...
make_agent() {
    temporary=$(mktemp -d) || fail "no temporary folder"
    cat >"$temporary/agent" <<AGENT
#!/bin/bash
shift
exec ip netns exec ${tag}b unshare --uts --pid --mount-proc --fork --kill-child bash -c "hostname ${tag}b; \$*"
AGENT
    chmod +x "$temporary/agent"
}

# Plain TCP between the hosts, by `limit`: SIDE RAILS BYTES. Each rail carries its share both ways at once.
make_tcp() {
    cat >"$temporary/tcp.py" <<'PYTHON'
import socket, sys, threading, time

side, rails, total = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def connect(rail):
    there = (f"10.77.{rail}.1", 5077)
    if side == "a":
        with socket.create_server(there) as listening:
            return listening.accept()[0]
    for _ in range(200):
        try:
            return socket.create_connection(there)
        except ConnectionRefusedError:
            time.sleep(0.02)
    sys.exit("nobody listens")

def send(link, left):
    block = memoryview(bytes(1 << 18))
    while left:
        link.sendall(block[:left])
        left -= min(left, len(block))

def receive(link, left):
    block = memoryview(bytearray(1 << 18))
    while left:
        left -= link.recv_into(block[:left])

def meet():
    for link in links:
        link.sendall(b".")
    for link in links:
        link.recv(1)

links = [connect(rail) for rail in range(1, rails + 1)]
times = []
for _ in range(3):
    meet()
    start = time.monotonic()
    threads = [threading.Thread(target=way, args=(link, total // rails)) for link in links for way in (send, receive)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    meet()
    times.append(time.monotonic() - start)
if side == "a":
    print(sorted(times)[1])
PYTHON
}

# limit RAILS BYTES: seconds that plain TCP takes, the median of three.
limit() {
    # The prefix is words on purpose.
    # shellcheck disable=SC2086
    on b timeout 60 ${SHAPED_PREFIX:-} python3 "$temporary/tcp.py" b "$1" "$2" &
    # shellcheck disable=SC2086
    on a timeout 60 ${SHAPED_PREFIX:-} python3 "$temporary/tcp.py" a "$1" "$2"
    wait $!
}

# run SHAPE RAILS: one line of the table. SHAPE: ranks of the first host + ranks of the second.
run() {
    local first=${1%+*} second=${1#*+} rails=$2 networks=10.77.1.0/24 name="$1-$2"
    [ "$rails" = 1 ] || networks=$networks,10.77.2.0/24
    echo "shaped_links: $1 ranks, $rails rail(s)" >&2
    # Prefix and settings are words on purpose.
    # shellcheck disable=SC2086
    timeout -k 5 "${SHAPED_TIMEOUT:-120}" ip netns exec "${tag}a" unshare --uts --pid --mount-proc --fork --kill-child \
        bash -c "hostname ${tag}a; exec \"\$@\"" bash ${SHAPED_PREFIX:-} mpirun.openmpi --allow-run-as-root \
        --mca plm rsh --mca plm_rsh_agent "$temporary/agent" --mca orte_leave_session_attached 1 \
        --mca pml ob1 --mca btl self,vader,tcp --mca btl_tcp_if_include $networks --mca oob_tcp_if_include 10.77.1.0/24 \
        --host "10.77.1.1:$first,10.77.1.2:$second" -n $((first + second)) ${SHAPED_MPIRUN:-} \
        "$PWD/$build/benchmarks/hetmpi_allreduce_bench" -m "$bytes:$bytes" -i "${SHAPED_ITERATIONS:-2}" -x 1 --compare mpi \
        --json "$out/$name.json" >"$out/$name.log" 2>&1 </dev/null
    code=$?
    grep -q '^# ranks [0-9]*, nodes 2,' "$out/$name.log" || echo "shaped_links: $name: hetmpi did not find two nodes" >&2
    [ $code = 0 ] || { echo "shaped_links: $name: exit code $code, see $out/$name.log" >&2; failed=1; }
    python3 - "$1" "$rails" "$rate" "$out/$name.json" "$(limit "$rails" "$(numfmt --from=iec "$bytes")")" <<'PYTHON' || failed=1
import json, os, sys
shape, rails, rate, path, tcp = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4], float(sys.argv[5])
rows = [json.loads(line) for line in open(path, encoding="utf-8")] if os.path.exists(path) else []
bar = 0.95 if rails == 1 else 0.9
for row in rows:
    bound = row["bytes"] / (rails * rate)
    ours, mpi = row["latency_us"] / 1e6, row["other_latency_us"] / 1e6
    met = "yes" if bound / ours >= bar else "no"
    print(f"| {shape} | {rails} | {row['bytes']} | {bound:.3f} | {ours:.3f} | {bound / ours:.3f} | {bound / tcp:.3f} | "
          f"{tcp / ours:.3f} | {mpi:.3f} | {bound / mpi:.3f} | >= {bar} | {met if row['valid'] else 'WRONG RESULT'} |",
          flush=True)
sys.exit(0 if rows and all(row["valid"] for row in rows) else 1)
PYTHON
}

check
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
mkdir -p "$out" || fail "$out cannot be made"
out=$(realpath "$out")
make_agent
make_tcp
make_hosts
failed=0
echo "| ranks | rails | bytes | bound s | hetmpi s | share | TCP's share | of TCP's | MPI s | MPI's share | bar | met |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|"
for shape in ${SHAPED_RANKS:-1+1 2+2 3+1}; do
    for rails in ${SHAPED_RAILS:-1 2}; do
        run "$shape" "$rails"
    done
done
exit $failed
