// SPDX-License-Identifier: MPL-2.0

package pipe

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// end is this half's own end of what a stream stands for.
type end struct {
	file     *os.File
	shape    shape
	in, out  bool      // takes what comes from the stream; gives what goes into it
	source   io.Reader // instead of file, for what it gives
	pipeline sync.WaitGroup

	mu      sync.Mutex // guards all below
	rows    uint16     // of a terminal, as it was told last
	columns uint16
}

// adopt makes an end of a descriptor that was passed to this half: of the side that passed
// it, so a pipe's reading end gives what goes into the stream.
func adopt(d *dialhome.Descriptor, as shape) (*end, error) {
	e := &end{shape: as}
	switch as {
	case shapeReader:
		e.out = true
	case shapeWriter:
		e.in = true
	case shapeSocket, shapeTerminal:
		e.in, e.out = true, true
	case shapeFile:
		e.out = true
		e.file = d.File("file")
		// Its sender and we share where it is read from.
		e.source = io.NewSectionReader(e.file, 0, maxFile+1)
		return e, nil
	case shapeBlank:
		e.file = d.File("file")
		return e, nil
	}
	if err := unix.SetNonblock(d.FD(), true); err != nil { // so that a close wakes who waits
		return nil, fmt.Errorf("take over a descriptor: %w", err)
	}
	e.file = d.File("passed")
	return e, nil
}

// shapeOf is what the kernel says of a descriptor that was passed to this half; blank says
// that a file is there to be filled.
func shapeOf(fd int, blank bool) (shape, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return 0, fmt.Errorf("look at a descriptor: %w", err)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return 0, fmt.Errorf("look at a descriptor: %w", err)
	}
	mode := flags & unix.O_ACCMODE
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		switch mode {
		case unix.O_RDONLY:
			return shapeReader, nil
		case unix.O_WRONLY:
			return shapeWriter, nil
		}
	case unix.S_IFSOCK:
		kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		if err == nil && kind == unix.SOCK_STREAM {
			return shapeSocket, nil
		}
	case unix.S_IFREG:
		if blank {
			return shapeBlank, nil
		}
		return shapeFile, nil
	case unix.S_IFCHR:
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
			return shapeTerminal, nil
		}
	}
	return 0, errors.New("the pipe carries pipes, sockets, terminals and files, and this descriptor is none")
}

// imitate makes what stands for a descriptor of the other half: the file to pass on, and
// the end that this half keeps.
func imitate(as shape) (far *os.File, near *end, err error) {
	near = &end{shape: as}
	switch as {
	case shapeReader, shapeWriter:
		far, near.file, err = imitatePipe(as)
		near.in, near.out = as == shapeReader, as == shapeWriter
	case shapeSocket:
		far, near.file, err = socketPair()
		near.in, near.out = true, true
	case shapeTerminal:
		far, near.file, err = terminalPair()
		near.in, near.out = true, true
	case shapeBlank:
		far, near.file, err = memoryTwice()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("stand for a descriptor: %w", err)
	}
	return far, near, nil
}

// imitatePipe makes the far end what programs expect of one: it blocks, and who runs as
// another uid may open /dev/stdout anew.
func imitatePipe(as shape) (far, near *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	mine, theirs := fds[1], fds[0]
	if as == shapeWriter {
		mine, theirs = fds[0], fds[1]
	}
	err = errors.Join(unix.SetNonblock(mine, true), unix.Fchmod(theirs, 0o666))
	far, near = os.NewFile(uintptr(theirs), "far"), os.NewFile(uintptr(mine), "near")
	if err != nil {
		_, _ = far.Close(), near.Close()
		return nil, nil, err
	}
	return far, near, nil
}

func socketPair() (far, near *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return os.NewFile(uintptr(fds[0]), "far"), os.NewFile(uintptr(fds[1]), "near"), nil
}

// terminalPair is a terminal that changes nothing of what passes: the one inside does.
func terminalPair() (far, near *os.File, err error) {
	master, slave, err := pty.Open()
	if err != nil {
		return nil, nil, err
	}
	err = control(slave, func(fd int) error {
		_, err := term.MakeRaw(fd)
		return err
	})
	if err != nil {
		_, _ = master.Close(), slave.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = raw.Control(func(fd uintptr) { failure = do(int(fd)) })
	return errors.Join(err, failure)
}

func memory() (*os.File, error) {
	fd, err := unix.MemfdCreate("pipe", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), "memfd"), nil
}

// memoryTwice is one file in memory with two descriptors.
func memoryTwice() (far, near *os.File, err error) {
	far, err = memory()
	if err != nil {
		return nil, nil, err
	}
	err = control(far, func(fd int) error {
		again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			near = os.NewFile(uintptr(again), "memfd")
		}
		return err
	})
	if err != nil {
		_ = far.Close()
		return nil, nil, err
	}
	return far, near, nil
}

// finishWriting says at the local end that no more comes. False where that takes the whole
// end along: a terminal that is hung up has nothing more to say.
func (e *end) finishWriting() (goesOn bool) {
	if e.shape != shapeSocket {
		return false
	}
	return control(e.file, func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) }) == nil
}

// interrupt wakes whoever reads or writes the local end.
func (e *end) interrupt() {
	if e.file.SetDeadline(time.Unix(1, 0)) != nil {
		_ = e.file.Close() // no poller watches it, so nobody waits for it
	}
}

// newSize is the size of a terminal, where it has changed since it was asked last.
func (e *end) newSize() (rows, columns uint16, changed bool) {
	if e.shape != shapeTerminal {
		return 0, 0, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	err := control(e.file, func(fd int) error {
		size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err == nil {
			rows, columns = size.Row, size.Col
		}
		return err
	})
	if err != nil || rows == e.rows && columns == e.columns {
		return 0, 0, false
	}
	e.rows, e.columns = rows, columns
	return rows, columns, true
}

// setSize does nothing to what is no terminal.
func (e *end) setSize(rows, columns uint16) {
	if e == nil {
		return
	}
	_ = control(e.file, func(fd int) error { // a size is not worth a failure
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
}
