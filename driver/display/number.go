// SPDX-License-Identifier: MPL-2.0

// Package display picks X display numbers: which are in use, which this start may have, and the files that go
// with a number (lock, sockets, Xauthority).
//
// /tmp belongs to everybody. Nothing here follows a link there, believes a lock file whose process it has not
// looked at, or removes anything that a living process may own.
package display

import (
	"fmt"
	"iter"
	"strconv"
	"strings"
)

// Number is an X display number: 20 is the display that clients call ":20".
type Number int

const (
	// None is no number: a caller without a preference.
	None Number = -1

	// lowest keeps the band off the displays of people who sit at the machine.
	lowest Number = 10
	// highest is where 6000 plus the number, X's TCP port, would pass 65535.
	highest Number = 59535
	// everybodys is the number that scripts give to Xvfb without looking; it is never picked from a band.
	everybodys Number = 99
)

// String is the number as clients write it, ":20".
func (n Number) String() string { return ":" + strconv.Itoa(int(n)) }

// LockPath is the number's lock file below the temporary directory tmp, usually /tmp.
func (n Number) LockPath(tmp string) string { return tmp + "/" + n.lockName() }

func (n Number) lockName() string   { return ".X" + strconv.Itoa(int(n)) + "-lock" }
func (n Number) socketName() string { return "X" + strconv.Itoa(int(n)) }

// Band is a range of numbers, both ends included.
type Band struct {
	First, Last Number
}

// DefaultBand stays clear of real seats below and of everybody's Xvfb above.
var DefaultBand = Band{First: 20, Last: 89}

// ParseBand reads a band as the plugin's option `displays` has it, "20-89". A single number is a band of one.
func ParseBand(text string) (Band, error) {
	first, last, ranged := strings.Cut(text, "-")
	if !ranged {
		last = first
	}
	f, err1 := parseNumber(first)
	l, err2 := parseNumber(last)
	if err1 != nil || err2 != nil {
		return Band{}, fmt.Errorf("displays: %q is not a band of display numbers, want one like \"%d-%d\"",
			text, DefaultBand.First, DefaultBand.Last)
	}
	b := Band{First: f, Last: l}
	switch {
	case l < f:
		return Band{}, fmt.Errorf("displays: band %q ends before it begins", text)
	case f < lowest || l > highest:
		return Band{}, fmt.Errorf("displays: band %q leaves %d to %d (below are the machine's own seats)", text, lowest, highest)
	case b.Len() == 0:
		return Band{}, fmt.Errorf("displays: band %q is %s alone, which is left to Xvfb", text, everybodys)
	}
	return b, nil
}

// parseNumber takes digits only: strconv alone would also take a sign.
func parseNumber(text string) (Number, error) {
	if text == "" || len(text) > 5 || strings.Trim(text, "0123456789") != "" {
		return None, fmt.Errorf("%q is not a display number", text)
	}
	n, err := strconv.Atoi(text)
	return Number(n), err
}

// String is the band as [ParseBand] reads it.
func (b Band) String() string {
	if b.First == b.Last {
		return strconv.Itoa(int(b.First))
	}
	return fmt.Sprintf("%d-%d", int(b.First), int(b.Last))
}

// All walks through the numbers of the band that may be picked, lowest first.
func (b Band) All() iter.Seq[Number] {
	return func(yield func(Number) bool) {
		for n := b.First; n <= b.Last; n++ {
			if n != everybodys && !yield(n) {
				return
			}
		}
	}
}

// Contains reports whether n may be picked from the band.
func (b Band) Contains(n Number) bool {
	return b.First <= n && n <= b.Last && n != everybodys
}

// Len is how many numbers may be picked from the band.
func (b Band) Len() int {
	n := int(b.Last - b.First + 1)
	if b.First <= everybodys && everybodys <= b.Last {
		n--
	}
	return n
}
