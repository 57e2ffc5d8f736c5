#!/bin/sh
# Builds RocksDB's C++ into one static library that every cargo profile links, once per version and machine kind.
#
#   sh crates/store/rocksdb.sh     the last line on stdout is the folder to use as ROCKSDB_LIB_DIR (with ROCKSDB_STATIC=1)
#
# Does nothing but print that line when the library is there. Plain `cargo build` without ROCKSDB_LIB_DIR works too: it
# compiles the C++ once per profile.
set -eu

cd "$(dirname "$0")/../.."
cache=${BUILD_CACHE:-${XDG_CACHE_HOME:-${HOME:-/}/.cache}/trellis}

say() { printf '%s\n' "$*" >&2; }
die() { say "rocksdb: $*"; exit 1; }

# The version is the one of the lock file, `0.19.0+11.8.1`: a new one gets a folder of its own.
version=$(sed -n '/^name = "librocksdb-sys"$/{n;s/^version = "\(.*\)"$/\1/p;}' Cargo.lock | head -n 1)
[ -n "$version" ] || die "Cargo.lock names no librocksdb-sys"
arch=$(uname -m)
folder=$cache/rocksdb-$version-$arch

if [ ! -s "$folder/librocksdb.a" ]; then
    mkdir -p "$folder"
    # Of two builds at once the second waits and then finds the library.
    if command -v flock >/dev/null 2>&1 && [ -z "${TRELLIS_ROCKSDB_LOCKED:-}" ]; then
        TRELLIS_ROCKSDB_LOCKED=1 exec flock "$folder/lock" sh "$PWD/crates/store/rocksdb.sh"
    fi
    say "rocksdb: RocksDB's C++ is built once, about 20 minutes on two cores"
    build=$folder/build
    rm -rf "$build"
    # CRC-32C and the rest of the hot paths have an instruction of their own since 2008; RocksDB looks for it at compile time.
    [ "$arch" != x86_64 ] || CXXFLAGS="-msse4.2 -mpclmul${CXXFLAGS:+ $CXXFLAGS}"
    # The crate's own code is built with -O3 by default; -O2 takes a third less time and is as fast.
    if ! env -u ROCKSDB_LIB_DIR -u ROCKSDB_STATIC -u CARGO_BUILD_TARGET \
        CXXFLAGS="${CXXFLAGS:-}" CARGO_PROFILE_RELEASE_OPT_LEVEL=2 \
        cargo build --release --package librocksdb-sys --target-dir "$build" >&2; then
        die "the build failed; what it said stands above"
    fi
    library=$(find "$build/release/build" -name librocksdb.a -size +0 | head -n 1)
    [ -n "$library" ] || die "the build made no librocksdb.a"
    # Whoever sees the file sees all of it.
    cp "$library" "$folder/librocksdb.a.$$"
    mv "$folder/librocksdb.a.$$" "$folder/librocksdb.a"
    # lz4 is compiled by a crate of its own and is linked from the target folder as ever.
    rm -rf "$build"
    say "rocksdb: done"
fi
printf '%s\n' "$folder"
