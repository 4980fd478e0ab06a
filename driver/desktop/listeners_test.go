// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"encoding/binary"
	"net"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// What the kernel answers and what its tables say is the same: our listeners, and no
// connection's port.
func TestListeningPorts(t *testing.T) {
	uid := os.Geteuid()
	for network, address := range map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"} {
		listener, err := net.Listen(network, address)
		if err != nil {
			t.Logf("no %s here: %v", network, err)
			continue
		}
		defer listener.Close()
		conn, err := net.Dial(network, listener.Addr().String())
		must(t, err)
		defer conn.Close()
		want, connected := listener.Addr().(*net.TCPAddr).Port, conn.LocalAddr().(*net.TCPAddr).Port
		asked, err := diagPorts(uid)
		must(t, err)
		table, err := os.ReadFile("/proc/net/tcp" + map[string]string{"tcp6": "6"}[network])
		must(t, err)
		for how, ports := range map[string][]int{"asked": asked, "read": tablePorts(table, uid)} {
			if !slices.Contains(ports, want) || slices.Contains(ports, connected) {
				t.Errorf("%s: %s: %d listens and %d is connected, got %v", network, how, want, connected, ports)
			}
		}
		if others, err := diagPorts(uid + 1); err != nil || slices.Contains(others, want) {
			t.Errorf("%s: another uid listens on %v, %v", network, others, err)
		}
	}
}

func TestTablePorts(t *testing.T) {
	table := []byte("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:170C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1\n" +
		"   1: 0100007F:170D 00000000:0000 01 00000000:00000000 00:00000000 00000000  1000        0 1 1\n")
	if got := tablePorts(table, 1000); !slices.Equal(got, []int{5900}) {
		t.Errorf("%v, want 5900 (170C)", got)
	}
	if got := tablePorts(table, 1001); got != nil {
		t.Errorf("another uid's: %v", got)
	}
}

func TestParseDiag(t *testing.T) {
	two := append(diagAnswer(5900, 1000), diagAnswer(5901, 1001)...)
	if ports, done, err := parseDiag(two, 1000); !slices.Equal(ports, []int{5900}) || done || err != nil {
		t.Errorf("%v, %v, %v", ports, done, err)
	}
	if _, done, err := parseDiag(append(diagAnswer(1, 1), netlinkMessage(unix.NLMSG_DONE, make([]byte, 4))...), 1000); !done || err != nil {
		t.Errorf("the end: %v, %v", done, err)
	}
	for name, bad := range map[string][]byte{
		"an error":  netlinkMessage(unix.NLMSG_ERROR, make([]byte, 20)),
		"too short": netlinkMessage(unix.SOCK_DIAG_BY_FAMILY, make([]byte, diagAnswerSize-4)),
		"cut":       two[:len(two)-8],
	} {
		if ports, _, err := parseDiag(bad, 1000); err == nil {
			t.Errorf("%s: %v", name, ports)
		}
	}
}

// diagAnswer is what the kernel says of a listener.
func diagAnswer(port uint16, uid uint32) []byte {
	b := make([]byte, diagAnswerSize)
	binary.BigEndian.PutUint16(b[diagPortAt:], port)
	binary.NativeEndian.PutUint32(b[diagUIDAt:], uid)
	return netlinkMessage(unix.SOCK_DIAG_BY_FAMILY, b)
}

func netlinkMessage(kind uint16, data []byte) []byte {
	b := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(data))
	binary.NativeEndian.PutUint32(b, uint32(cap(b)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	return append(b, data...)
}
