# Sourced in the guest before the command: names, limits, and the rails, each a veth pair with an RDMA device on both ends.
# Both ends are in one network namespace (rdma_rxe knows no other); routes by rule make packets cross the pair all the same,
# so that a link set down, or a queueing discipline, acts on that rail alone.
export PATH=$PATH:/usr/sbin:/sbin
ulimit -l unlimited
ulimit -c 0
hostname h1
printf '127.0.0.1 localhost h1\n' >/etc/hosts
ip link set lo up
ip rule add pref 200 lookup local
ip rule del pref 0
sysctl -q -w net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 net.ipv4.conf.all.accept_local=1

rdma_rail() {
    local i=$1 table=$((100 + 2 * $1)) end
    ip link add "va$i" mtu 4200 type veth peer name "vb$i" mtu 4200
    for end in a b; do
        sysctl -q -w "net.ipv4.conf.v$end$i.rp_filter=0" "net.ipv4.conf.v$end$i.accept_local=1" \
            "net.ipv6.conf.v$end$i.disable_ipv6=1"
    done
    ip addr add "10.7.$i.1/24" dev "va$i"
    ip addr add "10.7.$i.2/24" dev "vb$i"
    ip link set "va$i" up
    ip link set "vb$i" up
    rdma_route "$i"
    ip rule add pref 100 iif lo to "10.7.$i.2" lookup $table
    ip rule add pref 100 iif lo to "10.7.$i.1" lookup $((table + 1))
    rdma link add "rxa$i" type rxe netdev "va$i"
    rdma link add "rxb$i" type rxe netdev "vb$i"
}

# The routes and neighbours of a rail: they are lost when one of its links is set down.
rdma_route() {
    local i=$1 table=$((100 + 2 * $1))
    ip route replace "10.7.$i.2" dev "va$i" src "10.7.$i.1" table $table
    ip route replace "10.7.$i.1" dev "vb$i" src "10.7.$i.2" table $((table + 1))
    ip neigh replace "10.7.$i.2" lladdr "$(cat "/sys/class/net/vb$i/address")" dev "va$i" nud permanent
    ip neigh replace "10.7.$i.1" lladdr "$(cat "/sys/class/net/va$i/address")" dev "vb$i" nud permanent
}
export -f rdma_route

for ((rail = 0; rail < RDMA_RAILS; rail++)); do
    rdma_rail $rail
done
unset rail
