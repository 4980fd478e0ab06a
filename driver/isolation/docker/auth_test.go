// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/docker/docker/api/types/image"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/screen"
)

// guarded is a registry with one image, for who has the name and the password (OCI
// Distribution, "Pulling manifests" and "Pulling blobs").
type guarded struct {
	*httptest.Server
	digest string
	served atomic.Int32 // manifests
}

func newGuarded(t *testing.T, architecture, username, password string) *guarded {
	t.Helper()
	blobs := map[string][]byte{}
	describe := func(kind string, text []byte) map[string]any {
		digest := digestOf(text)
		blobs[digest] = text
		return map[string]any{"mediaType": kind, "digest": digest, "size": len(text)}
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "unique-" + newInstance(), Mode: 0o644}))
	must(t, w.Close())
	config, err := json.Marshal(map[string]any{
		"architecture": architecture, "os": "linux", "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digestOf(layer.Bytes())}},
	})
	must(t, err)
	const manifestType = "application/vnd.docker.distribution.manifest.v2+json"
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": describe("application/vnd.docker.container.image.v1+json", config),
		"layers": []any{describe("application/vnd.docker.image.rootfs.diff.tar", layer.Bytes())},
	})
	must(t, err)
	g := &guarded{digest: digestOf(manifest)}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if name, secret, ok := q.BasicAuth(); !ok || name != username || secret != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="desks"`)
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		if _, digest, ok := strings.Cut(q.URL.Path, "/blobs/"); ok {
			_, _ = w.Write(blobs[digest])
		} else if strings.Contains(q.URL.Path, "/manifests/") {
			g.served.Add(1)
			w.Header().Set("Content-Type", manifestType)
			w.Header().Set("Docker-Content-Digest", g.digest)
			_, _ = w.Write(manifest)
		}
	}))
	t.Cleanup(g.Close)
	return g
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// X21: a job's credentials reach its registry and nothing else: no error repeats them, and
// without them, or with others, nothing comes.
func TestX21RegistryAuth(t *testing.T) {
	b := boundary(t)
	const password = "CANARY-of-the-registry"
	g := newGuarded(t, runtime.GOARCH, "robot", password)
	reference := strings.TrimPrefix(g.URL, "http://") + "/team/desk:1"
	t.Cleanup(func() {
		_, _ = b.api.ImageRemove(context.Background(), reference, image.RemoveOptions{Force: true})
	})
	for name, auth := range map[string]screen.RegistryAuth{
		"nobody": {}, "somebody else": screen.NewRegistryAuth("robot", password+"-not"),
	} {
		_, err := b.Resolve(bounded(t), isolation.ImageOrder{Reference: reference, Auth: auth}, func() {})
		var refused *RefusedError
		if !errors.As(err, &refused) || !strings.Contains(refused.Sentence(), reference) {
			t.Errorf("%s: %v", name, err)
		}
		if said := fmt.Sprintf("%v %+v %s", err, auth, refused.Sentence()); strings.Contains(said, password) {
			t.Errorf("%s: the password is said: %s", name, said)
		}
	}
	if n := g.served.Load(); n > 0 {
		t.Fatalf("%d manifests were served", n)
	}
	wanted := isolation.ImageOrder{Reference: reference, Auth: screen.NewRegistryAuth("robot", password)}
	pulled := 0
	img, err := b.Resolve(bounded(t), wanted, func() { pulled++ })
	must(t, err)
	if pulled != 1 || img.Digest != g.digest {
		t.Errorf("pulled %d times, %+v, the registry has %s", pulled, img, g.digest)
	}
	if latest, err := b.Latest(bounded(t), wanted); err != nil || latest != g.digest {
		t.Errorf("latest %s %v", latest, err)
	}
}

// X41: a registry that serves another manifest than the digest in the reference names, or
// an image of another platform, is refused, and nothing of it is run.
func TestX41AnotherImageIsServed(t *testing.T) {
	b := boundary(t)
	const password = "secret"
	auth := screen.NewRegistryAuth("robot", password)
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	for name, tc := range map[string]struct{ architecture, suffix, word string }{
		"another manifest": {runtime.GOARCH, "@" + digestOf([]byte("another")), "could not be pulled"},
		"another platform": {other, ":1", other},
	} {
		g := newGuarded(t, tc.architecture, "robot", password)
		reference := strings.TrimPrefix(g.URL, "http://") + "/team/desk" + tc.suffix
		t.Cleanup(func() {
			_, _ = b.api.ImageRemove(context.Background(), reference, image.RemoveOptions{Force: true})
		})
		img, err := b.Resolve(bounded(t), isolation.ImageOrder{Reference: reference, Auth: auth}, func() {})
		var refused *RefusedError
		if !errors.As(err, &refused) || !strings.Contains(refused.Sentence(), tc.word) || img.Reference != "" {
			t.Errorf("%s: %+v %v", name, img, err)
		}
		if g.served.Load() == 0 {
			t.Errorf("%s: nothing was asked for", name)
		}
	}
}
