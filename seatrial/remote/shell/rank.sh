# What starts each rank: sh rank.sh PIPE PROGRAM [ARG ...]
# The rank reports itself, on a line of its own, before its program has a word. What rank 0 prints goes into PIPE, which
# the supervisor on its node reads, if it made one: no other process can write there.
rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${SLURM_PROCID:-?}}} host=$(uname -n) pipe=$1
shift
if [ "$rank" = 0 ] && [ -p "$pipe" ]; then
    exec >"$pipe" 2>&1
fi
# In one write, unlike the printf of some shells. The empty line ends what Open MPI 4 may have put in front of it.
env printf '\nseatrial-rank: %s on %s\n' "$rank" "$host"
command -v "$1" >/dev/null || {
    echo "$host rank $rank: cannot start: $1 is not installed" >&2
    exit 127
}
exec "$@"
