#!/bin/sh
# Fetches the client libraries that Debian does not package, into the cache, and compiles what must be compiled.
# What is there and unchanged is left alone.
set -eu

cd "$(dirname "$0")/../.."
. tests/cache.sh
here=$PWD/tests/clients
cache=$BUILD_CACHE/clients
mkdir -p "$cache"

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# build NAME FILES... : runs build_NAME unless the files are as they were at the last success.
build() {
    name=$1
    shift
    stamp=$(cat "$@" | cksum)
    [ "$(cat "$cache/$name.stamp" 2>/dev/null)" != "$stamp" ] || return 0
    echo "clients: building for $name" >&2
    rm -rf "${cache:?}/$name"
    mkdir -p "$cache/$name"
    if ! "build_$name" >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        echo "clients: $name can't be built; its registry must be reachable once" >&2
        exit 1
    fi
    echo "$stamp" >"$cache/$name.stamp"
}

build_python() {
    python3 -m venv "$cache/python" && "$cache/python/bin/pip" install --quiet --requirement "$here/python/requirements.txt" &&
        # It asks for Python 3.12, and what is used of it runs with 3.11 as well.
        "$cache/python/bin/pip" install --quiet --ignore-requires-python --requirement "$here/python/requirements-exporter.txt"
}

build_javascript() {
    cp "$here/javascript/package.json" "$cache/javascript/" && npm install --no-audit --no-fund --no-package-lock --prefix "$cache/javascript"
}

build_go() {
    (cd "$here/go" && go build -o "$cache/go/go-beanstalk" .)
}

build_java() {
    mvn --batch-mode --quiet --file "$here/java/pom.xml" "-Dtrellis.output=$cache/java" package
}

build python "$here/python/requirements.txt" "$here/python/requirements-exporter.txt"
build javascript "$here/javascript/package.json"
build go "$here"/go/*
build java "$here/java/pom.xml" "$here"/java/src/main/java/*.java
