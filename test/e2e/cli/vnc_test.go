package cli

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/test/guest"
)

func (u user) testDisplay(t *testing.T) {
	u = u.in(t)
	u.do("image", "build", disk(t, "halted", guest.Halt), "-t", "halt:2")
	u.do(u.run("halt:2", "-d", "--name", "plain")...)
	if r := u.try("vnc", "plain"); r.code != 1 || !strings.Contains(r.err, "VM plain has no display: run it with --display") {
		t.Errorf("vnc of a VM without a display: %+v", r)
	}
	u.do("rm", "plain")
	id := strings.TrimSpace(u.do(u.run("halt:2", "-d", "--name", "seen", "--display")...))
	for flag, want := range map[string]string{
		"--listen=0.0.0.0:5900": "on loopback", "--listen=5900": "on loopback", "--socket=/nowhere/s": "no such file",
	} {
		if r := u.try("vnc", "seen", flag); r.code != 1 || !strings.Contains(r.err, want) {
			t.Errorf("vnc %s: %+v, want %q", flag, r, want)
		}
	}
	socket := filepath.Join(u.n.Dir(), "seen.vnc")
	port, onSocket := u.open("vnc", "seen"), u.open("vnc", "seen", "--socket", socket)
	port.shows("press ctrl-C to stop")
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(string(port.text()))
	onSocket.shows("press ctrl-C to stop")
	for network, at := range map[string]string{"tcp": address, "unix": socket} {
		for range 2 {
			hello, err := u.greeting(network, at)
			if hello != "RFB 003.008\n" || err != nil {
				t.Errorf("at %s the display says %q, %v", at, hello, err)
			}
		}
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	port.signal(syscall.SIGTERM)
	port.ends(0)
	if _, err := u.n.Crictl(t.Context(), "stop", "--timeout", "0", id); err != nil {
		t.Error(err)
	}
	onSocket.ends(137)
	u.do("rm", "seen")
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// greeting is the first that a display says.
func (u user) greeting(network, address string) (string, error) {
	ctx, cancel := context.WithTimeout(u.Context(), time.Minute)
	defer cancel()
	conn, err := u.n.Dial(ctx, network, address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	hello := make([]byte, 12)
	_, err = io.ReadFull(conn, hello)
	return string(hello), err
}
