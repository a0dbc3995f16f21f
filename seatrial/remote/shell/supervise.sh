# seatrial/remote/probes/supervise.py for nodes without Python: sh supervise.sh TIMEOUT_S COMMAND [ARG ...]
# The first line of standard input is shell text in base64: variables of the command. What rank 0 writes into the named
# pipe SEATRIAL_PIPE comes by standard error.
set -u
limit_s=${1%.*}
shift
said=$0.$$

say() { printf 'seatrial-supervisor: %s\n' "$1"; }
end() { # WHY: the command with every process of its group; forced after 3 s
    [ -e "$said" ] || { : >"$said"; say "$1" >&4; } # what comes after it is of processes that are ended
    kill -TERM "-$child" 2>/dev/null
    sleep 3 4>&-
    kill -KILL "-$child" 2>/dev/null
}

IFS= read -r variables || { say 'not wanted any more'; exit 1; }
command -v "$1" >/dev/null || { say "cannot start $1: No such file or directory"; exit 1; }
command -v setsid >/dev/null || { say 'cannot start setsid: install util-linux'; exit 1; }
eval "$(printf '%s' "$variables" | base64 -d)"
exec 3<&0 4>&1
copying=
if [ -n "${SEATRIAL_PIPE:-}" ]; then
    mkdir -p "${SEATRIAL_PIPE%/*}" && mkfifo -m 600 "$SEATRIAL_PIPE" && exec 5<>"$SEATRIAL_PIPE"
    cat <"$SEATRIAL_PIPE" >&2 3<&- 4>&- 5>&- &
    copying=$!
fi
setsid "$@" </dev/null 2>&1 3<&- 4>&- 5>&- &
child=$!
(sleep "$limit_s" 4>&-; end 'time is up') </dev/null 3<&- 5>&- >/dev/null 2>&1 &
timer=$!
(cat <&3 >/dev/null 4>&-; end 'not wanted any more') 5>&- >/dev/null 2>&1 &
reader=$!
wait "$child"
status=$?
kill "$timer" "$reader" 2>/dev/null
kill -KILL "-$child" 2>/dev/null # what a command that ended by itself left running
exec 5>&-
[ -z "$copying" ] || wait "$copying" # all processes that wrote into the pipe have ended
if [ -e "$said" ]; then
    rm -f "$said"
    exit 1
fi
exit "$status"
