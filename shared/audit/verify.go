// SPDX-License-Identifier: MPL-2.0

package audit

import (
	"bytes"
	"fmt"
)

// BrokenError says where the chain does not hold.
type BrokenError struct {
	Line   int // from 1, of what is kept
	Reason string
}

func (e *BrokenError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

// Verify returns the lines of text, in their order, and a *BrokenError for the first
// that was edited, moved, or follows one that was removed. The first line that is kept
// may be any: those before it have been put away. With a head, a file that ends before
// it is broken too.
func Verify(text []byte, head Head) ([]Entry, error) {
	var entries []Entry
	var last Hash
	seen := head.Seq == 0
	line := 0
	for raw := range bytes.Lines(text) {
		line++
		raw, whole := bytes.CutSuffix(raw, []byte("\n"))
		e, err := parse(raw)
		switch {
		case !whole:
			return entries, &BrokenError{line, "it is cut off"}
		case err != nil:
			return entries, &BrokenError{line, "it " + err.Error()}
		case line > 1 && e.Previous != last:
			return entries, &BrokenError{line, "the line before it is not the one it was written after"}
		case line > 1 && e.Seq != entries[line-2].Seq+1:
			return entries, &BrokenError{line, fmt.Sprintf("it has the number %d after %d", e.Seq, entries[line-2].Seq)}
		case line == 1 && (e.Seq == 1) != (e.Previous == ""):
			return entries, &BrokenError{line, "it is not the first that was written"}
		}
		last = hashOf(raw)
		if e.Seq == head.Seq {
			if last != head.Hash {
				return entries, &BrokenError{line, "it is not what was written"}
			}
			seen = true
		}
		entries = append(entries, e)
	}
	if !seen {
		return entries, &BrokenError{line + 1, fmt.Sprintf("the line with the number %d is missing", head.Seq)}
	}
	return entries, nil
}
