// SPDX-License-Identifier: MPL-2.0

package screen

import (
	"fmt"
	"strconv"

	"github.com/botscreen/botscreen/shared/form"
)

// Bounds of a desktop's size in pixels: below, Xfce's panel no longer fits;
// above, one picture costs more than 128 MiB (threats.md X31).
const (
	MinWidthPx, MinHeightPx = 320, 240
	MaxWidthPx, MaxHeightPx = 7680, 4320
)

// Geometry is the size of a desktop in pixels.
type Geometry struct {
	WidthPx, HeightPx int
}

func (g Geometry) String() string { return fmt.Sprintf("%dx%d", g.WidthPx, g.HeightPx) }

// MarshalText writes the form users type, "1440x900"; no geometry is empty text.
func (g Geometry) MarshalText() ([]byte, error) {
	if g == (Geometry{}) {
		return nil, nil
	}
	return []byte(g.String()), nil
}

// UnmarshalText reads what MarshalText writes and checks the bounds.
func (g *Geometry) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*g = Geometry{}
		return nil
	}
	parsed, err := ParseGeometry(string(text))
	if err != nil {
		return err
	}
	*g = parsed
	return nil
}

var geometryForm = form.Of(`^([0-9]{1,5})x([0-9]{1,5})$`)

var geometryWant = fmt.Sprintf("must be WIDTHxHEIGHT in pixels, from %dx%d to %dx%d",
	MinWidthPx, MinHeightPx, MaxWidthPx, MaxHeightPx)

// ParseGeometry reads "1440x900". The error is a FieldError for "geometry".
func ParseGeometry(text string) (Geometry, error) {
	fault := FieldError{Field: "geometry", Value: text, Want: geometryWant}
	parts := geometryForm().FindStringSubmatch(text)
	if parts == nil {
		return Geometry{}, fault
	}
	width, _ := strconv.Atoi(parts[1]) // the form admits only short digit runs
	height, _ := strconv.Atoi(parts[2])
	if width < MinWidthPx || width > MaxWidthPx || height < MinHeightPx || height > MaxHeightPx {
		return Geometry{}, fault
	}
	return Geometry{WidthPx: width, HeightPx: height}, nil
}
