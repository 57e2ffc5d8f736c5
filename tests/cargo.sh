#!/bin/sh
# cargo, with the build kept outside the checkout and RocksDB linked from the cache: its C++ is compiled once, not at
# every change of a Rust flag.
set -eu

cd "$(dirname "$0")/.."
. tests/cache.sh

case "${1:-} ${2:-}" in
    fmt* | "xtask tidy") needs_rocksdb=no ;;
    *) needs_rocksdb=yes ;;
esac
if [ $needs_rocksdb = yes ]; then
    if [ ! -e "${ROCKSDB_LIB_DIR:-/nowhere}/librocksdb.a" ]; then
        # The script says on its last line where the library is; what it says before is for a person to read.
        said=$(sh crates/store/rocksdb.sh)
        ROCKSDB_LIB_DIR=$(printf '%s\n' "$said" | tail -n 1)
    fi
    ROCKSDB_STATIC=1
    export ROCKSDB_LIB_DIR ROCKSDB_STATIC
fi
exec cargo "$@"
