package cri

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// frame is an encoded message. The concatenation of two frames of the same protobuf
// message type is their merger: so lists are joined without being decoded, and
// unknown fields survive.
type frame []byte

// rawCodec passes frames through gRPC without decoding them.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

// Name returns the name of protobuf's codec, which is part of the content type.
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

// encode encodes a message as a frame.
func encode(m proto.Message) (frame, error) {
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return b, nil
}

// decode decodes a frame into a message, which keeps unknown fields.
func decode(f frame, into proto.Message) error {
	if err := proto.Unmarshal(f, into); err != nil {
		return fmt.Errorf("decode %s: %w", into.ProtoReflect().Descriptor().Name(), err)
	}
	return nil
}
