// SPDX-License-Identifier: MPL-2.0

package nomadjob

import "strings"

// Image is a pinned sandbox image, as its record keeps it.
type Image struct {
	Description string `json:"description,omitempty"`
	Kind        string `json:"kind"`
	Reference   string `json:"reference"`
	Digest      string `json:"digest"`
}

// Pinned is the image as a screen's task names it, REPOSITORY@DIGEST; empty without a
// digest.
func (i Image) Pinned() string {
	if i.Digest == "" {
		return ""
	}
	repository, _, _ := strings.Cut(i.Reference, "@")
	if at := strings.LastIndexByte(repository, ':'); at > strings.LastIndexByte(repository, '/') {
		repository = repository[:at]
	}
	return repository + "@" + i.Digest
}
