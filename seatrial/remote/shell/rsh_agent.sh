# The remote shell of mpirun: sh rsh_agent.sh FOLDER [OPTION ...] HOST COMMAND ...
# What the session on HOST prints would become mpirun's own output, in which a node could speak for others. It goes to
# FOLDER/HOST instead, bounded. What ssh itself has to say of the connection goes on to mpirun's output.
set -u
folder=$1
shift
host= skip=
for word; do
    if [ -n "$skip" ]; then
        skip=
        continue
    fi
    case $word in
    -l | -p | -o | -F | -i) skip=yes ;;
    -*) ;;
    *)
        host=$word
        break
        ;;
    esac
done
said=$folder/$(printf '%s' "$host" | tr -c 'A-Za-z0-9.-' '_')
errors=$said.ssh status=$said.status
mkdir -p "$folder"
rm -f "$status"
{
    ssh -x -E "$errors" "$@" 2>&1 </dev/null
    echo $? >"$status"
} | {
    head -c 65536 >"$said"
    cat >/dev/null # a session that prints without end is not ended by that
}
[ -s "$errors" ] && head -c 4096 "$errors" >&2
ended=1
read -r ended <"$status"
exit "$ended"
