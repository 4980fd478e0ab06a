// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Version is a version of the protocol whose handshake is known.
type Version uint8

// The three versions of RFC 6143. Whatever else is announced is one of them.
const (
	Version33 Version = 3 // security type chosen by the server, no result for None
	Version37 Version = 7 // a list of security types, no result for None
	Version38 Version = 8 // a list, and always a result
)

const versionLen = 12 // "RFB 003.008\n"

func (v Version) String() string { return fmt.Sprintf("3.%d", uint8(v)) }

func (v Version) line() []byte { return fmt.Appendf(nil, "RFB 003.%03d\n", uint8(v)) }

const securityNone = 1

// parseVersion reads a version line. Minors between the known ones speak the
// lower one's layout (3.5 was never published, 3.4 and 3.6 are UltraVNC's, 3.889
// is Apple's).
func parseVersion(line []byte) (major int, v Version, err error) {
	minor := 0
	if len(line) != versionLen || string(line[:4]) != "RFB " || line[7] != '.' || line[11] != '\n' {
		return 0, 0, &HandshakeError{Reason: fmt.Sprintf("%q is not an RFB version", line)}
	}
	for i := range 3 {
		if !digit(line[4+i]) || !digit(line[8+i]) {
			return 0, 0, &HandshakeError{Reason: fmt.Sprintf("%q is not an RFB version", line)}
		}
		major = major*10 + int(line[4+i]-'0')
		minor = minor*10 + int(line[8+i]-'0')
	}
	switch {
	case minor < 7:
		v = Version33
	case minor == 7:
		v = Version37
	default:
		v = Version38
	}
	return major, v, nil
}

func digit(b byte) bool { return b >= '0' && b <= '9' }

// ServerInit is the last message of the handshake (RFC 6143 section 7.3.2).
type ServerInit struct {
	Size   Size
	Format PixelFormat
	Name   string // untrusted, at most 256 bytes
}

// Append writes the message.
func (s ServerInit) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(s.Size.WidthPx))
	b = binary.BigEndian.AppendUint16(b, uint16(s.Size.HeightPx))
	b = s.Format.Append(b)
	b = binary.BigEndian.AppendUint32(b, uint32(len(s.Name)))
	return append(b, s.Name...)
}

// Join plays the client's side of the handshake and asks for a shared session,
// because otherwise the server throws out everybody else (rule R5). It reads not a
// byte beyond the handshake. A desktop larger than most is refused.
func Join(server io.ReadWriter, most Size) (Version, ServerInit, error) {
	v, err := joinVersion(server)
	if err == nil {
		err = joinSecurity(server, v)
	}
	if err == nil {
		_, err = server.Write([]byte{1}) // ClientInit: shared
	}
	if err != nil {
		return v, ServerInit{}, handshakeFault(err)
	}
	init, err := readServerInit(server, most)
	return v, init, handshakeFault(err)
}

// handshakeFault names the handshake in errors of the connection.
func handshakeFault(err error) error {
	var own *HandshakeError
	if err == nil || errors.As(err, &own) {
		return err
	}
	return fmt.Errorf("handshake: %w", err)
}

func joinVersion(server io.ReadWriter) (Version, error) {
	var line [versionLen]byte
	if _, err := io.ReadFull(server, line[:]); err != nil {
		return 0, err
	}
	major, v, err := parseVersion(line[:])
	switch {
	case err != nil:
		return 0, err
	case major < 3: // 000.000 is a repeater that waits for an address
		return 0, &HandshakeError{Reason: fmt.Sprintf("server announces %q", line)}
	case major > 3: // it must take a lower one (RFC 6143 section 7.1.1)
		v = Version38
	}
	_, err = server.Write(v.line())
	return v, err
}

func joinSecurity(server io.ReadWriter, v Version) error {
	if v == Version33 {
		return joinSecurity33(server)
	}
	var count [1]byte
	if _, err := io.ReadFull(server, count[:]); err != nil {
		return err
	}
	if count[0] == 0 {
		return refusedBy(server)
	}
	types := make([]byte, count[0])
	if _, err := io.ReadFull(server, types); err != nil {
		return err
	}
	if !slices.Contains(types, securityNone) {
		return &HandshakeError{Reason: fmt.Sprintf("server wants a password (security types %d); only None is spoken", types)}
	}
	if _, err := server.Write([]byte{securityNone}); err != nil || v == Version37 {
		return err
	}
	result, err := readUint32(server)
	if err == nil && result != 0 {
		err = refusedBy(server)
	}
	return err
}

