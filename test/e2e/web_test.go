package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netns"
)

// dial connects from the node, as the kubelet's probes do.
func dial(ctx context.Context, network, address string) (_ net.Conn, err error) {
	// A socket belongs to the network namespace of the thread that makes it.
	// The thread ends with this goroutine if it can't go back.
	runtime.LockOSThread()
	own, err := netns.Get()
	if err != nil {
		return nil, err
	}
	defer own.Close()
	there, err := netns.GetFromPid(suite.PID())
	if err != nil {
		return nil, err
	}
	defer there.Close()
	if err := netns.Set(there); err != nil {
		return nil, err
	}
	defer func() {
		if netns.Set(own) == nil {
			runtime.UnlockOSThread()
		}
	}()
	d := net.Dialer{Timeout: 3 * time.Second}
	return d.DialContext(ctx, network, address)
}

var web = http.Client{
	Timeout:   30 * time.Second,
	Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
}

// fetch asks for a page once.
func fetch(ctx context.Context, method, url, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return "", err
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

// url is that of a page of the guest.
func (c *container) url(path string) string {
	c.t.Helper()
	return "http://" + c.ip() + path
}

// page is a page of the guest, which must be up.
func (c *container) page(path string) string {
	c.t.Helper()
	text, err := fetch(c.t.Context(), http.MethodGet, c.url(path), "")
	check(c.t, err)
	return text
}

func (c *container) post(path, body string) {
	c.t.Helper()
	_, err := fetch(c.t.Context(), http.MethodPost, c.url(path), body)
	check(c.t, err)
}

// guestInfo is what a guest says of itself.
type guestInfo struct {
	Hostname, BootID, Cmdline, CPUModel, Product, ProductUUID, InstanceID string
	CPUs                                                                  int
	Memory                                                                int64
	Interfaces                                                            []struct {
		Name, MAC string
		MTU       int
		Addresses []string
		DHCP      []string
	}
	Routes, Resolv, AuthorizedKeys, Ports []string
	Disks                                 []struct {
		Name     string
		Size     int64
		ReadOnly bool
	}
}

func (c *container) guest() guestInfo {
	c.t.Helper()
	var i guestInfo
	text := c.page("/cgi-bin/info")
	if err := json.Unmarshal([]byte(text), &i); err != nil {
		c.t.Fatalf("%v: %s", err, text)
	}
	return i
}

// echo is a connection to the guest's echo server.
func (c *container) echo() net.Conn {
	c.t.Helper()
	conn, err := dial(c.t.Context(), "tcp", net.JoinHostPort(c.ip(), "7"))
	check(c.t, err)
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// echoes sends a text over a connection and wants it back.
func (c *container) echoes(conn net.Conn, text string) {
	c.t.Helper()
	check(c.t, conn.SetDeadline(time.Now().Add(patience)))
	_, err := io.WriteString(conn, text)
	check(c.t, err)
	back := make([]byte, len(text))
	if _, err := io.ReadFull(conn, back); err != nil || string(back) != text {
		c.t.Fatalf("sent %q, got %q, %v", text, back, err)
	}
}
