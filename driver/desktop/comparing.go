// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"encoding/binary"
	"errors"
)

// Xvnc can keep a second copy of the picture and send of a change only what differs from
// it (CompareFB in Xvnc(1)). Somebody at the other end of a slow line needs that. A screen
// that nobody looks at does not, and pays for the copy from the first connection on, 5 MB
// at 1440x900: so it is off until the first viewer comes, see docs/decisions/103.
const (
	parameterCompare = "CompareFB"
	compareNever     = "0"
	compareAuto      = "2" // while somebody wants more than the lowest compression
)

// Compare makes the server compare from now on. It does not wait for the answer: without
// it, from a server that hangs or has no such parameter, a viewer sees the same picture and
// only gets more bytes.
func (d *Desktop) Compare() {
	go d.compare.Do(func() { _ = d.view.setParameter(parameterCompare + "=" + compareAuto) })
}

// setParameter sets a parameter that the server's AllowOverride names.
func (x *xclient) setParameter(assignment string) error {
	reply, err := x.askExtension(extensionVNC, func(opcode byte) []byte { return vncRequest(opcode, vncSetParam, assignment) })
	if err != nil {
		return err
	}
	if len(reply) < 2 || reply[1] == 0 {
		return errors.New("the X server refuses " + assignment)
	}
	return nil
}

// vncSetParam is a minor opcode of vncExtProto.h of TigerVNC.
const vncSetParam = 0

// vncRequest is a request of VNC-EXTENSION that carries a text, its length in units of 4 bytes:
//
//	opcode | minor | length, 2 bytes | len text | 3 unused | text, padded
func vncRequest(opcode, minor byte, text string) []byte {
	b := append([]byte{opcode, minor, 0, 0, byte(len(text)), 0, 0, 0}, text...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint16(b[2:], uint16(len(b)/4))
	return b
}
