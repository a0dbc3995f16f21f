# Makes a node: its own mounts, network, host name and view of the cgroups, so that containerd and kubelet find what
# they expect at the usual places and the other node is none the wiser. Runs twice: to join the node's cgroup, and then
# in the namespaces, which it holds until the machine ends.
#     node.sh NAME CGROUP ADDRESS GATEWAY
set -euo pipefail
name=$1 cgroup=$2 address=$3 gateway=$4 inside=${5:-}

if [ -z "$inside" ]; then
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        echo 0 >"/sys/fs/cgroup/$cgroup/cgroup.procs"
    else
        for hierarchy in /sys/fs/cgroup/*/"$cgroup"; do echo 0 >"$hierarchy/cgroup.procs"; done
    fi
    exec unshare --mount --net --uts --cgroup --propagation private -- \
        bash "$0" "$name" "$cgroup" "$address" "$gateway" inside
fi

hostname "$name"

# The cgroup that this process is in becomes the root of what the node sees.
unified=; [ ! -e /sys/fs/cgroup/cgroup.controllers ] || unified=yes
mount -t sysfs sysfs /sys
if [ "$unified" ]; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mkdir /sys/fs/cgroup/init  # a cgroup that has children with controllers must have no processes
    echo 0 >/sys/fs/cgroup/init/cgroup.procs
else
    mount -t tmpfs tmpfs /sys/fs/cgroup
    while IFS=: read -r _ controllers _; do
        [ "$controllers" ] || continue
        folder=/sys/fs/cgroup/${controllers#name=}
        mkdir "$folder"
        mount -t cgroup -o "$controllers" cgroup "$folder"
    done </proc/self/cgroup
fi

# A kubelet changes settings of the whole kernel: it shall find copies of them.
for setting in kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes \
    vm/overcommit_memory vm/panic_on_oom; do
    copy=/run/$name/settings/$setting
    mkdir -p "$(dirname "$copy")"
    cat "/proc/sys/$setting" >"$copy"
    mount --bind "$copy" "/proc/sys/$setting"
done
for folder in containerd netns runc; do
    mkdir -p "/run/$name/$folder" "/run/$folder"
    mount --bind "/run/$name/$folder" "/run/$folder"
done
for folder in lib log; do
    mkdir -p "/run/cluster/$name/$folder"
    mount --bind "/run/cluster/$name/$folder" "/var/$folder"
done
mount --make-rshared /

ip link set lo up
echo ready >"/run/cluster/$name/ready"
until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip address add "$address/24" dev eth0
ip link set eth0 up
ip route add default via "$gateway"
echo 1 >/proc/sys/net/ipv4/ip_forward
echo up >"/run/cluster/$name/ready"
exec sleep infinity
