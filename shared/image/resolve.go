// SPDX-License-Identifier: MPL-2.0

package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// Source is where a digest is looked up.
type Source string

// Sources of digests.
const (
	Registry Source = "registry" // one HEAD request: the index's digest where there is an index
	Engine   Source = "engine"   // the docker engine of the machine that asks
	File     Source = "file"     // an image file of the machine that asks
)

// lookupLimit bounds one look-up.
const lookupLimit = 15 * time.Second

// Digest finds out which digest a reference has now. A reference with a digest has that
// one, and nobody is asked. Errors name no credentials.
func Digest(ctx context.Context, source Source, r Reference) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	switch {
	case r.Digest != "":
		return r.Digest, nil
	case r.File != "":
		return ofFile(r.File)
	case source == Engine:
		return ofEngine(ctx, r)
	}
	return ofRegistry(ctx, r)
}

func (r Reference) tagged() string {
	text := r.Repository
	if r.Registry != "" {
		text = r.Registry + "/" + text
	}
	if r.Tag != "" {
		text += ":" + r.Tag
	}
	return text
}

// ofRegistry asks with the credentials of the docker configuration, where there are any.
func ofRegistry(ctx context.Context, r Reference) (string, error) {
	ref, err := name.ParseReference(r.tagged())
	if err != nil {
		return "", fmt.Errorf("look up %s: %w", r.tagged(), err)
	}
	head, err := remote.Head(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return "", fmt.Errorf("look up %s: %w", r.tagged(), plain(err))
	}
	return head.Digest.String(), nil
}

// plain is a registry's answer in few words; its own may quote whole pages.
func plain(err error) error {
	var answer *transport.Error
	if !errors.As(err, &answer) {
		var request *url.Error
		if errors.As(err, &request) {
			return request.Err
		}
		return err
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("the registry answered %d: this machine's docker configuration has no credentials that may read it", answer.StatusCode)
	case http.StatusTooManyRequests:
		return errors.New("the registry answered 429: too many requests")
	}
	return fmt.Errorf("the registry answered %d", answer.StatusCode)
}

// ofFile hashes an image file.
func ofFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("look up image file: %w", err)
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("look up image file: %w", err)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// maxInspect bounds an engine's answer, in bytes.
const maxInspect = 1 << 20

// ofEngine asks the docker engine of DOCKER_HOST, or of the usual socket, what it has. An
// image that came from no registry has its id.
func ofEngine(ctx context.Context, r Reference) (string, error) {
	client, base, err := engine(os.Getenv("DOCKER_HOST"))
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/images/"+r.tagged()+"/json", nil)
	if err != nil {
		return "", fmt.Errorf("look up %s: %w", r.tagged(), err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("look up %s in the docker engine: %w", r.tagged(), plain(err))
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("look up %s: the docker engine answered %d", r.tagged(), resp.StatusCode)
	}
	var found struct {
		ID          string   `json:"Id"`
		RepoDigests []string `json:"RepoDigests"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxInspect)).Decode(&found); err != nil {
		return "", fmt.Errorf("look up %s: the docker engine's answer: %w", r.tagged(), err)
	}
	for _, one := range found.RepoDigests {
		if repository, digest, ok := strings.Cut(one, "@"); ok && repository == r.Name() && ValidDigest(digest) {
			return digest, nil
		}
	}
	if !ValidDigest(found.ID) {
		return "", fmt.Errorf("look up %s: the docker engine's answer has no digest", r.tagged())
	}
	return found.ID, nil
}

func engine(host string) (*http.Client, string, error) {
	if host == "" {
		host = "unix:///var/run/docker.sock"
	}
	u, err := url.Parse(host)
	if err != nil {
		return nil, "", errors.New("look up in the docker engine: DOCKER_HOST is no URL")
	}
	switch u.Scheme {
	case "unix":
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", u.Path)
		}
		return &http.Client{Transport: &http.Transport{DialContext: dial}}, "http://engine", nil
	case "tcp", "http":
		return http.DefaultClient, "http://" + u.Host, nil
	}
	return nil, "", fmt.Errorf("look up in the docker engine: DOCKER_HOST has scheme %q; unix and tcp are known", u.Scheme)
}
