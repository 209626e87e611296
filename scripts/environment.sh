# Sourced by the commands beside it: afterwards $python is this repository's own Python with every
# locked dependency. Speaks on stderr alone, since the output of some commands is read by programs.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=$repository/.venv/bin/python
# The repository's modules are found from any folder, and none of the caller's are taken for them.
export PYTHONPATH=$repository${PYTHONPATH:+:$PYTHONPATH} PYTHONSAFEPATH=1

_say() { echo "$@" >&2; }

# Installs the packages where that is possible; says which they are where it is not.
_install_packages() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        _say "Missing: $*. On Debian or Ubuntu: sudo apt-get install $*"
        return 1
    fi
    _say "Installing $* ..."
    { apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } \
        </dev/null >/dev/null || { _say "apt-get could not install $*."; return 1; }
}

# A Python that is new enough. A name on the PATH may be a stub, so each one is tried.
_find_python() {
    local name
    for name in python3.11 python3.12 python3.13 python3 python; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    return 1
}

_lacks_library() {
    local known
    known=$(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null)
    [[ $known != *"$1"* ]]
}

_make_environment() {
    local base version needed=()
    base=$(_find_python) || {
        # Ubuntu 22.04 has a python3 that is too old and a newer one by its number.
        _install_packages python3 python3-venv && base=$(_find_python) ||
            { _install_packages python3.11 python3.11-venv && base=$(_find_python); } ||
            { _say "Python 3.11 or newer is needed."; return 1; }
    }
    if ! "$base" -c 'import venv, ensurepip' 2>/dev/null; then
        version=$("$base" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        needed+=("python$version-venv")
    fi
    # What the embedded mongod is linked to. Not fatal here: a mongod of the machine's own or a
    # given TICKETING_MONGODB_URI does without, and a start that needs them names them again.
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        if _lacks_library libcurl.so.4; then needed+=(libcurl4); fi
        if _lacks_library libssl.so.3; then needed+=(libssl3); fi
    fi
    if [ ${#needed[@]} -gt 0 ]; then _install_packages "${needed[@]}" || return 1; fi

    _say "Preparing the Python environment in $repository/.venv (once, about a minute) ..."
    # An installation that was killed may have left half a package that pip takes for a whole one.
    # What was downloaded is kept by pip, so to begin again costs little.
    if [ -e "$unfinished" ] || ! "$python" -c '' 2>/dev/null; then
        "$base" -m venv --clear "$repository/.venv" >&2 || return 1
    fi
    touch "$unfinished"
    "$python" -m pip install -qq --disable-pip-version-check --no-input --require-hashes \
        -r "$lock" </dev/null >&2 || { _say "The dependencies could not be installed."; return 1; }
    echo "$wanted" >"$stamp.new" && mv "$stamp.new" "$stamp" && rm -f "$unfinished"
}

_ensure_environment() {
    local lock=$repository/requirements-dev.lock stamp=$repository/.venv/.complete
    local unfinished=$repository/.venv/.unfinished wanted here
    wanted=$(sha256sum <"$lock") || return 1
    _is_complete() { [ -x "$python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; }
    if _is_complete; then return; fi
    # One of two starts at once installs, the other waits for it. The lock is on the repository's
    # folder, which no step here replaces, and goes with its holder however that ends.
    exec {here}<"$repository"
    flock "$here"
    _is_complete || _make_environment
    local outcome=$?
    exec {here}<&-
    return $outcome
}

_ensure_environment || exit 1
