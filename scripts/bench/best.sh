#!/bin/sh
# SPDX-License-Identifier: MPL-2.0
#
# The best bare script: complete seeded settings, GLX off, everything in
# parallel, no supervision. The reference of target 1 (see deskwatch for the
# environment it gets).
set -eu

trap 'kill 0' TERM

cp -r "$BENCH_SEED/." "$HOME/"
# The seed names the home it was made in.
sed -i "s|value=\"[^\"]*/\\.local/share/botscreen/|value=\"$HOME/.local/share/botscreen/|" \
    "$HOME/.config/xfce4/xfconf/xfce-perchannel-xml/xfce4-desktop.xml"

export DISPLAY=":$BENCH_DISPLAY" XAUTHORITY="$BENCH_X/Xauthority"
export DBUS_SESSION_BUS_ADDRESS="unix:path=$BENCH_X/bus"
export NO_AT_BRIDGE=1 GTK_A11Y=none GIO_USE_VFS=local GSETTINGS_BACKEND=memory GDK_BACKEND=x11
export XFCE_PANEL_MIGRATE_DEFAULT=1

mkfifo "$BENCH_X/displayfd"
Xvnc "$DISPLAY" -displayfd 3 -geometry "$BENCH_GEOMETRY" -depth 24 -dpi 96 -auth "$XAUTHORITY" \
    -rfbport -1 -rfbunixpath "$BENCH_X/rfb.sock" -rfbunixmode 0600 -SecurityTypes None -AlwaysShared \
    -nolisten tcp -UseBlacklist=0 -extension GLX 3>"$BENCH_X/displayfd" &
dbus-daemon --session --nofork --nopidfile --address="$DBUS_SESSION_BUS_ADDRESS" &
until [ -S "$BENCH_X/bus" ]; do :; done
xfconfd=$(sed -n 's/^Exec=//p' /usr/share/dbus-1/services/org.xfce.Xfconf.service)
"$xfconfd" &
read -r _ <"$BENCH_X/displayfd"
xfwm4 --compositor=off &
xfce4-panel --disable-wm-check &
xfdesktop --disable-wm-check &
xfsettingsd --disable-wm-check &
wait
