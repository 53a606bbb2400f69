package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// url is that of a page of the guest.
func (c *container) url(path string) string {
	c.t.Helper()
	return "http://" + c.ip() + path
}

// page is a page of the guest, which must be up.
func (c *container) page(path string) string {
	c.t.Helper()
	text, err := suite.Fetch(c.t.Context(), http.MethodGet, c.url(path), "")
	assert.NilError(c.t, err)
	return text
}

func (c *container) post(path, body string) {
	c.t.Helper()
	_, err := suite.Fetch(c.t.Context(), http.MethodPost, c.url(path), body)
	assert.NilError(c.t, err)
}

// guestInfo is what a guest says of itself.
type guestInfo struct {
	Hostname, BootID, Cmdline, CPUModel, Product, ProductUUID, InstanceID, Kernel string
	Booted                                                                        bool // and all that it serves is there
	CPUs                                                                          int
	Memory                                                                        int64
	Interfaces                                                                    []struct {
		Name, MAC string
		MTU       int
		Addresses []string
		DHCP      []string
	}
	Routes, Resolv, AuthorizedKeys, Ports []string
	Disks                                 []guestDisk
}

// guestDisk is a disk as the guest sees it.
type guestDisk struct {
	Name     string
	Size     int64
	ReadOnly bool
	Serial   string
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

// reboots has the guest restart, and waits until it answers again.
func (c *container) reboots() {
	c.t.Helper()
	before := c.guest().BootID
	c.page("/cgi-bin/reboot")
	c.comesBack(before)
}

// comesBack waits until the guest answers in another boot than the one before.
func (c *container) comesBack(before string) {
	c.t.Helper()
	wait.Until(c.t, "the guest is up again", func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), 15*time.Second) // what goes down doesn't answer
		defer cancel()
		text, err := suite.Fetch(ctx, http.MethodGet, c.url("/cgi-bin/info"), "")
		var now guestInfo
		return err == nil && json.Unmarshal([]byte(text), &now) == nil && now.BootID != before && now.Booted
	})
}

// echo is a connection to the guest's echo server.
func (c *container) echo() net.Conn {
	c.t.Helper()
	conn, err := suite.Dial(c.t.Context(), "tcp", net.JoinHostPort(c.ip(), "7"))
	assert.NilError(c.t, err)
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// echoes sends a text over a connection and wants it back.
func (c *container) echoes(conn net.Conn, text string) {
	c.t.Helper()
	assert.NilError(c.t, conn.SetDeadline(time.Now().Add(wait.Patience)))
	_, err := io.WriteString(conn, text)
	assert.NilError(c.t, err)
	back := make([]byte, len(text))
	if _, err := io.ReadFull(conn, back); err != nil || string(back) != text {
		c.t.Fatalf("sent %q, got %q, %v", text, back, err)
	}
}
