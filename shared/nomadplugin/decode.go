// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// DecodeConfig decodes the configuration that an agent sends, a plugin's or a task's, into the
// struct that into points to. Fields are matched by their `codec` tag; keys without a field are
// ignored. A nil overwrites a field with its zero value, so defaults belong into the schema. Empty
// data leaves everything as it is: a plugin without configuration.
//
// Values convert as MessagePack allows; the error names every key whose value does not, for example a
// fraction for a whole number. Fractions such as 0.1 arrive as text and need a field of type any or
// string.
func DecodeConfig(data []byte, into any) (err error) {
	if len(data) == 0 {
		return nil
	}
	defer func() {
		// The decoder reports some malformed input by panicking.
		if cause := recover(); cause != nil {
			err = fmt.Errorf("decode configuration: malformed MessagePack: %v", cause)
		}
	}()
	rest := bytes.NewReader(data)
	decoder := codec.NewDecoder(rest, configHandle())
	err = decoder.Decode(into)
	if err == nil {
		return nil
	}
	if faults := misfits(data, into); faults != nil {
		return fmt.Errorf("decode configuration: %w", faults)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("decode configuration: MessagePack ends early")
	}
	return fmt.Errorf("decode configuration: %s", strings.TrimPrefix(err.Error(), "msgpack decode error "))
}

// configHandle decodes as the agent encodes: text is string also inside any, maps have string keys,
// and only codec tags count.
func configHandle() *codec.MsgpackHandle {
	handle := &codec.MsgpackHandle{}
	handle.RawToString = true
	handle.MapType = reflect.TypeFor[map[string]any]()
	handle.TypeInfos = codec.NewTypeInfos([]string{"codec"})
	handle.TimeNotBuiltin = true
	return handle
}
