// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var _ = add(row{id: "T-TLS", f: certificates})

// authority signs certificates for one test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = template, a.newKey()
	a.pem, _ = a.sign(template, a.key)
	block, _ := pem.Decode([]byte(a.pem))
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	a.cert = cert
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) (cert, private string) {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}))
}

// leaf is a certificate for a name, or for 127.0.0.1 where there is none.
func (a *authority) leaf(name string, until time.Time) (cert, key string) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if name == "" {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	} else {
		template.DNSNames = []string{name}
	}
	return a.sign(template, a.newKey())
}

// server is a proxy behind a certificate; with clients set it asks for one of theirs.
func (b *bench) server(cert, key string, clients *x509.CertPool) *proxy {
	b.Helper()
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		b.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	if clients != nil {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, clients
	}
	return newProxy(b.T, b.agent.addr, config)
}

func certificates(b *bench) {
	b.config(profileOf())
	b.settle()
	ca, other := newAuthority(b.T), newAuthority(b.T)
	soon := time.Now().Add(time.Hour)
	cert, key := ca.leaf("", soon)
	plainServer := b.server(cert, key, nil)
	named, namedKey := ca.leaf("nomad.example", soon)
	namedServer := b.server(named, namedKey, nil)
	expired, expiredKey := ca.leaf("", time.Now().Add(-time.Hour))
	expiredServer := b.server(expired, expiredKey, nil)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	mutual := b.server(cert, key, pool)
	client, clientKey := ca.leaf("client", soon)
	for name, text := range map[string]string{"ca.pem": ca.pem, "other.pem": other.pem, "client.pem": client, "client.key": clientKey} {
		write(b.T, filepath.Join(b.dir, name), text)
	}
	heredoc := func(attribute, text string) string { return fmt.Sprintf("%s = <<EOF\n%sEOF", attribute, text) }
	caFile := `ca_file = "ca.pem"`
	for name, tc := range map[string]certificateCase{
		"file":           {plainServer, []string{caFile}, nil},
		"pem":            {plainServer, []string{heredoc("ca_pem", ca.pem)}, nil},
		"unknown":        {plainServer, nil, []string{"is not trusted", "ca_file", "State was not changed."}},
		"other":          {plainServer, []string{`ca_file = "other.pem"`}, []string{"is not trusted"}},
		"skip":           {plainServer, []string{"skip_verify = true"}, nil},
		"wrong name":     {namedServer, []string{caFile}, []string{"is not trusted", "tls_server_name"}},
		"right name":     {namedServer, []string{caFile, `tls_server_name = "nomad.example"`}, nil},
		"expired":        {expiredServer, []string{caFile}, []string{"is not trusted", "expired"}},
		"mutual files":   {mutual, []string{caFile, `cert_file = "client.pem"`, `key_file = "client.key"`}, nil},
		"mutual pem":     {mutual, []string{caFile, heredoc("cert_pem", client), heredoc("key_pem", clientKey)}, nil},
		"mutual nothing": {mutual, []string{caFile}, []string{"is not trusted", "cert_file and key_file"}},
		"key alone":      {mutual, []string{caFile, `key_file = "client.key"`}, []string{"The connection to Nomad cannot be made", "key_file", "needs cert_file"}},
		"no such file":   {mutual, []string{`ca_file = "nowhere.pem"`}, []string{"The connection to Nomad cannot be made", "ca_file", "no such file"}},
	} {
		b.connects(name, tc)
	}
	// The same from the environment, which the block wins over (T-ENV).
	const files = "NOMAD_CACERT=ca.pem NOMAD_CLIENT_KEY=client.key NOMAD_CLIENT_CERT="
	for _, tc := range []struct {
		env string
		certificateCase
	}{
		{"NOMAD_CACERT=ca.pem", certificateCase{plainServer, nil, nil}},
		{"NOMAD_CACERT=other.pem", certificateCase{plainServer, []string{caFile}, nil}},
		{"NOMAD_SKIP_VERIFY=true", certificateCase{plainServer, nil, nil}},
		{"NOMAD_SKIP_VERIFY=true", certificateCase{plainServer, []string{"skip_verify = false"}, []string{"is not trusted"}}},
		{"NOMAD_CACERT=ca.pem NOMAD_TLS_SERVER_NAME=nomad.example", certificateCase{namedServer, nil, nil}},
		{files + "client.pem", certificateCase{mutual, nil, nil}},
		{files + "nowhere.pem", certificateCase{mutual, nil, []string{"The connection to Nomad cannot be made", "no such file"}}},
		{files + "nowhere.pem", certificateCase{mutual, []string{`cert_file = "client.pem"`}, nil}},
	} {
		b.env = strings.Fields(tc.env)
		b.connects(tc.env, tc.certificateCase)
	}
	b.env = nil
	b.config(profileOf())
	b.empty()
}

// certificateCase is a server with the lines of the provider block that it is met with.
type certificateCase struct {
	server *proxy
	lines  []string
	want   []string // empty: it works
}

func (b *bench) connects(name string, tc certificateCase) {
	b.Helper()
	b.config(at(tc.server.URL, tc.lines...) + profileOf())
	if tc.want != nil {
		b.fails(b.run("plan", "-no-color"), tc.want...)
		return
	}
	if o := b.run("plan", "-no-color", "-detailed-exitcode"); o.code != 0 {
		b.Errorf("%s: code %d\n%s", name, o.code, o.raw)
	}
}
