# One node of a run: run sshd with the run's keys until this script is ended, and leave nothing behind.
#
# `sh -s` reads it from standard input, so that no key is in a command line, an environment or a job's script. In front
# stand the assignments of FOLDER, PORT, USER_KEY (public), RUN_KEY and HOST_KEY (private), HOST_KEY_PUBLIC, and LISTEN,
# the address that sshd listens on, where that is not every one; then the functions that images have too.
# Prints `seatrial-node: ready PORT` once sshd answers with the run's host key. Where PORT is taken, or needs root, it is
# a free one above 1024.
set -eu
umask 077
work=$FOLDER
sshd_pid=
LISTEN=${LISTEN-}

say() { printf 'seatrial-node: %s\n' "$*"; }
fail() { say "failed: $*"; exit 1; }

descendants() { # of the process $1, from the bottom up
    # By cat, which goes on where a process has ended meanwhile: awk gives up, and then nothing would be ended.
    cat /proc/[0-9]*/stat 2>/dev/null | awk -v root="$1" '
        { rest = $0; sub(/^.*\) /, "", rest); split(rest, field, " "); parent[$1] = field[2] }
        function below(pid, child) { for (child in parent) if (parent[child] == pid) { below(child); print child } }
        END { below(root) }'
}

clean_up() {
    trap '' TERM INT HUP
    for pid in $(descendants $$); do kill -KILL "$pid" 2>/dev/null || :; done
    rm -rf "$work"
}

start_of() { # of the process $1, in ticks since boot; nothing if it has ended
    cat "/proc/$1/stat" 2>/dev/null | awk '{ sub(/^.*\) /, ""); print $20 }'
}

remove_dead() { # folders of this user whose script was killed, on this host: they hold keys
    for folder in "${work%/*}"/seatrial-*; do
        [ -f "$folder/owner" ] && [ "$(stat -c '%u %F' "$folder")" = "$(id -u) directory" ] || continue # no link
        read -r host pids pid start <"$folder/owner" || continue
        [ "$host $pids" = "$here" ] && [ "$start" != "$(start_of "$pid")" ] || continue
        rm -rf "$folder"
    done
}

# Nobody reads the files before sshd runs. printf is the shell's own: programs are what takes the time here.
write() { printf '%s\n' "$2" >"$work/$1"; }

write_files() {
    mkdir "$work" 2>/dev/null || fail "$work cannot be made: it is there already, or the folder above is not writable"
    trap clean_up EXIT
    trap 'exit 143' TERM INT HUP
    here="$(uname -n) $(readlink /proc/self/ns/pid)"
    write owner "$here $$ $(start_of $$)"
    remove_dead
    mkdir "$work/bin" "$work/tmp"
    account=$(id -un)
    write authorized_keys "$USER_KEY"
    write id_ed25519 "$RUN_KEY"
    write ssh_host_ed25519_key "$HOST_KEY"
    write known_hosts "* $HOST_KEY_PUBLIC"
    write ssh_config "Include $work/ports
Host *
$(ssh_options "$PORT" "$account" "$work")"
    # MPI and the probes call `ssh`: this one reads the run's configuration, and the user's own stays as it is.
    ssh=$(command -v ssh) || fail "ssh is missing: install openssh-client on the nodes"
    write bin/ssh "#!/bin/sh
exec $ssh -F $work/ssh_config "'"$@"'
    chmod 700 "$work/bin/ssh"
    write session "umask 022
. $work/environment"'
[ -n "${SSH_ORIGINAL_COMMAND:-}" ] || exec "${SHELL:-/bin/sh}"
command=$SSH_ORIGINAL_COMMAND
unset SSH_ORIGINAL_COMMAND
exec /bin/sh -c "$command"'
}

start_sshd() { # on port $1; succeeds once it answers with the run's host key
    # -r: a connection is a fork, not a new program, which takes six times as long; OpenSSH 9.8 and later ignore it.
    # The key exchange that OpenSSH prefers takes ten times as long as this one, which the run's ssh_config asks for too.
    "$sshd" -D -e -r -f /dev/null -o KexAlgorithms=curve25519-sha256,curve25519-sha256@libssh.org \
        ${LISTEN:+-o ListenAddress="$LISTEN"} -o Port="$1" -o HostKey="$work/ssh_host_ed25519_key" -o AuthorizedKeysFile="$work/authorized_keys" \
        -o ForceCommand="/bin/sh $work/session" -o PidFile=none -o StrictModes=no -o UsePAM=no \
        -o AllowUsers="$account" -o PermitRootLogin=prohibit-password -o AuthenticationMethods=publickey \
        -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no -o MaxStartups=5000 -o MaxSessions=5000 \
        -o UseDNS=no -o PrintMotd=no -o DisableForwarding=yes ${nested:+-o "$nested"} \
        -o ClientAliveInterval=30 -o ClientAliveCountMax=4 &
    sshd_pid=$!
    deadline=$(($(date +%s) + 15)) # what has the port may be silent
    while [ "$(date +%s)" -lt "$deadline" ] && kill -0 "$sshd_pid" 2>/dev/null; do
        case $(ssh-keyscan -T 2 -t ed25519 -p "$1" 127.0.0.1 2>/dev/null) in
            *"$HOST_KEY_PUBLIC"*) return 0 ;;
            '') sleep 0.1 ;;
            *) break ;; # another server has the port
        esac
    done
    kill "$sshd_pid" 2>/dev/null || :
    wait "$sshd_pid" || :
    return 1
}

free_port() { # a guess, different on every node and every time
    awk -v seed="$(od -An -N4 -tu4 /dev/urandom)" 'BEGIN { srand(seed); print 20000 + int(rand() * 40000) }'
}

main() {
    sshd=$(PATH=$PATH:/usr/sbin:/sbin:/usr/local/sbin command -v sshd) ||
        fail "sshd is missing: install openssh-server on the nodes, or name an image that has it"
    [ "$(id -u)" != 0 ] || mkdir -p /run/sshd
    write_files
    (PATH=$work/bin:$PATH TMPDIR=$work/tmp && export PATH TMPDIR && session_environment) >"$work/environment"
    # bash reads ~/.bashrc in a session of sshd, unless it takes itself for a shell within another one.
    nested=SetEnv=SHLVL=1
    port=$PORT
    tries=0
    until start_sshd "$port"; do
        if [ -n "$nested" ] && ! "$sshd" -t -f /dev/null -o HostKey="$work/ssh_host_ed25519_key" -o "$nested"; then
            nested= # before OpenSSH 7.8
            continue
        fi
        tries=$((tries + 1))
        [ "$tries" -lt 8 ] || fail "sshd finds no port that it may use"
        port=$(free_port)
    done
    say "ready $port"
    wait "$sshd_pid" || :
    fail "sshd has ended"
}

main </dev/null
