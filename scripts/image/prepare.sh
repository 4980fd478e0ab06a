#!/bin/sh
# Runs once inside a new image, as root: the user of people who start it by hand (a
# screen brings its own uid), and the directory X servers put their sockets in.
set -eu
groupadd --gid 1000 bot
useradd --uid 1000 --gid 1000 --create-home --shell /bin/bash bot
install -d -m 1777 -o root -g root /tmp/.X11-unix
# Debian has another program of that name.
if [ -x /usr/bin/fdfind ]; then
	ln -s /usr/bin/fdfind /usr/local/bin/fd
fi
# Every container of the image would share these.
rm -f /etc/machine-id /var/lib/dbus/machine-id
: >/etc/machine-id
