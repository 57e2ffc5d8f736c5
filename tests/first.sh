#!/bin/sh
# Warns of the first build, which takes long, and says nothing of any other.
set -eu

cd "$(dirname "$0")/.."
. tests/cache.sh

for library in "${ROCKSDB_LIB_DIR:-/nowhere}"/librocksdb.a "$BUILD_CACHE"/rocksdb-*/librocksdb.a; do
    [ ! -s "$library" ] || exit 0
done
echo 'building; this first time it takes about half an hour on two cores, most of it RocksDB' >&2
