#!/bin/sh
# Sets SIA up on first use, runs it in a loop, guards it, and rolls a bad revision back.
#
#   ./restart.sh [ARGUMENTS OF sia]     ./restart.sh --setup-only
#
# The program's exit code says what comes next:
#   0, 2, 69, 130   ends with the same code (done, usage, unavailable, interrupted)
#   78              ends (configuration), unless a revision on trial is to blame
#   75              starts again at once, if a turn was completed or what it runs on has changed
#   anything else, and death by signal, is a crash: backoff, and the fifth in ten minutes ends it
#
# What the program is told: SIA_RESTART, the number of this start (1, 2, ...), and SIA_TURN_FILE,
# a file that it appends a line to after each turn, and when it ends because its code or settings
# changed. A last line "end" says that an exit code 1 is its result and not a crash. It reads the same standard input in every start. The home, where
# revisions are put back, is found as the program finds it: --home, $SIA_HOME, else this folder.
#
# For tests: SIA_BACKOFF_UNIT and SIA_PENDING_SECONDS, both in seconds.
set -u

say() { printf 'sia: %s\n' "$*" >&2; }

# ---- Set-up ----------------------------------------------------------------------------------

find_python() {
    hint='on Debian: apt-get install python3 python3-venv (Debian 12 or newer)'
    for python in python3 python3.14 python3.13 python3.12 python3.11; do
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        "$python" -c 'import ensurepip, venv' 2>/dev/null && return
        hint="$python cannot make environments; on Debian: apt-get install python3-venv"
    done
    say "needs Python 3.11 or newer with its venv module; $hint"
    return 1
}

# Changes when the requirements, the checkout's place or the interpreter behind .venv do.
stamp() {
    printf '%s %s %s\n' "$(cksum <pyproject.toml)" "$(readlink -f .venv/bin/python)" "$here"
}

is_set_up() (
    cd "$here" && [ -x .venv/bin/python ] && IFS= read -r done_for <.venv/sia-stamp &&
        [ "$done_for" = "$(stamp)" ]
) 2>/dev/null

# Its output goes to stderr, and it reads nothing: stdin and stdout are the program's. The stamp
# comes last, so that what was interrupted is taken up again; the lock (on pyproject.toml, where
# flock exists) keeps two first starts apart.
set_up() (
    cd "$here" || exit
    command -v flock >/dev/null && flock 9
    is_set_up && { [ "${1-}" != again ] || [ ! -e .venv/sia-without-dream ]; } && exit
    if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
        find_python || exit
        say "making .venv with $python"
        "$python" -m venv --clear .venv || exit
    fi
    rm -f .venv/sia-stamp .venv/sia-without-dream
    say 'installing SIA; the first time llama.cpp is compiled, which takes about ten minutes'
    if ! .venv/bin/python -m pip install --editable .; then
        say 'the installation failed, see above; compiling needs a C++ compiler' \
            '(on Debian: apt-get install build-essential); start again to go on from here'
        exit 1
    fi
    say 'installing what dreaming needs (PyTorch, which can be several GB)'
    if ! .venv/bin/python -m pip install --editable '.[dream]'; then
        say 'dreaming is not available: its packages could not be installed, see above;' \
            'the rest works, and ./restart.sh --setup-only tries again'
        : >.venv/sia-without-dream
    fi
    stamp >.venv/sia-stamp
) </dev/null >&2 9<"$here/pyproject.toml"

# ---- Sleep and signals -----------------------------------------------------------------------

# What has come is kept in `ending`, and looked at before and after the start of a child: one that
# falls before its id is known must not be lost.
# shellcheck disable=SC2317  # called by the traps
on_signal() {
    signalled=1
    [ "$1" != INT ] || [ -z "$program" ] || return # the terminal has sent it to the program too
    ending=$1 ending_code=$2
    [ -z "$program" ] || kill -s "$1" "$program"
    [ -z "$nap" ] || kill "$nap"
}

