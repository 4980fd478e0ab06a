// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/botscreen/botscreen/shared/nomadplugin/hclspec"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/basepb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/hclspecpb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/structspb"
)

func protoFiles() []protoreflect.FileDescriptor {
	return []protoreflect.FileDescriptor{
		basepb.File_plugins_base_proto_base_proto,
		driverpb.File_plugins_drivers_proto_driver_proto,
		hclspecpb.File_plugins_shared_hclspec_hcl_spec_proto,
		structspb.File_plugins_shared_structs_proto_attribute_proto,
		structspb.File_plugins_shared_structs_proto_recoverable_error_proto,
		structspb.File_plugins_shared_structs_proto_stats_proto,
	}
}

// testdata/schema.golden was written from the tables of the protocol's specification, not from our
// .proto files.
func TestC01_descriptors_match_the_specification(t *testing.T) {
	var got []string
	for _, file := range protoFiles() {
		got = append(got, dumpFile(file)...)
	}
	slices.Sort(got)
	golden, err := os.ReadFile("testdata/schema.golden")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(golden)), "\n")
	slices.Sort(want)
	for _, line := range want {
		if _, found := slices.BinarySearch(got, line); !found {
			t.Errorf("missing: %s", line)
		}
	}
	for _, line := range got {
		if _, found := slices.BinarySearch(want, line); !found {
			t.Errorf("not in the specification: %s", line)
		}
	}
}

func dumpFile(file protoreflect.FileDescriptor) []string {
	var imports []string
	for i := range file.Imports().Len() {
		imports = append(imports, file.Imports().Get(i).Path())
	}
	slices.Sort(imports)
	if imports == nil {
		imports = []string{"-"}
	}
	out := []string{fmt.Sprintf("file %s package %s imports %s", file.Path(), file.Package(), strings.Join(imports, ","))}
	for i := range file.Services().Len() {
		out = append(out, dumpService(file.Services().Get(i))...)
	}
	out = append(out, dumpEnums(file.Enums())...)
	return append(out, dumpMessages(file.Messages())...)
}

func dumpService(service protoreflect.ServiceDescriptor) (out []string) {
	stream := func(is bool) string {
		if is {
			return "stream "
		}
		return ""
	}
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		out = append(out, fmt.Sprintf("rpc %s %s%s -> %s%s", m.FullName(), stream(m.IsStreamingClient()),
			m.Input().Name(), stream(m.IsStreamingServer()), m.Output().Name()))
	}
	return out
}

func dumpEnums(enums protoreflect.EnumDescriptors) (out []string) {
	for i := range enums.Len() {
		values := enums.Get(i).Values()
		for j := range values.Len() {
			out = append(out, fmt.Sprintf("enum %s %s %d", enums.Get(i).FullName(), values.Get(j).Name(), values.Get(j).Number()))
		}
	}
	return out
}

func dumpMessages(messages protoreflect.MessageDescriptors) (out []string) {
	for i := range messages.Len() {
		m := messages.Get(i)
		if m.IsMapEntry() {
			continue
		}
		out = append(out, fmt.Sprintf("message %s", m.FullName()))
		for j := range m.ReservedRanges().Len() {
			out = append(out, fmt.Sprintf("reserved %s %d %s", m.FullName(), m.ReservedRanges().Get(j)[0], m.ReservedNames().Get(j)))
		}
		for j := range m.Fields().Len() {
			out = append(out, dumpField(m, m.Fields().Get(j)))
		}
		out = append(out, dumpEnums(m.Enums())...)
		out = append(out, dumpMessages(m.Messages())...)
	}
	return out
}

func dumpField(m protoreflect.MessageDescriptor, f protoreflect.FieldDescriptor) string {
	kind := func(f protoreflect.FieldDescriptor) string {
		switch {
		case f.Message() != nil:
			return string(f.Message().FullName())
		case f.Enum() != nil:
			return string(f.Enum().FullName())
		default:
			return f.Kind().String()
		}
	}
	typ := kind(f)
	switch {
	case f.IsMap():
		typ = fmt.Sprintf("map<%s,%s>", kind(f.MapKey()), kind(f.MapValue()))
	case f.IsList():
		typ = "repeated " + typ
		if f.IsPacked() {
			typ += " packed"
		}
	}
	if oneof := f.ContainingOneof(); oneof != nil {
		typ += " oneof=" + string(oneof.Name())
	}
	return fmt.Sprintf("field %s %d %s %s", m.FullName(), f.Number(), f.Name(), typ)
}

