#!/bin/sh
# SPDX-License-Identifier: MPL-2.0
#
# The script people write first: default Xfce in a fresh home, one component
# after the other is up. The reference of target 2 (see deskwatch for the
# environment it gets).
set -eu

trap 'kill 0' TERM

export DISPLAY=":$BENCH_DISPLAY" XAUTHORITY="$BENCH_X/Xauthority"
export DBUS_SESSION_BUS_ADDRESS="unix:path=$BENCH_X/bus"
export XFCE_PANEL_MIGRATE_DEFAULT=1

mkfifo "$BENCH_X/displayfd"
Xvnc "$DISPLAY" -displayfd 3 -geometry "$BENCH_GEOMETRY" -depth 24 -dpi 96 -auth "$XAUTHORITY" \
    -rfbport -1 -rfbunixpath "$BENCH_X/rfb.sock" -rfbunixmode 0600 -SecurityTypes None -AlwaysShared \
    -nolisten tcp 3>"$BENCH_X/displayfd" &
read -r _ <"$BENCH_X/displayfd"
dbus-daemon --session --nofork --nopidfile --address="$DBUS_SESSION_BUS_ADDRESS" &
until [ -S "$BENCH_X/bus" ]; do :; done
xfsettingsd &
xfwm4 &
xfce4-panel &
xfdesktop &
wait
