// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"strings"
	"testing"
)

// A busy machine: the kernel lists a socket twice when others come and go between two
// reads of /proc/net/unix. That is no intruder, and must not fail a start.
func TestX2ListedTwice(t *testing.T) {
	const list = `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 90001 /run/x/rfb.sock
0000000000000000: 00000002 00000000 00010000 0001 01 90001 /run/x/rfb.sock
`
	if n, err := countNamed(strings.NewReader(list), "/run/x/rfb.sock"); n != 1 || err != nil {
		t.Fatalf("%d sockets, %v", n, err)
	}
}
