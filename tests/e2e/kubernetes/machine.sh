# Process 1 of the cluster's machine, in namespaces of its own: it has neither the host's links nor anything below /run.
# Everything that runs here ends with this process, which ends with its standard input.
#     machine.sh STATE TOOLS ADDRESS
set -euo pipefail
state=$1 tools=$2 address=$3

read -r pid _ </proc/self/stat  # the host's number for this process, as long as /proc is the host's
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mkdir /run/cluster /run/tools /run/lock
mount --bind "$state" /run/cluster
mount --bind "$tools" /run/tools
hostname seatrial-kubernetes

ip link set lo up
ip link add cluster0 type bridge
ip address add "$address/24" dev cluster0
ip link set cluster0 up
echo 1 >/proc/sys/net/ipv4/ip_forward

echo "$pid" >/run/cluster/machine.pid.new
mv /run/cluster/machine.pid.new /run/cluster/machine.pid
while read -r _; do :; done
