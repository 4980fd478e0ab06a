// SPDX-License-Identifier: MPL-2.0

package lease

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/screen"
)

func TestEncodeDecode(t *testing.T) {
	for _, l := range []Lease{
		First(noon), unknown("lost\nfor ever", 5, noon),
		{Holder: Human, Viewer: ViewerID(strings.Repeat("<", maxViewerID)), Since: noon, Reason: screen.Distrust(strings.Repeat("<", 300)), Epoch: MaxEpoch, Away: noon.Add(time.Minute)},
	} {
		text, err := encode(l)
		if err != nil || len(text) > fileSize {
			t.Fatal(err)
		}
		if back, err := decode(text); err != nil || !reflect.DeepEqual(back, l) {
			t.Errorf("%+v came back as %+v, %v", l, back, err)
		}
	}
}

// FuzzDecode: what is believed is a whole lease and can be written again.
func FuzzDecode(f *testing.F) {
	names, _ := filepath.Glob("testdata/lease-*.json")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"v":1,"holder":"agent","since":"2026-05-01T12:00:00Z","epoch":7}`))
	f.Add([]byte("\xef\xbb\xbf" + `{"v":1,"holder":"human","viewer":"a","epoch":7,"away_since":"2026-05-01T12:00:00+02:00"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		decodeMark(text)
		l, err := decode(text)
		if err != nil {
			return
		}
		if !l.Holder.Valid() || l.Epoch == 0 || l.Epoch > MaxEpoch || l.Holder == Agent && l.Viewer != "" {
			t.Fatalf("believed %+v", l)
		}
		again, err := encode(l)
		if err != nil {
			return // a year that JSON cannot carry
		}
		back, err := decode(again)
		if err != nil || back.Epoch != l.Epoch || back.Holder != l.Holder || !back.Since.Equal(l.Since) || !back.Away.Equal(l.Away) {
			t.Fatalf("%+v came back as %+v, %v", l, back, err)
		}
	})
}
