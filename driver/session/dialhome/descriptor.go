// SPDX-License-Identifier: MPL-2.0

package dialhome

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Descriptor is a descriptor that came in a packet. It is no os.File: the runtime
// would ask the kernel to watch it, and whoever serves the file behind it (a FUSE file
// system of the sender) could hold that up for ever. Until its kind is known only
// calls that never reach a file's own code are safe on it: getsockopt(2), fcntl(2),
// /proc/self/fdinfo, and not fstat(2), ioctl(2) or poll(2).
type Descriptor struct{ fd atomic.Int64 }

const noFD = -1

func newDescriptor(fd int) *Descriptor {
	d := &Descriptor{}
	d.fd.Store(int64(fd))
	return d
}

// FD is the descriptor's number, good until File or Close; -1 afterwards.
func (d *Descriptor) FD() int { return int(d.fd.Load()) }

// File hands the descriptor over to an os.File, which may wait for the file behind it.
func (d *Descriptor) File(name string) *os.File {
	return os.NewFile(uintptr(d.fd.Swap(noFD)), name)
}

// Close discards the descriptor. It returns at once: the sender shares the description
// and can make the close of a socket linger, at any time, whatever is set here
// (rule X10).
func (d *Descriptor) Close() {
	if fd := int(d.fd.Swap(noFD)); fd != noFD {
		closeAside(fd, func() { _ = unix.Close(fd) })
	}
}

// CloseAll discards what was received and is not wanted.
func CloseAll(descriptors []*Descriptor) {
	for _, d := range descriptors {
		d.Close()
	}
}

// Discard closes a file that was a Descriptor the same way, and then calls closed.
func Discard(f *os.File, closed func()) {
	fd := noFD
	if raw, err := f.SyscallConn(); err == nil {
		_ = raw.Control(func(n uintptr) { fd = int(n) })
	}
	closeAside(fd, func() {
		_ = f.Close()
		closed()
	})
}

// closing counts the descriptors that are being closed.
var closing atomic.Int64

// Closing is how many passed descriptors of this process are still being closed. More
// than a few means that their sender makes them linger.
func Closing() int { return int(closing.Load()) }

func closeAside(fd int, closeNow func()) {
	closing.Add(1)
	go func() {
		defer closing.Add(-1)
		// Fails on anything but a socket, which does not linger anyway.
		_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		closeNow()
	}()
}
