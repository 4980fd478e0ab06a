// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"errors"
	"fmt"
	"sync"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"
)

// The extensions of the X protocol that are used here, by their names on the wire.
const (
	extensionDamage   = "DAMAGE"
	extensionFixes    = "XFIXES"
	extensionResource = "X-Resource"
	extensionSecurity = "SECURITY"
	extensionVNC      = "VNC-EXTENSION"
)

// withEvents are those that bring events or errors of their own.
var withEvents = []string{extensionDamage, extensionFixes}

// The library keeps how events and errors are read in maps of the whole process, which
// every connection's reader looks into and the library's own Init writes to: with a second
// connection that is a concurrent map access, which ends the process. So the maps are
// filled once, while the first connection is made and no other has a reader, and Init is
// never called.
var tables struct {
	sync.Mutex
	filled bool
}

// fillTables makes the maps know every extension with the numbers of this server. The
// caller holds the lock.
func fillTables(x *xclient) error {
	for _, name := range withEvents {
		reply, err := xproto.QueryExtension(x.conn, uint16(len(name)), name).Reply()
		if err != nil {
			return fmt.Errorf("query extension %s: %w", name, err)
		}
		if !reply.Present {
			continue // who needs it says so
		}
		for number, read := range xgb.NewExtEventFuncs[name] {
			xgb.NewEventFuncs[int(reply.FirstEvent)+number] = read
		}
		for number, read := range xgb.NewExtErrorFuncs[name] {
			xgb.NewErrorFuncs[int(reply.FirstError)+number] = read
		}
	}
	return nil
}

// extension makes an extension usable on this connection.
func (x *xclient) extension(name string) error {
	reply, err := xproto.QueryExtension(x.conn, uint16(len(name)), name).Reply()
	if err != nil {
		return fmt.Errorf("query extension %s: %w", name, err)
	}
	if !reply.Present {
		return fmt.Errorf("the X server has no extension %s", name)
	}
	for number := range xgb.NewExtEventFuncs[name] {
		if xgb.NewEventFuncs[int(reply.FirstEvent)+number] == nil {
			return errors.New("the X server numbers the events of " + name + " otherwise than the first one did")
		}
	}
	x.conn.ExtLock.Lock()
	defer x.conn.ExtLock.Unlock()
	x.conn.Extensions[name] = reply.MajorOpcode
	return nil
}

// askExtension sends a request that the library does not know to an extension, whose
// opcode is the first byte of it, and returns the reply.
func (x *xclient) askExtension(name string, request func(opcode byte) []byte) ([]byte, error) {
	found, err := xproto.QueryExtension(x.conn, uint16(len(name)), name).Reply()
	if err != nil {
		return nil, fmt.Errorf("query extension %s: %w", name, err)
	}
	if !found.Present {
		return nil, fmt.Errorf("the X server has no %s extension", name)
	}
	cookie := x.conn.NewCookie(true, true)
	x.conn.NewRequest(request(found.MajorOpcode), cookie)
	return cookie.Reply()
}
