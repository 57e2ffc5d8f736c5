# Sourced, not run: where things live that outlast a checkout. A fresh clone finds the last build there.
: "${HOME:=/}"
BUILD_CACHE=${BUILD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/trellis}
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$BUILD_CACHE/target}
export BUILD_CACHE CARGO_TARGET_DIR
# rustup's own place, where a login shell would have put it on the path.
[ ! -d "${CARGO_HOME:-$HOME/.cargo}/bin" ] || PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
export PATH
mkdir -p "$BUILD_CACHE"
