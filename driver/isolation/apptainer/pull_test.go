// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/botscreen/botscreen/driver/isolation"
)

// registry serves one image under any name and counts who asks for its layer
// (OCI Distribution, "Pulling manifests" and "Pulling blobs").
type registry struct {
	*httptest.Server
	blobs    map[string][]byte
	manifest []byte
	layers   atomic.Int32
	// guard sees each question first, and answers it itself where it returns false. It is
	// set before anybody asks.
	guard func(http.ResponseWriter, *http.Request) bool
}

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{blobs: map[string][]byte{}}
	var plainLayer, layer bytes.Buffer
	w := tar.NewWriter(&plainLayer)
	for _, dir := range []string{"bin", "dev", "etc", "proc", "sys", "tmp", "var", "var/tmp", "root"} {
		must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}))
	}
	must(t, w.Close())
	z := gzip.NewWriter(&layer)
	_, err := z.Write(plainLayer.Bytes())
	must(t, errors.Join(err, z.Close()))
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digestOf(plainLayer.Bytes())}},
	})
	must(t, err)
	describe := func(kind string, text []byte) map[string]any {
		r.blobs[digestOf(text)] = text
		return map[string]any{"mediaType": kind, "digest": digestOf(text), "size": len(text)}
	}
	r.manifest, err = json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": describe("application/vnd.oci.image.config.v1+json", config),
		"layers": []any{describe("application/vnd.oci.image.layer.v1.tar+gzip", layer.Bytes())},
	})
	must(t, err)
	layerDigest := digestOf(layer.Bytes())
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if r.guard != nil && !r.guard(w, q) {
			return
		}
		_, digest, isBlob := strings.Cut(q.URL.Path, "/blobs/")
		switch {
		case strings.Contains(q.URL.Path, "/missing/"):
			http.NotFound(w, q)
		case isBlob:
			if digest == layerDigest && q.Method == http.MethodGet {
				r.layers.Add(1)
			}
			_, _ = w.Write(r.blobs[digest])
		case strings.Contains(q.URL.Path, "/manifests/"):
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			w.Header().Set("Docker-Content-Digest", digestOf(r.manifest))
			_, _ = w.Write(r.manifest)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (r *registry) name(repository string) string {
	return strings.TrimPrefix(r.URL, "http://") + "/" + repository
}

// X22, P5: an image of a registry is fetched once, as the screen's own uid, and becomes
// root's; the next start takes what is there, whatever the registry says by then.
func TestX22PullAsTheScreensUid(t *testing.T) {
	if _, err := exec.LookPath("mksquashfs"); err != nil {
		t.Skip("needs mksquashfs: apptainer makes its files with it")
	}
	b, r := boundary(t), newRegistry(t)
	b.insecure = true
	order := newOrder(t, "")
	wanted := isolation.ImageOrder{Reference: registryScheme + r.name("team/desk:1"), Account: order.Account}
	pulled := 0
	found, err := b.Resolve(bounded(t), wanted, func() { pulled++ })
	must(t, err)
	info, err := os.Stat(found.Reference)
	must(t, err)
	key, err := keyOf(found.Reference)
	must(t, err)
	if pulled != 1 || r.layers.Load() != 1 || info.Mode().Perm() != 0o644 || !strings.HasPrefix(found.Digest, "sha256:") || key.size == 0 {
		t.Errorf("pulled %d times, %d layers asked for, %+v %v", pulled, r.layers.Load(), found, info.Mode())
	}
	if owner := ownerOf(t, found.Reference); owner != 0 {
		t.Errorf("the image belongs to uid %d", owner)
	}
	entries, err := os.ReadDir(b.imagesDir())
	must(t, err)
	if len(entries) != 2 { // and the link to it
		t.Errorf("left beside the image: %v", entries)
	}
	if found := left(t, b, order); len(found) > 0 {
		t.Errorf("left %v", found)
	}
	r.Close() // the registry is gone
	wanted.Reference = strings.TrimPrefix(wanted.Reference, registryScheme)
	again, err := b.Resolve(bounded(t), wanted, func() { pulled++ })
	if err != nil || again != found || pulled != 1 {
		t.Errorf("%+v %v, pulled %d times", again, err, pulled)
	}
}

// P5: what cannot be fetched is told in words, and leaves nothing.
func TestP5FailedPull(t *testing.T) {
	b, r := boundary(t), newRegistry(t)
	b.insecure = true
	order := newOrder(t, "")
	_, err := b.Resolve(bounded(t), isolation.ImageOrder{Reference: r.name("missing/desk:1"), Account: order.Account}, func() {})
	var refused *RefusedError
	if !errors.As(err, &refused) || !refused.Temporary() || !strings.Contains(refused.Sentence(), "could not be pulled") {
		t.Errorf("%v", err)
	}
	if entries, err := os.ReadDir(b.imagesDir()); err != nil || len(entries) != 0 {
		t.Errorf("left %v %v", entries, err)
	}
}

// X30: an image larger than the node wants is refused, and not kept.
func TestX30MaxImage(t *testing.T) {
	if _, err := exec.LookPath("mksquashfs"); err != nil {
		t.Skip("needs mksquashfs: apptainer makes its files with it")
	}
	b, r := boundary(t), newRegistry(t)
	b.insecure = true
	order := newOrder(t, "")
	_, err := b.Resolve(bounded(t), isolation.ImageOrder{Reference: r.name("team/desk:1"), Account: order.Account, MaxBytes: 1024}, func() {})
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Temporary() || !strings.Contains(refused.Sentence(), "max_image_mb") {
		t.Errorf("%v", err)
	}
	if entries, err := os.ReadDir(b.imagesDir()); err != nil || len(entries) != 0 {
		t.Errorf("left %v %v", entries, err)
	}
}

// X7: images come from the image_dirs and from nowhere else; no link leads out of them.
func TestX7ImageDirs(t *testing.T) {
	dir, outside := folder(t, 0o755), folder(t, 0o755)
	b := New(Options{ImageDirs: []string{dir}, StateDir: folder(t, 0o755)})
	for _, path := range []string{filepath.Join(dir, "desk.sif"), filepath.Join(outside, "evil.sif")} {
		must(t, os.WriteFile(path, []byte("an image"), 0o644))
	}
	must(t, os.Symlink("desk.sif", filepath.Join(dir, "current.sif")))
	must(t, os.Symlink(filepath.Join(outside, "evil.sif"), filepath.Join(dir, "link.sif")))
	must(t, os.Symlink(outside, filepath.Join(dir, "way")))
	must(t, exec.Command("mkfifo", filepath.Join(dir, "pipe.sif")).Run())
	digest := digestOf([]byte("an image"))
	other := digestOf([]byte("another"))
	for reference, want := range map[string]string{ // what the sentence says; none: found
		"desk.sif": "", "current.sif": "", filepath.Join(dir, "desk.sif"): "", "desk.sif@" + digest: "",
		"desk.sif@" + other:                digest,
		"":                                 "needs an image",
		"none.sif":                         "not in this node's image_dirs",
		filepath.Join(outside, "evil.sif"): "outside of this node's image_dirs",
		"link.sif":                         "leads out",
		"way/evil.sif":                     "leads out",
		"../" + filepath.Base(outside) + "/evil.sif":        "not in this node's image_dirs",
		dir + "/../" + filepath.Base(outside) + "/evil.sif": "outside",
		"/etc/passwd":      "outside",
		"pipe.sif":         "neither a file nor a directory",
		"/proc/1/root.sif": "outside",
		dir + "/../" + filepath.Base(dir) + "/desk.sif": "",
	} {
		found, err := b.Resolve(bounded(t), isolation.ImageOrder{Reference: reference}, func() { t.Errorf("%s is pulled", reference) })
		var refused *RefusedError
		switch {
		case want == "":
			if err != nil || found.Digest != digest {
				t.Errorf("%s: %+v %v", reference, found, err)
			}
		case !errors.As(err, &refused) || !strings.Contains(refused.Sentence(), want):
			t.Errorf("%s: %v, want %q", reference, err, want)
		}
	}
	// A file that changes is another image.
	must(t, os.WriteFile(filepath.Join(dir, "desk.sif"), []byte("another"), 0o644))
	found, err := b.Resolve(bounded(t), isolation.ImageOrder{Reference: "desk.sif"}, func() {})
	if err != nil || found.Digest != other {
		t.Errorf("%+v %v", found, err)
	}
}

func FuzzVersion(f *testing.F) {
	for _, text := range []string{"1.5.3", "1.3.4-2.el9", "1.2", "", "x.y", "1.", "3.11.4-dirty"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		major, minor, ok := parseVersion(text)
		if ok && (major < 0 || minor < 0) && !strings.HasPrefix(text, "-") {
			t.Errorf("%q: %d.%d", text, major, minor)
		}
	})
}
