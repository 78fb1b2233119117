#!/bin/sh
# The broker that tests of `mqtt` start for themselves. Where it cannot be installed they are skipped
# and say so: this script never fails.
PATH="$PATH:/usr/sbin"
if command -v mosquitto >/dev/null; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "no mosquitto, and no right to install it: its tests will be skipped"
    exit 0
fi
policy=/usr/sbin/policy-rc.d # Debian asks it whether to start the service that comes with the package
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
    trap 'rm -f "$policy"' EXIT
fi
install() { timeout 180 apt-get install -y -qq --no-install-recommends mosquitto >/dev/null 2>&1; }
export DEBIAN_FRONTEND=noninteractive
install || { timeout 120 apt-get update -qq >/dev/null 2>&1 && install; } ||
    echo "mosquitto could not be installed: its tests will be skipped"
exit 0