# Sleeps in the background, so that a signal is heard; fails when one ended it.
doze() {
    [ -z "$ending" ] || return
    sleep "$1" >/dev/null 2>&1 3<&- & nap=$!
    [ -z "$ending" ] || kill "$nap"
    wait "$nap"
    nap=''
    [ -z "$ending" ]
}

# ---- Revisions -------------------------------------------------------------------------------

# Prints the id of the revision on trial: its health check has not deleted `pending` yet.
pending() {
    [ -s "$revisions/pending" ] && IFS= read -r id <"$revisions/pending" || return
    case $id in *[!A-Za-z0-9._-]* | .*) return 1 ;; esac
    printf '%s' "$id"
}

# roll_back ID REASON: puts the parent of ID back. `pending` goes last: interrupted, all is redone.
roll_back() {
    parent=$(tr '{,' '\n' <"$revisions/$1/revision.json" 2>/dev/null |
        sed -n 's/^[[:space:]]*"parent"[[:space:]]*:[[:space:]]*"\([A-Za-z0-9_-]*\)".*/\1/p' |
        head -n 1)
    if [ -n "$parent" ] && [ -f "$revisions/$parent/revision.json" ]; then
        printf '%s\n' "$parent" >"$revisions/current.new" &&
            mv -f "$revisions/current.new" "$revisions/current" || return
    else # the shipped revision, which holds where `current` names none
        parent=starter
        rm -f "$revisions/current" || return
    fi
    printf '%s %s put back to %s: %s\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$1" "$parent" "$2" \
        >>"$revisions/rolled_back"
    rm -f "$revisions/pending" && say "revision $1 is put back to $parent: $2"
}

# Runs in the background beside a program whose revision is on trial. Exits 0 when it had to end it.
watch_trial() {
    ending=''
    trap 'ending=TERM; [ -z "$nap" ] || kill "$nap"' TERM
    doze "$trial_seconds" || exit
    [ "$(pending)" = "$trial" ] || exit
    kill -s TERM "$program"
    doze 2 && kill -s KILL "$program"
    exit 0
}

# ---- The loop --------------------------------------------------------------------------------

# A background job of a shell ignores Ctrl-C, and only a background job leaves the shell free to
# forward TERM; so this gives the signals back before it becomes the program. -P: a folder named
# sia in the current one is not imported.
launcher='import os, signal, sys
for name in signal.SIGINT, signal.SIGQUIT:
    signal.signal(name, signal.SIG_DFL)
os.execv(sys.argv[1], [sys.argv[1], "-P", "-m", "sia", *sys.argv[2:]])'

# Runs the program once. Sets code, and timed_out when the trial of its revision took too long.
run_once() {
    trial=$(pending)
    timed_out='' watcher=''
    [ ! -e "$SIA_TURN_FILE" ] || : >"$SIA_TURN_FILE"
    SIA_RESTART=$((SIA_RESTART + 1))
    python=$here/.venv/bin/python
    [ -z "$ending" ] || exit "$ending_code"
    "$python" -I -S -c "$launcher" "$python" "$@" <&3 3<&- & program=$!
    [ -z "$ending" ] || kill -s "$ending" "$program"
    if [ -n "$trial" ]; then
        watch_trial </dev/null >/dev/null 2>&1 3<&- & watcher=$!
    fi
    code=127
    while :; do # a trapped signal ends wait early; 127: its end was already heard of
        signalled=''
        wait "$program"
        heard=$?
        [ "$heard" = 127 ] || code=$heard
        [ -n "$signalled" ] || break
    done
    program=''
    if [ -n "$watcher" ]; then
        kill -s TERM "$watcher" 2>/dev/null
        wait "$watcher" && timed_out=1
    fi
    # What died at the prompt leaves the terminal without echo.
    [ "$code" = 0 ] || [ -z "$terminal" ] || stty "$terminal" <&3 2>/dev/null
}

