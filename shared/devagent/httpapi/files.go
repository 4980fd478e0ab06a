// SPDX-License-Identifier: MPL-2.0

package httpapi

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// within opens the directory of a request's allocation, with the path in it that
// the request names. Secrets are not shown.
func (a *API) within(r *http.Request) (*os.Root, string, error) {
	dir, err := a.Client.Dir(r.PathValue("id"))
	if err != nil {
		return nil, "", err
	}
	name := strings.TrimPrefix(path.Clean("/"+r.URL.Query().Get("path")), "/")
	if name == "" {
		name = "."
	}
	if parts := strings.Split(name, "/"); len(parts) > 1 && (parts[1] == "secrets" || parts[1] == "private") {
		return nil, "", refuse(http.StatusForbidden, "Reading secret file prohibited: %s", name)
	}
	root, err := os.OpenRoot(dir.Dir)
	if err != nil {
		return nil, "", notFound(err, name)
	}
	return root, name, nil
}

func notFound(err error, name string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return refuse(http.StatusNotFound, "no such file or directory: %s", name)
	}
	return refuse(http.StatusInternalServerError, "%s cannot be read", name)
}

func fileInfo(info fs.FileInfo) *api.AllocFileInfo {
	return &api.AllocFileInfo{
		Name: info.Name(), IsDir: info.IsDir(), Size: info.Size(), FileMode: info.Mode().String(), ModTime: info.ModTime(),
	}
}

func (a *API) list(_ http.ResponseWriter, r *http.Request) (any, error) {
	root, name, err := a.within(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	entries, err := fs.ReadDir(root.FS(), name)
	if err != nil {
		return nil, notFound(err, name)
	}
	out := []*api.AllocFileInfo{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			out = append(out, fileInfo(info))
		}
	}
	return out, nil
}

func (a *API) stat(_ http.ResponseWriter, r *http.Request) (any, error) {
	root, name, err := a.within(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(name)
	if err != nil {
		return nil, notFound(err, name)
	}
	return fileInfo(info), nil
}

func (a *API) cat(w http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.copyFile(w, r, 0, -1)
}

func (a *API) readAt(w http.ResponseWriter, r *http.Request) (any, error) {
	offset, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	if err != nil || offset < 0 {
		return nil, refuse(http.StatusBadRequest, "error parsing offset")
	}
	limit := int64(-1)
	if text := r.URL.Query().Get("limit"); text != "" {
		if limit, err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, refuse(http.StatusBadRequest, "error parsing limit")
		}
	}
	return nil, a.copyFile(w, r, offset, limit)
}

func (a *API) copyFile(w http.ResponseWriter, r *http.Request, offset, limit int64) error {
	root, name, err := a.within(r)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(name)
	if err != nil {
		return notFound(err, name)
	}
	if !info.Mode().IsRegular() {
		return refuse(http.StatusBadRequest, "file %q is not a regular file", name)
	}
	f, err := root.Open(name)
	if err != nil {
		return notFound(err, name)
	}
	defer func() { _ = f.Close() }()
	if limit < 0 {
		limit = info.Size()
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.Copy(w, io.NewSectionReader(f, offset, limit))
	return nil
}
