package criwalk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"gotest.tools/v3/assert"
)

// The services of CRI.
var services = []protoreflect.FullName{"runtime.v1.RuntimeService", "runtime.v1.ImageService"}

// methods are all RPCs of CRI, by their names without a service: no two have the same.
func methods(t *testing.T) map[string]protoreflect.MethodDescriptor {
	t.Helper()
	all := map[string]protoreflect.MethodDescriptor{}
	for _, name := range services {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		assert.NilError(t, err)
		list := found.(protoreflect.ServiceDescriptor).Methods()
		for i := range list.Len() {
			all[string(list.Get(i).Name())] = list.Get(i)
		}
	}
	return all
}

// call makes a call of any RPC to the shim. The replies of a stream are merged into one.
func call(ctx context.Context, m protoreflect.MethodDescriptor, request proto.Message) (proto.Message, error) {
	return callBy(ctx, suite.conn, m, request)
}

func callBy(ctx context.Context, conn *grpc.ClientConn, m protoreflect.MethodDescriptor, request proto.Message) (proto.Message, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil, err
	}
	method := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
	reply := kind.New().Interface()
	if !m.IsStreamingServer() {
		return reply, conn.Invoke(ctx, method, request, reply)
	}
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return nil, err
	}
	if err := s.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := s.CloseSend(); err != nil {
		return nil, err
	}
	for {
		some := kind.New().Interface()
		if err := s.RecvMsg(some); errors.Is(err, io.EOF) {
			return reply, nil
		} else if err != nil {
			return nil, err
		}
		proto.Merge(reply, some)
	}
}

// sameError reports whether two answers have the same code and message.
func sameError(a, b error) bool {
	return proto.Equal(status.Convert(a).Proto(), status.Convert(b).Proto())
}
