// SPDX-License-Identifier: MPL-2.0

package task_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// certificate makes one for 127.0.0.1 and its key, as PEM.
func certificate(t *testing.T) (cert, key []byte, roots *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "screen"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), roots
}

// withViewer is a request whose task has a directory with certificate and key in it.
func (n *node) withViewer(profile string) (r task.Request, dir string, roots *x509.CertPool) {
	n.t.Helper()
	r = n.request(profile)
	dir = filepath.Join(n.dir, profile)
	cert, key, roots := certificate(n.t)
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "local"), 0o755), os.MkdirAll(filepath.Join(dir, "secrets"), 0o755),
		os.WriteFile(filepath.Join(dir, "local", "cert.pem"), cert, 0o644), os.WriteFile(filepath.Join(dir, "secrets", "key.pem"), key, 0o644))
	if err != nil {
		n.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Fatal(err)
	}
	r.ViewerAddress = netip.MustParseAddrPort(listener.Addr().String())
	_ = listener.Close()
	r.Spec.Viewer = &screen.ViewerListener{Port: "view", TLSCert: "local/cert.pem", TLSKey: filepath.Join(dir, "secrets/key.pem")}
	return r, dir, roots
}

// X22: what a job names is read with the desktop's rights beneath the task's directory,
// and behind no link; the refusal names the option and shows nothing of the file, and
// nothing has been started.
func TestX22ViewerFiles(t *testing.T) {
	n := newNode(t)
	for name, tc := range map[string]struct {
		cert string
		make func(t *testing.T, path string)
		want string
	}{
		"node's file":   {"/etc/shadow", nil, "is not below the task's directory"},
		"dots":          {"../../../../../../etc/shadow", nil, "is not below the task's directory"},
		"dots inside":   {"local/../../../../../../../etc/shadow", nil, "is not below the task's directory"},
		"absolute dots": {"TASK/../../etc/shadow", nil, "is not below the task's directory"},
		"link":          {"local/x", func(t *testing.T, path string) { link(t, "/etc/shadow", path) }, "symbolic link"},
		"link inside":   {"local/x", func(t *testing.T, path string) { link(t, "cert.pem", path) }, "symbolic link"},
		"linked folder": {"local/x/shadow", func(t *testing.T, path string) { link(t, "/etc", path) }, "symbolic link"},
		"root's":        {"local/x", func(t *testing.T, path string) { secretFile(t, path, 0o600) }, "permission denied"},
		"hard link":     {"local/x", func(t *testing.T, path string) { hardLink(t, path) }, "permission denied"},
		"pipe":          {"local/x", func(t *testing.T, path string) { fifo(t, path) }, "no regular file"},
		"folder":        {"local", nil, "no regular file"},
		"too large":     {"local/x", func(t *testing.T, path string) { sized(t, path, 257<<10) }, "more than"},
		"not there":     {"local/x", nil, "no such file"},
		"no pem":        {"local/x", func(t *testing.T, path string) { secretFile(t, path, 0o644) }, "are no certificate in PEM and its key"},
	} {
		t.Run(name, func(t *testing.T) {
			profile := "x22-" + strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), "'", "")
			r, dir, _ := n.withViewer(profile)
			path := filepath.Join(dir, "local", "x")
			if tc.make != nil {
				tc.make(t, path)
			}
			r.Spec.Viewer.TLSCert = strings.Replace(tc.cert, "TASK", dir, 1)
			k, err := n.Start(t.Context(), r)
			if err == nil {
				n.endWithTest(k)
				t.Fatal("started")
			}
			text := task.Explain(err)
			if !strings.Contains(text, tc.want) || !strings.Contains(text, "viewer.tls_cert") {
				t.Errorf("the error is %q", text)
			}
			for _, secret := range []string{"root:", "hunter2"} {
				if strings.Contains(text, secret) || strings.Contains(err.Error(), secret) {
					t.Errorf("the error shows the file: %v", err)
				}
			}
		})
	}
	if runs, _ := os.ReadDir(filepath.Join(n.settings.StateDir, "runs")); len(runs) > 0 {
		t.Errorf("runs are left: %v", runs)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

func secretFile(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte("hunter2"), mode); err != nil {
		t.Fatal(err)
	}
}

// hardLink puts a file of root's that others cannot read into the task's directory.
func hardLink(t *testing.T, path string) {
	t.Helper()
	secretFile(t, path+"-of-root", 0o600)
	if err := os.Link(path+"-of-root", path); err != nil {
		t.Fatal(err)
	}
}

func fifo(t *testing.T, path string) {
	t.Helper()
	if err := unix.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
}

func sized(t *testing.T, path string, size int64) {
	t.Helper()
	secretFile(t, path, 0o644)
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// The listener serves the page over TLS, under the supervisor's own account, also after
// that was killed; a ticket names it.
func TestViewerListener(t *testing.T) {
	n := newNode(t)
	r, _, roots := n.withViewer("listened")
	k := n.start(r)
	address := "https://" + r.ViewerAddress.String()
	browser := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots}}}
	look := func() error {
		resp, err := browser.Get(address + "/")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && (resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "Take over") || resp.TLS.Version < tls.VersionTLS12) {
			err = errors.New(resp.Status)
		}
		return err
	}
	if err := look(); err != nil {
		t.Fatal(err)
	}
	if resp, err := http.Get("http://" + r.ViewerAddress.String()); err == nil {
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("it answers in the clear")
		}
	}
	minted, err := client(k.View()).MintTicket(t.Context(), control.TicketRequest{})
	if err != nil || minted.Address != address {
		t.Errorf("%+v, %v", minted, err)
	}
	old := k.View().SupervisorPID
	if err := unix.Kill(old, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); k.View().SupervisorPID == old || look() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no page from the next supervisor: %v", look())
		}
	}
	if err := k.Stop(t.Context(), 5*time.Second, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := look(); err == nil {
		t.Error("the page outlives the screen")
	}
	n.nothingLeft(k.View())
}
