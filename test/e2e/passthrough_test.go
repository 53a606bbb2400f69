package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// raw is a codec that leaves messages as they are on the wire.
type raw struct{}

var _ encoding.CodecV2 = raw{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// ask makes a unary call and returns the reply's bytes.
func ask(ctx context.Context, c *grpc.ClientConn, method string, request proto.Message) ([]byte, error) {
	in, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	var out []byte
	err = c.Invoke(ctx, method, &in, &out, grpc.ForceCodecV2(raw{}))
	return out, err
}

// stream makes a call that is answered by a stream and returns the replies' bytes.
func stream(ctx context.Context, c *grpc.ClientConn, method string, request proto.Message) (all [][]byte, err error) {
	in, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	s, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method, grpc.ForceCodecV2(raw{}))
	if err != nil {
		return nil, err
	}
	if err := s.SendMsg(&in); err != nil {
		return nil, err
	}
	if err := s.CloseSend(); err != nil {
		return nil, err
	}
	for {
		var out []byte
		if err := s.RecvMsg(&out); err != nil {
			return all, err
		}
		all = append(all, out)
	}
}

// TestOrdinaryPodsAreUntouched compares with containerd's own replies, while
// there is a VM beside the ordinary pod. Maps of more than one entry have no
// order on the wire: the pod has none.
func TestOrdinaryPodsAreUntouched(t *testing.T) {
	t.Parallel()
	vmPod(t).vm(suite.halt).start()
	p := runPod(t, "", func(c *runtimeapi.PodSandboxConfig) {
		c.Labels = map[string]string{"only": "one"}
		c.Annotations = map[string]string{"of": "an ordinary pod"}
	})
	config := p.newContainer("c", suite.busybox)
	config.Command, config.Labels = []string{"sleep", "1000000"}, map[string]string{"only": "one"}
	c := p.create(config).start()
	image := &runtimeapi.ImageSpec{Image: suite.busybox}
	for _, call := range []struct {
		method  string
		request proto.Message
	}{
		{runtimeapi.RuntimeService_Version_FullMethodName, &runtimeapi.VersionRequest{}},
		{runtimeapi.RuntimeService_RuntimeConfig_FullMethodName, &runtimeapi.RuntimeConfigRequest{}},
		{runtimeapi.RuntimeService_ListPodSandbox_FullMethodName, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{Id: p.id}}},
		{runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id}},
		{runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id, Verbose: true}},
		{runtimeapi.RuntimeService_ListContainers_FullMethodName, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: p.id}}},
		{runtimeapi.RuntimeService_ListContainers_FullMethodName, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: c.id}}},
		{runtimeapi.RuntimeService_ContainerStatus_FullMethodName, &runtimeapi.ContainerStatusRequest{ContainerId: c.id}},
		{runtimeapi.RuntimeService_ContainerStatus_FullMethodName, &runtimeapi.ContainerStatusRequest{ContainerId: c.id, Verbose: true}},
		{runtimeapi.ImageService_ImageStatus_FullMethodName, &runtimeapi.ImageStatusRequest{Image: image}},
	} {
		want, err := ask(t.Context(), suite.containerd, call.method, call.request)
		assert.NilError(t, err)
		got, err := ask(t.Context(), suite.shim, call.method, call.request)
		assert.NilError(t, err)
		if len(want) == 0 || !bytes.Equal(got, want) {
			t.Errorf("%s %v: containerd says\n%q\nthe shim\n%q", call.method, call.request, want, got)
		}
	}
	for method, request := range map[string]proto.Message{
		runtimeapi.RuntimeService_StreamPodSandboxes_FullMethodName: &runtimeapi.StreamPodSandboxesRequest{Filter: &runtimeapi.PodSandboxFilter{Id: p.id}},
		runtimeapi.RuntimeService_StreamContainers_FullMethodName:   &runtimeapi.StreamContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: p.id}},
	} {
		want, wantErr := stream(t.Context(), suite.containerd, method, request)
		got, gotErr := stream(t.Context(), suite.shim, method, request)
		if len(want) == 0 || fmt.Sprintf("%q %v", got, gotErr) != fmt.Sprintf("%q %v", want, wantErr) {
			t.Errorf("%s: containerd says\n%q, %v\nthe shim\n%q, %v", method, want, wantErr, got, gotErr)
		}
	}
	// containerd lists images in no order.
	images, err := stream(t.Context(), suite.shim, runtimeapi.ImageService_StreamImages_FullMethodName, &runtimeapi.StreamImagesRequest{})
	if len(images) == 0 || !errors.Is(err, io.EOF) || !bytes.Contains(images[0], []byte(suite.busybox)) {
		t.Errorf("streamed images: %q, %v", images, err)
	}
	// What is the VMs' comes behind what is containerd's.
	want, err := ask(t.Context(), suite.containerd, runtimeapi.RuntimeService_Status_FullMethodName, &runtimeapi.StatusRequest{})
	assert.NilError(t, err)
	got, err := ask(t.Context(), suite.shim, runtimeapi.RuntimeService_Status_FullMethodName, &runtimeapi.StatusRequest{})
	assert.NilError(t, err)
	if !bytes.HasPrefix(got, want) {
		t.Errorf("Status: containerd says\n%q\nthe shim\n%q", want, got)
	}
}

