//go:build faults

package faults

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// steady is a guest that has to live through all rounds, with an open connection to it.
type steady struct {
	*pod
	ip     string
	qemu   int
	count  int // of the guest, which begins at 0 with each boot
	stream net.Conn
}

// newSteady boots a guest and connects to it.
func newSteady(ctx context.Context, name string, change func(*pod)) (*steady, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	p, err := newPod(name, suite.tiny, 128<<20)
	if err != nil {
		return nil, err
	}
	change(p)
	for _, c := range life[:started] {
		if err := c.do(ctx, p); err != nil {
			return nil, fmt.Errorf("steady guest: %s: %w", c.name, err)
		}
	}
	g := &steady{pod: p}
	if g.ip, err = p.address(ctx); err != nil {
		return nil, err
	}
	if g.qemu, err = p.pid(ctx); err != nil {
		return nil, err
	}
	for {
		if g.stream, err = suite.Dial(ctx, "tcp", net.JoinHostPort(g.ip, "7")); err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("connect to steady guest %s: %w", g.ip, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return g, g.lives(ctx)
}

// lives returns an error unless the guest is the same as before.
func (g *steady) lives(ctx context.Context) error {
	pid, err := g.pid(ctx)
	if err != nil {
		return err
	}
	if pid != g.qemu || !runs(g.domain()) {
		return fmt.Errorf("guest %s: QEMU was %d and is %d", g.name, g.qemu, pid)
	}
	if err := g.echoes(); err != nil {
		return fmt.Errorf("guest %s: its stream broke: %w", g.name, err)
	}
	count, err := g.counter(ctx)
	if err != nil {
		return fmt.Errorf("guest %s: ask its counter: %w", g.name, err)
	}
	if count <= g.count {
		return fmt.Errorf("guest %s: its counter was %d and is %d", g.name, g.count, count)
	}
	g.count = count
	if !runs(g.dhcp()) {
		return fmt.Errorf("guest %s: its dnsmasq does not run", g.name)
	}
	return nil
}

// echoes sends a line through the stream and wants it back.
func (g *steady) echoes() error {
	line := "count " + strconv.Itoa(g.count) + "\n"
	if err := g.stream.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(g.stream, line); err != nil {
		return err
	}
	back := make([]byte, len(line))
	if _, err := io.ReadFull(g.stream, back); err != nil {
		return err
	}
	if string(back) != line {
		return fmt.Errorf("sent %q, got %q", line, back)
	}
	return nil
}

func (g *steady) counter(ctx context.Context) (int, error) {
	text, err := suite.Fetch(ctx, http.MethodGet, "http://"+g.ip+"/cgi-bin/counter", "")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(text))
}
