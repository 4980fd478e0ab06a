// SPDX-License-Identifier: MPL-2.0

// Package connection is the provider's way to a Nomad cluster: a client that is made on
// first use, tries again what may be tried again, and knows whether Nomad answered.
package connection

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Settings are how a cluster is reached. Files are read on first use.
type Settings struct {
	Address  string // http, https or unix
	Region   string
	SecretID string
	// AuthMethod and LoginToken are exchanged for a token on first use, where set.
	AuthMethod string
	LoginToken string
	HTTPAuth   string // user[:password]
	Headers    map[string]string

	CAFile, CAPEM         string
	CertFile, CertPEM     string
	KeyFile, KeyPEM       string
	TLSServerName         string
	SkipVerify            bool
	RequestTimeout        time.Duration
	MaxRetries            int
	UserAgent             string
	retryBase, retryLimit time.Duration // zero: the defaults; tests are not patient
}

// Client reaches one cluster. The zero value is not useful; New makes one.
type Client struct {
	settings Settings

	mu   sync.Mutex // guards what follows
	api  *api.Client
	exec *api.Client
}

// New asks nobody: everything happens on first use.
func New(s Settings) *Client { return &Client{settings: s} }

// Address is where the cluster is to be.
func (c *Client) Address() string { return c.settings.Address }

// API gives Nomad's client for everything but exec streams. A login, where one is set,
// has happened then; an error is tried again by the next call.
func (c *Client) API(ctx context.Context) (*api.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.api == nil {
		if err := c.connect(ctx); err != nil {
			return nil, err
		}
	}
	return c.api, nil
}

// Exec gives Nomad's client for exec streams.
func (c *Client) Exec(ctx context.Context) (*api.Client, error) {
	if _, err := c.API(ctx); err != nil {
		return nil, err
	}
	return c.exec, nil
}

// connect needs c.mu.
func (c *Client) connect(ctx context.Context) error {
	base, err := c.settings.transport()
	if err != nil {
		return err
	}
	guarded := &transport{base: base, settings: c.settings}
	main, err := c.settings.client(guarded)
	if err != nil {
		return err
	}
	streams, err := c.settings.client(base)
	if err != nil {
		return err
	}
	if c.settings.AuthMethod != "" {
		token, _, err := main.ACLAuth().Login(
			&api.ACLLoginRequest{AuthMethodName: c.settings.AuthMethod, LoginToken: c.settings.LoginToken},
			(&api.WriteOptions{}).WithContext(ctx))
		if err != nil {
			return &LoginError{Method: c.settings.AuthMethod, Err: err}
		}
		main.SetSecretID(token.SecretID)
		streams.SetSecretID(token.SecretID)
		if err := resolved(ctx, main); err != nil {
			return err
		}
	}
	c.api, c.exec = main, streams
	return nil
}

// LoginError is a login that failed, on the way or by Nomad's word.
type LoginError struct {
	Method string
	Err    error
}

func (e *LoginError) Error() string { return fmt.Sprintf("login with %s: %v", e.Method, e.Err) }
func (e *LoginError) Unwrap() error { return e.Err }

// resolved waits until the servers know a fresh token: it is written by the leader and
// read from any of them.
func resolved(ctx context.Context, c *api.Client) error {
	for wait := 100 * time.Millisecond; ; wait *= 2 {
		_, _, err := c.ACLTokens().Self((&api.QueryOptions{}).WithContext(ctx))
		if err == nil || wait > 2*time.Second {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// client makes Nomad's client on a transport. DefaultConfig is not used: it reads
// NOMAD_NAMESPACE and NOMAD_REGION, which belong to whatever this process runs in.
func (s Settings) client(rt http.RoundTripper) (*api.Client, error) {
	config := &api.Config{
		Address: s.Address, Region: s.Region, SecretID: s.SecretID,
		HttpClient: &http.Client{Transport: rt}, Headers: http.Header{},
	}
	if strings.HasPrefix(s.Address, "unix:") {
		config.Address = "http://127.0.0.1" // the dialer knows the socket
	}
	if s.HTTPAuth != "" {
		user, password, _ := strings.Cut(s.HTTPAuth, ":")
		config.HttpAuth = &api.HttpBasicAuth{Username: user, Password: password}
	}
	for name, value := range s.Headers {
		config.Headers.Set(name, value)
	}
	if s.UserAgent != "" {
		config.Headers.Set("User-Agent", s.UserAgent)
	}
	return api.NewClient(config)
}

func (s Settings) transport() (*http.Transport, error) {
	address, err := url.Parse(s.Address)
	if err != nil {
		return nil, &SettingError{Attribute: "address", Reason: "is no URL"}
	}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 16, IdleConnTimeout: 90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	t.DialContext = dialer.DialContext
	if address.Scheme == "unix" {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", address.Path)
		}
	}
	t.TLSClientConfig, err = s.tls()
	return t, err
}

// SettingError is a setting that cannot be used.
type SettingError struct{ Attribute, Reason string }

func (e *SettingError) Error() string { return e.Attribute + ": " + e.Reason }

func (s Settings) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.TLSServerName, InsecureSkipVerify: s.SkipVerify} //nolint:gosec // by the user's word
	ca, err := fileOr(s.CAFile, s.CAPEM, "ca_file")
	if err != nil {
		return nil, err
	}
	if len(ca) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, &SettingError{Attribute: either(s.CAFile, "ca_file", "ca_pem"), Reason: "holds no certificate in PEM form"}
		}
	}
	cert, err := fileOr(s.CertFile, s.CertPEM, "cert_file")
	if err != nil {
		return nil, err
	}
	key, err := fileOr(s.KeyFile, s.KeyPEM, "key_file")
	if err != nil {
		return nil, err
	}
	switch {
	case len(cert) == 0 && len(key) == 0:
		return config, nil
	case len(cert) == 0:
		return nil, &SettingError{Attribute: either(s.KeyFile, "key_file", "key_pem"), Reason: "needs cert_file or cert_pem"}
	case len(key) == 0:
		return nil, &SettingError{Attribute: either(s.CertFile, "cert_file", "cert_pem"), Reason: "needs key_file or key_pem"}
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		// The library's words name no key material.
		return nil, &SettingError{Attribute: either(s.CertFile, "cert_file", "cert_pem"), Reason: err.Error()}
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

func fileOr(path, text, attribute string) ([]byte, error) {
	if path == "" {
		return []byte(text), nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		var inner *os.PathError
		if errors.As(err, &inner) {
			return nil, &SettingError{Attribute: attribute, Reason: fmt.Sprintf("%s: %v", path, inner.Err)}
		}
		return nil, &SettingError{Attribute: attribute, Reason: err.Error()}
	}
	return data, nil
}

func either(file, ifFile, otherwise string) string {
	if file != "" {
		return ifFile
	}
	return otherwise
}
