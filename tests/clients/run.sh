#!/bin/sh
# Runs one client's program against ADDR (host:port); its puts go to PUT_ADDR if that is given.
set -eu

cd "$(dirname "$0")/../.."
. tests/cache.sh
here=$PWD/tests/clients
cache=$BUILD_CACHE/clients
: "${ADDR:?set ADDR to host:port of a server}"
export ADDR PUT_ADDR="${PUT_ADDR:-$ADDR}"
# A name of its own for each run: servers keep their tubes.
export TUBE="${TUBE:-clients-${1:-none}-$$}"

case ${1:-} in
    greenstalk | aiostalk | pystalk | exporter) exec "$cache/python/bin/python" "$here/python/with_$1.py" ;;
    jackd) NODE_PATH=$cache/javascript/node_modules exec node "$here/javascript/jackd.js" ;;
    node-beanstalk) NODE_PATH=$cache/javascript/node_modules exec node "$here/javascript/node_beanstalk.js" ;;
    go-beanstalk) exec "$cache/go/go-beanstalk" ;;
    java-beanstalk-client) exec java -cp "$cache/java/clients.jar:$cache/java/lib/*" Story ;;
    pheanstalk) exec php "$here/php/pheanstalk.php" ;;
    beaneater) exec ruby "$here/ruby/beaneater.rb" ;;
    *) echo "usage: ADDR=host:port run.sh greenstalk|aiostalk|pystalk|exporter|jackd|node-beanstalk|go-beanstalk|java-beanstalk-client|pheanstalk|beaneater" >&2; exit 64 ;;
esac
