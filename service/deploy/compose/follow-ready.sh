#!/bin/sh
# Run nginx, and send requests only to gateways whose GET /health/ready answers 200.
#
# Open-source nginx has no active health checks. Once a second this script looks up the gateways' addresses, asks each one,
# writes those that are ready into the file that nginx.conf includes, and reloads nginx when the file has changed. While no
# gateway is ready the file stays as it is: clients then read the gateways' own 503 and its Retry-After.
#
#   GATEWAYS       name or addresses of the gateways, separated by blanks (default: gateway)
#   GATEWAY_PORT   port of the gateways; an address with a port of its own, HOST:PORT, keeps that (default: 8000)
#   UPSTREAMS      file that nginx.conf includes (default: /tmp/gateways.conf)
#   NGINX_CONF     nginx configuration (default: /etc/nginx/nginx.conf)
set -u

gateways=${GATEWAYS:-gateway}
port=${GATEWAY_PORT:-8000}
upstreams=${UPSTREAMS:-/tmp/gateways.conf}
conf=${NGINX_CONF:-/etc/nginx/nginx.conf}

addresses() {
    for name in $gateways; do
        case $name in
        *:*) echo "$name" ;;
        *) getent ahostsv4 "$name" | while read -r address _; do echo "$address:$port"; done ;;
        esac
    done | sort -u
}

is_ready() {
    wget -q -T 2 -O /dev/null "http://$1/health/ready" 2>/dev/null
}

servers() {
    for address in $1; do
        echo "server $address max_fails=1 fail_timeout=2s;"
    done
}

ready() {
    for address in $(addresses); do
        if is_ready "$address"; then echo "$address"; fi
    done
}

found=$(ready)
while [ -z "$found" ]; do
    # nginx does not start without a server: any that has an address will do until one is ready.
    found=$(addresses)
    [ -n "$found" ] || sleep 1
done
servers "$found" >"$upstreams"

nginx -c "$conf" -g 'daemon off;' &
nginx=$!
# Docker stops the container with SIGQUIT, with which nginx ends gracefully.
trap 'kill -QUIT $nginx' QUIT TERM INT

while kill -0 $nginx 2>/dev/null; do
    now=$(ready)
    if [ -n "$now" ] && [ "$(servers "$now")" != "$(cat "$upstreams")" ]; then
        servers "$now" >"$upstreams"
        nginx -c "$conf" -s reload
    fi
    sleep 1
done
wait $nginx