// TestErrorsAreContainerds asks each unary RPC for what there isn't.
func TestErrorsAreContainerds(t *testing.T) {
	t.Parallel()
	vmPod(t).vm(suite.halt)
	failed := 0
	for _, service := range []protoreflect.FullName{"runtime.v1.RuntimeService", "runtime.v1.ImageService"} {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(service)
		assert.NilError(t, err)
		methods := found.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			m := methods.Get(i)
			if m.IsStreamingServer() {
				continue
			}
			method := fmt.Sprintf("/%s/%s", service, m.Name())
			request := ofNothing(m.Input())
			_, want := ask(t.Context(), suite.containerd, method, request)
			_, got := ask(t.Context(), suite.shim, method, request)
			if !proto.Equal(status.Convert(got).Proto(), status.Convert(want).Proto()) {
				t.Errorf("%s %v: containerd says\n%v\nthe shim\n%v", method, request, want, got)
			}
			if want != nil {
				failed++
			}
		}
	}
	if failed < 15 {
		t.Errorf("only %d RPCs failed", failed)
	}
}

// ofNothing is a request that names a container, a pod and an image that don't
// exist, where it has a field for them.
func ofNothing(kind protoreflect.MessageDescriptor) proto.Message {
	m := dynamicpb.NewMessage(kind)
	for i := range kind.Fields().Len() {
		f := kind.Fields().Get(i)
		switch {
		case f.Kind() == protoreflect.StringKind && !f.IsList() && strings.HasSuffix(string(f.Name()), "_id"):
			m.Set(f, protoreflect.ValueOfString("no-such-"+strings.TrimSuffix(string(f.Name()), "_id")))
		case f.Name() == "image" && f.Kind() == protoreflect.MessageKind:
			image := m.Mutable(f).Message()
			image.Set(image.Descriptor().Fields().ByName("image"), protoreflect.ValueOfString(suite.RegistryAddress()+"/no-such:image"))
		}
	}
	return m
}

func TestUnknownCallsAreContainerds(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"/runtime.v1.RuntimeService/NoSuch", "/runtime.v9.RuntimeService/Version"} {
		_, want := ask(t.Context(), suite.containerd, method, &runtimeapi.VersionRequest{})
		_, got := ask(t.Context(), suite.shim, method, &runtimeapi.VersionRequest{})
		if status.Code(want) != codes.Unimplemented || !proto.Equal(status.Convert(got).Proto(), status.Convert(want).Proto()) {
			t.Errorf("%s: containerd says %v, the shim %v", method, want, got)
		}
		_, want = stream(t.Context(), suite.containerd, method, &runtimeapi.VersionRequest{})
		_, got = stream(t.Context(), suite.shim, method, &runtimeapi.VersionRequest{})
		if status.Code(want) != codes.Unimplemented || !proto.Equal(status.Convert(got).Proto(), status.Convert(want).Proto()) {
			t.Errorf("%s as a stream: containerd says %v, the shim %v", method, want, got)
		}
	}
}