# Waits 1, 2, 4, 8 units.
back_off() {
    units=$((1 << ($1 - 1)))
    while [ "$units" -gt 0 ] && doze "${SIA_BACKOFF_UNIT:-1}"; do
        units=$((units - 1))
    done
}

# Notes a crash of now, and counts those of the last ten minutes in `crashes`.
count_crash() {
    now=$(date +%s)
    recent=''
    crashes=1
    for then in $crash_times; do
        [ $((now - then)) -ge 600 ] || { recent="$recent $then" && crashes=$((crashes + 1)); }
    done
    crash_times="$recent $now"
}

# How the program ended, in words.
ended() {
    if [ -n "$timed_out" ]; then
        printf 'it did not pass its health check within %s s' "$trial_seconds"
    elif [ "$code" = 75 ]; then
        printf 'the program asked for a restart without a completed turn'
    elif [ "$code" -gt 128 ]; then
        printf 'the program was ended by signal %s' $((code - 128))
    else
        printf 'the program ended with code %s' "$code"
    fi
}

# Decides what a run's end means: returns to start again, else exits.
after() {
    [ -z "$ending" ] || exit "$code"
    blamed=''
    [ -z "$trial" ] || [ "$(pending)" != "$trial" ] || blamed=$trial
    if [ -z "$timed_out" ]; then
        case $code in
            0 | 2 | 69 | 130) exit "$code" ;;
            78) [ -n "$blamed" ] || exit 78 ;;
            # A revision that this run put on trial is a reason to restart, and not to blame for it.
            75) if [ -s "$SIA_TURN_FILE" ] || [ "$(pending)" != "$trial" ]; then return; fi ;;
            1) [ "$(tail -n 1 "$SIA_TURN_FILE" 2>/dev/null)" != end ] || exit 1 ;;
        esac
    fi
    [ -z "$blamed" ] || roll_back "$blamed" "$(ended)" ||
        say "the revision before $blamed could not be put back; is $revisions writable?"
    count_crash
    if [ "$crashes" -ge 5 ]; then
        say "$(ended), crash $crashes in ten minutes: not started again." \
            "Look into $home/.sia/log/ and at: $here/.venv/bin/sia history"
        exit 1
    fi
    say "$(ended), crash $crashes of 5 in ten minutes; starting again"
    back_off "$crashes"
}

main() {
    (: 3<&0) 2>/dev/null || exec </dev/null # closed
    self=$(readlink -f -- "$0")
    here=${self%/*}
    : "${PATH:=/usr/local/bin:/usr/bin:/bin}"
    export PATH
    if [ "${1-}" = --setup-only ]; then
        set_up again || exit 69
        exit 0
    fi

    home=${SIA_HOME:-$here}
    before=''
    for word in "$@"; do
        [ "$before" != --home ] || home=$word
        case $word in --) break ;; --home=*) home=${word#--home=} ;; esac
        before=$word
    done
    case $home in /*) ;; *) home=$PWD/$home ;; esac
    revisions=$home/.sia/revisions
    trial_seconds=${SIA_PENDING_SECONDS:-60}
    SIA_TURN_FILE=$home/.sia/turn.$$
    SIA_RESTART=0
    export SIA_TURN_FILE SIA_RESTART

    is_set_up || set_up || exit 69
    exec 3<&0
    terminal=''
    [ ! -t 3 ] || terminal=$(stty -g <&3)
    program='' nap='' ending='' crash_times=''
    trap 'on_signal INT 130' INT
    trap 'on_signal TERM 143' TERM
    trap 'on_signal HUP 129' HUP
    trap 'rm -f "$SIA_TURN_FILE"' EXIT
    while :; do
        run_once "$@"
        after
        is_set_up || set_up || exit 69 # the program may have changed what it needs
    done
}

main "$@" # never returns, so that this file may change while it runs
