package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netns"
)

// Bounds of Dial and Fetch, beside those of their contexts.
const (
	dialTimeout  = 10 * time.Second
	fetchTimeout = time.Minute
)

// Dial connects from the node's network namespace, as the kubelet's probes do, within 10 seconds. The
// host in address is an IP address: names would be looked up outside of the node.
func (n *Node) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = n.within(func() (err error) {
		d := net.Dialer{Timeout: dialTimeout}
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// Listen listens in the node's network namespace.
func (n *Node) Listen(ctx context.Context, network, address string) (l net.Listener, err error) {
	err = n.within(func() (err error) {
		l, err = new(net.ListenConfig).Listen(ctx, network, address)
		return err
	})
	return l, err
}

// within has a socket made in the node's network namespace: it belongs to that of the thread which
// makes it.
func (n *Node) within(do func() error) error {
	there, err := netns.GetFromPid(n.PID())
	if err != nil {
		return err
	}
	defer there.Close()
	return inside(there, do)
}

// Inside calls do in a network namespace whose path is of the node's mount namespace. Sockets that do
// makes stay there.
func (n *Node) Inside(path string, do func() error) error {
	there, err := netns.GetFromPath(n.root(path))
	if err != nil {
		return fmt.Errorf("find network namespace %s: %w", path, err)
	}
	defer there.Close()
	return inside(there, do)
}

// inside moves the thread, which ends with this goroutine if it can't go back.
func inside(there netns.NsHandle, do func() error) error {
	runtime.LockOSThread()
	own, err := netns.Get()
	if err != nil {
		return err
	}
	defer own.Close()
	if err := netns.Set(there); err != nil {
		return err
	}
	defer func() {
		if netns.Set(own) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return do()
}

// Fetch asks once for a page, from the node as Dial does, over a new connection and within a
// minute. Any status but 200 is an error, which carries the reply's text.
func (n *Node) Fetch(ctx context.Context, method, url, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	web := http.Client{
		Timeout:   fetchTimeout,
		Transport: &http.Transport{DialContext: n.Dial, DisableKeepAlives: true},
	}
	reply, err := web.Do(r)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, reply.Status, text)
	}
	return string(text), err
}
