// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"context"
	"runtime/debug"
	"strings"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// guard stands before every call: one panicking call must not end the desktops' only manager.
type guard struct {
	logger hclog.Logger
	// first comes before the first call of all, used when the agent has made use of the
	// driver. Both come again with each later one.
	first, used func()
	// call comes before every call, and what it returns after.
	call func() (done func())
}

func (g *guard) before(method string) (done func()) {
	g.first()
	if uses(method) {
		g.used()
	}
	return g.call()
}

func (g *guard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	defer g.before(info.FullMethod)()
	defer g.recover(info.FullMethod, &err)
	return next(ctx, req)
}

func (g *guard) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer g.before(info.FullMethod)()
	defer g.recover(info.FullMethod, &err)
	return next(srv, stream)
}

func (g *guard) recover(method string, err *error) {
	cause := recover()
	if cause == nil {
		return
	}
	name := method[strings.LastIndexByte(method, '/')+1:]
	g.logger.Error("call panicked", "call", name, "cause", cause, "stack", string(debug.Stack()))
	*err = status.Errorf(codes.Unknown, "%s: panic in the driver: %v", name, cause)
}

// cleanText cuts invalid UTF-8 out of every string of a message, in place. Protobuf refuses to send
// such a string, and texts here quote what programs printed.
func cleanText(m protoreflect.Message) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case fd.IsMap():
			cleanMap(fd, v.Map())
		case fd.IsList():
			cleanList(fd, v.List())
		case fd.Message() != nil:
			cleanText(v.Message())
		case fd.Kind() == protoreflect.StringKind:
			if clean, changed := validText(v.String()); changed {
				m.Set(fd, protoreflect.ValueOfString(clean))
			}
		}
		return true
	})
}

func cleanMap(fd protoreflect.FieldDescriptor, m protoreflect.Map) {
	m.Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
		switch fd.MapValue().Kind() {
		case protoreflect.MessageKind:
			cleanText(v.Message())
		case protoreflect.StringKind:
			if clean, changed := validText(v.String()); changed {
				v = protoreflect.ValueOfString(clean)
				m.Set(key, v)
			}
		}
		if fd.MapKey().Kind() != protoreflect.StringKind {
			return true
		}
		if clean, changed := validText(key.String()); changed {
			m.Clear(key)
			m.Set(protoreflect.ValueOfString(clean).MapKey(), v)
		}
		return true
	})
}

func cleanList(fd protoreflect.FieldDescriptor, l protoreflect.List) {
	for i := range l.Len() {
		switch fd.Kind() {
		case protoreflect.MessageKind:
			cleanText(l.Get(i).Message())
		case protoreflect.StringKind:
			if clean, changed := validText(l.Get(i).String()); changed {
				l.Set(i, protoreflect.ValueOfString(clean))
			}
		}
	}
}

func validText(s string) (clean string, changed bool) {
	clean = strings.ToValidUTF8(s, "\uFFFD")
	return clean, clean != s
}
