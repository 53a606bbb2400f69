package cri

import (
	"context"
	"strings"

	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// message is a pointer to a type of protobuf message.
type message[T any] interface {
	*T
	proto.Message
}

// decoded is the route of a unary method whose request handle examines. handle also
// gets the frame, to forward it unchanged.
func decoded[T any, M message[T]](handle func(*call, M, frame) error) route {
	return func(c *call) error {
		f, err := c.receive()
		if err != nil {
			return err
		}
		request := M(new(T))
		if err := decode(f, request); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		return handle(c, request, f)
	}
}

// ofContainer is a request that names a container.
type ofContainer[T any] interface {
	message[T]
	GetContainerId() string
}

// vmContainers has the ids of the VM containers.
type vmContainers interface {
	// Has reports whether an id, which may be shortened, is a VM container's.
	Has(id string) bool
}

// ofVM answers calls for VM containers and forwards calls for other containers.
func ofVM[T any, M ofContainer[T]](vms vmContainers, answer func(context.Context, M) (proto.Message, error)) route {
	return decoded(func(c *call, request M, f frame) error {
		if !vms.Has(request.GetContainerId()) {
			return c.pass(f)
		}
		reply, err := answer(c.ctx, request)
		if err != nil {
			return err
		}
		return c.send(reply)
	})
}

// appended forwards a call, unary or with a stream of replies, and adds the VMs'
// part. If there is none, the replies stay unchanged.
func appended[T any, M message[T]](ours func(M) proto.Message) route {
	return decoded(func(c *call, request M, f frame) error {
		backend, err := c.ask(f)
		if err != nil {
			return err
		}
		defer backend.cancel(nil)
		more, err := encode(ours(request))
		if err != nil {
			return err
		}
		if len(more) == 0 {
			return c.replies(backend, c.handOn)
		}
		// The last reply is held back: a unary call has only one, which the shim's
		// part must be merged into.
		var held *frame
		err = c.replies(backend, func(f frame) error {
			last := held
			held = &f
			if last == nil {
				return nil
			}
			return c.reply(*last)
		})
		if err != nil {
			return err
		}
		if held != nil { // else a stream without replies
			more = append(*held, more...)
		}
		return c.reply(more)
	})
}

// amended forwards a call, unary or with a stream of replies, and changes VMs'
// sandboxes in the replies. If there are none, the replies stay unchanged.
func amended[T any, M message[T]](sandboxes sandboxIndex, change func(M)) route {
	return func(c *call) error {
		if !sandboxes.Any("") {
			return c.passStream()
		}
		f, err := c.receive()
		if err != nil {
			return err
		}
		for tries := 0; ; tries++ {
			answered, err := amend(c, f, change)
			if err == nil || answered || tries == maxAgain || !changedMeanwhile(err) {
				return err
			}
		}
	}
}

// amend asks containerd once. It reports whether the client got a reply.
func amend[T any, M message[T]](c *call, request frame, change func(M)) (answered bool, err error) {
	backend, err := c.ask(request)
	if err != nil {
		return false, err
	}
	defer backend.cancel(nil)
	err = c.replies(backend, func(f frame) error {
		reply := M(new(T))
		if err := decode(f, reply); err != nil {
			return err
		}
		change(reply)
		answered = true
		return c.send(reply)
	})
	return answered, err
}

// maxAgain is how often containerd is asked again.
const maxAgain = 5

// changedMeanwhile reports that containerd could not read a pod's network because a
// link in it changed. A VM's start and end change links, and containerd then fails
// the stats of all pods.
func changedMeanwhile(err error) bool {
	return status.Code(err) == codes.Unknown && strings.Contains(status.Convert(err).Message(), netlink.ErrDumpInterrupted.Error())
}
