#!/bin/sh
# cargo, with the build kept outside the checkout and RocksDB linked from the cache: its C++ is compiled once, not at
# every change of a Rust flag.
set -eu

cd "$(dirname "$0")/.."
. tests/cache.sh

if [ -z "${ROCKSDB_LIB_DIR:-}" ] || [ ! -e "$ROCKSDB_LIB_DIR/librocksdb.a" ]; then
    # The script says on its last line where the library is; what it says before is for a person to read.
    said=$(mktemp)
    trap 'rm -f "$said"' EXIT
    sh crates/store/rocksdb.sh >"$said" || { cat "$said" >&2; exit 1; }
    ROCKSDB_LIB_DIR=$(tail -n 1 "$said")
fi
ROCKSDB_STATIC=1
export ROCKSDB_LIB_DIR ROCKSDB_STATIC
exec cargo "$@"
