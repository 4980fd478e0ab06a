// SPDX-License-Identifier: MPL-2.0

// Package image knows sandbox images by name and finds out which digest a name has now: at
// a registry, in a docker engine, or of an image file.
package image

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/distribution/reference"
)

// Kind is which sandbox runs an image.
type Kind string

// Kinds of images.
const (
	Docker    Kind = "docker"
	Apptainer Kind = "apptainer"
)

// Reference is the name of an image, taken apart. A registry's port is never taken for a
// tag, and tag and digest may both be there: then the digest counts.
type Reference struct {
	// Scheme is empty, or the transport that apptainer is to use: oras or docker.
	Scheme string
	// Registry is empty where the reference names none.
	Registry   string
	Repository string
	Tag        string
	Digest     string // sha256:…, or empty
	// File is the path of an image file; then there is nothing else but a digest.
	File string
}

const maxReference = 512

var (
	digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	schemeForm = regexp.MustCompile(`^(oras|docker)://`)
)

// ValidDigest says whether a text is a digest that can pin an image.
func ValidDigest(text string) bool { return digestForm.MatchString(text) }

// Parse reads a reference. Errors say what is wrong in words for a person.
func Parse(kind Kind, text string) (Reference, error) {
	var r Reference
	if text == "" || len(text) > maxReference {
		return r, fmt.Errorf("must be 1 to %d bytes", maxReference)
	}
	if strings.HasPrefix(text, "/") {
		return parseFile(kind, text)
	}
	name := text
	if scheme := schemeForm.FindString(text); scheme != "" {
		if kind != Apptainer {
			return r, errors.New("has a transport, which only apptainer knows")
		}
		r.Scheme = strings.TrimSuffix(scheme, "://")
		name = strings.TrimPrefix(text, scheme)
	}
	parsed, err := reference.Parse(name)
	if err != nil {
		return Reference{}, words(err)
	}
	named, ok := parsed.(reference.Named)
	if !ok {
		return Reference{}, errors.New("names no repository")
	}
	if tagged, ok := parsed.(reference.Tagged); ok {
		r.Tag = tagged.Tag()
	}
	if digested, ok := parsed.(reference.Digested); ok {
		r.Digest = digested.Digest().String()
		if !ValidDigest(r.Digest) {
			return Reference{}, errors.New("must be pinned by sha256: and 64 hex digits")
		}
	}
	r.Registry, r.Repository = split(named.Name())
	return r, nil
}

func parseFile(kind Kind, text string) (Reference, error) {
	path, digest, pinned := strings.Cut(text, "@")
	switch {
	case kind != Apptainer:
		return Reference{}, errors.New("is a file, which only apptainer runs")
	case path != filepath.Clean(path) || strings.ContainsAny(path, "\x00\n"):
		return Reference{}, errors.New("must be a clean absolute path")
	case pinned && !ValidDigest(digest):
		return Reference{}, errors.New("must be pinned by sha256: and 64 hex digits")
	}
	return Reference{File: path, Digest: digest}, nil
}

// split takes the registry off a repository's name: a first part with a dot or a port, or
// "localhost", as docker reads it.
func split(name string) (registry, repository string) {
	first, rest, found := strings.Cut(name, "/")
	if found && (strings.ContainsAny(first, ".:") || first == "localhost") {
		return first, rest
	}
	return "", name
}

func words(err error) error {
	switch {
	case errors.Is(err, reference.ErrNameContainsUppercase):
		return errors.New("has upper-case letters in the repository; registries know only lower case")
	case errors.Is(err, reference.ErrDigestInvalidFormat), errors.Is(err, reference.ErrReferenceInvalidFormat):
		return errors.New("is no image reference such as \"registry.example/desk:1.4\" or \"desk@sha256:…\" with 64 hex digits")
	}
	return errors.New("is no image reference: " + strings.TrimSuffix(err.Error(), "."))
}

// Name is the reference without tag and digest.
func (r Reference) Name() string {
	name := r.Repository
	if r.Registry != "" {
		name = r.Registry + "/" + name
	}
	switch {
	case r.File != "":
		return r.File
	case r.Scheme != "":
		return r.Scheme + "://" + name
	}
	return name
}

// Pinned is the one form in which an image with a digest is named: NAME@DIGEST.
func (r Reference) Pinned(digest string) string { return r.Name() + "@" + digest }
