// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"strings"

	"github.com/botscreen/botscreen/shared/relay"
	"github.com/botscreen/botscreen/shared/relay/webviewer"
)

// viewerDoor is the door for people with a ticket (threats.md X43): the page and its
// WebSocket, on a port that Nomad gave to the alloc.
type viewerDoor struct {
	listener net.Listener // nil: there is none
	tls      *tls.Config  // nil: in the clear, on a loopback address alone
	names    []string     // of its certificate
	trouble  error        // why there is none although the job wants one
}

var errCertificate = errors.New("viewer.tls_cert and viewer.tls_key are no certificate in PEM and its key")

// newViewerDoor takes the certificate out of the configuration. The error says nothing of
// what is in it.
func newViewerDoor(c *Config) (door viewerDoor) {
	certificate, key := c.ViewerCert, c.ViewerKey
	c.ViewerCert, c.ViewerKey = nil, nil
	if c.Viewer == nil || len(certificate)+len(key) == 0 && c.Viewer.TLSCert == "" {
		return door
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil || pair.Leaf == nil {
		return viewerDoor{trouble: errCertificate}
	}
	return viewerDoor{tls: &tls.Config{Certificates: []tls.Certificate{pair}}, names: namesOf(pair.Leaf)}
}

// namesOf are the names that the page may be served under, as the certificate has them.
func namesOf(leaf *x509.Certificate) []string {
	var names []string
	for _, name := range leaf.DNSNames {
		if !strings.Contains(name, "*") { // names whom it does not know
			names = append(names, name)
		}
	}
	return names
}

// bind gives the door its socket.
func (d *viewerDoor) bind(listener net.Listener) {
	if d.trouble == nil {
		d.listener = listener
	}
}

// address is where the page is, empty where there is none: by the certificate's name
// where that does not stand for the address itself.
func (d *viewerDoor) address() string {
	if d.listener == nil {
		return ""
	}
	host, port, err := net.SplitHostPort(d.listener.Addr().String())
	if err != nil {
		return ""
	}
	if d.tls == nil {
		return "http://" + net.JoinHostPort(host, port)
	}
	leaf := d.tls.Certificates[0].Leaf
	if len(d.names) > 0 && leaf.VerifyHostname(host) != nil {
		host = d.names[0]
	}
	return "https://" + net.JoinHostPort(host, port)
}

// serveViewers answers at the viewer listener until ctx ends. Its end is not the
// screen's.
func (s *supervisor) serveViewers(ctx context.Context) {
	if s.viewer.listener == nil {
		return
	}
	door := relay.Listener{
		Relay: s.relay, Page: webviewer.Handler(), TLS: s.viewer.tls,
		Log: slog.New(discardBelowError{s}),
	}
	if err := door.Serve(ctx, s.viewer.listener); err != nil {
		s.log.Error("the viewer listener ended", "error", err)
	}
}
