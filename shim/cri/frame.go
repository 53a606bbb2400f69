package cri

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// frame is a message as it is on the wire. Two frames of one protobuf message
// type, one behind the other, are their merger: lists are joined so without
// being decoded, and fields that this program doesn't know survive.
type frame []byte

// rawCodec moves frames through gRPC without looking into them.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

// Name is that of the codec whose bytes these are: it goes into the content type.
func (rawCodec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("raw codec got a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*f)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("raw codec got a %T", v)
	}
	*f = data.Materialize()
	return nil
}

// encode makes a frame of a message.
func encode(m proto.Message) (frame, error) {
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return b, nil
}

// decode reads a frame into a message; unknown fields are kept in it.
func decode(f frame, into proto.Message) error {
	if err := proto.Unmarshal(f, into); err != nil {
		return fmt.Errorf("decode %s: %w", into.ProtoReflect().Descriptor().Name(), err)
	}
	return nil
}
