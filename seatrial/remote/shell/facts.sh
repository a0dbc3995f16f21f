# The facts of a node without Python, in the form of seatrial/remote/probes/facts.py. Read by `sh -s MPIRUN NCCL_TESTS`.
# What only Python knows is unknown; torch, which needs it, is not installed.
set -u

word() { head -n 1 | tr -cd 'A-Za-z0-9 ._:/()+-' | cut -c 1-300; } # nothing that JSON would escape
path() { command -v "$1" 2>/dev/null | word; }
version() { "$@" 2>&1 </dev/null | grep -oE '[0-9]+\.[0-9]+[.0-9a-z]*' | word; }

mpirun=$1
nccl_tests=${2:-"\$PATH"} # the folders that may have all_reduce_perf, as in PATH
case $nccl_tests in
    "\$PATH"*) nccl_tests=$PATH${nccl_tests#"\$PATH"} ;;
esac
models=''
gpus=0
if [ -n "$(path nvidia-smi)" ]; then
    if models=$(timeout 30 nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null); then
        gpus=$(printf '%s\n' "$models" | grep -c .)
    else
        models='' gpus=null
    fi
fi
memory=$(awk '/^MemTotal:/ { printf "%.1f", $2 * 1024 / 1e9 }' /proc/meminfo)
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | word)
driver=$(sed -n 's/.*  \([0-9][0-9.]*\)  .*/\1/p' /proc/driver/nvidia/version 2>/dev/null | word)
printf '{"hostname": "%s", "cpus": %d, "memory_gb": %s, "gpus": %s, "gpu_model": "%s", "gpu_clock_mhz": null' \
    "$(uname -n | word)" "$(nproc)" "${memory:-0}" "$gpus" "$(printf '%s\n' "$models" | sort -u | word)"
printf ', "hardware_ids": [], "cpu_model": "%s", "architecture": "%s", "mpirun": "%s", "sshd": null, "nccl_tests": "%s"' \
    "$cpu" "$(uname -m | word)" "$(path "$mpirun")" "$(PATH=$nccl_tests command -v all_reduce_perf 2>/dev/null | word)"
printf ', "versions": {"kernel": "%s", "python": "", "torch": "", "openmpi": "%s", "openssh": "%s", "driver": "%s", "cuda": null, "nccl": null}}\n' \
    "$(uname -r | word)" "$(version "$mpirun" --version)" "$(version ssh -V)" "$driver"