func joinSecurity33(server io.ReadWriter) error {
	kind, err := readUint32(server)
	switch {
	case err != nil:
		return err
	case kind == 0:
		return refusedBy(server)
	case kind != securityNone:
		return &HandshakeError{Reason: fmt.Sprintf("server wants a password (security type %d); only None is spoken", kind)}
	}
	return nil
}

// refusedBy reads the reason a server gives for turning us away.
func refusedBy(server io.Reader) error {
	reason, err := readText(server, maxReason)
	if err != nil {
		return &HandshakeError{Reason: "server refuses without a readable reason"}
	}
	return &HandshakeError{Reason: "server refuses", Said: reason}
}

func readServerInit(server io.Reader, most Size) (ServerInit, error) {
	var b [4 + pixelFormatLen]byte
	if _, err := io.ReadFull(server, b[:]); err != nil {
		return ServerInit{}, err
	}
	init := ServerInit{
		Size:   Size{int(binary.BigEndian.Uint16(b[:])), int(binary.BigEndian.Uint16(b[2:]))},
		Format: parsePixelFormat(b[4:]),
	}
	if !init.Size.Within(most) || init.Size.WidthPx == 0 || init.Size.HeightPx == 0 {
		return ServerInit{}, &HandshakeError{Reason: fmt.Sprintf("desktop is %s, want 1x1 to %s", init.Size, most)}
	}
	name, err := readText(server, maxName)
	init.Name = name
	return init, err
}

// readText reads a length and as much text. What is beyond keep is read and
// dropped; a text beyond maxReason is refused from its length alone.
func readText(r io.Reader, keep int) (string, error) {
	length, err := readUint32(r)
	if err != nil {
		return "", err
	}
	if length > maxReason {
		return "", &HandshakeError{Reason: fmt.Sprintf("text of %d bytes, at most %d", length, maxReason)}
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return "", err
	}
	return string(text[:min(len(text), keep)]), nil
}

func readUint32(r io.Reader) (uint32, error) {
	var b [4]byte
	_, err := io.ReadFull(r, b[:])
	return binary.BigEndian.Uint32(b[:]), err
}

// Welcome plays the server's side of the handshake with a viewer: no password,
// because whoever gets here has shown a ticket, and the viewer's wish to be alone
// is not asked. It reads not a byte beyond the handshake.
func Welcome(viewer io.ReadWriter, init ServerInit) (Version, error) {
	return welcome(viewer, init, welcomeSecurity)
}

func welcome(viewer io.ReadWriter, init ServerInit, security func(io.ReadWriter, Version) error) (Version, error) {
	v, err := welcomeVersion(viewer)
	if err == nil {
		err = security(viewer, v)
	}
	var shared [1]byte
	if err == nil {
		_, err = io.ReadFull(viewer, shared[:])
	}
	if err == nil {
		_, err = viewer.Write(init.Append(nil))
	}
	return v, handshakeFault(err)
}

func welcomeVersion(viewer io.ReadWriter) (Version, error) {
	if _, err := viewer.Write(Version38.line()); err != nil {
		return 0, err
	}
	var line [versionLen]byte
	if _, err := io.ReadFull(viewer, line[:]); err != nil {
		return 0, err
	}
	major, v, err := parseVersion(line[:])
	if err == nil && major != 3 {
		// Its next message has no known layout. A list of no types is a refusal.
		const reason = "this server speaks RFB 3.3, 3.7 and 3.8"
		refusal := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(reason)))
		_, writeErr := viewer.Write(append(refusal, reason...))
		err = errors.Join(&HandshakeError{Reason: fmt.Sprintf("viewer answers %q", line)}, writeErr)
	}
	return v, err
}

func welcomeSecurity(viewer io.ReadWriter, v Version) error {
	if v == Version33 {
		_, err := viewer.Write([]byte{0, 0, 0, securityNone})
		return err
	}
	if _, err := viewer.Write([]byte{1, securityNone}); err != nil {
		return err
	}
	var chosen [1]byte
	if _, err := io.ReadFull(viewer, chosen[:]); err != nil {
		return err
	}
	if chosen[0] != securityNone {
		return &HandshakeError{Reason: fmt.Sprintf("viewer chose security type %d, offered %d", chosen[0], securityNone)}
	}
	if v == Version37 {
		return nil
	}
	_, err := viewer.Write([]byte{0, 0, 0, 0})
	return err
}
