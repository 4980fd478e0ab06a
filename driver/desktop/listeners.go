// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// inetListener returns a listening TCP port of this uid where an X server of
// this display would have one (rules X0, DSP-07): RFB, its old HTTP server, X.
// Which process owns it cannot be seen, since Xvnc hides its descriptors.
func inetListener(number int) (string, error) {
	ports, err := listeningPorts(os.Geteuid())
	if err != nil {
		return "", err
	}
	for _, base := range []int{5900, 5800, 6000} {
		if slices.Contains(ports, base+number) {
			return fmt.Sprintf("TCP port %d", base+number), nil
		}
	}
	return "", nil
}

// listeningPorts are the TCP ports that a uid listens on. The kernel is asked for
// listeners only, sock_diag(7): for the tables in /proc it walks through all that may be
// connected, 10 ms of a start. Where it cannot be asked the tables are read.
func listeningPorts(uid int) ([]int, error) {
	ports, err := diagPorts(uid)
	if err == nil {
		return ports, nil
	}
	ports = nil
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if os.IsNotExist(err) {
			continue // a kernel without it
		}
		if err != nil {
			return nil, err
		}
		ports = append(ports, tablePorts(text, uid)...)
	}
	return ports, nil
}

// tablePorts reads a table of proc_pid_net(5):
//
//	sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid …
//	0: 0100007F:170C 00000000:0000 0A …
func tablePorts(table []byte, uid int) (ports []int) {
	const stateListen = "0A"
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) < 8 || fields[3] != stateListen || fields[7] != strconv.Itoa(uid) {
			continue
		}
		if _, local, found := strings.Cut(fields[1], ":"); found {
			if port, err := strconv.ParseUint(local, 16, 16); err == nil {
				ports = append(ports, int(port))
			}
		}
	}
	return ports
}

// Layouts of linux/inet_diag.h. A request is inet_diag_req_v2 behind its nlmsghdr, an
// answer inet_diag_msg; the port stands first in the socket's id.
const (
	diagRequestSize = unix.SizeofNlMsghdr + 56
	diagStatesAt    = unix.SizeofNlMsghdr + 4 // a mask of 1 << state
	diagAnswerSize  = 72
	diagPortAt      = 4
	diagUIDAt       = 64
	stateListen     = 10 // TCP_LISTEN of net/tcp_states.h
	diagPatience    = 2 * time.Second
)

func diagPorts(uid int) ([]int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	wait := unix.NsecToTimeval(diagPatience.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return nil, os.NewSyscallError("setsockopt", err)
	}
	var ports []int
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		if err := unix.Sendto(fd, diagRequest(family), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return nil, os.NewSyscallError("sendto", err)
		}
		found, err := readDiag(uid, func(b []byte) (int, error) { return fromKernel(fd, b) })
		if err != nil {
			return nil, fmt.Errorf("list listeners: %w", err)
		}
		ports = append(ports, found...)
	}
	return ports, nil
}

// fromKernel receives a datagram of the kernel, whose port is 0, see netlink(7).
func fromKernel(fd int, b []byte) (n int, err error) {
	var from unix.Sockaddr
	err = ignoringEINTR(func() error {
		n, from, err = unix.Recvfrom(fd, b, 0)
		return err
	})
	if err != nil {
		return 0, os.NewSyscallError("recvfrom", err)
	}
	if kernel, ok := from.(*unix.SockaddrNetlink); !ok || kernel.Pid != 0 {
		return 0, errDiagForm
	}
	return n, nil
}

func diagRequest(family byte) []byte {
	b := make([]byte, diagRequestSize)
	binary.NativeEndian.PutUint32(b, diagRequestSize)
	binary.NativeEndian.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b[unix.SizeofNlMsghdr], b[unix.SizeofNlMsghdr+1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[diagStatesAt:], 1<<stateListen)
	return b
}

var errDiagForm = errors.New("answer of another form")

// readDiag reads datagrams until the kernel says that it was all.
func readDiag(uid int, receive func([]byte) (int, error)) (ports []int, err error) {
	b := make([]byte, 32<<10) // a dump comes in pieces of at most this, netlink(7)
	for {
		n, err := receive(b)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, errDiagForm
		}
		found, done, err := parseDiag(b[:n], uid)
		ports = append(ports, found...)
		if err != nil || done {
			return ports, err
		}
	}
}

func parseDiag(datagram []byte, uid int) (ports []int, done bool, err error) {
	messages, err := syscall.ParseNetlinkMessage(datagram)
	if err != nil {
		return nil, false, err
	}
	for _, m := range messages {
		switch {
		case m.Header.Type == unix.NLMSG_DONE:
			return ports, true, nil
		case m.Header.Type != unix.SOCK_DIAG_BY_FAMILY || len(m.Data) < diagAnswerSize:
			return nil, false, errDiagForm // an error, too: it has no listeners either
		case binary.NativeEndian.Uint32(m.Data[diagUIDAt:]) == uint32(uid):
			ports = append(ports, int(binary.BigEndian.Uint16(m.Data[diagPortAt:])))
		}
	}
	return ports, false, nil
}
