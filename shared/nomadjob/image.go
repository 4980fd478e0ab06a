// SPDX-License-Identifier: MPL-2.0

package nomadjob

// Image is a pinned sandbox image, as its record keeps it.
type Image struct {
	Description string `json:"description,omitempty"`
	Kind        string `json:"kind"`
	// Reference is the name that was asked for; Written says that a user wrote it, where it
	// is not the default of its kind.
	Reference string `json:"reference"`
	Written   bool   `json:"reference_written,omitempty"`
	Digest    string `json:"digest"`
	// Image is what a screen's task runs: NAME@DIGEST.
	Image string `json:"image"`
	// Source is where the digest is looked up. OnDefaultChange, Decided and Decision are what
	// was said about the digests that were offered.
	Source          string `json:"source,omitempty"`
	OnDefaultChange string `json:"on_default_change,omitempty"`
	Decided         string `json:"decided_digest,omitempty"`
	Decision        string `json:"decision,omitempty"`
}

// Catalog is the default image of a kind in a cluster, written by whoever rolls out the
// driver.
type Catalog struct {
	Reference string `json:"reference"`
	Digest    string `json:"digest,omitempty"`
	SetAt     string `json:"set_at,omitempty"`
}

// DefaultImages are the references where neither a user nor a catalog says otherwise.
var DefaultImages = map[string]string{
	"docker":    "ghcr.io/botscreen/botscreen-desktop:stable",
	"apptainer": "oras://ghcr.io/botscreen/botscreen-desktop-sif:stable",
}
