package netsetup

import (
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/nodevirt/nodevirt/test/frames"
)

// raw opens a link of a namespace for frames as they are.
func raw(t *testing.T, ns, name string) (s frames.Sender) {
	t.Helper()
	inPod(t, ns, func(*netlink.Handle) (err error) {
		s, err = frames.Send(name)
		return err
	})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func send(t *testing.T, s frames.Sender, frame []byte) {
	t.Helper()
	if err := s.Frame(frame); err != nil {
		t.Fatal(err)
	}
}

func sniff(t *testing.T, ns, name string) (s frames.Sniffer) {
	t.Helper()
	inPod(t, ns, func(*netlink.Handle) (err error) {
		s, err = frames.Sniff(name, 2*time.Minute)
		return err
	})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func next(t *testing.T, s frames.Sniffer) frames.Frame {
	t.Helper()
	frame, err := s.Next()
	if err != nil {
		t.Fatal(err)
	}
	return frame
}
