// SPDX-License-Identifier: MPL-2.0

package isolation

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// AccountFile is a small file of ours over one of the image's: no name and no group of
// an image counts (X30), and dbus and Xfce refuse a uid without an entry (P9).
type AccountFile struct{ Name, Target, Text string }

// AccountFiles are those that give the screen's account a name inside of a sandbox.
func AccountFiles(order Order) []AccountFile {
	a := order.Account
	return []AccountFile{
		{"passwd", "/etc/passwd", "root:x:0:0:root:/:/bin/sh\n" +
			fmt.Sprintf("%s:x:%d:%d:botscreen:%s:/bin/sh\n", a.Name, a.UID, a.GID, order.Home) +
			"nobody:x:65534:65534:nobody:/:/bin/false\n"},
		{"group", "/etc/group", "root:x:0:\ntty:x:5:\n" +
			fmt.Sprintf("%s:x:%d:\n", a.Name, a.GID) + "nogroup:x:65534:\n"},
		{"machine-id", "/etc/machine-id", machineID(order) + "\n"},
	}
}

// machineID is the screen's own, see machine-id(5): the node's would let programs in
// all of its sandboxes know each other, and an image's would be everybody's.
func machineID(order Order) string {
	sum := sha256.Sum256([]byte("botscreen machine-id " + order.ID.String()))
	return hex.EncodeToString(sum[:16])
}