func goldenMessages() map[string]proto.Message {
	op := structspb.Attribute{Value: &structspb.Attribute_IntVal{IntVal: 5}, Unit: "MiB"}
	return map[string]proto.Message{
		"0802120676302e312e301a05302e312e302209626f7473637265656e": &basepb.PluginInfoResponse{
			Type: basepb.PluginType_DRIVER, PluginApiVersions: []string{"v0.1.0"}, PluginVersion: "0.1.0", Name: "botscreen"},
		"0a1008011001180222020001300140014801": &driverpb.CapabilitiesResponse{Capabilities: &driverpb.DriverCapabilities{
			SendSignals: true, Exec: true, FsIsolation: driverpb.DriverCapabilities_IMAGE,
			NetworkIsolationModes: []driverpb.NetworkIsolationSpec_NetworkIsolationMode{
				driverpb.NetworkIsolationSpec_HOST, driverpb.NetworkIsolationSpec_GROUP},
			MountConfigs:         driverpb.DriverCapabilities_NO_MOUNTS,
			DisableLogCollection: true, DynamicWorkloadUsers: true}},
		"0a150a0a6472697665722e782e7612072a034d6942100510021a074865616c746879": &driverpb.FingerprintResponse{
			Attributes: map[string]*structspb.Attribute{"driver.x.v": &op},
			Health:     driverpb.FingerprintResponse_HEALTHY, HealthDescription: "Healthy"},
		"0a2c0a2a0a07656e61626c6564121f4a1d0a111a0f0a07656e61626c65641204626f6f6c120852060a0474727565": hclspec.Object(hclspec.Fields{
			"enabled": hclspec.Default(hclspec.Attr("enabled", "bool"), hclspec.Bool(true))}),
		"0a110a05612f742f311202736812022d631801": &driverpb.ExecTaskStreamingRequest{Setup: &driverpb.ExecTaskStreamingRequest_Setup{
			TaskId: "a/t/1", Command: []string{"sh", "-c"}, Tty: true}},
		"18012200":                       &driverpb.ExecTaskStreamingResponse{Exited: true, Result: &driverpb.ExitResult{}},
		"186441000000000000e03f4a022f63": &driverpb.LinuxResources{CpuShares: 100, PercentTicks: 0.5, CpusetCgroup: "/c"},
		"0801320300050638024003": &driverpb.MemoryUsage{Rss: 1, Usage: 2, Swap: 3, MeasuredFields: []driverpb.MemoryUsage_Fields{
			driverpb.MemoryUsage_RSS, driverpb.MemoryUsage_USAGE, driverpb.MemoryUsage_SWAP}},
		"0a0708890110091801": &driverpb.WaitTaskResponse{Result: &driverpb.ExitResult{ExitCode: 137, Signal: 9, OomKilled: true}},
		"0801120b0a05612f742f31b20101701801220178": &driverpb.TaskHandle{Version: 1,
			Config: &driverpb.TaskConfig{Id: "a/t/1", ParentJobId: "p"}, State: driverpb.TaskState_RUNNING, DriverState: []byte("x")},
		"0a022f7412022f6818012207707269766174652a017a320172": &driverpb.Mount{TaskPath: "/t", HostPath: "/h", Readonly: true,
			PropagationMode: "private", SelinuxLabel: "z", RequestName: "r"},
		"080112022f6e1a060a016b12017622060a0168120161": &driverpb.NetworkIsolationSpec{Mode: driverpb.NetworkIsolationSpec_GROUP,
			Path: "/n", Labels: map[string]string{"k": "v"}, HostsConfig: &driverpb.HostsConfig{Hostname: "h", Address: "a"}},
	}
}

func TestC02_golden_bytes(t *testing.T) {
	for text, msg := range goldenMessages() {
		golden, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		read := msg.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(golden, read); err != nil || !proto.Equal(read, msg) {
			t.Errorf("%T read from %s: %v, %v: want %v", msg, text, read, err, msg)
		}
		written, err := proto.MarshalOptions{Deterministic: true}.Marshal(msg)
		if err != nil {
			t.Fatal(err)
		}
		// The place of a oneof in the output is the generator's choice, so a fingerprint is compared
		// by length; it was compared by content above.
		if _, oneof := msg.(*driverpb.FingerprintResponse); oneof {
			if len(written) != len(golden) {
				t.Errorf("%T written as %x: want the length of %x", msg, written, golden)
			}
			continue
		}
		if hex.EncodeToString(written) != text {
			t.Errorf("%T written as %x: want %s", msg, written, text)
		}
	}
}

func TestC03_mounts_are_supported_by_default(t *testing.T) {
	if driverpb.DriverCapabilities_ANY_MOUNTS != 0 || driverpb.DriverCapabilities_UNKNOWN_MOUNTS != 0 {
		t.Error("value 0 of mount_configs must mean that mounts are supported")
	}
}

func TestC04_unknown_fields_are_tolerated(t *testing.T) {
	data, err := proto.Marshal(&driverpb.TaskConfig{Id: "a/t/1"})
	if err != nil {
		t.Fatal(err)
	}
	data = protowire.AppendTag(data, 4000, protowire.BytesType)
	data = protowire.AppendString(data, "of a later release")
	read := &driverpb.TaskConfig{}
	if err := proto.Unmarshal(data, read); err != nil || read.Id != "a/t/1" {
		t.Errorf("got %v, %v", read, err)
	}
}

func TestC05_recoverable_error_golden(t *testing.T) {
	const golden = "0809120974727920616761696e1a510a4b747970652e676f6f676c65617069732e636f6d2f6861736869636f72702e6e6f6d61642e706c7567696e732e7368617265642e737472756374732e5265636f76657261626c654572726f7212020801"
	st := status.Convert(recoverableStatus("try again", true))
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(st.Proto())
	if err != nil {
		t.Fatal(err)
	}
	if hex.EncodeToString(data) != golden {
		t.Errorf("got %x", data)
	}
	if !IsRecoverable(st.Err()) || IsRecoverable(recoverableStatus("x", false)) {
		t.Error("the detail decides")
	}
	second, err := status.New(codes.FailedPrecondition, "x").WithDetails(&driverpb.ExitResult{}, &structspb.RecoverableError{Recoverable: true})
	if err != nil {
		t.Fatal(err)
	}
	if IsRecoverable(second.Err()) {
		t.Error("C41: a detail at index 1 must be ignored")
	}
}
