#!/bin/sh
# Installs what this system lacks of Debian's or Ubuntu's packages, and says in one line what it can't install.
#
#   sh tests/install.sh build      a C++ compiler, libclang, cargo, nc: enough to build, run and try it
#   sh tests/install.sh test       and the services and tools that the tests use
#   sh tests/install.sh clients    and the client libraries of six languages, into the cache
#   sh tests/install.sh peers      what `make bench-peers` compares with: as much of it as is to be had
#
# It asks for nothing: as root it calls apt-get, else it tries sudo without a password. A second run that finds
# everything in place takes no time and asks no package registry.
set -eu

cd "$(dirname "$0")/.."
. tests/cache.sh

rust_wanted=1.95
group=${1:-build}

say() { printf '%s\n' "$*" >&2; }
die() { say "install: $*"; exit 1; }

has() { command -v "$1" >/dev/null 2>&1; }
installed() { dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }

# Prints the packages whose tool is missing. A tool from elsewhere (a Node.js of one's own, say) is as good as Debian's.
missing_tools() {
    for pair in "$@"; do
        has "${pair%%=*}" || printf '%s ' "${pair#*=}"
    done
}

knows_package() { apt-cache show "$1" 2>/dev/null | grep -q '^Package:'; }
update_packages() { [ "$(id -u)" = 0 ] && apt-get update >/dev/null 2>&1; }

apt_install() {
    [ $# -gt 0 ] || return 0
    has apt-get || die "missing: $* (and this system has no apt-get); install them and run again"
    if [ "$(id -u)" = 0 ]; then
        root=
    elif has sudo && sudo -n true 2>/dev/null; then
        root=sudo
    else
        die "missing: $*; run 'sudo apt-get install $*' and try again"
    fi
    say "install: apt-get install $*"
    log=$(mktemp)
    # A fresh system knows no packages before its first update.
    if ! { $root apt-get update && $root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "$@"; } >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        die "apt-get can't install: $*"
    fi
    rm -f "$log"
}

# True if cargo is there and new enough.
rust_is_new_enough() {
    has cargo && has rustc || return 1
    found=$(rustc --version 2>/dev/null | sed 's/^rustc \([0-9]*\.[0-9]*\).*/\1/')
    [ "$(printf '%s\n%s\n' "$rust_wanted" "$found" | sort -V | head -n 1)" = "$rust_wanted" ]
}

install_rust() {
    rust_is_new_enough && return 0
    # Only newer releases have this package (Debian 13, Ubuntu 24.04).
    if ! has rustup && has apt-cache && { knows_package rustup || { update_packages && knows_package rustup; }; }; then
        apt_install rustup
    fi
    if has rustup; then
        say "install: rustup toolchain install stable"
        if rustup toolchain install stable --profile minimal --component clippy --component rustfmt >&2; then
            rustup default stable >&2
        fi
    fi
    rust_is_new_enough || die "missing: Rust $rust_wanted or newer, and this system's packages have none; install it with rustup (rustup.rs) and run again"
}

install_build() {
    # shellcheck disable=SC2046 # here and below on purpose: one package a word
    apt_install $(missing_tools cc=gcc g++=g++ make=make git=git ar=binutils nc=netcat-openbsd) \
        $(installed libclang-dev || has clang || echo libclang-dev) \
        $([ -e /etc/ssl/certs/ca-certificates.crt ] || echo ca-certificates)
    install_rust
}

install_test() {
    # shellcheck disable=SC2046
    apt_install $(missing_tools \
        beanstalkd=beanstalkd haproxy=haproxy ip=iproute2 iptables=iptables faketime=faketime \
        mkfs.ext4=e2fsprogs)
    has beanstalkd && has haproxy
}

install_clients() {
    # shellcheck disable=SC2046
    apt_install $(missing_tools python3=python3 php=php-cli ruby=ruby node=nodejs npm=npm go=golang-go javac=default-jdk-headless mvn=maven) \
        $(python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv) \
        $(for p in php-pda-pheanstalk ruby-beaneater; do installed "$p" || echo "$p"; done)
    sh tests/clients/build.sh
}

# The packages would start their services, which nobody asked for: Debian's way to forbid it, for a moment.
without_services() {
    forbid=/usr/sbin/policy-rc.d
    if [ "$(id -u)" = 0 ] && [ ! -e $forbid ]; then
        trap 'rm -f $forbid' EXIT INT TERM
        printf '#!/bin/sh\nexit 101\n' >$forbid
        chmod 755 $forbid
        "$@" && done=0 || done=$?
        rm -f $forbid
        trap - EXIT INT TERM
        return $done
    fi
    "$@"
}

# One by one, and none is a must: the benchmark names in one line what it does not find.
install_peers() {
    for pair in beanstalkd=beanstalkd strace=strace redis-server=redis-server etcd=etcd-server rabbitmq-server=rabbitmq-server; do
        has "${pair%%=*}" || [ -x "/usr/sbin/${pair%%=*}" ] ||
            (without_services apt_install "${pair#*=}") || say "install: going on without ${pair#*=}"
    done
    # Debian's server can't sync before it acknowledges, so it comes as a Go module.
    nats=v2.15.3
    if ! "$BUILD_CACHE/peers/nats-server" --version 2>/dev/null | grep -qx "nats-server: $nats"; then
        has go || (apt_install golang-go ca-certificates) || true
        say "install: go install nats-server $nats"
        { go=$(go_of_modules) && GOTOOLCHAIN=auto GOBIN=$BUILD_CACHE/peers "$go" install \
            "github.com/nats-io/nats-server/v2@$nats" >&2; } || say "install: going on without NATS"
    fi
}

# Prints a Go that fetches the toolchain which a module asks for. Before 1.21 it did not, but the toolchain is a module
# too; what is to be run in it has to be made so, as newer ones do.
go_of_modules() {
    wanted=go1.26.0
    found=$(go env GOVERSION) || return 1
    if [ "$(printf '%s\n' go1.21 "$found" | sort -V | head -n 1)" = go1.21 ]; then
        echo go
        return 0
    fi
    say "install: go mod download $wanted"
    toolchain=golang.org/toolchain@v0.0.1-$wanted.$(go env GOOS)-$(go env GOARCH)
    dir=$(go mod download -json "$toolchain" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    [ -n "$dir" ] || return 1
    find "$dir/bin" "$dir/pkg/tool" -type f -exec chmod a+x {} +
    echo "$dir/bin/go"
}

case $group in
    build) install_build ;;
    test) install_build; install_test ;;
    clients) install_build; install_test; install_clients ;;
    peers) install_peers ;;
    *) die "unknown group '$group': build, test, clients or peers" ;;
esac
